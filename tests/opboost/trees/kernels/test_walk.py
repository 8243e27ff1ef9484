"""Rows that walk through a tree at once end where each one alone would, and their sums are exact."""

from __future__ import annotations

import numpy as np
import pytest

from opboost.arrays import HistogramAxes
from opboost.trees.complete import RandomRule, grow_complete_tree
from opboost.trees.kernels import walk
from opboost.trees.splitting import Splits
from opboost.trees.walked_rows import WalkedRows

pytestmark = pytest.mark.usefixtures("one_thread")


def rows(n_bins: int, n_rows: int):
    generator = np.random.default_rng(n_bins)
    axes = HistogramAxes.from_bin_counts([n_bins] * 3)
    # Of 256 bins a byte holds all but the missing one, which then does not occur.
    n_cells = 256 if n_bins == 256 else n_bins + 1
    bins = generator.integers(0, n_cells, (3, n_rows)).astype(np.uint8 if n_cells <= 256 else np.uint16)
    walked = WalkedRows(bins, axes, np.full(n_rows, 0.25))
    grad, hess = generator.integers(-(2**22), 2**22, n_rows), generator.integers(0, 2**17, n_rows)
    walked.gradients[:] = (hess << 35) + grad
    return axes, bins, walked, grad, hess


@pytest.mark.parametrize("depth", [0, 1, 4, 7, 8, 9])
@pytest.mark.parametrize(("n_bins", "n_rows"), [(2, 50), (33, 5000), (255, 5000), (256, 5000), (1000, 3000)])
@pytest.mark.parametrize("on_threads", [False, True])
def test_every_row_ends_in_its_leaf_and_counts_there(depth, n_bins, n_rows, on_threads, monkeypatch):
    monkeypatch.setattr(walk, "_MANY", 1 if on_threads else 1 << 30)
    axes, bins, walked, grad, hess = rows(n_bins, n_rows)
    rule = RandomRule(axes, uniforms=np.random.default_rng(depth).random)
    released = {}

    def leaf_values(sums):
        released["sums"] = sums
        return np.arange(len(sums)) + 1.0

    walked.start_tree()
    tree = grow_complete_tree(walked, rule=rule, leaf_values=leaf_values, axes=axes, depth=depth)
    walked.finish_tree(tree)
    nodes = np.zeros(n_rows, np.int64)
    for _ in range(depth):
        cells = bins[tree.columns[nodes], np.arange(n_rows)]
        is_left = np.where(cells == n_bins, tree.missing_left[nodes], cells <= tree.thresholds[nodes])
        nodes = np.where(is_left, tree.lefts[nodes], tree.rights[nodes])
    leaves = nodes - (2**depth - 1)
    expected = np.zeros((2**depth, 2), np.int64)
    np.add.at(expected, leaves, np.stack([grad, hess], axis=1))
    np.testing.assert_array_equal(released["sums"], expected)
    np.testing.assert_array_equal(walked.scores, 0.25 + leaves + 1.0)


@pytest.mark.parametrize("cut", [0, 1, 254])
def test_a_cut_between_256_bins_of_one_byte_parts_the_rows(cut):
    """Behind the first cut lie 256 bins, the missing one among them: one more than a byte counts."""
    _, bins, walked, _, _ = rows(256, 5000)
    walked.start_tree()
    nodes, column, cuts, left, right = (np.array([value], np.int32) for value in (0, 0, cut, 1, 2))
    walked.divide(Splits(nodes, column, cuts, np.array([False]), np.arange(257)[None] <= cut, left, right))
    walked.totals(np.array([1, 2]))
    np.testing.assert_array_equal(walked._places == 2, bins[0] > cut)
