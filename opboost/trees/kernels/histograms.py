# mypy: disable-error-code="no-untyped-def,misc,call-arg"
"""Sums of gradients per bin and per node."""

from __future__ import annotations

import numpy as np
from numba import njit, prange

from opboost.trees.kernels.packing import LARGEST_GRAD_SUM, LARGEST_HESS_SUM, OPTIONS, PARALLEL, grad_of, hess_of

# Stands for the numbers of rows that are in the order of the table.
IN_ORDER = np.empty(0, dtype=np.uint32)

# Rows that share all but the lowest bits of their number, so many less the bytes of a bin, are near each other in the
# table: the bins of four columns take at most 512 KB.
_NEAR_BITS = 18

# Rows that are taken for near each other if the last one is near the piece's first.
_STRIDE = 1 << 7

# Bins of packed sums of all nodes of which a thread has the sums of four columns at a time: 1 MB.
_PACKED_SUMS = 1 << 15


@njit(**PARALLEL)
def crowds_of(bins):
    """Most rows that one bin of each column has within an area of the table."""
    crowds = np.empty(len(bins), dtype=np.int64)
    for column in prange(len(bins)):
        crowds[column] = _crowd_of(bins[column])
    return crowds


@njit(**OPTIONS)
def _crowd_of(column):
    crowd, area = np.int64(0), 1 << (_NEAR_BITS - column.itemsize)
    for first in range(0, len(column), area):
        counts = np.zeros(1 << (8 * column.itemsize), dtype=np.int32)
        for bin_ in column[first : first + area]:
            counts[bin_] += 1
        crowd = max(crowd, np.max(counts))
    return crowd


@njit(**PARALLEL)
def build_histograms(bins, crowds, rows, gradients, begins, ends, offsets, n_threads, out):
    """Write sums of gradients per bin: ``out[node, 0, bin]`` of g and ``out[node, 1, bin]`` of h.

    Packed gradients are added until the next ones might not fit the sum of a bin, which is then taken apart. How many
    rows a bin can have, `crowds` say, of the columns as from `crowds_of` or too many. `IN_ORDER` for `rows` says that
    gradients are in the order of the table.

    Every one of `n_threads` takes an equal share of the rows, in the order of the nodes. Of a node that two threads
    share, the second one's sums are kept beside `out` and added at the end. Within its share, a thread goes from one
    part of the table to the next and takes the rows of all nodes there, whose bins lie in the same lines of the cache.
    """
    beside = np.zeros((n_threads - 1, 2, out.shape[2]), dtype=np.int64)
    shared = np.empty(n_threads, dtype=np.int64)
    for thread in prange(n_threads):
        share = np.int64(thread)
        shared[share] = _sum_share(
            bins, crowds, rows, gradients, begins, ends, offsets, share, n_threads, beside, out
        )  # fmt: skip
    for thread in range(n_threads):
        if shared[thread] >= 0:
            out[shared[thread]] += beside[thread - 1]


