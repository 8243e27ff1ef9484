"""Compiled loops against twins that one can check by eye. Each twin is exact, so nothing here has a tolerance."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numba
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from opboost.trees.kernels import (
    BLOCK,
    add_to_scores,
    best_cuts,
    build_histograms,
    divide_rows,
    place_in_bins,
    predict_scores,
    sum_nodes,
)

N_VALUE_BINS = np.array([1, 2, 5])
OFFSETS = np.concatenate([[0], np.cumsum(N_VALUE_BINS + 1)])
SCALES = (2.0**10, 2.0**12)


pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture
def every_thread() -> Iterator[None]:
    before = numba.get_num_threads()
    numba.set_num_threads(numba.config.NUMBA_NUM_THREADS)
    yield
    numba.set_num_threads(before)


@dataclass
class Rows:
    """Rows in random order, divided into nodes one behind the other."""

    bins: np.ndarray
    rows: np.ndarray
    gradients: np.ndarray
    begins: np.ndarray
    ends: np.ndarray

    @classmethod
    def random(cls, sizes: list[int], seed: int) -> Rows:
        rng = np.random.default_rng(seed)
        n_rows = sum(sizes)
        bins = rng.integers(0, N_VALUE_BINS[:, None] + 1, (3, n_rows)).astype(np.uint8)
        gradients = rng.integers(-(2**31) + 1, 2**31, (n_rows, 2)).astype(np.int32)
        ends = np.cumsum(sizes)
        return cls(bins, rng.permutation(n_rows).astype(np.int32), gradients, ends - sizes, ends)

    def two_sided(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Rows and packed gradients with every other node on side 1, and nonsense on the side that a node is not on."""
        sides = np.arange(len(self.begins)) % 2
        rows = np.full((2, len(self.rows)), 2**32 - 1, np.uint32)
        gradients = np.full((2, len(self.rows)), -1, np.int64)
        for side, node in zip(sides, self.nodes, strict=True):
            rows[side, node] = self.rows[node]
            gradients[side, node] = self.gradients.view(np.int64)[node, 0]
        return rows, gradients, sides

    @property
    def nodes(self) -> list[slice]:
        return [slice(begin, end) for begin, end in zip(self.begins, self.ends, strict=True)]


SIZES = st.lists(st.integers(0, 30), min_size=1, max_size=4)
SEEDS = st.integers(0, 2**32 - 1)


@settings(max_examples=60, deadline=None)
@given(SIZES, SEEDS)
def test_histograms_sum_the_gradients_of_every_bin(sizes: list[int], seed: int) -> None:
    case = Rows.random(sizes, seed)
    out = np.zeros((len(sizes), OFFSETS[-1], 2), np.int64)
    build_histograms(case.bins, *case.two_sided(), case.begins, case.ends, OFFSETS, out)
    expected = np.zeros_like(out)
    for k, node in enumerate(case.nodes):
        for row, gradient in zip(case.rows[node], case.gradients[node], strict=True):
            for column in range(3):
                expected[k, OFFSETS[column] + case.bins[column, row]] += gradient
    np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize("n_columns", [4, 5, 9])
def test_columns_summed_four_at_a_time_have_the_sums_that_each_has_alone(n_columns: int) -> None:
    case = Rows.random([40, 0, 25], seed=n_columns)
    chosen = np.arange(n_columns) % 3
    offsets = np.concatenate([[0], np.cumsum(N_VALUE_BINS[chosen] + 1)])
    alone, together = np.zeros((3, OFFSETS[-1], 2), np.int64), np.zeros((3, offsets[-1], 2), np.int64)
    build_histograms(case.bins, *case.two_sided(), case.begins, case.ends, OFFSETS, alone)
    build_histograms(case.bins[chosen], *case.two_sided(), case.begins, case.ends, offsets, together)
    for c, column in enumerate(chosen):
        expected = alone[:, OFFSETS[column] : OFFSETS[column + 1]]
        np.testing.assert_array_equal(together[:, offsets[c] : offsets[c + 1]], expected)


