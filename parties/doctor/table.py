"""What a person is told of a data file before a run: every column, not only the first that is wrong."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from opboost.errors import OpBoostError
from opboost.preprocess import read_numbers
from opboost.schema import ColumnSchema, Kind, TableSchema
from parties.config.vertical import ActiveRun, PassiveRun
from parties.doctor.check_result import Finding, Status
from parties.errors import TableError
from parties.tables.parquet import check_column
from parties.tables.party_table import LABEL_OF_PASSIVE, check_columns, read_frame, read_labels, read_table, select
from parties.tables.record_ids import read_ids, rows_to_keep
from parties.tables.sorted_ids import Duplicates

# A column of whole numbers that differ in nearly all of at least so many records is taken for an id.
MIN_ROWS_OF_IDS = 100
SHARE_OF_DISTINCT = 0.99


@dataclass(frozen=True, slots=True, kw_only=True)
class TableUse:
    """What a run does with its data file.

    Attributes
    ----------
    path : Path
    needs_label : bool
    is_released : bool
        Whether columns leave after noise, so that their values must be as the schema says.
    outside : str
        What becomes of values outside the public bounds.
    needs_variety : bool
        Whether a column or a label with a single value is useless; others may have other values where rows are divided.
    duplicates : Duplicates
    ids : Path or None
    """

    path: Path
    needs_label: bool
    is_released: bool
    outside: str
    needs_variety: bool = True
    duplicates: Duplicates = "refuse"
    ids: Path | None = None

    @classmethod
    def of(cls, run: ActiveRun | PassiveRun) -> TableUse:
        """What a party of vertical training does with it."""
        is_active = isinstance(run, ActiveRun)
        outside = "the active party's own columns are used as they are" if is_active else "they would be moved to them"
        return cls(
            path=run.data,
            needs_label=is_active,
            is_released=not is_active,
            outside=outside,
            duplicates=run.align.duplicates,
            ids=run.ids,
        )


def examine_table(use: TableUse, schema: TableSchema, ignore: Sequence[str]) -> Iterator[Finding]:
    """Compare a run's data file with its schema: header, ids, labels, and every column."""
    path = use.path
    try:
        names, frame = read_frame(path, schema)
    except TableError as error:
        yield Finding("data", Status.PROBLEM, str(error))
        return
    yield Finding("data", Status.OK, f"{path}: {len(frame)} records in {len(names)} columns")
    yield from _header(path, names, schema, ignore, needs_label=use.needs_label)
    yield from _keys(use, names, frame, schema)
    yield from _label(use, frame, schema)
    for column in schema.columns:
        if column.name in frame.columns:
            yield from _column(frame, column, use)


def _header(
    path: Path, names: list[str], schema: TableSchema, ignore: Sequence[str], *, needs_label: bool
) -> Iterator[Finding]:
    try:
        check_columns(path, names, schema, ignore, needs_label=needs_label)
    except TableError as error:
        is_data = bool(names) and all(_is_number(name) or name.startswith("Unnamed: ") for name in names)
        sentence = f"{path}: the first line holds numbers, not the names of columns" if is_data else str(error)
        yield Finding("header", Status.PROBLEM, sentence)
    else:
        yield Finding("header", Status.OK, f"{len(schema.columns)} columns of the schema, all there")