@njit(**OPTIONS)
def _sum_share(bins, crowds, rows, gradients, begins, ends, offsets, thread, n_threads, beside, out):
    """Sum a thread's share of the rows; returns the node that an earlier share has a part of, or -1.

    The sums of that node are added to ``beside[thread - 1]``, those of nodes that begin in the share written to `out`.
    """
    n_nodes, width = len(begins), np.max(offsets[1:] - offsets[:-1])
    starts = np.zeros(n_nodes + 1, dtype=np.int64)
    starts[1:] = np.cumsum(ends - begins)
    first, last = starts[n_nodes] * thread // n_threads, starts[n_nodes] * (thread + 1) // n_threads
    n_together = max(min(_PACKED_SUMS // width, n_nodes), 1)
    packed, is_own = np.zeros((n_together, 4, width), dtype=np.int64), np.empty(n_together, dtype=np.bool_)
    near_bits, shared = np.uint32(_NEAR_BITS - bins.itemsize), -1
    for low in range(0, n_nodes, n_together):
        high = min(low + n_together, n_nodes)
        firsts, lasts = begins[low:high].copy(), ends[low:high].copy()
        for node in range(low, high):
            # What lies before and behind the share is left out.
            firsts[node - low] += max(first - starts[node], 0)
            lasts[node - low] -= max(starts[node + 1] - last, 0)
            if starts[node] < first < starts[node + 1] and first < last:
                shared = node
            is_own[node - low] = first <= starts[node] and (starts[node] < last or thread == n_threads - 1)
        pieces, n_fit, some = _pieces(rows, firsts, lasts, near_bits), _n_fit(gradients, firsts, lasts), out[low:high]
        for column in range(0, len(bins), 4):
            crowd = np.max(crowds[column : column + 4])
            _sum_columns(
                bins, column, crowd, rows, gradients, pieces, n_fit, offsets, packed, is_own, beside, thread, some
            )  # fmt: skip
    return shared


@njit(**OPTIONS)
def _pieces(rows, firsts, lasts, near_bits):
    """Cut the nodes' rows into pieces that are near each other in the table.

    Returns one line per piece, by place in the table: node, begin, end, and how many of its rows may be elsewhere.
    Pieces of several nodes whose rows are near each other follow one another: all read the same bins from the cache.
    """
    pieces, areas, n_pieces = np.empty((len(firsts), 4), dtype=np.int64), np.empty(len(firsts), dtype=np.int64), 0
    for node in range(len(firsts)):
        begin = firsts[node]
        while begin < lasts[node]:
            if n_pieces == len(pieces):
                pieces, areas = np.concatenate((pieces, pieces)), np.concatenate((areas, areas))
            end, n_elsewhere = _end_of_piece(rows, begin, lasts[node], near_bits)
            areas[n_pieces] = (rows[begin] if len(rows) else begin) >> near_bits
            piece = pieces[n_pieces]
            piece[0], piece[1], piece[2], piece[3] = node, begin, end, n_elsewhere
            begin = end
            n_pieces += 1
    return pieces[np.argsort(areas[:n_pieces], kind="mergesort")]


@njit(**OPTIONS)
def _end_of_piece(rows, begin, last, near_bits):
    """Where the rows leave the area of the first one; and how many before may be elsewhere.

    Rows rise but at few places, so one of `_STRIDE` says where all of these are.
    """
    if len(rows) == 0:
        return min(last, ((begin >> near_bits) + 1) << near_bits), 0
    end, n_elsewhere = begin, 0
    while end < last:
        there = min(end + _STRIDE, last)
        while there > end and rows[there - 1] >> near_bits != rows[begin] >> near_bits:
            there -= 1
        if there == end:
            break
        if _any_elsewhere(rows[end:there], rows[begin], near_bits):
            n_elsewhere += there - end
        end = there
    return end, n_elsewhere


@njit(**OPTIONS)
def _any_elsewhere(rows, first, near_bits):
    differ = np.uint32(0)
    for i in range(len(rows)):
        differ |= rows[i] ^ first
    return differ >> near_bits != 0


@njit(**OPTIONS)
def _n_fit(gradients, firsts, lasts):
    """How many rows of the nodes fit a packed sum, whichever they are; counts are at most 16, so 128 do."""
    grad, hess = np.int64(1), np.int64(1)
    for node in range(len(firsts)):
        for i in range(firsts[node], lasts[node]):
            grad = max(grad, abs(grad_of(gradients[i])))
            hess = max(hess, hess_of(gradients[i]))
    return min(LARGEST_GRAD_SUM // grad, LARGEST_HESS_SUM // hess)


@njit(**OPTIONS)
def _sum_columns(
    bins, column, crowd, rows, gradients, pieces, n_fit, offsets, packed, is_own, beside, thread, out
):  # fmt: skip
    """Sum pieces of nodes to the histograms of four neighbouring columns; `packed` is zero before and after.

    Four columns share one pass: a row's number and gradient are read once for four independent additions. Where fewer
    than four columns are left, the last one fills the places, and what it gets there is thrown away. The first sums of
    an own node are written, all others added.
    """
    last = len(bins) - 1
    columns = bins[column], bins[min(column + 1, last)], bins[min(column + 2, last)], bins[min(column + 3, last)]
    # Most rows that a bin of each node's packed sums may hold.
    held, is_fresh = np.zeros(len(out), dtype=np.int64), is_own.copy()
    for piece in pieces:
        node, begin, end, n_elsewhere = piece[0], piece[1], piece[2], piece[3]
        while begin < end:
            most = min(end - begin, crowd + n_elsewhere)
            stop, most = (end, most) if most <= n_fit else (begin + n_fit, n_fit)
            if held[node] + most > n_fit:
                sums = out[node] if is_own[node] else beside[thread - 1]
                _take_columns_apart(packed[node], column, offsets, is_fresh[node], sums)
                held[node], is_fresh[node] = 0, False
            held[node] += most
            here = slice(begin, stop)
            if len(rows):
                _add_block(columns, rows[here], gradients[here], packed[node])
            else:
                _add_run(columns, here, gradients[here], packed[node])
            begin = stop
    for node in range(len(out)):
        if held[node] or is_fresh[node]:
            sums = out[node] if is_own[node] else beside[thread - 1]
            _take_columns_apart(packed[node], column, offsets, is_fresh[node], sums)


@njit(**OPTIONS)
def _add_run(columns, here, gradients, packed):
    """The same as `_add_block` for rows that follow one another (a quarter less time)."""
    column0, column1, column2, column3 = columns[0][here], columns[1][here], columns[2][here], columns[3][here]
    sums0, sums1, sums2, sums3 = packed[0], packed[1], packed[2], packed[3]
    for i in range(len(gradients)):
        gradient = gradients[i]
        sums0[column0[i]] += gradient
        sums1[column1[i]] += gradient
        sums2[column2[i]] += gradient
        sums3[column3[i]] += gradient


@njit(**OPTIONS)
def _add_block(columns, rows, gradients, packed):
    column0, column1, column2, column3 = columns
    sums0, sums1, sums2, sums3 = packed[0], packed[1], packed[2], packed[3]
    for i in range(len(rows)):
        row, gradient = rows[i], gradients[i]
        sums0[column0[row]] += gradient
        sums1[column1[row]] += gradient
        sums2[column2[row]] += gradient
        sums3[column3[row]] += gradient


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
        for i in range(begins[node], ends[node]):
            grad += grad_of(gradients[i])
            hess += hess_of(gradients[i])
        out[node, 0] = grad
        out[node, 1] = hess
