"""A file in pieces gives the release of the whole column, in memory that does not grow with its rows."""

from __future__ import annotations

import resource
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from opboost import rng
from opboost.desensitize import ColumnMechanism, desensitize
from opboost.mechanism_settings import MechanismSettings
from opboost.preprocess import encode
from opboost.ranking import rank
from opboost.schema import ColumnSchema, Kind, Missing
from opboost.trees.boosting import BoostingParameters
from opboost.trees.losses import Logistic
from opboost.vertical import RankColumn, train
from parties.errors import TableError
from parties.vertical import out_of_core
from parties.vertical.out_of_core import release_file, stored_pieces
from tests.support.processes import FORKS

N_ROWS = 2_500
TOWNS = ("north", "south", "east", "west")
SCHEMAS = (
    ColumnSchema(name="spend", lower=0, upper=100),
    ColumnSchema(name="visits", lower=0, upper=50, missing=Missing.CATEGORY),
    ColumnSchema(name="grade", kind=Kind.ORDERED, categories=("a", "b", "c")),
    ColumnSchema(name="town", kind=Kind.UNORDERED, categories=TOWNS, missing=Missing.CATEGORY),
)


def table() -> pd.DataFrame:
    draw = np.random.default_rng(6)
    town = pd.Series(draw.choice(TOWNS[:3], N_ROWS)).where(draw.random(N_ROWS) > 0.1)
    visits = pd.Series(draw.integers(0, 51, N_ROWS) * 1.0).where(draw.random(N_ROWS) > 0.1)
    spend = draw.uniform(0, 100, N_ROWS)
    return pd.DataFrame({"spend": spend, "visits": visits, "grade": draw.choice(list("abc"), N_ROWS), "town": town})


def mechanisms(**settings: Any) -> tuple[ColumnMechanism, ...]:
    return tuple(ColumnMechanism(schema, MechanismSettings(**settings)) for schema in SCHEMAS)


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> int:
    """Pieces of 200 rows, which are 13 in all, the last one with 100."""
    monkeypatch.setattr("opboost.desensitize.PIECE_ROWS", 200)
    monkeypatch.setattr(out_of_core, "PIECE_ROWS", 200)
    return 200


@pytest.mark.parametrize("settings", [{"mechanism": "global"}, {"mechanism": "adj"}, {"epsilon": np.inf}], ids=str)
@pytest.mark.parametrize("group_rows", [170, N_ROWS], ids=["ragged groups", "one group"])
def test_the_files_hold_what_the_whole_columns_give(
    tmp_path: Path, small_pieces: int, settings: dict[str, Any], group_rows: int
) -> None:
    data, raw, which = tmp_path / "data.parquet", table(), mechanisms(**settings)
    raw.to_parquet(data, row_group_size=group_rows)
    found = release_file(data, which, tmp_path, rng=rng.seeded(8))
    source = rng.seeded(8)
    whole = [
        column
        for m in which
        for column in rank(
            desensitize(
                m, encode(raw[m.schema.name], m.schema, domain=m.settings.domain), rng=source.fork(m.schema.name)
            )
        )
    ]
    assert len(found) == len(whole) == 3 + len(TOWNS)
    for file, column in zip(found, whole, strict=True):
        assert (file.source, file.category, file.has_missing) == (column.source, column.category, column.has_missing)
        np.testing.assert_array_equal(file.table.codes, column.table.codes)
        np.testing.assert_array_equal(file.column("shop", 0).ranks[:], column.ranks)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(
        ["data.parquet", *(f"{i}.ranks" for i in range(len(found)))]
    )


def test_trees_on_mapped_ranks_are_those_on_ranks_in_memory(tmp_path: Path, small_pieces: int) -> None:
    raw = table()
    raw.to_parquet(tmp_path / "data.parquet")
    files = release_file(tmp_path / "data.parquet", mechanisms(), tmp_path, rng=rng.seeded(8))
    mapped = [file.column("shop", i) for i, file in enumerate(files)]
    loaded = [RankColumn(c.owner, c.index, c.name, np.array(c.ranks[:], np.uint32), c.n_ranks) for c in mapped]
    labels = (raw["spend"] > 50).to_numpy(np.float64)
    trees = [
        train(columns, labels, np.ones(N_ROWS), loss=Logistic(), parameters=BoostingParameters(n_estimators=3)).trees
        for columns in (mapped, loaded)
    ]
    for mine, theirs in zip(*trees, strict=True):
        np.testing.assert_array_equal(mine.values, theirs.values)
        np.testing.assert_array_equal(mine.thresholds, theirs.thresholds)


def test_a_file_that_is_no_table_is_refused_without_a_trace(tmp_path: Path) -> None:
    (tmp_path / "data.parquet").write_bytes(b"PAR1, it says")
    with pytest.raises(TableError, match=r"data\.parquet is not a readable table"):
        release_file(tmp_path / "data.parquet", mechanisms(), tmp_path, rng=rng.seeded(8))
    assert [path.name for path in tmp_path.iterdir()] == ["data.parquet"]


def _peak_mb(data: str, folder: str, is_whole: bool, answer: Any) -> None:
    """Release one column, or read it as a whole, and tell by how much the peak rose."""
    mechanism = mechanisms()[0]
    release_file(Path(folder) / "tiny.parquet", [mechanism], Path(folder), rng=rng.seeded(1))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    if is_whole:
        column = encode(
            pd.concat(stored_pieces(Path(data), "spend")), mechanism.schema, domain=mechanism.settings.domain
        )
        desensitize(mechanism, column, rng=rng.seeded(1))
    else:
        release_file(Path(data), [mechanism], Path(folder), rng=rng.seeded(1))
    answer.send((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024)


def test_memory_does_not_grow_with_the_rows(tmp_path: Path) -> None:
    """3 million rows are 24 MB as numbers; the twin that holds the column as a whole needs several times that."""
    pd.DataFrame({"spend": [1.0, 2.0]}).to_parquet(tmp_path / "tiny.parquet")
    group = pa.table({"spend": np.random.default_rng(1).uniform(0, 100, 1 << 18)})
    with pq.ParquetWriter(tmp_path / "data.parquet", group.schema) as writer:
        for _ in range(12):
            writer.write_table(group)
    grown = {}
    for is_whole in (False, True):
        mine, theirs = FORKS.Pipe()
        arguments = (str(tmp_path / "data.parquet"), str(tmp_path), is_whole, theirs)
        process = FORKS.Process(target=_peak_mb, args=arguments, daemon=True)
        process.start()
        assert mine.poll(60)
        grown[is_whole] = mine.recv()
        process.join(10)
    assert grown[False] < 100 < grown[True]
