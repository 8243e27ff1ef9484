"""Own columns, labels and ranks side by side: versions of rows share their weight, and other rows are refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from opboost.errors import DataError
from opboost.schema import ColumnSchema
from opboost.trees.losses import SquaredError
from parties.cluster.training_partitions import LABEL, WEIGHT, OwnPartitions, RankPartitions, empty_rows, load_rows


def test_versions_of_rows_share_their_weight(tmp_path: Path) -> None:
    own, ranks = tmp_path / "own.parquet", tmp_path / "ranks.parquet"
    pd.DataFrame({"age": [0.5, 0.25], "y": [3.0, 4.0]}).to_parquet(own)
    pd.DataFrame({"c0": np.array([0, 1, 1, 2], np.uint8)}).to_parquet(ranks)
    mine = OwnPartitions((own,), (ColumnSchema(name="age", lower=0, upper=1),), "y")
    theirs = RankPartitions("b", (ranks,), (2,), (True,), (None,), (None,), n_versions=2)
    found = load_rows(mine, [theirs], SquaredError(), 0)
    np.testing.assert_array_equal(found["f0"], [0.5, 0.25, 0.5, 0.25])
    np.testing.assert_array_equal(found["f1"], [0, 1, 1, np.nan])
    np.testing.assert_array_equal(found[LABEL], [3, 4, 3, 4])
    np.testing.assert_array_equal(found[WEIGHT], [0.5] * 4)
    assert found.dtypes.to_dict() == empty_rows(mine, [theirs]).dtypes.to_dict()
    with pytest.raises(DataError, match="other rows or columns"):
        load_rows(mine, [replace(theirs, n_versions=1)], SquaredError(), 0)
