"""Rows to children and leaves to scores, against selection with masks."""

from __future__ import annotations

from dataclasses import dataclass

import numba
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from opboost.trees.kernels.division import ROWS, add_children_to_scores, add_to_scores, divide_rows

N_BINS = np.array([2, 3, 6])

pytestmark = pytest.mark.usefixtures("one_thread")


@dataclass
class Case:
    """Rows in random order, divided into nodes one behind the other, and a split for each node."""

    bins: np.ndarray
    rows: np.ndarray
    gradients: np.ndarray
    begins: np.ndarray
    ends: np.ndarray
    columns: np.ndarray
    goes_left: np.ndarray

    @classmethod
    def random(cls, sizes: list[int], seed: int, *, share: float = 0.5) -> Case:
        rng = np.random.default_rng(seed)
        n_rows, ends = sum(sizes), np.cumsum(sizes)
        return cls(
            rng.integers(0, N_BINS[:, None], (3, n_rows)).astype(np.uint8),
            rng.permutation(n_rows).astype(np.uint32),
            rng.integers(-(2**62), 2**62, n_rows),
            ends - sizes,
            ends,
            rng.integers(0, 3, len(sizes)).astype(np.int32),
            rng.random((len(sizes), N_BINS.max())) < share,
        )

    def divide(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        rows, middles = self.rows.copy(), np.empty_like(self.begins)
        gradients = self.gradients.copy()
        divide_rows(self.bins, rows, gradients, self.begins, self.ends, self.columns, self.goes_left, middles)
        return rows, gradients, middles

    def flags(self, k: int) -> np.ndarray:
        """Whether each row of a node goes left, in their old order."""
        rows = self.rows[self.begins[k] : self.ends[k]]
        return self.goes_left[k, self.bins[self.columns[k], rows]]


SIZES = st.lists(st.integers(0, 30), min_size=1, max_size=4)
SEEDS = st.integers(0, 2**32 - 1)


@settings(max_examples=100, deadline=None)
@given(SIZES, SEEDS)
def test_rows_of_one_block_are_divided_left_before_right_in_their_old_order(sizes: list[int], seed: int) -> None:
    case = Case.random(sizes, seed)
    rows, gradients, middles = case.divide()
    for k, (begin, end) in enumerate(zip(case.begins, case.ends, strict=True)):
        flags = case.flags(k)
        order = begin + np.concatenate([np.flatnonzero(flags), np.flatnonzero(~flags)])
        assert middles[k] == begin + flags.sum()
        np.testing.assert_array_equal(rows[begin:end], case.rows[order])
        np.testing.assert_array_equal(gradients[begin:end], case.gradients[order])


def _check_parts(case: Case) -> None:
    """Every node holds its own rows still, those that go left before its middle, each with its gradient."""
    rows, gradients, middles = case.divide()
    gradient_of = np.empty(len(case.rows), np.int64)
    gradient_of[case.rows] = case.gradients
    np.testing.assert_array_equal(gradients, gradient_of[rows])
    for k, (begin, end) in enumerate(zip(case.begins, case.ends, strict=True)):
        flags, before = case.flags(k), case.rows[begin:end]
        np.testing.assert_array_equal(np.sort(rows[begin : middles[k]]), np.sort(before[flags]))
        np.testing.assert_array_equal(np.sort(rows[middles[k] : end]), np.sort(before[~flags]))


@pytest.mark.usefixtures("every_thread")
@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.9, 1.0])
@pytest.mark.parametrize(
    "sizes",
    [[ROWS - 1], [ROWS], [ROWS + 1], [2 * ROWS + 1], [3 * ROWS + 17, 0, 5, 2 * ROWS, 1], [5, 7 * ROWS - 3]],
    ids=str,
)
def test_rows_of_several_blocks_are_divided_as_one_set(sizes: list[int], share: float) -> None:
    for seed in range(3):
        _check_parts(Case.random(sizes, seed, share=share))


