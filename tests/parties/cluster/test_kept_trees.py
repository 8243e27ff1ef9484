"""Trees that are kept come back, and a damaged file counts as none."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from parties.cluster.kept_trees import KeptTrees
from parties.storage import atomic_files
from tests.support.running_twice import run_twice_at_once

xgboost = pytest.importorskip("xgboost", reason="XGBoost is not installed: pip install 'opboost[xgboost]'")


def test_another_process_has_what_was_kept_unless_a_bit_of_it_has_changed(tmp_path: Path) -> None:
    rows = np.arange(20.0).reshape(-1, 1)
    booster = xgboost.train({"nthread": 1}, xgboost.DMatrix(rows, rows[:, 0]), num_boost_round=3)
    assert KeptTrees(None).load() is None
    assert KeptTrees(tmp_path / "trees").load() is None
    KeptTrees(tmp_path / "trees").save(booster)
    again = KeptTrees(tmp_path / "trees").load()
    assert again.num_boosted_rounds() == 3
    assert bytes(again.save_raw("ubj")) == bytes(booster.save_raw("ubj"))
    content = bytearray((tmp_path / "trees").read_bytes())
    for place in range(0, len(content), 97):
        content[place] ^= 1
        (tmp_path / "trees").write_bytes(content)
        assert KeptTrees(tmp_path / "trees").load() is None
        content[place] ^= 1


def test_two_processes_that_keep_the_same_trees_at_once_leave_one_whole_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = np.arange(20.0).reshape(-1, 1)
    booster = xgboost.train({"nthread": 1}, xgboost.DMatrix(rows, rows[:, 0]), num_boost_round=3)
    run_twice_at_once(monkeypatch, atomic_files, lambda: KeptTrees(tmp_path / "trees").save(booster))
    assert KeptTrees(tmp_path / "trees").load().num_boosted_rounds() == 3
    assert [file.name for file in tmp_path.iterdir()] == ["trees"]
