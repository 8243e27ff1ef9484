"""Rows that walk through complete trees: copies, trees that wait for their values, and what they cannot answer."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from opboost.arrays import HistogramAxes
from opboost.errors import DataError
from opboost.trees.complete import Cuts, splits_of, tree_of
from opboost.trees.splitting import Splits
from opboost.trees.walked_rows import WalkedRows

pytestmark = pytest.mark.usefixtures("one_thread")

AXES = HistogramAxes.from_bin_counts([4])
BINS = np.array([[0, 1, 2, 3, 4]], np.uint8)
RIGHT_LEAF = np.array([2])


def walked() -> WalkedRows:
    rows = WalkedRows(BINS, AXES, np.zeros(5))
    rows.gradients[:] = np.arange(5)
    rows.start_tree()
    return rows


def stump(cut: int = 1) -> Splits:
    chosen = Cuts(np.array([0], np.int32), np.array([cut], np.int32), np.array([False]))
    return splits_of(np.array([0], np.int32), chosen, AXES, first_child=1)


def finished(rows: WalkedRows, left: float, right: float, cut: int = 1) -> list[float]:
    rows.finish_tree(tree_of([stump(cut)], np.array([0.0, left, right]), AXES))
    return rows.scores.tolist()


def test_rows_have_the_sums_and_values_of_their_leaves() -> None:
    rows = walked()
    rows.divide(stump())
    assert rows.totals(np.array([1, 2]))[:, 0].tolist() == [1, 9]
    assert finished(rows, -1.0, 2.0) == [-1.0, -1.0, 2.0, 2.0, 2.0]


def test_trees_that_wait_take_their_values_in_the_order_in_which_they_were_started() -> None:
    rows = walked()
    rows.divide(stump(0))
    rows.start_tree()
    rows.divide(stump(2))
    assert finished(rows, 1.0, 10.0, 0) == [1, 10, 10, 10, 10]
    assert finished(rows, 100.0, 0.0, 2) == [101, 110, 110, 10, 10]


def test_a_walk_that_ends_early_leaves_no_places_that_are_no_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    rows, twin = walked(), walked()
    twin.share_walks(rows)
    rows.divide(stump())
    sums = rows.totals(np.array([1, 2])).tolist()
    rows.start_tree()
    rows.divide(stump(2))

    def without_memory(*given: Any) -> None:
        given[6][:] = 200
        raise MemoryError

    monkeypatch.setattr("opboost.trees.walked_rows.walk_rows", without_memory)
    with pytest.raises(MemoryError):
        rows.totals(np.array([1, 2]))
    twin.divide(stump())
    assert twin.totals(np.array([1, 2])).tolist() == sums


def test_a_copy_goes_its_own_way() -> None:
    rows = walked()
    rows.divide(stump())
    twin = rows.copied(np.ones(5))
    finished(rows, 5.0, 5.0)
    assert finished(twin, 0.0, 1.0) == [1, 1, 2, 2, 2]


@pytest.mark.parametrize("cuts", [(1, 1), (1, 2)])
def test_outputs_that_share_walks_have_their_own_sums_and_values(cuts: tuple[int, int]) -> None:
    """Whether their trees are the same or not, and although the first one has walked on."""
    first, second = walked(), walked()
    second.share_walks(first)
    second.gradients[:] = 10
    first.divide(stump(cuts[0]))
    assert first.totals(RIGHT_LEAF)[:, 0].tolist() == [9]
    second.divide(stump(cuts[1]))
    assert second.totals(RIGHT_LEAF)[:, 0].tolist() == [10 * (4 - cuts[1])]
    finished(first, 0.0, 1.0, cuts[0])
    first.start_tree()
    first.divide(stump(3))
    first.totals(RIGHT_LEAF)
    assert finished(second, 0.0, 1.0, cuts[1]) == [float(row > cuts[1]) for row in range(5)]


def test_other_bins_serve_from_the_next_tree_on() -> None:
    rows = walked()
    rows.divide(stump())
    other = rows.in_other_bins(BINS[:, ::-1].copy(), AXES)
    assert finished(other, 1.0, 0.0) == [1, 1, 0, 0, 0]
    other.start_tree()
    other.divide(stump())
    assert finished(other, 1.0, 0.0) == [1, 1, 0, 1, 1]


def test_what_walking_rows_cannot_answer_is_refused() -> None:
    rows = walked()
    with pytest.raises(DataError, match="complete trees only"):
        rows.divide(replace(stump(), nodes=np.array([1], np.int32)))
    rows.divide(stump())
    with pytest.raises(DataError, match="only the leaves' sums"):
        rows.totals(np.array([0]))
    with pytest.raises(DataError, match="histograms at the root only"):
        rows.write_histograms(np.array([1], np.int32), np.zeros((1, 2, 5), np.int64), offsets=AXES.offsets)