@settings(max_examples=60, deadline=None)
@given(SIZES, SEEDS)
def test_node_sums_are_the_sums_of_the_nodes_gradients(sizes: list[int], seed: int) -> None:
    case = Rows.random(sizes, seed)
    out = np.empty((len(sizes), 2), np.int64)
    sum_nodes(*case.two_sided()[1:], case.begins, case.ends, out)
    np.testing.assert_array_equal(out, [case.gradients[node].sum(axis=0, dtype=np.int64) for node in case.nodes])


def test_sums_beyond_thirty_two_bits_are_exact() -> None:
    largest = np.full((1, 1000, 2), 2**31 - 1, np.int32).view(np.int64)[:, :, 0]
    out = np.empty((1, 2), np.int64)
    sum_nodes(largest, np.array([0]), np.array([0]), np.array([1000]), out)
    assert out.tolist() == [[1000 * (2**31 - 1)] * 2]


def _goes_left(bins: np.ndarray, cut: int, missing_left: bool, missing_bin: int) -> np.ndarray:
    return (bins <= cut) | (missing_left & (bins == missing_bin))


def _check_division(case: Rows, columns: np.ndarray, cuts: np.ndarray, missing_left: np.ndarray) -> None:
    """Divide, and compare with stable selection node by node."""
    missing_bins = N_VALUE_BINS[columns]
    expected_rows, expected_gradients, expected_middles = case.rows.copy(), case.gradients.copy(), case.begins.copy()
    for k, node in enumerate(case.nodes):
        is_left = _goes_left(case.bins[columns[k], case.rows[node]], cuts[k], missing_left[k], missing_bins[k])
        order = np.concatenate([np.flatnonzero(is_left), np.flatnonzero(~is_left)])
        expected_rows[node], expected_gradients[node] = case.rows[node][order], case.gradients[node][order]
        expected_middles[k] += is_left.sum()
    blocks = [
        (k, begin, min(begin + BLOCK, node.stop))
        for k, node in enumerate(case.nodes)
        for begin in range(node.start, max(node.stop, node.start + 1), BLOCK)
    ]
    block_nodes, block_begins, block_ends = np.array(blocks, np.int64).T.copy()
    middles = np.empty_like(case.begins)
    rows, gradients, sides = case.two_sided()
    divide_rows(
        case.bins, rows, gradients, np.empty(rows.shape[1], np.uint8), sides, case.begins, columns, cuts, missing_left,
        missing_bins, block_nodes, block_begins, block_ends, middles,
    )  # fmt: skip
    for k, node in enumerate(case.nodes):
        np.testing.assert_array_equal(rows[1 - sides[k], node], expected_rows[node])
        np.testing.assert_array_equal(
            gradients[1 - sides[k], node].view(np.int32).reshape(-1, 2), expected_gradients[node]
        )
    np.testing.assert_array_equal(middles, expected_middles)


@settings(max_examples=60, deadline=None)
@given(SIZES, SEEDS)
def test_rows_are_divided_left_before_right_in_their_old_order(sizes: list[int], seed: int) -> None:
    rng = np.random.default_rng(seed)
    columns = rng.integers(0, 3, len(sizes)).astype(np.int32)
    cuts = rng.integers(0, N_VALUE_BINS[columns]).astype(np.int32)
    _check_division(Rows.random(sizes, seed), columns, cuts, rng.random(len(sizes)) < 0.5)


@pytest.mark.usefixtures("every_thread")
def test_rows_of_several_blocks_are_divided_as_one() -> None:
    case = Rows.random([3 * BLOCK + 17, 0, 5, 2 * BLOCK], seed=0)
    columns, cuts = np.array([2, 1, 2, 1], np.int32), np.array([1, 0, 3, 0], np.int32)
    _check_division(case, columns, cuts, np.array([True, False, True, False]))


def _naive_score(grad: float, hess: float, reg_lambda: float) -> float:
    return grad * grad / (hess + reg_lambda) if hess + reg_lambda > 0 else 0.0


