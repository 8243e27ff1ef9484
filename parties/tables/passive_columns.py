"""Passive parties' columns in a file of the active party, which may hold them too: read as their owners' files are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pandas as pd

from opboost.preprocess import read_numbers
from opboost.routing import Router
from opboost.schema import TableSchema
from parties.errors import TableError
from parties.tables.misfits import showing_misfits
from parties.tables.party_table import PartyTable, read_table
from parties.tables.sorted_ids import Duplicates


def names_of_passive(routers: Mapping[str, Router], own: TableSchema) -> tuple[str, ...]:
    """Names of the passive parties' columns.

    Raises
    ------
    TableError
        If two parties have a column of one name, of which a file can hold one.
    """
    names = [name for router in routers.values() for name in _names(router)]
    counts = Counter([*names, *own.all_names])
    if twice := [repr(name) for name in dict.fromkeys(names) if counts[name] > 1]:
        raise TableError(
            f"columns {', '.join(twice)}: several parties have one of this name, and a file can hold one. Records are "
            "scored in mode `routed` or `desensitized`; nothing was scored"
        )
    return tuple(names)


def with_passive(
    table: PartyTable,
    path: Path,
    routers: Mapping[str, Router],
    own: TableSchema,
    *,
    ignore: Iterable[str],
    duplicates: Duplicates,
) -> PartyTable:
    """Records of a file with the passive parties' columns beside the active party's `own`.

    A file has one separator and encoding; its cells are written as each column's owner writes them.

    Raises
    ------
    TableError, DataError
    """
    others = (*ignore, *own.all_names, *names_of_passive(routers, own))
    schemas = [_schema(router, own) for router in routers.values()]
    frames = [_read(path, schema, table.index, ignore=others, duplicates=duplicates) for schema in schemas]
    return replace(table, features=pd.concat([table.frame, *frames], axis=1))


def numbers_outside(columns: pd.DataFrame, routers: Mapping[str, Router]) -> Iterator[tuple[str, str, int]]:
    """Passive party, column and how many numbers lie outside its public bounds, of columns where any do."""
    for owner, router in routers.items():
        for mechanism in router.mechanisms:
            _, n_outside = read_numbers(columns[mechanism.schema.name], mechanism.schema)
            if n_outside:
                yield owner, mechanism.schema.name, n_outside


def _names(router: Router) -> list[str]:
    return [mechanism.schema.name for mechanism in router.mechanisms]


def _schema(router: Router, own: TableSchema) -> TableSchema:
    """What the columns of a passive party are in a file of the active party's."""
    form = replace(router.format, sep=own.format.sep, encoding=own.format.encoding)
    return TableSchema(columns=tuple(mechanism.schema for mechanism in router.mechanisms), id=own.id, format=form)


def _read(
    path: Path, schema: TableSchema, ids: pd.Index, *, ignore: Sequence[str], duplicates: Duplicates
) -> pd.DataFrame:
    with showing_misfits(path, schema):
        table = read_table(path, schema, ignore=ignore, needs_label=False, duplicates=duplicates)
    places = table.index.get_indexer(ids)
    if (places < 0).any():
        raise TableError(f"{path} was changed while it was in use. Nothing was scored")
    return table.frame.iloc[places].reset_index(drop=True)
