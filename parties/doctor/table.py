"""Check of a data file before a run: every column, not only the first that is wrong."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pandas as pd

from opboost.errors import counted
from opboost.preprocess import read_numbers
from opboost.schema import ColumnSchema, Kind, TableSchema
from opboost.table_format import TableFormat
from parties.config.align_section import AlignSection
from parties.config.vertical import ActiveRun, PassiveRun
from parties.doctor.check_result import Checklist, Status
from parties.errors import TableError
from parties.tables.column_variety import is_constant, none_listed, other_words, read_as_other
from parties.tables.keyed_table import read_keyed
from parties.tables.labels import read_labels
from parties.tables.listed_ids import select
from parties.tables.misfits import showing_misfits
from parties.tables.parquet import check_column
from parties.tables.party_table import LABEL_OF_PASSIVE, check_columns, read_frame, read_table
from parties.tables.record_ids import read_ids, rows_to_keep

# A column of whole numbers that differ in nearly all of at least so many records is taken for an id.
MIN_ROWS_OF_IDS = 100
SHARE_OF_DISTINCT = 0.99

# Beyond this share of the cells, categories that are read as `other` are taken for misspelt ones.
MOST_OTHER = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class TableUse:
    """Use of a data file by a run.

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
    align : AlignSection
    ids : Path or None
    """

    path: Path
    needs_label: bool
    is_released: bool
    outside: str
    needs_variety: bool = True
    align: AlignSection = field(default_factory=AlignSection)
    ids: Path | None = None

    @classmethod
    def of(cls, run: ActiveRun | PassiveRun) -> TableUse:
        """Use of the data file by a party of vertical training."""
        is_active = isinstance(run, ActiveRun)
        outside = "the active party's own columns are used as they are" if is_active else "they would be moved to them"
        return cls(
            path=run.data,
            needs_label=is_active,
            is_released=not is_active,
            outside=outside,
            align=run.align,
            ids=run.ids,
        )


def check_table(use: TableUse, schema: TableSchema, ignore: Sequence[str], checks: Checklist) -> bool:
    """Compare a run's data file with its schema: header, ids, labels, and every column; whether it can be used."""
    of_table, path = Checklist(), use.path
    with of_table.checking("data"):
        names, frame = read_frame(path, schema)
        of_table.add("data", Status.OK, f"{path}: {len(frame)} records in {len(names)} columns")
        _check_header(use, names, schema, ignore, of_table)
        with of_table.checking("ids"):
            _check_keys(use, names, frame, schema, of_table)
        with of_table.checking("label"), showing_misfits(path, schema):
            _check_label(use, frame, schema, of_table)
        n_other = read_as_other(frame, schema)
        for column in schema.columns:
            if column.name in frame.columns:
                with of_table.checking(f"column {column.name}"), showing_misfits(path, schema):
                    kind = schema.format.of(column.name).kind or column.kind.value
                    _check_column(frame, column, use, kind, n_other.get(column.name, 0), of_table)
    checks.findings.extend(of_table.findings)
    return of_table.is_sound


def _check_header(
    use: TableUse, names: list[str], schema: TableSchema, ignore: Sequence[str], checks: Checklist
) -> None:
    with checks.checking("header"):
        try:
            check_columns(use.path, names, schema, (*ignore, *use.align.key_columns), needs_label=use.needs_label)
        except TableError as error:
            is_data = bool(names) and all(_is_number(name) or name.startswith("Unnamed: ") for name in names)
            sentence = f"{use.path}: the first line holds numbers, not the names of columns" if is_data else str(error)
            raise TableError(sentence) from None
        checks.add("header", Status.OK, f"{len(schema.columns)} columns of the schema, all there")


def _check_keys(use: TableUse, found: list[str], frame: pd.DataFrame, schema: TableSchema, checks: Checklist) -> None:
    names, path, duplicates = schema.id_columns, use.path, use.align.duplicates
    if not set(names) <= set(frame.columns):
        return
    named = " and ".join(map(repr, names))
    n_distinct = len(frame[list(names)].dropna().drop_duplicates())
    if 0 < n_distinct <= max(2, len(frame) // 20) and n_distinct < len(frame):
        sentence = (
            f"column {named} holds {n_distinct} different values in {len(frame)} records: is it a label or a category?"
        )
        if duplicates == "refuse":
            raise TableError(sentence)
        checks.add("ids", Status.WARNING, sentence)
    n_kept = len(rows_to_keep(read_ids(frame, names, path), duplicates, names, path))
    if use.ids is not None:
        known = TableSchema(
            columns=(), id=schema.id, format=TableFormat(sep=schema.format.sep, encoding=schema.format.encoding)
        )
        others = [name for name in found if name not in names]
        select(read_table(path, known, ignore=others, needs_label=False, duplicates=duplicates), use.ids, path)
    if use.align.keys:
        bare = TableSchema(columns=(), id=schema.id, format=schema.format)
        read_keyed(path, bare, use.align.keys, ignore=found, duplicates=duplicates)
    repeated = "none twice" if n_kept == len(frame) else f"rows of repeated ones left out (`duplicates: {duplicates}`)"
    checks.add("ids", Status.OK, f"{n_kept} in column {named}, {repeated}")


def _check_label(use: TableUse, frame: pd.DataFrame, schema: TableSchema, checks: Checklist) -> None:
    if schema.label is None and use.needs_label:
        whose = "the active party" if use.needs_variety else "every owner of rows"
        raise TableError(f"the schema names no `label`, which {whose} needs")
    if schema.label is not None and not use.needs_label:
        raise TableError(LABEL_OF_PASSIVE)
    if schema.label is None or schema.label not in frame.columns:
        return
    labels = read_labels(use.path, frame[schema.label], schema.label, may_miss=schema.format.drops_unlabelled)
    labels = labels[~np.isnan(labels)]
    status, sentence = Status.OK, f"column {schema.label!r}, {len(np.unique(labels))} different values"
    if len(np.unique(labels)) < 2:
        status = Status.PROBLEM if use.needs_variety else Status.WARNING
        sentence = f"label column {schema.label!r} holds a single value"
    elif _looks_like_ids(labels):
        status = Status.WARNING
        sentence = f"label column {schema.label!r} holds another whole number in nearly every record: is it an id?"
    checks.add("label", status, sentence)


def _check_column(
    frame: pd.DataFrame, schema: ColumnSchema, use: TableUse, kind: str, n_other: int, checks: Checklist
) -> None:
    check = f"column {schema.name}"
    check_column(frame, schema, clip=use.is_released)
    values, _ = read_numbers(frame[schema.name], schema, clip=False)
    if is_constant(iter([frame[schema.name]])):
        is_unlisted = 0 < n_other == len(frame)
        if use.needs_variety:
            constant = f"column {schema.name!r} is constant; leave it out of the schema"
            raise TableError(none_listed(schema.name) if is_unlisted else constant)
        constant = f"column {schema.name!r} is constant here"
        checks.add(check, Status.WARNING, none_listed(schema.name) if is_unlisted else constant)
        return
    remarks = []
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
    n_missing = int(np.isnan(values).sum())
    if n_missing:
        kind += f", {counted(n_missing, 'cell')} {'is' if n_missing == 1 else 'are'} missing"
    others = [other_words(n_other, len(frame))] if n_other else []
    status = Status.WARNING if remarks else other_status(n_other, len(frame))
    checks.add(check, status, "; ".join([*(remarks or [kind]), *others]))


def other_status(n_other: int, n_cells: int) -> Status:
    """Result of a check on a column of which so many cells are read as `other`."""
    return Status.WARNING if n_other > MOST_OTHER * n_cells else Status.OK


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
