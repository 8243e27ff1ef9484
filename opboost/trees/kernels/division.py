# mypy: disable-error-code="no-untyped-def,misc,call-arg,assignment"
"""Rows to children, in place, and leaves to scores. A split is a table: does a bin go left?"""

from __future__ import annotations

import numpy as np
from numba import njit, prange

from opboost.trees.kernels.packing import OPTIONS, PARALLEL

# Rows that one thread divides at a time. Half as many leave shorter runs of a node in the order of the table, and
# histograms take 5 % more time.
ROWS = 1 << 14


@njit(**PARALLEL)
def number_rows(rows):
    """Put all rows into the order of the table."""
    for i in prange(len(rows)):
        rows[i] = i


@njit(**OPTIONS)
def divide_nodes(bins, rows, gradients, begins, ends, nodes, columns, goes_left, lefts):
    """Divide the rows of nodes among their children, siblings side by side.

    ``begins[node]`` and ``ends[node]`` say where a node's rows are; they get those of the children.
    """
    middles = np.empty(len(nodes), dtype=np.int64)
    divide_rows(bins, rows, gradients, begins[nodes], ends[nodes], columns, goes_left, middles)
    for k in range(len(nodes)):
        left = lefts[k]
        begins[left], ends[left] = begins[nodes[k]], middles[k]
        begins[left + 1], ends[left + 1] = middles[k], ends[nodes[k]]


@njit(**PARALLEL)
def divide_rows(bins, rows, gradients, begins, ends, columns, goes_left, middles):
    """Divide every node's rows into those that go left and, from ``middles[node]`` on, those that go right.

    Gradients move along. First every block of a node is divided by one thread. What then lies on the
    wrong side of the node's middle, whole runs of rows, changes places.
    """
    nodes, firsts, lasts = _blocks(begins, ends)
    n_left = np.empty(len(nodes), dtype=np.int64)
    for block in prange(len(nodes)):
        k, here = nodes[block], slice(firsts[block], lasts[block])
        n_left[block] = _divide_block(bins[columns[k]], rows[here], gradients[here], goes_left[k])
    middles[:] = begins
    for block in range(len(nodes)):
        middles[nodes[block]] += n_left[block]
    if not _repeats(nodes):
        return
    for k in prange(len(begins)):
        here = slice(np.searchsorted(nodes, k), np.searchsorted(nodes, k + 1))
        if here.stop - here.start > 1:
            _exchange_runs(rows, gradients, firsts[here], lasts[here], n_left[here], middles[k])


@njit(**OPTIONS)
def _repeats(nodes):
    """Whether a node has several blocks, which follow one another."""
    return np.any(nodes[1:] == nodes[:-1])


@njit(**OPTIONS)
def _divide_block(column, rows, gradients, goes_left):
    """Put rows that go left before the others, both in their old order; returns how many go left."""
    right_rows, right_gradients = np.empty(len(rows), rows.dtype), np.empty(len(gradients), gradients.dtype)
    left, right = 0, 0
    for i in range(len(rows)):
        # Which way a row goes cannot be predicted, so it is written to both places and there is no branch.
        row, gradient = rows[i], gradients[i]
        flag = np.int64(goes_left[column[row]])
        rows[left], right_rows[right] = row, row
        gradients[left], right_gradients[right] = gradient, gradient
        left += flag
        right += 1 - flag
    rows[left:], gradients[left:] = right_rows[:right], right_gradients[:right]
    return left


@njit(**OPTIONS)
def _exchange_runs(rows, gradients, firsts, lasts, n_left, middle):
    """Exchange runs that go right but lie before the middle with runs that go left but lie behind it."""
    low, high = 0, 0
    begin, low_end, other, high_end = 0, 0, 0, 0
    while True:
        while begin == low_end and low < len(firsts) and firsts[low] < middle:
            begin, low_end = min(firsts[low] + n_left[low], middle), min(lasts[low], middle)
            low += 1
        while other == high_end and high < len(firsts):
            other = max(firsts[high], middle)
            high_end = max(firsts[high] + n_left[high], other)
            high += 1
        n = min(low_end - begin, high_end - other)
        if n == 0:
            return
        _exchange(rows[begin : begin + n], rows[other : other + n])
        _exchange(gradients[begin : begin + n], gradients[other : other + n])
        begin += n
        other += n


@njit(**OPTIONS)
def _exchange(some, others):
    for i in range(len(some)):
        value = some[i]
        some[i] = others[i]
        others[i] = value


@njit(**OPTIONS)
def _blocks(begins, ends):
    """Cut every node's range into blocks: the node, the begin and the end of each."""
    n_blocks = 0
    for k in range(len(begins)):
        n_blocks += (ends[k] - begins[k] + ROWS - 1) // ROWS
    nodes, firsts, lasts = np.empty((3, n_blocks), dtype=np.int64)
    block = 0
    for k in range(len(begins)):
        for begin in range(begins[k], ends[k], ROWS):
            nodes[block], firsts[block], lasts[block] = k, begin, min(begin + ROWS, ends[k])
            block += 1
    return nodes, firsts, lasts


@njit(**PARALLEL)
def add_to_scores(scores, rows, begins, ends, values, n_threads):
    """Add each leaf's value to the scores of its rows.

    A thread takes an equal part of each node's rows. As these mostly rise, it is the thread's own part of the scores,
    which no other core's cache holds (two threads take a quarter less time).
    """
    for thread in prange(n_threads):
        for k in range(len(begins)):
            size, value = ends[k] - begins[k], values[k]
            for i in range(begins[k] + size * thread // n_threads, begins[k] + size * (thread + 1) // n_threads):
                scores[rows[i]] += value


@njit(**PARALLEL)
def add_children_to_scores(
    bins, scores, rows, begins, ends, splits, columns, goes_left, lefts, rights, values, n_threads
):
    """Add the values of two leaves to the scores of their parent's rows, which need not be divided for that.

    Nodes `splits` are the parents; begins, ends and values are those of all nodes. Which way a row goes cannot be
    predicted, so values are looked up by its bin (a branch takes twice the time).
    """
    of_bins = np.where(goes_left, values[lefts][:, None], values[rights][:, None])
    for thread in prange(n_threads):
        for k in range(len(splits)):
            begin, size = begins[splits[k]], ends[splits[k]] - begins[splits[k]]
            column, of_bin = bins[columns[k]], of_bins[k]
            for i in range(begin + size * thread // n_threads, begin + size * (thread + 1) // n_threads):
                row = rows[i]
                scores[row] += of_bin[column[row]]
