# mypy: disable-error-code="no-untyped-def,misc,call-arg,var-annotated"
"""Sums of gradients per bin and per node."""

from __future__ import annotations

import numpy as np
from numba import njit, prange

from opboost.trees.kernels.packing import (
    LARGEST_GRAD_SUM,
    LARGEST_HESS_SUM,
    OPTIONS,
    PARALLEL,
    cell_bits,
    fetch,
    grad_of,
    hess_of,
    word_at,
)
from opboost.trees.kernels.pieces import node_sizes, pieces_of

# Stands for the numbers of rows that are in the order of the table.
IN_ORDER = np.empty(0, dtype=np.uint32)

# Rows that are summed before the next bins are fetched, and bytes of a line of the cache.
_ROWS_BETWEEN, _LINE = 64, 64

# Threads share a node of at least so many rows for each bin of a column: adding up their sums takes less time then.
_SHARED_ROWS = 8

# Sums of g and h of the other threads, kept beside the first one's: 8 MB.
_BESIDE = 1 << 20

# Bins of packed sums of all nodes of which a thread has the sums of four columns at a time: 1 MB.
_PACKED_SUMS = 1 << 15


@njit(**PARALLEL)
def build_histograms(bins, rows, gradients, begins, ends, offsets, n_threads, out):
    """Write sums of gradients per bin: ``out[node, 0, bin]`` of g and ``out[node, 1, bin]`` of h.

    Packed gradients are added until the next ones might not fit the sum, which is then taken apart. `IN_ORDER` for
    `rows` says that gradients are in the order of the table.

    ``begins[node, area]`` and ``ends[node, area]`` say where a node's rows of an area of the table are. Every one of
    `n_threads` takes an equal part of each node's rows, and goes from one area to the next: the rows of all nodes there
    have their bins in the same lines of the cache. The other threads' sums are kept beside the first one's and added at
    the end. Nodes of few rows belong to one thread each, in turn.
    """
    n_together = max(1, min(len(begins), _BESIDE // (2 * out.shape[2] * max(n_threads - 1, 1))))
    beside = np.empty((n_threads - 1, n_together, 2, out.shape[2]), dtype=np.int64)
    least, sizes = _SHARED_ROWS * offsets[-1] // len(bins), node_sizes(begins, ends)
    for low in range(0, len(begins), n_together):
        node_sums, firsts, lasts = out[low : low + n_together], begins[low:], ends[low:]
        for thread in prange(n_threads):
            sum_part(
                bins, rows, gradients, firsts, lasts, offsets, least, np.int64(thread), n_threads, beside, node_sums
            )
        if n_threads > 1:
            for node in prange(len(node_sums)):
                if sizes[low + node] >= least:
                    for other in range(n_threads - 1):
                        node_sums[node] += beside[other, node]


@njit(**OPTIONS)
def sum_part(bins, rows, gradients, begins, ends, offsets, least, thread, n_threads, beside, out):
    """Write the sums of a thread's part of the first nodes, as many as `out` has: own ones to it, others beside it."""
    n_nodes, width = len(out), np.max(offsets[1:] - offsets[:-1])
    n_together = max(min(_PACKED_SUMS // width, n_nodes), 1)
    packed, is_own = np.zeros((n_together, 4, width), dtype=np.int64), np.empty(n_together, dtype=np.bool_)
    sizes = node_sizes(begins, ends)
    for low in range(0, n_nodes, n_together):
        own_sums = out[low : low + n_together]
        other_sums = beside[max(thread - 1, 0), low : low + n_together] if n_threads > 1 else own_sums
        firsts, lasts = np.empty((2, len(own_sums)), dtype=np.int64)
        for node in range(len(own_sums)):
            size = sizes[low + node]
            if size >= least:
                firsts[node], lasts[node] = size * thread // n_threads, size * (thread + 1) // n_threads
                is_own[node] = thread == 0
            else:
                is_own[node] = (low + node) % n_threads == thread
                firsts[node], lasts[node] = 0, size if is_own[node] else 0
        pieces = pieces_of(rows, gradients, begins[low:], ends[low:], firsts, lasts)
        for column in range(0, len(bins), 4):
            _sum_columns(bins, column, rows, gradients, pieces, offsets, packed, is_own, other_sums, own_sums)


@njit(**OPTIONS)
def _sum_columns(bins, column, rows, gradients, pieces, offsets, packed, is_own, beside, out):
    """Sum pieces of nodes to the histograms of four neighbouring columns; `packed` is zero before and after.

    Four columns share one pass: a row's number and gradient are read once for four independent additions. Where fewer
    than four columns are left, the last one fills the places, and what it gets there is thrown away. The first sums of
    a node are written, all others added.
    """
    last = len(bins) - 1
    columns = bins[column], bins[min(column + 1, last)], bins[min(column + 2, last)], bins[min(column + 3, last)]
    # Sums of abs(g) and of h of what each node's packed sums hold.
    held, is_fresh = np.zeros((len(out), 2), dtype=np.int64), np.ones(len(out), dtype=np.bool_)
    for piece in pieces:
        node, here, grad, hess = piece[0], slice(piece[1], piece[2]), piece[3], piece[4]
        if held[node, 0] + grad > LARGEST_GRAD_SUM or held[node, 1] + hess > LARGEST_HESS_SUM:
            sums = out[node] if is_own[node] else beside[node]
            _take_columns_apart(packed[node], column, offsets, is_fresh[node], sums)
            held[node], is_fresh[node] = 0, False
        held[node, 0] += grad
        held[node, 1] += hess
        if len(bins) - column <= 2:
            _add_pair(columns, rows[here] if len(rows) else rows, piece[1], gradients[here], packed[node])
        elif len(rows):
            _add_block(columns, rows[here], gradients[here], packed[node], piece[5], piece[6])
        else:
            _add_run(columns, here, gradients[here], packed[node])
    for node in range(len(out)):
        if held[node].any() or is_fresh[node]:
            sums = out[node] if is_own[node] else beside[node]
            _take_columns_apart(packed[node], column, offsets, is_fresh[node], sums)


@njit(**OPTIONS)
def _add_run(columns, here, gradients, packed):
    """The same as `_add_block` for rows that follow one another: bins are read a word at a time (a third less time)."""
    column0, column1, column2, column3 = columns[0][here], columns[1][here], columns[2][here], columns[3][here]
    sums0, sums1, sums2, sums3 = packed[0], packed[1], packed[2], packed[3]
    n_bits = cell_bits(column0)
    lowest, n_together = (np.uint64(1) << n_bits) - np.uint64(1), np.int64(np.uint64(64) // n_bits)
    n_whole = len(gradients) // n_together * n_together
    for first in range(0, n_whole, n_together):
        word0, word1 = word_at(column0, first), word_at(column1, first)
        word2, word3 = word_at(column2, first), word_at(column3, first)
        for i in range(n_together):
            gradient = gradients[first + i]
            sums0[word0 & lowest] += gradient
            sums1[word1 & lowest] += gradient
            sums2[word2 & lowest] += gradient
            sums3[word3 & lowest] += gradient
            word0, word1, word2, word3 = word0 >> n_bits, word1 >> n_bits, word2 >> n_bits, word3 >> n_bits
    for i in range(n_whole, len(gradients)):
        gradient = gradients[i]
        sums0[column0[i]] += gradient
        sums1[column1[i]] += gradient
        sums2[column2[i]] += gradient
        sums3[column3[i]] += gradient


@njit(**OPTIONS)
def _add_block(columns, rows, gradients, packed, ahead, last_ahead):
    """Add the gradients of rows to the sums of their bins, and meanwhile fetch the bins of rows of the next area."""
    column0, column1, column2, column3 = columns
    sums0, sums1, sums2, sums3 = packed[0], packed[1], packed[2], packed[3]
    step = _ROWS_BETWEEN * (last_ahead - ahead) // max(len(rows), 1)
    for first in range(0, len(rows), _ROWS_BETWEEN):
        for place in range(ahead, min(ahead + step, last_ahead), _LINE // column0.itemsize):
            fetch(column0, place)
            fetch(column1, place)
            fetch(column2, place)
            fetch(column3, place)
        ahead += step
        block_rows, block_gradients = rows[first : first + _ROWS_BETWEEN], gradients[first : first + _ROWS_BETWEEN]
        for i in range(len(block_rows)):
            row, gradient = block_rows[i], block_gradients[i]
            sums0[column0[row]] += gradient
            sums1[column1[row]] += gradient
            sums2[column2[row]] += gradient
            sums3[column3[row]] += gradient


@njit(**OPTIONS)
def _add_pair(columns, rows, first, gradients, packed):
    """The same for the last two columns of a table, whose rows follow one another from `first` on without `rows`."""
    column0, column1, sums0, sums1 = columns[0], columns[1], packed[0], packed[1]
    if len(rows):
        for i in range(len(rows)):
            row, gradient = rows[i], gradients[i]
            sums0[column0[row]] += gradient
            sums1[column1[row]] += gradient
    else:
        for i in range(len(gradients)):
            gradient = gradients[i]
            sums0[column0[first + i]] += gradient
            sums1[column1[first + i]] += gradient


@njit(**OPTIONS)
def _take_columns_apart(packed, column, offsets, is_fresh, out):
    """Take the packed sums of up to four columns apart, and clear them."""
    for k in range(4):
        if column + k < len(offsets) - 1:
            here, there = offsets[column + k], offsets[column + k + 1]
            _take_apart(packed[k, : there - here], is_fresh, out[0, here:there], out[1, here:there])
        else:
            packed[k] = 0


@njit(**OPTIONS)
def _take_apart(sums, is_fresh, grads, hessians):
    """Add packed sums to those of g and of h, which count as zero while they are fresh, and clear the packed ones."""
    if is_fresh:
        for b in range(len(sums)):
            grads[b], hessians[b] = grad_of(sums[b]), hess_of(sums[b])
    else:
        for b in range(len(sums)):
            grads[b] += grad_of(sums[b])
            hessians[b] += hess_of(sums[b])
    for b in range(len(sums)):
        sums[b] = 0


@njit(**PARALLEL)
def sum_nodes(gradients, begins, ends, out):
    """Sum gradients per node: ``out[node] = (sum of g, sum of h)``."""
    for node in prange(len(begins)):
        grad, hess = np.int64(0), np.int64(0)
        for area in range(begins.shape[1]):
            for i in range(begins[node, area], ends[node, area]):
                grad += grad_of(gradients[i])
                hess += hess_of(gradients[i])
        out[node, 0] = grad
        out[node, 1] = hess
