"""Records of a table in partitions that are left out of training, and those of them to score the model on."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import numpy as np
import pandas as pd

from opboost.desensitize import ColumnMechanism
from opboost.preprocess import own_features
from opboost.routing import Router
from opboost.schema import TableSchema
from parties.cluster.arrangement import row_numbers
from parties.cluster.dask_cluster import reporting_lost_workers
from parties.cluster.file_blocks import FileBlock
from parties.cluster.partitions import Partitions, ids_of
from parties.storage.atomic_files import make_folder, replacing
from parties.tables.blocks import Block, EncodedTable, by_row, encoded_column, in_order
from parties.tables.labels import read_labels
from parties.tables.parquet_files import read_stored
from parties.tables.record_ids import encoded_ids
from parties.vertical.alignment import Aligned
from parties.vertical.held_out import Places, Rows, places_of
from parties.vertical.prediction_server import AnswerableRecords
from parties.vertical.training_job import HeldOutRecords

if TYPE_CHECKING:
    from distributed import Client


@dataclass(frozen=True, slots=True)
class ChosenRows:
    """Rows of a whole table that are left out of training, and those of them to score the model on; ascending."""

    out: Rows
    held_out: Rows

    @classmethod
    def of(cls, aligned: Aligned, n_rows: int) -> ChosenRows:
        """The rows that an alignment chose, of a table whose ids have row numbers."""
        held_out = np.empty(0, np.int64) if aligned.held_out is None else row_numbers(aligned.held_out)
        return cls(np.delete(np.arange(n_rows), row_numbers(aligned.table)), held_out)


def by_partition(rows: Rows, lengths: Sequence[int]) -> list[Rows]:
    """Rows of a whole table as rows of its partitions."""
    ends = np.cumsum(lengths)
    pieces = np.split(rows, np.searchsorted(rows, ends[:-1]))
    return [piece - start for piece, start in zip(pieces, [0, *ends[:-1].tolist()], strict=True)]


def places_by_partition(partitions: Partitions, schema: TableSchema, key: bytes, *, client: Client) -> Places:
    """The records' pseudorandom numbers, as `parties.vertical.held_out.places_of` gives them."""
    call = partial(_places, id_columns=schema.id_columns, key=key)
    with reporting_lost_workers(client):
        return np.concatenate(client.gather(client.map(call, partitions.paths, pure=False)))


def digest_without(partitions: Partitions, out: Sequence[Rows], id_columns: Sequence[str], *, client: Client) -> str:
    """A digest of the ids that are left, as `parties.tables.party_table.digest_of_ids` gives it."""
    digest = hashlib.sha256()
    for pieces in client.map(partial(_id_bytes, id_columns=tuple(id_columns)), partitions.paths, out, pure=False):
        digest.update(pieces.result())
        pieces.release()
    return digest.hexdigest()


def partitions_without(
    paths: Sequence[Path], out: Sequence[Rows], folder: Path, *, names: Sequence[str], client: Client
) -> tuple[tuple[Path, ...], tuple[int, ...]]:
    """Write columns of Parquet partitions without some rows, and say how many each has; one that is left empty is not.

    Other columns are not looked at: the schema may ignore some of a kind that is refused.
    """
    make_folder(folder)
    targets = [folder / f"{number:06d}.parquet" for number in range(len(paths))]
    left: list[int] = client.gather(
        client.map(partial(_write_without, names=tuple(names)), list(paths), list(out), targets, pure=False)
    )
    kept = [(target, n) for target, n in zip(targets, left, strict=True) if n]
    return tuple(target for target, _ in kept), tuple(n for _, n in kept)


def own_records(partitions: Partitions, out: Sequence[Rows], schema: TableSchema, *, client: Client) -> HeldOutRecords:
    """The active party's held-out records."""
    pieces: list[HeldOutRecords] = client.gather(
        client.map(partial(_own_records, schema=schema), partitions.paths, out, pure=False)
    )
    return HeldOutRecords(
        pd.Index([name for piece in pieces for name in piece.ids], dtype=object),
        {name: np.concatenate([piece.own[name] for piece in pieces]) for name in schema.names},
        np.concatenate([piece.labels for piece in pieces]),
    )


def table_without(table: EncodedTable, out: Sequence[Rows], *, client: Client) -> EncodedTable:
    """A passive party's encoded table without some rows."""
    kept = [FileBlock(block.folder / "kept") for block in table.blocks if isinstance(block, FileBlock)]
    left: list[int] = client.gather(client.map(_keep, list(table.blocks), kept, list(out), pure=False))
    blocks = [(block, n) for block, n in zip(kept, left, strict=True) if n]
    return EncodedTable(tuple(block for block, _ in blocks), tuple(n for _, n in blocks), table.n_clipped)


def answerable_rows(
    router: Router,
    table: EncodedTable,
    mechanisms: Sequence[ColumnMechanism],
    partitions: Partitions,
    out: Sequence[Rows],
    id_columns: Sequence[str],
) -> AnswerableRecords:
    """A passive party's held-out records, with the exact codes of the columns that the router needs."""
    ids = [name for path, rows in zip(partitions.paths, out, strict=True) for name in ids_of(path, id_columns)[rows]]
    partitions.check_unchanged()
    used = router.tests.columns
    columns = tuple(
        (
            mechanism,
            encoded_column(
                np.concatenate([block[f"{c}.exact"][rows] for block, rows in zip(table.blocks, out, strict=True)])
            ),
        )
        for c, mechanism in enumerate(mechanisms)
        if mechanism.schema.name in used
    )
    return AnswerableRecords(pd.Index(ids, dtype=object), columns)


def _places(part: Path, id_columns: tuple[str, ...], key: bytes) -> Places:
    return places_of(key, ids_of(part, id_columns))


def _id_bytes(part: Path, out: Rows, id_columns: Sequence[str]) -> bytes:
    return b"".join(encoded_ids(ids_of(part, id_columns).delete(out)))


def _write_without(part: Path, out: Rows, target: Path, names: Sequence[str]) -> int:
    frame = read_stored(part, names)
    # By place: what pandas has noted in the file as its rows' index may repeat.
    left = frame.iloc[np.delete(np.arange(len(frame)), out)]
    with replacing(target, writer=f".{uuid4().hex}") as unfinished:
        left.to_parquet(unfinished, index=False)
    return len(left)


def _own_records(part: Path, out: Rows, schema: TableSchema) -> HeldOutRecords:
    assert schema.label is not None
    frame = read_stored(part, [*schema.names, schema.label]).iloc[out].reset_index(drop=True)
    labels = read_labels(part, frame[schema.label], schema.label)
    return HeldOutRecords(ids_of(part, schema.id_columns)[out], own_features(frame, schema.columns), labels)


def _keep(block: Block, kept: Block, out: Rows) -> int:
    names = by_row(block, block["names"])
    kept.update(in_order(np.delete(names, out)))
    for name in [name for name in block if name.endswith(".exact")]:
        kept[name] = np.delete(block[name], out)
    return len(names) - len(out)