def _naive_best(
    histogram: np.ndarray, total: np.ndarray, columns: np.ndarray, reg_lambda: float, min_child_weight: float
) -> tuple[float, int, int, bool, tuple[int, int]]:
    """Every cut of every column in the order in which the kernel promises to meet them; the first of the best."""

    def score(sums: np.ndarray) -> float:
        return _naive_score(sums[0] / SCALES[0], sums[1] / SCALES[1], reg_lambda)

    best: tuple[float, int, int, bool, tuple[int, int]] = (-math.inf, -1, -1, False, (0, 0))
    for c in columns:
        column = histogram[OFFSETS[c] : OFFSETS[c + 1]]
        values, missing = column[:-1], column[-1]
        met = [(cut, False, values[: cut + 1].sum(axis=0)) for cut in range(len(values) - 1)]
        if missing.any():
            met.append((len(values) - 1, False, values.sum(axis=0)))
            met += [(cut, True, values[: cut + 1].sum(axis=0) + missing) for cut in reversed(range(len(values) - 1))]
        for cut, missing_left, left in met:
            right = total - left
            if min(left[1], right[1]) <= 0 or min(left[1], right[1]) / SCALES[1] < min_child_weight:
                continue
            gain = score(left) + score(right) - score(total)
            if gain > best[0]:
                best = (gain, int(c), cut, missing_left, (int(left[0]), int(left[1])))
    return best


def _run_best_cuts(
    histograms: np.ndarray, totals: np.ndarray, columns: np.ndarray, reg_lambda: float, min_child_weight: float
) -> list[tuple[float, int, int, bool, tuple[int, int]]]:
    n = len(totals)
    gains, best_columns, cuts = np.empty(n), np.full(n, -1, np.int32), np.full(n, -1, np.int32)
    missing_left, left_sums = np.zeros(n, np.bool_), np.zeros((n, 2), np.int64)
    best_cuts(
        histograms, totals, OFFSETS, columns, *SCALES, reg_lambda, min_child_weight,
        gains, best_columns, cuts, missing_left, left_sums,
    )  # fmt: skip
    lefts = [(int(g), int(h)) for g, h in left_sums]
    return list(zip(gains.tolist(), best_columns.tolist(), cuts.tolist(), missing_left.tolist(), lefts, strict=True))


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.lists(st.integers(0, 7), min_size=1, max_size=12), min_size=1, max_size=3),
    st.sampled_from([1, 3, 1000]),
    st.sampled_from([0.0, 1.0]),
    st.sampled_from([0.0, 2.0 / SCALES[1], 1.0]),
    SEEDS,
)
def test_the_best_cut_is_the_first_of_the_best(
    nodes: list[list[int]], unit: int, reg_lambda: float, min_child_weight: float, seed: int
) -> None:
    """Gradients of -unit, 0 or unit and few bins make ties common."""
    rng = np.random.default_rng(seed)
    histograms = np.zeros((len(nodes), OFFSETS[-1], 2), np.int64)
    for k, rows in enumerate(nodes):
        for kind in rows:
            gradient = np.array([(kind % 3 - 1) * unit, unit * (kind > 1)])
            histograms[k, OFFSETS[:-1] + rng.integers(0, N_VALUE_BINS + 1)] += gradient
    totals = histograms[:, : OFFSETS[1]].sum(axis=1)
    columns = np.sort(rng.permutation(3)[: rng.integers(1, 4)])
    found = _run_best_cuts(histograms, totals, columns, reg_lambda, min_child_weight)
    assert found == [
        _naive_best(histogram, total, columns, reg_lambda, min_child_weight)
        for histogram, total in zip(histograms, totals, strict=True)
    ]


def _histogram_of_last_column(values: list[int], missing: int) -> tuple[np.ndarray, np.ndarray]:
    """Gradient sums per bin of the column of five value bins; every row has Hessian 1."""
    histogram = np.zeros((1, OFFSETS[-1], 2), np.int64)
    histogram[0, OFFSETS[2] :, 0] = np.array([*values, missing]) * int(SCALES[0])
    histogram[0, OFFSETS[2] :, 1] = int(SCALES[1])
    histogram[0, -1, 1] *= missing != 0
    return histogram, histogram.sum(axis=1)


@pytest.mark.parametrize(
    ("values", "missing", "cut", "missing_left"),
    [
        ([-1, -1, 1, 1, 1], 0, 1, False),
        ([-1, -1, 1, 1, 1], 5, 1, False),
        ([-1, -1, 1, 1, 1], -5, 1, True),
        ([1, 1, 1, 1, 1], -5, 4, False),
        ([1, -1, 1, -1, 1], 0, 0, False),
        ([-1, 0, 0, 0, 1], 0, 0, False),
    ],
    ids=["no missing", "missing right", "missing left", "missing against present", "first of equals", "mirrored tie"],
)
def test_missing_goes_to_the_side_where_the_gain_is_highest(
    values: list[int], missing: int, cut: int, missing_left: bool
) -> None:
    histogram, total = _histogram_of_last_column(values, missing)
    (found,) = _run_best_cuts(histogram, total, np.array([2]), 1.0, 0.0)
    assert found[1:4] == (2, cut, missing_left)


