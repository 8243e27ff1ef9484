"""Prediction on Dask, partition by partition: A scores with the passive parties' answers, in packed bits.

::

    A's driver    answers ──► packed bits ──► Parquet
    A's workers   bits, own columns ──► trees ──► predictions ──► Parquet
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import numpy as np
from numpy.typing import NDArray

from opboost.arrays import Values
from opboost.errors import DataError
from opboost.preprocess import own_features
from opboost.schema import ColumnSchema, TableSchema
from opboost.split_tests import feature_matrix, n_answer_bits, unpacked
from opboost.trees.tree import Ensemble
from parties.storage.atomic_files import replacing
from parties.tables.parquet_files import read_stored
from parties.tables.record_ids import read_ids

if TYPE_CHECKING:
    from distributed import Client

# Records that are scored together.
SCORED_ROWS = 1 << 14

_BITS = "bits"


def check_scorable(schema: TableSchema, parts: Sequence[Path], *, client: Client) -> None:
    """A: read every id and own cell before anything is asked.

    Raises
    ------
    TableError, DataError
    """
    read = partial(_read_own, schema=schema)
    client.gather(client.map(read, [part.resolve() for part in parts], pure=False))


def _read_own(part: Path, schema: TableSchema) -> None:
    table = read_stored(part, list(dict.fromkeys([*schema.id_columns, *schema.names])))
    read_ids(table, schema.id_columns, part)
    own_features(table, schema.columns)


def write_bits(path: Path, bits: NDArray[np.uint8]) -> None:
    """Write packed answers, a row for each record, as `score_part` reads them."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    # A cell has at least one byte, even where there are no tests.
    cells = bits if bits.shape[1] else np.zeros((len(bits), 1), np.uint8)
    data = pa.py_buffer(np.ascontiguousarray(cells))
    rows = pa.FixedSizeBinaryArray.from_buffers(pa.binary(cells.shape[1]), len(cells), [None, data])
    with replacing(path, writer=f".{uuid4().hex}") as unfinished:
        pq.write_table(pa.table({_BITS: rows}), unfinished, use_dictionary=False)


def score_part(ensemble: Ensemble, schemas: Sequence[ColumnSchema], part: Path, answers: Mapping[str, Path]) -> Values:
    """Predictions for a partition of own columns, given the file of each passive party's answers."""
    import pyarrow.parquet as pq

    own = own_features(read_stored(part, [schema.name for schema in schemas]), schemas)
    n_rows = pq.read_metadata(part).num_rows
    packed = {owner: read_bits(path, n_rows, n_answer_bits(ensemble, owner)) for owner, path in answers.items()}
    scores = []
    for start in range(0, n_rows, SCORED_ROWS):
        rows = slice(start, min(start + SCORED_ROWS, n_rows))
        matrix = feature_matrix(
            ensemble,
            {name: values[rows] for name, values in own.items()},
            {owner: unpacked(ensemble, owner, bits[rows]) for owner, bits in packed.items()},
            rows.stop - rows.start,
        )
        scores.append(ensemble.predict(matrix))
    return np.concatenate(scores)


def read_bits(path: Path, n_rows: int, n_bits: int) -> NDArray[np.uint8]:
    """Answers of one owner about a partition, shape ``(n_rows, ceil(n_bits / 8))``.

    Raises
    ------
    DataError
    """
    import pyarrow.parquet as pq

    column = pq.read_table(path, columns=[_BITS])[_BITS].combine_chunks()
    n_bytes = -(-n_bits // 8)
    width = max(1, n_bytes)
    if len(column) != n_rows or column.type.byte_width != width:
        raise DataError(f"{path.name} does not answer {n_rows} records with {n_bits} bits each. No score was computed")
    return np.frombuffer(column.buffers()[1], np.uint8, n_rows * width).reshape(n_rows, width)[:, :n_bytes]