def _keys(use: TableUse, found: list[str], frame: pd.DataFrame, schema: TableSchema) -> Iterator[Finding]:
    names, path, duplicates = schema.id_columns, use.path, use.duplicates
    if not set(names) <= set(frame.columns):
        return
    named = " and ".join(map(repr, names))
    n_distinct = len(frame[list(names)].dropna().drop_duplicates())
    if 0 < n_distinct <= max(2, len(frame) // 20) and n_distinct < len(frame):
        sentence = (
            f"column {named} holds {n_distinct} different values in {len(frame)} records: is it a label or a category?"
        )
        yield Finding("ids", Status.PROBLEM if duplicates == "refuse" else Status.WARNING, sentence)
        if duplicates == "refuse":
            return
    try:
        n_kept = len(rows_to_keep(read_ids(frame, names, path), duplicates, names, path))
        if use.ids is not None:
            known = TableSchema(columns=(), id=schema.id)
            others = [name for name in found if name not in names]
            select(read_table(path, known, ignore=others, needs_label=False, duplicates=duplicates), use.ids, path)
    except TableError as error:
        yield Finding("ids", Status.PROBLEM, str(error))
        return
    repeated = "none twice" if n_kept == len(frame) else f"rows of repeated ones left out (`duplicates: {duplicates}`)"
    yield Finding("ids", Status.OK, f"{n_kept} in column {named}, {repeated}")


def _label(use: TableUse, frame: pd.DataFrame, schema: TableSchema) -> Iterator[Finding]:
    path, needs_label = use.path, use.needs_label
    if schema.label is None:
        if needs_label:
            whose = "the active party" if use.needs_variety else "every owner of rows"
            yield Finding("label", Status.PROBLEM, f"the schema names no `label`, which {whose} needs")
        return
    if not needs_label:
        yield Finding("label", Status.PROBLEM, LABEL_OF_PASSIVE)
        return
    if schema.label not in frame.columns:
        return
    try:
        labels = read_labels(path, frame[schema.label], schema.label)
    except TableError as error:
        yield Finding("label", Status.PROBLEM, str(error))
        return
    n_distinct = len(np.unique(labels))
    if n_distinct < 2:
        status = Status.PROBLEM if use.needs_variety else Status.WARNING
        yield Finding("label", status, f"label column {schema.label!r} holds a single value")
    elif _looks_like_ids(labels):
        yield Finding(
            "label",
            Status.WARNING,
            f"label column {schema.label!r} holds another whole number in nearly every record: is it an id?",
        )
    else:
        yield Finding("label", Status.OK, f"column {schema.label!r}, {n_distinct} different values")


def _column(frame: pd.DataFrame, schema: ColumnSchema, use: TableUse) -> Iterator[Finding]:
    check = f"column {schema.name}"
    try:
        check_column(frame, schema, clip=use.is_released)
    except OpBoostError as error:
        yield Finding(check, Status.PROBLEM, str(error))
        return
    values, _ = read_numbers(frame[schema.name], schema, clip=False)
    remarks = []
    if len(np.unique(values)) < 2:
        if use.needs_variety:
            yield Finding(check, Status.PROBLEM, f"column {schema.name!r} is constant; leave it out of the schema")
        else:
            yield Finding(check, Status.WARNING, f"column {schema.name!r} is constant here")
        return
    if schema.kind is Kind.NUMERIC:
        lower, upper = schema.bounds
        n_outside = int(((values < lower) | (values > upper)).sum())
        if n_outside:
            remarks.append(f"{n_outside} values lie outside the public bounds; {use.outside}")
        if _looks_like_ids(values):
            remarks.append("it holds another whole number in nearly every record: is it an id?")
    else:
        n_absent = len(schema.categories) - len(np.unique(values[~np.isnan(values)]))
        if n_absent:
            remarks.append(f"{n_absent} of its {len(schema.categories)} categories do not occur")
    if remarks:
        yield Finding(check, Status.WARNING, "; ".join(remarks))
    else:
        n_missing = int(np.isnan(values).sum())
        yield Finding(check, Status.OK, schema.kind.value + (f", {n_missing} cells are missing" if n_missing else ""))


def _looks_like_ids(values: np.ndarray) -> bool:
    present = values[~np.isnan(values)]
    return (
        len(present) >= MIN_ROWS_OF_IDS
        and bool((present == np.rint(present)).all())
        and len(np.unique(present)) >= SHARE_OF_DISTINCT * len(present)
    )


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