@pytest.mark.parametrize("bad_share", [0.02, 0.98])
def test_blocks_of_very_different_shares_are_divided_as_one_set(bad_share: float) -> None:
    """Whole runs of rows lie on the wrong side, in blocks of which almost all or almost none go left."""
    rng = np.random.default_rng(0)
    sizes = [6 * ROWS + 100]
    case = Case.random(sizes, 0)
    case.columns[:] = 0
    case.goes_left[0, :2] = True, False
    for block in range(7):
        share = bad_share if block % 2 else 1 - bad_share
        rows = case.rows[block * ROWS : (block + 1) * ROWS]
        case.bins[0, rows] = rng.random(len(rows)) > share
    _check_parts(case)


@pytest.mark.skipif(numba.config.NUMBA_NUM_THREADS < 2, reason="there is one thread only")
def test_the_number_of_threads_does_not_change_the_order_of_the_rows(every_thread: None) -> None:
    case, found = Case.random([5 * ROWS + 9, 3, 2 * ROWS], 0), []
    for n_threads in (1, 2):
        numba.set_num_threads(n_threads)
        found.append(case.divide())
    for one, two in zip(*found, strict=True):
        np.testing.assert_array_equal(one, two)


def test_the_division_notices_a_row_on_the_wrong_side() -> None:
    case = Case.random([50], 0)
    rows, _, middles = case.divide()
    wrong = Case(case.bins, case.rows, case.gradients, case.begins, case.ends, case.columns, ~case.goes_left)
    assert wrong.divide()[0].tolist() != rows.tolist()
    assert wrong.divide()[2] == 50 - middles


@settings(max_examples=60, deadline=None)
@given(SIZES, SEEDS, st.integers(1, 4))
def test_each_leaf_adds_its_value_to_its_own_rows(sizes: list[int], seed: int, n_threads: int) -> None:
    case = Case.random(sizes, seed)
    values = np.random.default_rng(seed).normal(size=len(sizes))
    scores, expected = np.ones((2, len(case.rows)))
    add_to_scores(scores, case.rows, case.begins, case.ends, values, n_threads)
    for value, begin, end in zip(values, case.begins, case.ends, strict=True):
        for row in case.rows[begin:end]:
            expected[row] += value
    np.testing.assert_array_equal(scores, expected)


@settings(max_examples=60, deadline=None)
@given(SIZES, SEEDS, st.integers(1, 4))
def test_rows_that_are_not_divided_yet_get_the_value_of_the_child_that_they_would_go_to(
    sizes: list[int], seed: int, n_threads: int
) -> None:
    case = Case.random(sizes, seed)
    rng, n = np.random.default_rng(seed), len(sizes)
    values, children = rng.normal(size=3 * n), n + rng.permutation(2 * n).astype(np.int32)
    lefts, rights, parents = children[:n], children[n:], rng.permutation(n)[: max(1, n - 1)].astype(np.int32)
    scores, expected = np.ones((2, len(case.rows)))
    add_children_to_scores(
        case.bins,
        scores,
        case.rows,
        case.begins,
        case.ends,
        parents,
        case.columns[parents],
        case.goes_left[parents],
        lefts[parents],
        rights[parents],
        values,
        n_threads,
    )
    for k in parents:
        for row in case.rows[case.begins[k] : case.ends[k]]:
            goes_left = case.goes_left[k, case.bins[case.columns[k], row]]
            expected[row] += values[lefts[k] if goes_left else rights[k]]
    np.testing.assert_array_equal(scores, expected)


@pytest.mark.usefixtures("every_thread")
def test_leaves_that_threads_share_reach_all_their_rows_once() -> None:
    case = Case.random([2 * ROWS + 5, 0, ROWS, 3], 0)
    scores = np.zeros(len(case.rows))
    add_to_scores(scores, case.rows, case.begins, case.ends, np.array([1.0, 2.0, 4.0, 8.0]), 3)
    assert [float(scores[case.rows[b:e]].sum()) for b, e in zip(case.begins, case.ends, strict=True)] == [
        2 * ROWS + 5,
        0,
        4 * ROWS,
        24,
    ]
