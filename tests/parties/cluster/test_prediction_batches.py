"""The active party asks for partitions as they were looked through, and writes whole predictions."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray

from opboost.schema import TableSchema
from opboost.trees.losses import SquaredError
from opboost.trees.tree import Ensemble
from parties.cluster import prediction_batches
from parties.cluster.partitions import validate_partitions
from parties.cluster.prediction_batches import PartitionScorer
from parties.config.score_policy import RevealSection
from parties.errors import RunFolderError, TableError
from parties.progress import no_progress
from protocols.messages.prediction import RecordStatus
from tests.support.inline_client import InlineClient
from tests.support.released_cells import IDS, table
from tests.support.running_twice import run_twice_at_once

CLIENT: Any = InlineClient()
SCHEMA = TableSchema(columns=(), id="id", label=None)
MODEL = Ensemble((), np.zeros(1), SquaredError(), ())


class Asked:
    """A conversation that keeps the ids that were asked about; something happens after each request."""

    heartbeats = staticmethod(nullcontext)

    def __init__(self, then: Callable[[], object]) -> None:
        self.ids: list[str] = []
        self._then = then

    def ask(self, ids: pd.Index, *, desensitized: bool, finished: object) -> tuple[dict[str, Any], NDArray[np.uint8]]:
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
        scorer.score(asked, desensitized=True, progress=no_progress)
    assert asked.ids == list(IDS[:20])


def test_predictions_whose_place_is_taken_by_now_are_kept_elsewhere(tmp_path: Path) -> None:
    """They were moved into a folder that had appeared, and called written."""
    table().assign(id=IDS).to_parquet(path := tmp_path / "0.parquet", index=False)
    found = validate_partitions([path], SCHEMA, (), tmp_path, client=CLIENT)
    scorer = PartitionScorer(found, SCHEMA, MODEL, RevealSection(), tmp_path / "work", CLIENT)
    target, spare = tmp_path / "out", tmp_path / "run" / "predictions"
    asked: Any = Asked(target.mkdir)
    scorer.score(asked, desensitized=True, progress=no_progress)
    with pytest.raises(
        RunFolderError, match=r"out cannot be written: .* by now\. The predictions are in (.*)$"
    ) as told:
        scorer.write(target, spare=spare)
    (kept,) = spare.parent.iterdir()
    assert str(told.value).endswith(f" {kept}")
    assert [file.name for file in kept.iterdir()] == ["000000.parquet"]
    assert pd.read_parquet(kept)["id"].tolist() == list(IDS)
    assert list(target.iterdir()) == []


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