def test_a_node_without_an_allowed_cut_has_a_gain_of_minus_infinity() -> None:
    histogram, total = _histogram_of_last_column([-1, 1, 0, 0, 0], 0)
    (found,) = _run_best_cuts(histogram, total, np.array([2]), 1.0, 100.0)
    assert found[0] == -math.inf


def test_each_leaf_adds_its_value_to_its_own_rows() -> None:
    scores = np.zeros(5)
    rows = np.array([[4, 0, 9, 1, 2], [9, 9, 3, 9, 9]], np.uint32)
    sides, begins, ends = np.array([0, 1, 0]), np.array([0, 2, 3]), np.array([2, 3, 5])
    add_to_scores(scores, rows, sides, begins, ends, np.array([1.5, -2.0, 0.25]))
    assert scores.tolist() == [1.5, 0.25, 0.25, -2.0, 1.5]


@pytest.mark.usefixtures("every_thread")
def test_values_of_several_blocks_are_placed_by_the_number_of_cuts_below_them() -> None:
    rng = np.random.default_rng(0)
    values = rng.integers(0, 9, (BLOCK + 5, 2)) / 2
    values[rng.random(values.shape) < 0.1] = np.nan
    cuts = [np.array([0.5, 1.0, 3.25]), np.empty(0)]
    out = np.empty((2, len(values)), np.uint8)
    place_in_bins(values, np.concatenate(cuts), np.array([0, 3, 3]), out)
    for column, edges, placed in zip(values.T, cuts, out, strict=True):
        expected = np.where(np.isnan(column), len(edges) + 1, np.searchsorted(edges, column))
        np.testing.assert_array_equal(placed, expected)


def _random_tree(n_splits: int, n_columns: int, rng: np.random.Generator) -> tuple[np.ndarray, ...]:
    """A tree that grows by splitting one random leaf after the other."""
    n_nodes = 2 * n_splits + 1
    columns, lefts, rights = (np.full(n_nodes, fill, np.int32) for fill in (-1, 0, 0))
    leaves = [0]
    for k in range(n_splits):
        node = leaves.pop(rng.integers(len(leaves)))
        columns[node], lefts[node], rights[node] = rng.integers(n_columns), 2 * k + 1, 2 * k + 2
        leaves += [2 * k + 1, 2 * k + 2]
    return (
        columns,
        rng.integers(0, 4, n_nodes) * 1.0,
        rng.random(n_nodes) < 0.5,
        lefts,
        rights,
        rng.normal(size=n_nodes),
    )


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(0, 12), min_size=1, max_size=6), st.integers(1, 2), st.integers(1, 600), SEEDS)
def test_predictions_add_the_leaf_that_a_walk_from_the_root_reaches(
    sizes: list[int], n_outputs: int, n_rows: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    trees = [_random_tree(n_splits, 3, rng) for n_splits in sizes]
    features = rng.integers(0, 5, (n_rows, 3)) * 1.0
    features[features == 4] = np.nan
    starts = np.cumsum([0] + [len(tree[0]) for tree in trees])[:-1]
    outputs = np.arange(len(trees)) % n_outputs
    out = np.zeros((n_rows, n_outputs))
    predict_scores(features, starts, outputs, *(np.concatenate(part) for part in zip(*trees, strict=True)), out)
    expected = np.zeros_like(out)
    for row in range(n_rows):
        for output, (columns, thresholds, missing_left, lefts, rights, values) in zip(outputs, trees, strict=True):
            node = 0
            while columns[node] >= 0:
                x = features[row, columns[node]]
                goes_left = missing_left[node] if np.isnan(x) else x <= thresholds[node]
                node = lefts[node] if goes_left else rights[node]
            expected[row, output] += values[node]
    np.testing.assert_array_equal(out, expected)
