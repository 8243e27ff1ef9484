"""Rows of a fit."""

from __future__ import annotations

import numpy as np
import pytest

from opboost.errors import DataError, ParameterError
from opboost.sklearn.fit_rows import FitRows


def rows(n: int, *, weights: list[float] | None = None, n_margins: int = 0) -> FitRows:
    return FitRows(
        np.arange(2.0 * n).reshape(n, 2), np.arange(1.0 * n), np.array(weights or [1.0] * n), np.ones((n, n_margins))
    )


def test_rows_without_weight_are_left_out_with_all_that_is_known_of_them() -> None:
    found = rows(3, weights=[1.0, 0.0, 2.0], n_margins=1).weighing()
    assert found.features.tolist() == [[0, 1], [4, 5]]
    assert (found.labels.tolist(), found.weights.tolist(), found.margins.shape) == ([0, 2], [1, 2], (2, 1))
    with pytest.raises(DataError, match="all sample weights are zero"):
        rows(2, weights=[0.0, 0.0]).weighing()


def test_parts_are_joined_in_order_if_all_or_none_have_margins() -> None:
    assert FitRows.joined([rows(2), rows(1)]).labels.tolist() == [0, 1, 0]
    grouped = rows(2)._replace(labels=np.zeros((2, 2)))
    with pytest.raises(DataError, match=r"groups in both \(qid and eval_qid=\[groups\]\)"):
        FitRows.joined([grouped, rows(1)])
    with pytest.raises(ParameterError, match="base_margin_eval_set, or neither"):
        FitRows.joined([rows(2, n_margins=1), rows(1)])
