# mypy: disable-error-code="no-untyped-def,misc,call-arg"
"""Sums of gradients per bin and per node."""

from __future__ import annotations

import numpy as np
from numba import get_num_threads, njit, prange
from numpy.typing import NDArray

from opboost.arrays import Bins, Sums
from opboost.trees.kernels.packing import OPTIONS, grad_of, hess_of

# Stands for the numbers of rows that are in the order of the table.
IN_ORDER = np.empty(0, dtype=np.uint32)


def build_histograms(
    bins: Bins,
    rows: NDArray[np.uint32],
    gradients: NDArray[np.int64],
    begins: NDArray[np.int64],
    ends: NDArray[np.int64],
    offsets: NDArray[np.int64],
    block: int,
    out: Sums,
) -> None:
    """Sum gradients per bin: ``out[node, 0, bin]`` of g and ``out[node, 1, bin]`` of h. `out` starts at zero.

    Packed gradients of up to `block` rows are added before the sum is taken apart. `IN_ORDER` for `rows` says that
    gradients are in the order of the table.

    Every thread takes an equal share of the rows, in the order of the nodes. Of a node that two threads share, the
    second one's sums are kept beside `out` and added at the end.
    """
    # Asked for inside the loop, the number of threads would keep the compiled code out of the cache.
    _build_histograms(bins, rows, gradients, begins, ends, offsets, block, get_num_threads(), out)


@njit(parallel=True, **OPTIONS)
def _build_histograms(bins, rows, gradients, begins, ends, offsets, block, n_threads, out):
    n_nodes = len(begins)
    starts = np.zeros(n_nodes + 1, dtype=np.int64)
    starts[1:] = np.cumsum(ends - begins)
    width = np.max(offsets[1:] - offsets[:-1])
    beside = np.zeros((n_threads - 1, 2, out.shape[2]), dtype=np.int64)
    shared = np.full(n_threads, -1)
    for thread in prange(n_threads):
        first, last = starts[n_nodes] * thread // n_threads, starts[n_nodes] * (thread + 1) // n_threads
        sums = np.zeros((4, width), dtype=np.int64)
        for column in range(0, len(bins), 4):
            for node in range(n_nodes):
                begin, end = max(starts[node], first), min(starts[node + 1], last)
                if begin >= end:
                    continue
                target = out[node]
                if begin > starts[node]:
                    shared[thread] = node
                    target = beside[thread - 1]
                shift = begins[node] - starts[node]
                _sum_columns(bins, column, rows, gradients, begin + shift, end + shift, offsets, block, sums, target)
    for thread in range(n_threads):
        if shared[thread] >= 0:
            out[shared[thread]] += beside[thread - 1]


@njit(**OPTIONS)
def _sum_columns(bins, column, rows, gradients, begin, end, offsets, block, sums, out):
    """Add ``rows[begin:end]`` to the histograms of four neighbouring columns; `sums` is zero before and after.

    Four columns share one pass: a row's number and gradient are read once for four independent additions. Where fewer
    than four columns are left, the last one fills the places, and what it gets there is thrown away.
    """
    n_columns, last = len(bins), len(bins) - 1
    column0, column1 = bins[column], bins[min(column + 1, last)]
    column2, column3 = bins[min(column + 2, last)], bins[min(column + 3, last)]
    for first in range(begin, end, block):
        here = slice(first, min(first + block, end))
        some = gradients[here]
        if len(rows):
            _add_block(column0, column1, column2, column3, rows[here], some, sums[0], sums[1], sums[2], sums[3])
        else:
            _add_run(
                column0[here], column1[here], column2[here], column3[here], some, sums[0], sums[1], sums[2], sums[3]
            )
        for k in range(4):
            if column + k < n_columns:
                here, there = offsets[column + k], offsets[column + k + 1]
                _take_apart(sums[k, : there - here], out[0, here:there], out[1, here:there])
            else:
                sums[k] = 0


@njit(**OPTIONS)
def _add_run(column0, column1, column2, column3, gradients, sums0, sums1, sums2, sums3):
    """The same as `_add_block` for rows that follow one another (a quarter less time)."""
    for i in range(len(gradients)):
        gradient = gradients[i]
        sums0[column0[i]] += gradient
        sums1[column1[i]] += gradient
        sums2[column2[i]] += gradient
        sums3[column3[i]] += gradient


@njit(**OPTIONS)
def _add_block(column0, column1, column2, column3, rows, gradients, sums0, sums1, sums2, sums3):
    for i in range(len(rows)):
        row, gradient = rows[i], gradients[i]
        sums0[column0[row]] += gradient
        sums1[column1[row]] += gradient
        sums2[column2[row]] += gradient
        sums3[column3[row]] += gradient


@njit(**OPTIONS)
def _take_apart(sums, grads, hessians):
    """Add packed sums to those of g and of h, and clear them."""
    for b in range(len(sums)):
        word = sums[b]
        grads[b] += grad_of(word)
        hessians[b] += hess_of(word)
    for b in range(len(sums)):
        sums[b] = 0


@njit(parallel=True, **OPTIONS)
def sum_nodes(gradients, begins, ends, out):
    """Sum gradients per node: ``out[node] = (sum of g, sum of h)``."""
    for node in prange(len(begins)):
        grad, hess = np.int64(0), np.int64(0)
        for i in range(begins[node], ends[node]):
            grad += grad_of(gradients[i])
            hess += hess_of(gradients[i])
        out[node, 0] = grad
        out[node, 1] = hess
