"""Records in partitions: those that are asked for are answered as from one table, others are not known."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from opboost.routing import Router, SplitTests
from opboost.schema import TableSchema
from opboost.trees.losses import SquaredError
from opboost.trees.tree import Ensemble
from parties.cluster import prediction_batches
from parties.cluster.partitions import validate_partitions
from parties.cluster.prediction import answer_partitions
from parties.cluster.prediction_batches import PartitionedRecords, PartitionScorer
from parties.config.score_policy import RevealSection
from parties.errors import TableError
from parties.progress import no_progress
from parties.vertical.prediction_server import AnswerableRecords
from protocols.messages.prediction import RecordStatus
from tests.support.inline_client import InlineClient
from tests.support.released_cells import IDS, mechanisms, table
from tests.support.running_twice import run_twice_at_once

CLIENT: Any = InlineClient()
ROUTER = Router(
    mechanisms()[:1], SplitTests((("spend", None), ("spend", None)), np.array([30.5, 60.5]), np.array([True, False]))
)
SCHEMA = TableSchema(columns=(), id="id", label=None)
MODEL = Ensemble((), np.zeros(1), SquaredError(), ())


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> PartitionedRecords:
    folder: Path = tmp_path_factory.mktemp("parts")
    data, paths = table().assign(id=IDS), []
    for start, end in ((0, 70), (70, 71), (71, 200)):
        paths.append(folder / f"{start:03}.parquet")
        data.iloc[start:end].to_parquet(paths[-1], index=False)
    found = validate_partitions(paths, SCHEMA, (), folder, client=CLIENT)
    bits = answer_partitions(ROUTER, paths, folder / "bits", client=CLIENT)
    return PartitionedRecords(ROUTER, found, ("id",), tuple(bits))


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(asked=st.lists(st.sampled_from([*IDS[::9], IDS[69], IDS[70], "a", "k0705", "z"]), unique=True))
def test_answers_are_those_of_one_table(records: PartitionedRecords, asked: list[str]) -> None:
    known = [one for one in asked if one in IDS]
    rows = IDS.get_indexer(known)
    whole = AnswerableRecords.of(ROUTER, IDS[np.sort(rows)], table().iloc[np.sort(rows)])
    found = records.about(asked, desensitized=True)
    assert sorted(found.ids) == sorted(known)
    for (mechanism, column), (_, expected) in zip(found.columns, whole.columns, strict=False):
        assert mechanism.schema.name == "spend"
        np.testing.assert_array_equal(column.codes, expected.codes)
    routed = records.about(asked, desensitized=False)
    assert sorted(routed.ids) == sorted(known)
    assert routed.bits is not None
    assert len(routed.bits) == len(known)


@pytest.mark.parametrize("desensitized", [False, True])
def test_a_partition_that_changed_since_it_was_looked_through_is_not_answered_from(
    tmp_path: Path, desensitized: bool
) -> None:
    """Other ids in its rows would be given the answers of those that were there."""
    path, data = tmp_path / "0.parquet", table().assign(id=IDS)
    data.iloc[:20].to_parquet(path, index=False)
    found = validate_partitions([path], SCHEMA, (), tmp_path, client=CLIENT)
    bits = answer_partitions(ROUTER, [path], tmp_path / "bits", client=CLIENT)
    held = PartitionedRecords(ROUTER, found, ("id",), tuple(bits))
    assert len(held.about(IDS[:2], desensitized=desensitized).ids) == 2
    data.iloc[1:21].to_parquet(path, index=False)
    with pytest.raises(TableError, match=r"0\.parquet was changed while it was in use\. Nothing more was sent"):
        held.about(IDS[:2], desensitized=desensitized)


class Asked:
    """A conversation that keeps the ids that were asked about; something happens after each request."""

    heartbeats = staticmethod(nullcontext)

    def __init__(self, then: Callable[[], object]) -> None:
        self.ids: list[str] = []
        self._then = then

    def ask(self, ids: pd.Index, *, desensitized: bool) -> tuple[dict[str, Any], NDArray[np.uint8]]:
        self.ids.extend(ids)
        self._then()
        return {}, np.full(len(ids), RecordStatus.ANSWERED, np.uint8)


def test_nobody_is_asked_about_a_partition_that_changed_since_it_was_looked_through(tmp_path: Path) -> None:
    data, paths = table().assign(id=IDS), [tmp_path / "0.parquet", tmp_path / "1.parquet"]
    for path, rows in zip(paths, (data[:20], data[20:40]), strict=True):
        rows.to_parquet(path, index=False)
    found = validate_partitions(paths, SCHEMA, (), tmp_path, client=CLIENT)
    scorer = PartitionScorer(found, SCHEMA, MODEL, RevealSection(), tmp_path / "work", CLIENT)
    asked: Any = Asked(lambda: data[21:41].to_parquet(paths[1], index=False))
    with pytest.raises(TableError, match=r"1\.parquet was changed while it was in use"):
        scorer.score(asked, tmp_path / "predictions", desensitized=True, progress=no_progress)
    assert asked.ids == list(IDS[:20])
    assert not (tmp_path / "predictions").exists()


def test_predictions_that_two_tasks_write_at_once_are_one_whole_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, target = tmp_path / "0.parquet", tmp_path / "scores" / "0.parquet"
    table().assign(id=IDS).to_parquet(path, index=False)
    target.parent.mkdir()
    status = np.full(len(IDS), RecordStatus.ANSWERED, np.uint8)
    score = partial(prediction_batches._score, MODEL, SCHEMA, RevealSection(), path, {}, status, target)
    run_twice_at_once(monkeypatch, prediction_batches, score)
    assert pd.read_parquet(target)["id"].tolist() == list(IDS)
    assert [file.name for file in target.parent.iterdir()] == [target.name]
