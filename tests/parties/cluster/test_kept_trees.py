"""Trees that are kept come back, and a damaged file counts as none."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from parties.cluster.kept_trees import KeptTrees

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
