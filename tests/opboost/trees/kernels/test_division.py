"""Rows to children and leaves to scores, against selection with masks."""

from __future__ import annotations

from dataclasses import dataclass

import numba
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from opboost.trees.kernels.division import add_children_to_scores, add_to_scores, divide_nodes

N_BINS = np.array([2, 3, 6])

pytestmark = pytest.mark.usefixtures("one_thread")


@dataclass
class Case:
    """Rows of areas in random order, each area's divided into nodes one behind the other, and a split for each node."""

    bins: np.ndarray
    rows: np.ndarray
    gradients: np.ndarray
    begins: np.ndarray
    ends: np.ndarray
    columns: np.ndarray
    goes_left: np.ndarray

    @classmethod
    def random(cls, sizes: list[list[int]], seed: int, *, share: float = 0.5) -> Case:
        """`sizes` of every area has those of its nodes."""
        rng = np.random.default_rng(seed)
        counts = np.array(sizes)
        n_rows, ends = int(counts.sum()), np.cumsum(counts).reshape(counts.shape).T
        areas = np.repeat(np.arange(len(sizes)), counts.sum(axis=1))
        return cls(
            rng.integers(0, N_BINS[:, None], (3, n_rows)).astype(np.uint8),
            np.lexsort([rng.random(n_rows), areas]).astype(np.uint32),
            rng.integers(-(2**62), 2**62, n_rows),
            ends - counts.T,
            ends,
            rng.integers(0, 3, counts.shape[1]).astype(np.int32),
            rng.random((counts.shape[1], N_BINS.max())) < share,
        )

    def divide(self, n_threads: int = 1) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Rows, gradients and where every node's right child begins in every area."""
        n, n_rows = len(self.begins), len(self.rows)
        room = n_threads * int((self.ends[-1] - self.begins[0]).max())
        rows, gradients = (np.concatenate([of, np.full(room, 77, of.dtype)]) for of in (self.rows, self.gradients))
        begins, ends = (np.concatenate([of, np.full((2 * n, of.shape[1]), -1)]) for of in (self.begins, self.ends))
        nodes, lefts = np.arange(n, dtype=np.int32), (n + 2 * np.arange(n)).astype(np.int32)
        divide_nodes(self.bins, rows, gradients, begins, ends, nodes, self.columns, self.goes_left, lefts, n_threads)
        np.testing.assert_array_equal(begins[lefts], self.begins)
        np.testing.assert_array_equal(ends[lefts + 1], self.ends)
        np.testing.assert_array_equal(ends[lefts], begins[lefts + 1])
        return rows[:n_rows], gradients[:n_rows], begins[lefts + 1]

    def places(self) -> list[tuple[int, int]]:
        """Every node in every area."""
        return [(k, area) for k in range(self.begins.shape[0]) for area in range(self.begins.shape[1])]


SIZES = st.integers(1, 4).flatmap(
    lambda n_nodes: st.lists(st.lists(st.integers(0, 30), min_size=n_nodes, max_size=n_nodes), min_size=1, max_size=4)
)
SEEDS = st.integers(0, 2**32 - 1)


@settings(max_examples=100, deadline=None)
@given(SIZES, SEEDS, st.integers(1, 4), st.sampled_from([0.0, 0.1, 0.5, 1.0]))
def test_rows_are_divided_left_before_right_in_their_old_order(
    sizes: list[list[int]], seed: int, n_threads: int, share: float
) -> None:
    case = Case.random(sizes, seed, share=share)
    rows, gradients, middles = case.divide(n_threads)
    for place in case.places():
        begin, end = case.begins[place], case.ends[place]
        flags = case.goes_left[place[0], case.bins[case.columns[place[0]], case.rows[begin:end]]]
        order = begin + np.concatenate([np.flatnonzero(flags), np.flatnonzero(~flags)])
        assert middles[place] == begin + flags.sum()
        np.testing.assert_array_equal(rows[begin:end], case.rows[order])
        np.testing.assert_array_equal(gradients[begin:end], case.gradients[order])


@pytest.mark.skipif(numba.config.NUMBA_NUM_THREADS < 2, reason="there is one thread only")
def test_the_number_of_threads_does_not_change_the_order_of_the_rows(every_thread: None) -> None:
    case = Case.random([[40_000, 3], [39_990, 12], [1, 40_000]], 0)
    for one, two in zip(case.divide(1), case.divide(2), strict=True):
        np.testing.assert_array_equal(one, two)


def test_the_division_notices_a_row_on_the_wrong_side() -> None:
    case = Case.random([[50]], 0)
    case.goes_left[0] = [True, False] * 3
    rows, _, middles = case.divide()
    wrong = Case(case.bins, case.rows, case.gradients, case.begins, case.ends, case.columns, ~case.goes_left)
    assert wrong.divide()[0].tolist() != rows.tolist()
    assert wrong.divide()[2] == 50 - middles


@settings(max_examples=60, deadline=None)
@given(SIZES, SEEDS, st.integers(1, 4))
def test_each_leaf_adds_its_value_to_its_own_rows(sizes: list[list[int]], seed: int, n_threads: int) -> None:
    case = Case.random(sizes, seed)
    values = np.random.default_rng(seed).normal(size=len(case.begins))
    scores, expected = np.ones((2, len(case.rows)))
    add_to_scores(scores, case.rows, case.begins, case.ends, values, n_threads)
    for k, area in case.places():
        for row in case.rows[case.begins[k, area] : case.ends[k, area]]:
            expected[row] += values[k]
    np.testing.assert_array_equal(scores, expected)


@settings(max_examples=60, deadline=None)
@given(SIZES, SEEDS, st.integers(1, 4))
def test_rows_that_are_not_divided_yet_get_the_value_of_the_child_that_they_would_go_to(
    sizes: list[list[int]], seed: int, n_threads: int
) -> None:
    case = Case.random(sizes, seed)
    rng, n = np.random.default_rng(seed), len(case.begins)
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
    for k, area in case.places():
        for row in case.rows[case.begins[k, area] : case.ends[k, area]] if k in parents else ():
            goes_left = case.goes_left[k, case.bins[case.columns[k], row]]
            expected[row] += values[lefts[k] if goes_left else rights[k]]
    np.testing.assert_array_equal(scores, expected)


@pytest.mark.usefixtures("every_thread")
def test_leaves_that_threads_share_reach_all_their_rows_once() -> None:
    case = Case.random([[30_000, 0, 20_000, 1], [10_000, 0, 0, 2]], 0)
    scores = np.zeros(len(case.rows))
    add_to_scores(scores, case.rows, case.begins, case.ends, np.array([1.0, 2.0, 4.0, 8.0]), 3)
    assert np.bincount(scores.astype(int)).tolist() == [0, 40_000, 0, 0, 20_000, 0, 0, 0, 3]
