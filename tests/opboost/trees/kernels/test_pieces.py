"""Pieces that histograms are summed by: every row once, area by area, and as many as fit a packed sum."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from opboost.trees.kernels.packing import GRAD_BITS, HESS_BITS, LARGEST_GRAD_SUM, LARGEST_HESS_SUM
from opboost.trees.kernels.pieces import STRIDE, node_sizes, pieces_of

SEEDS = st.integers(0, 2**32 - 1)
MAX_GRAD, MAX_HESS = 2**GRAD_BITS - 1, 2**HESS_BITS - 1

pytestmark = pytest.mark.usefixtures("one_thread")


def packed(grads: np.ndarray, hessians: np.ndarray) -> np.ndarray:
    return (hessians.astype(np.int64) << 35) + grads.astype(np.int64)


def areas_of(sizes: list[list[int]], rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows of areas, of which `sizes` says how many each node has, ascending; where every node's begin and end."""
    counts = np.array(sizes)
    ends = np.cumsum(counts).reshape(counts.shape).T
    rows, first = [], 0
    for of_nodes in counts:
        node_of_row = rng.permutation(np.repeat(np.arange(len(of_nodes)), of_nodes))
        rows.append(first + np.argsort(node_of_row, kind="stable"))
        first += len(node_of_row)
    return np.concatenate(rows).astype(np.uint32), ends - counts.T, ends


SIZES = st.integers(1, 4).flatmap(
    lambda n_nodes: st.lists(st.lists(st.integers(0, 300), min_size=n_nodes, max_size=n_nodes), min_size=1, max_size=4)
)


@settings(max_examples=60, deadline=None)
@given(SIZES, SEEDS, st.integers(1, 3), st.booleans())
def test_parts_hold_every_row_once_and_go_from_area_to_area(
    sizes: list[list[int]], seed: int, n_parts: int, in_order: bool
) -> None:
    rng = np.random.default_rng(seed)
    rows, begins, ends = areas_of(sizes, rng)
    grads, hessians = rng.integers(-MAX_GRAD, MAX_GRAD + 1, len(rows)), rng.integers(0, MAX_HESS + 1, len(rows))
    counts, held = node_sizes(begins, ends), []
    assert counts.tolist() == np.sum(sizes, axis=0).tolist()
    for part in range(n_parts):
        firsts, lasts = counts * part // n_parts, counts * (part + 1) // n_parts
        pieces = pieces_of(rows[:0] if in_order else rows, packed(grads, hessians), begins, ends, firsts, lasts)
        assert pieces[:, 1].tolist() == sorted(pieces[:, 1])
        for node, begin, end, grad, hess in pieces[:, :5]:
            assert any(begins[node, area] <= begin < end <= ends[node, area] for area in range(len(sizes)))
            assert grad == np.abs(grads[begin:end]).sum()
            assert hess == hessians[begin:end].sum()
            held.extend(range(begin, end))
    assert sorted(held) == list(range(len(rows)))


@settings(max_examples=60, deadline=None)
@given(SIZES, SEEDS)
def test_while_an_area_is_summed_the_bins_of_the_next_ones_rows_are_fetched_once(
    sizes: list[list[int]], seed: int
) -> None:
    rows, begins, ends = areas_of(sizes, np.random.default_rng(seed))
    gradients, counts = np.ones(len(rows), np.int64), node_sizes(begins, ends)
    pieces = pieces_of(rows, gradients, begins, ends, 0 * counts, counts)
    of_areas = [
        (pieces[(begin <= pieces[:, 1]) & (pieces[:, 1] < end)], np.sort(rows[begin:end]))
        for begin, end in zip(begins.min(axis=0), ends.max(axis=0), strict=True)
        if begin < end
    ]
    for (some, _), (_, next_rows) in itertools.pairwise(of_areas):
        assert (some[0, 5], some[-1, 6]) == (next_rows[0], next_rows[-1])
        assert some[1:, 5].tolist() == some[:-1, 6].tolist()
        assert (some[:, 5] <= some[:, 6]).all()
    if of_areas:
        assert not of_areas[-1][0][:, 5:].any()


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 5000), st.integers(0, 5000), SEEDS)
def test_a_piece_fits_a_packed_sum_and_the_next_rows_do_not(n_large: int, n_small: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    grads = rng.permutation(np.concatenate([np.full(n_large, -MAX_GRAD), np.full(n_small, 1)]))
    hessians = rng.permutation(np.concatenate([np.full(n_large, MAX_HESS), np.full(n_small, 0)]))
    n, none = len(grads), np.zeros((1, 1), np.int64)
    pieces = pieces_of(np.empty(0, np.uint32), packed(grads, hessians), none, none + n, none[0], none[0] + n)
    assert (pieces[:, 3] <= LARGEST_GRAD_SUM).all()
    assert (pieces[:, 4] <= LARGEST_HESS_SUM).all()
    assert pieces[1:, 1].tolist() == pieces[:-1, 2].tolist()
    for end in pieces[:-1, 2]:
        begin, there = pieces[pieces[:, 2] == end][0, 1], min(end + STRIDE, n)
        together = np.abs(grads[begin:there]).sum(), hessians[begin:there].sum()
        assert together[0] > LARGEST_GRAD_SUM or together[1] > LARGEST_HESS_SUM
