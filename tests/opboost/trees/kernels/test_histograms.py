"""Sums per bin and per node against one addition of Python integers per row and column."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from opboost.trees.kernels.histograms import IN_ORDER, build_histograms, sum_nodes
from opboost.trees.kernels.packing import BLOCK, GRAD_BITS, HESS_BITS, grad_of, hess_of
from opboost.trees.kernels.threads import n_threads

N_VALUE_BINS = np.array([1, 2, 5])
OFFSETS = np.concatenate([[0], np.cumsum(N_VALUE_BINS + 1)])
MAX_GRAD, MAX_HESS = 2**GRAD_BITS - 1, 2**HESS_BITS - 1

pytestmark = pytest.mark.usefixtures("one_thread")


def pack(grads: np.ndarray, hessians: np.ndarray) -> np.ndarray:
    return (hessians.astype(np.int64) << 35) + grads.astype(np.int64)


@dataclass
class Rows:
    """Rows in random order, divided into nodes one behind the other."""

    bins: np.ndarray
    rows: np.ndarray
    grads: np.ndarray
    hessians: np.ndarray
    begins: np.ndarray
    ends: np.ndarray

    @classmethod
    def random(cls, sizes: list[int], seed: int) -> Rows:
        rng = np.random.default_rng(seed)
        n_rows = sum(sizes)
        bins = rng.integers(0, N_VALUE_BINS[:, None] + 1, (3, n_rows)).astype(np.uint8)
        grads, hessians = rng.integers(-MAX_GRAD, MAX_GRAD + 1, n_rows), rng.integers(0, MAX_HESS + 1, n_rows)
        ends = np.cumsum(sizes)
        return cls(
            bins, rng.permutation(n_rows).astype(np.uint32), grads, hessians, (ends - sizes)[:, None], ends[:, None]
        )

    @property
    def gradients(self) -> np.ndarray:
        return pack(self.grads, self.hessians)

    def histograms(self, bins: np.ndarray, offsets: np.ndarray) -> np.ndarray:
        out = np.full((len(self.begins), 2, offsets[-1]), 77, np.int64)
        build_histograms(bins, self.rows, self.gradients, self.begins, self.ends, offsets, n_threads(), out)
        return out

    def expected_histograms(self, bins: np.ndarray, offsets: np.ndarray) -> np.ndarray:
        out = np.zeros((len(self.begins), 2, offsets[-1]), np.int64)
        for node, (begin, end) in enumerate(zip(self.begins[:, 0], self.ends[:, 0], strict=True)):
            for place in range(begin, end):
                for column in range(len(bins)):
                    bin_ = offsets[column] + bins[column, self.rows[place]]
                    out[node, 0, bin_] += self.grads[place]
                    out[node, 1, bin_] += self.hessians[place]
        return out


SIZES = st.lists(st.integers(0, 30), min_size=1, max_size=5)
SEEDS = st.integers(0, 2**32 - 1)


@settings(max_examples=60, deadline=None)
@given(SIZES, SEEDS)
def test_histograms_sum_the_gradients_of_every_bin(sizes: list[int], seed: int) -> None:
    case = Rows.random(sizes, seed)
    np.testing.assert_array_equal(case.histograms(case.bins, OFFSETS), case.expected_histograms(case.bins, OFFSETS))


@pytest.mark.parametrize("n_columns", range(1, 10))
def test_columns_summed_four_at_a_time_have_the_sums_that_each_has_alone(n_columns: int) -> None:
    """Where fewer than four columns are left, the places of the others are filled and thrown away."""
    case = Rows.random([40, 0, 25], seed=n_columns)
    chosen = np.arange(n_columns) % 3
    offsets = np.concatenate([[0], np.cumsum(N_VALUE_BINS[chosen] + 1)])
    bins = case.bins[chosen]
    np.testing.assert_array_equal(case.histograms(bins, offsets), case.expected_histograms(bins, offsets))


@pytest.mark.parametrize("extra", [-1, 0, 1])
@pytest.mark.parametrize("n_blocks", [1, 3])
def test_rows_around_whole_blocks_are_all_summed(n_blocks: int, extra: int) -> None:
    """The largest gradients, all in one bin: a row too many in a packed sum would overflow its field."""
    n_rows = n_blocks * BLOCK + extra
    for grad in (-MAX_GRAD, MAX_GRAD):
        out = np.zeros((1, 2, 2), np.int64)
        words = pack(np.full(n_rows, grad), np.full(n_rows, MAX_HESS))
        build_histograms(
            np.zeros((1, n_rows), np.uint8),
            np.arange(n_rows, dtype=np.uint32),
            words,
            np.array([[0]]),
            np.array([[n_rows]]),
            np.array([0, 2]),
            n_threads(),
            out,
        )
        assert out.tolist() == [[[grad * n_rows, 0], [MAX_HESS * n_rows, 0]]]


@settings(max_examples=60, deadline=None)
@given(SIZES, SEEDS, st.integers(1, 9))
def test_any_number_of_shares_gives_the_same_sums(sizes: list[int], seed: int, n_shares: int) -> None:
    """A node may lie in the shares of many threads, and a share may hold many nodes or none; nothing old is left."""
    case = Rows.random(sizes, seed)
    out = np.full((len(sizes), 2, OFFSETS[-1]), 77, np.int64)
    build_histograms(case.bins, case.rows, case.gradients, case.begins, case.ends, OFFSETS, n_shares, out)
    np.testing.assert_array_equal(out, case.expected_histograms(case.bins, OFFSETS))


@pytest.mark.parametrize("weight", [1, 3, 16])
@pytest.mark.parametrize("small", [0, 1, 1000])
def test_gradients_of_any_size_are_summed_as_far_as_they_fit(weight: int, small: int) -> None:
    """In one bin: large ones, times their weight as a count, behind and before many small ones."""
    largest, others = np.array([MAX_GRAD, -MAX_GRAD] * BLOCK), np.full(3 * BLOCK + 5, small)
    grads = weight * np.concatenate([others, np.abs(largest), others, largest, -others])
    hessians = weight * np.concatenate([others, np.full(2 * BLOCK, MAX_HESS), others, np.full(2 * BLOCK, 1), others])
    words, n_rows, out = pack(grads, hessians), len(grads), np.zeros((1, 2, 2), np.int64)
    rows, bins = np.arange(n_rows, dtype=np.uint32), np.zeros((1, n_rows), np.uint8)
    build_histograms(bins, rows, words, np.array([[0]]), np.array([[n_rows]]), np.array([0, 2]), n_threads(), out)
    assert out.tolist() == [[[grads.sum(), 0], [hessians.sum(), 0]]]
    # One packed sum of them all overflows.
    assert (grad_of(words.sum()), hess_of(words.sum())) != (grads.sum(), hessians.sum())


@pytest.mark.usefixtures("every_thread")
def test_many_rows_on_every_thread_are_summed_as_by_counting() -> None:
    case = Rows.random([3 * BLOCK + 17, 0, 5, 2 * BLOCK], seed=0)
    out = case.histograms(case.bins, OFFSETS)
    for node, (begin, end) in enumerate(zip(case.begins[:, 0], case.ends[:, 0], strict=True)):
        for column in range(3):
            bins = case.bins[column, case.rows[begin:end]]
            for part, numbers in ((0, case.grads), (1, case.hessians)):
                expected = [int(numbers[begin:end][bins == b].sum()) for b in range(N_VALUE_BINS[column] + 1)]
                assert out[node, part, OFFSETS[column] : OFFSETS[column + 1]].tolist() == expected


@pytest.mark.usefixtures("every_thread")
@pytest.mark.parametrize(("n_rows", "n_bins"), [(300_000, 6), (5000, 40_000)], ids=["many areas", "nodes in turns"])
def test_nodes_whose_rows_lie_all_over_a_large_table_are_summed_as_by_counting(n_rows: int, n_bins: int) -> None:
    rng = np.random.default_rng(0)
    bins = rng.integers(0, n_bins, (2, n_rows)).astype(np.uint16 if n_bins > 256 else np.uint8)
    order = np.argsort(rng.integers(0, 3, n_rows) + 3 * (np.arange(n_rows) > n_rows // 2), kind="stable")
    order = order.astype(np.uint32)
    grads, hessians = rng.integers(-MAX_GRAD, MAX_GRAD + 1, n_rows), rng.integers(0, MAX_HESS + 1, n_rows)
    middle = n_rows // 2 + 1
    begins = np.array([[0, middle], [10, middle], [middle // 2, middle + 500]])
    ends = np.array([[10, middle], [middle // 2, middle + 500], [middle, n_rows]])
    out = np.full((3, 2, 2 * n_bins), 77, np.int64)
    offsets = np.array([0, n_bins, 2 * n_bins])
    build_histograms(bins, order, pack(grads, hessians), begins, ends, offsets, n_threads(), out)
    for node in range(3):
        places = np.concatenate([np.arange(begins[node, area], ends[node, area]) for area in range(2)])
        for column in range(2):
            here = bins[column, order[places]]
            for part, numbers in ((0, grads), (1, hessians)):
                expected = np.bincount(here, numbers[places].astype(np.float64), n_bins)
                assert (out[node, part, offsets[column] : offsets[column + 1]] == expected).all()


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 40), st.integers(0, 40), st.sampled_from([np.uint8, np.uint16]), SEEDS)
def test_rows_that_follow_one_another_have_the_sums_of_the_same_rows_by_number(
    n_before: int, n_rows: int, kind: type, seed: int
) -> None:
    """Their bins are read eight bytes at a time, from any byte on; what is left over, one by one."""
    case = Rows.random([n_before + n_rows + 1], seed)
    bins, begins, ends = case.bins.astype(kind), np.array([[n_before]]), np.array([[n_before + n_rows]])
    numbered = np.arange(len(case.rows), dtype=np.uint32)
    found, expected = (np.full((1, 2, OFFSETS[-1]), 77, np.int64) for _ in range(2))
    build_histograms(bins, IN_ORDER, case.gradients, begins, ends, OFFSETS, n_threads(), found)
    build_histograms(bins, numbered, case.gradients, begins, ends, OFFSETS, n_threads(), expected)
    np.testing.assert_array_equal(found, expected)


def test_the_widest_bins_are_summed() -> None:
    """65,535 value bins and the missing one: the largest number that sixteen bits hold."""
    bins = np.array([[65535, 0, 65534, 65535]], np.uint16)
    out = np.zeros((1, 2, 65536), np.int64)
    words = pack(np.array([1, 2, 3, 4]), np.array([5, 6, 7, 8]))
    build_histograms(
        bins,
        np.arange(4, dtype=np.uint32),
        words,
        np.array([[0]]),
        np.array([[4]]),
        np.array([0, 65536]),
        n_threads(),
        out,
    )
    assert out[0][:, [0, 65534, 65535]].tolist() == [[2, 3, 5], [6, 7, 13]]
    assert out.sum() == 10 + 26


@settings(max_examples=60, deadline=None)
@given(SIZES, SEEDS)
def test_node_sums_are_the_sums_of_the_nodes_gradients(sizes: list[int], seed: int) -> None:
    case = Rows.random(sizes, seed)
    out = np.empty((len(sizes), 2), np.int64)
    sum_nodes(case.gradients, case.begins, case.ends, out)
    expected = [
        [int(case.grads[begin:end].sum()), int(case.hessians[begin:end].sum())]
        for begin, end in zip(case.begins[:, 0], case.ends[:, 0], strict=True)
    ]
    assert out.tolist() == expected


def test_sums_beyond_thirty_two_bits_are_exact() -> None:
    n_rows, out = 20_000, np.empty((1, 2), np.int64)
    sum_nodes(pack(np.full(n_rows, -MAX_GRAD), np.full(n_rows, MAX_HESS)), np.array([[0]]), np.array([[n_rows]]), out)
    assert out.tolist() == [[-n_rows * MAX_GRAD, n_rows * MAX_HESS]]
