"""Public task: numbers are scaled by public bounds and clipped to them, classes stay as they are."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from opboost.errors import ParameterError
from opboost.horizontal.public_task import PublicTask
from opboost.horizontal.recommended.tree_training import scaled_labels
from opboost.horizontal.rows.public_grid import PublicGrid

GRID = PublicGrid([(0, 1)], 8)


@given(st.lists(st.floats(-1e6, 1e6), min_size=1))
def test_labels_lie_within_their_bounds_whatever_they_were(labels: list[float]) -> None:
    task = PublicTask(("a",), GRID, 10.0, 4.0, 1.0, True, False)
    scaled = task.scaled(np.array(labels))
    assert (np.abs(scaled) <= 1).all()
    np.testing.assert_allclose(10.0 + 4.0 * scaled, np.clip(labels, 6.0, 14.0))


def test_a_vast_label_counts_as_a_bound_without_a_warning_that_would_tell_of_it() -> None:
    vast = np.array([-1.7e308, 1.7e308])
    assert PublicTask(("a",), GRID, 0.0, 1e-308, 1.0, True, False).scaled(vast).tolist() == [-1, 1]
    assert scaled_labels(vast, -1e-308, 1e-308).tolist() == [-1, 1]


@pytest.mark.parametrize(("centre", "spread"), [(0.0, 5e-324 / 2), (math.inf, 1e307), (0.0, math.nan)])
def test_bounds_by_which_no_label_can_be_scaled_are_refused(centre: float, spread: float) -> None:
    """A label in the middle would be no number, and a refusal tell of it."""
    with pytest.raises(ParameterError, match="bounds of labels need a finite middle"):
        PublicTask(("a",), GRID, centre, spread, 1.0, True, False)


def test_classes_stay_0_and_1() -> None:
    labels = np.array([0.0, 1.0])
    assert PublicTask(("a",), GRID, 0.5, 0.5, 1.0, True, True).scaled(labels) is labels


@pytest.mark.parametrize(
    ("n_trees", "max_value", "spread", "is_taken"),
    [
        (10, 1e307, 1.0, True),
        (100, 1e307, 1.0, False),
        (100, 1e307, 0.1, False),
        (2, 1.0, 1e308, False),
        (1, math.inf, 1.0, False),
        (1, math.nan, 1.0, False),
        (0, 5.0, 1.0, True),
    ],
)
def test_leaves_of_all_trees_together_are_finite(n_trees: int, max_value: float, spread: float, is_taken: bool) -> None:
    """Otherwise two of them could be infinite, and an end of the run would tell that some record is in both."""
    task = PublicTask(("a",), GRID, 0.0, spread, 1.0, True, False)
    if is_taken:
        task.check_scores(n_trees, max_value)
        return
    with pytest.raises(ParameterError, match="have no finite scores"):
        task.check_scores(n_trees, max_value)
