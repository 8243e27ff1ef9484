"""Passive parties' columns in a file of the active party, which may hold them too: read as their owners' files are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
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
from protocols.transport.sanitize import readable

# Characters of a column's name, which its owner chose.
_SHOWN = 60


def names_of_passive(routers: Mapping[str, Router], own_schema: TableSchema) -> tuple[str, ...]:
    """Names of the passive parties' columns.

    Raises
    ------
    TableError
        If two parties have a column of one name, of which a file can hold one.
    """
    names = [mechanism.schema.name for router in routers.values() for mechanism in router.mechanisms]
    counts = Counter([*names, *own_schema.all_names])
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
) -> tuple[PartyTable, list[str]]:
    """Records of a file with the passive parties' columns beside the active party's `own`.

    A file has one separator and encoding; its cells are written as each column's owner writes them, or as the active
    party's where an earlier version did not say how. `ignore` has the names of `names_of_passive`, too.

    Returns
    -------
    table : PartyTable
    told : list of str
        How many numbers lie outside their public bounds, of columns where any do.

    Raises
    ------
    TableError, DataError
    """
    if not routers:
        return table, []
    others = (*ignore, *own.all_names)
    frames, sentences = [table.frame], []
    for owner, router in routers.items():
        schema = _schema(router, own)
        with showing_misfits(path, schema):
            passive_table = read_table(path, schema, ignore=others, needs_label=False, duplicates=duplicates)
            places = passive_table.index.get_indexer(table.index)
            if (places < 0).any():
                raise TableError(f"{path} was changed while it was in use. Nothing was scored")
            frame = passive_table.frame.iloc[places].reset_index(drop=True)
            counts = {column.name: read_numbers(frame[column.name], column)[1] for column in schema.columns}
        frames.append(frame)
        outside = "{} values of {}'s {} lie outside its public bounds and count as these"
        sentences += [outside.format(n, owner, readable(name, _SHOWN)) for name, n in counts.items() if n]
    return replace(table, features=pd.concat(frames, axis=1)), sentences


def _schema(router: Router, own_schema: TableSchema) -> TableSchema:
    """Schema of a passive party's columns in a file of the active party."""
    form = replace(router.format or own_schema.format, sep=own_schema.format.sep, encoding=own_schema.format.encoding)
    return TableSchema(
        columns=tuple(mechanism.schema for mechanism in router.mechanisms), id=own_schema.id, format=form
    )
