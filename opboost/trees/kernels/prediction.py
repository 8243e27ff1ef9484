# mypy: disable-error-code="no-untyped-def,misc,call-arg"
"""Values to bins, and rows to scores."""

from __future__ import annotations

import math

import numpy as np
from numba import njit, prange

from opboost.trees.kernels.packing import OPTIONS, PARALLEL

# Rows that walk a tree together: each step of one does not wait for the others.
_TOGETHER = 128

# Rows of one column that one thread places in bins at a time.
_ROWS = 1 << 15


@njit(**PARALLEL)
def place_in_bins(values, cuts, cut_starts, out):
    """Bin of every value, ``out[column, row]``: the number of cuts below it; NaN goes to the bin behind the last."""
    n_rows, n_columns = values.shape
    for task in prange(n_columns * ((n_rows + _ROWS - 1) // _ROWS)):
        c, block = task % n_columns, task // n_columns
        edges = cuts[cut_starts[c] : cut_starts[c + 1]]
        below = np.empty(_TOGETHER, dtype=np.int32)
        for first in range(block * _ROWS, min((block + 1) * _ROWS, n_rows), _TOGETHER):
            block_values = values[first : min(first + _TOGETHER, n_rows), c]
            _count_below(edges, block_values, below)
            for i in range(len(block_values)):
                out[c, first + i] = len(edges) + 1 if math.isnan(block_values[i]) else below[i]


@njit(**OPTIONS)
def _count_below(edges, values, below):
    """Number of edges below each value, by a binary search whose steps are the same for all values.

    Several values are searched for together, without a branch, so that none waits for the other.
    """
    below[: len(values)] = 0
    left = len(edges)
    while left > 0:
        half = (left + 1) // 2
        for i in range(len(values)):
            below[i] += half if edges[below[i] + half - 1] < values[i] else 0
        left -= half


@njit(**OPTIONS)
def is_sound(links, numbers):
    """True if a tree's numbers are finite, and every node but the first is the child of one node before it.

    So every walk ends in a leaf.

    Parameters
    ----------
    links : ndarray of int64, shape (3, n_nodes)
        Columns, -1 for a leaf; left and right children, which must be 0 for a leaf.
    numbers : ndarray of float64, shape (n_kinds, n_nodes)
    """
    n_nodes = links.shape[1]
    has_parent = np.zeros(n_nodes, dtype=np.bool_)
    for node in range(n_nodes):
        if links[0, node] < 0:
            if links[0, node] != -1 or links[1, node] != 0 or links[2, node] != 0:
                return False
            continue
        for child in links[1:, node]:
            if not node < child < n_nodes or has_parent[child]:
                return False
            has_parent[child] = True
    return bool(has_parent[1:].all() and np.isfinite(numbers).all())


@njit(**PARALLEL)
def predict_scores(
    features, roots, depths, outputs, columns, thresholds, missing_left, lefts, places, sets, values, out
):
    """Add every tree's leaf value to ``out[row, output]``.

    NaN is missing; ``x <= threshold`` goes to node ``lefts[node]``, anything else to the next one. A leaf is its own
    left child and sends nothing right, so all rows of a block take as many steps as the tree is deep, without a branch.
    A node whose place is not negative asks instead whether the category x is in ``sets[place]``.
    """
    n_rows = len(features)
    for block in prange((n_rows + _TOGETHER - 1) // _TOGETHER):
        rows = features[block * _TOGETHER : min((block + 1) * _TOGETHER, n_rows)]
        block_out = out[block * _TOGETHER : block * _TOGETHER + len(rows)]
        nodes = np.empty(len(rows), dtype=np.int32)
        is_plain = len(sets) == 0 and not _has_missing(rows)
        for t in range(len(roots)):
            of_tree = block_out[:, outputs[t]]
            if is_plain and depths[t] > 1:
                _first_step(rows, roots[t], nodes, columns, thresholds, lefts)
                for _ in range(depths[t] - 2):
                    _step(rows, nodes, columns, thresholds, lefts)
                _last_step(rows, nodes, columns, thresholds, lefts, values, of_tree)
            else:
                nodes[:] = roots[t]
                for _ in range(depths[t]):
                    _careful_step(rows, nodes, columns, thresholds, missing_left, lefts, places, sets)
                for i in range(len(rows)):
                    of_tree[i] += values[nodes[i]]


@njit(**OPTIONS)
def _first_step(rows, root, nodes, columns, thresholds, lefts):
    """The step from the root, where all rows are compared with one threshold."""
    column, threshold, left = columns[root], thresholds[root], lefts[root]
    for i in range(len(rows)):
        nodes[i] = left + (rows[i, column] > threshold)


@njit(**OPTIONS)
def _step(rows, nodes, columns, thresholds, lefts):
    """One step of every row, without missing values and categories."""
    for i in range(len(rows)):
        node = np.uint32(nodes[i])
        nodes[i] = lefts[node] + (rows[i, np.uint32(columns[node])] > thresholds[node])


@njit(**OPTIONS)
def _last_step(rows, nodes, columns, thresholds, lefts, values, out):
    """The step to the leaves, whose values are added at once: with the first step, a tenth of the time."""
    for i in range(len(rows)):
        node = np.uint32(nodes[i])
        out[i] += values[np.uint32(lefts[node] + (rows[i, np.uint32(columns[node])] > thresholds[node]))]


@njit(**OPTIONS)
def _careful_step(rows, nodes, columns, thresholds, missing_left, lefts, places, sets):
    for i in range(len(rows)):
        node = nodes[i]
        x = rows[i, columns[node]]
        if x != x:
            goes_left = missing_left[node]
        elif places[node] >= 0:
            goes_left = is_in(sets[places[node]], x)
        else:
            goes_left = x <= thresholds[node]
        nodes[i] = lefts[node] + (not goes_left)


@njit(**OPTIONS)
def _has_missing(rows):
    n_missing = 0
    for i in range(rows.shape[0]):
        for c in range(rows.shape[1]):
            n_missing += rows[i, c] != rows[i, c]
    return n_missing > 0


@njit(**OPTIONS)
def is_in(members, x):
    """True if a category is in a set; a number that is no category is in none."""
    return x >= 0 and x < len(members) and x == np.floor(x) and members[np.int64(x)]
