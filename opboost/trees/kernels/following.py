# mypy: disable-error-code="no-untyped-def,misc,call-arg"
"""Rows of a binned table through trees that others grew, to scores."""

from __future__ import annotations

import numpy as np
from numba import njit, prange

from opboost.trees.kernels.packing import OPTIONS, PARALLEL

# Rows that one thread takes at a time.
_ROWS = 1 << 11


@njit(**PARALLEL)
def follow_trees(bins, fixed, places, outputs, ends, inner, sets, leaf_ends, values, scores):
    """Add the value of the leaf that each row comes to, tree after tree.

    Every inner node is compared with all rows of a block, most of them in vain: several rows at once, that takes a
    fraction of the time of following each row from node to node. A small table's trees take less time than a call.

    Parameters
    ----------
    bins : ndarray of uint8, shape (n_alternating, n_rows)
        Of the columns that alternate.
    fixed : ndarray of uint8 or uint16, shape (n_columns, n_rows)
        Of all columns; read where ``places[column]`` is negative, else row ``places[column]`` of `bins` is.
    outputs : ndarray of int64, shape (n_trees,)
        The row of `scores` that each tree adds to.
    ends, leaf_ends : ndarray of int64, shape (n_trees,)
        Where each tree's inner nodes end in `inner`, and its nodes in `values`.
    inner : ndarray of int32, shape (n_inner, 6)
        Of inner nodes, parents before children: node, column, cut, span, left and right child. A row goes right if its
        bin is one of the `span` bins behind the cut.
    sets : ndarray of bool, shape (n_sets, most bins)
        Where the span is negative: which bins go left, one such node after the other.
    values : ndarray of float64, shape (n_nodes,)
    scores : ndarray of float32 or float64, shape (n_outputs, n_rows)
    """
    n_rows = scores.shape[1]
    for block in prange((n_rows + _ROWS - 1) // _ROWS):
        first, last = block * _ROWS, min((block + 1) * _ROWS, n_rows)
        _follow_all(
            bins[:, first:last],
            fixed[:, first:last],
            places,
            outputs,
            ends,
            inner,
            sets,
            leaf_ends,
            values,
            scores[:, first:last],
        )


@njit(**OPTIONS)
def _follow_all(bins, fixed, places, outputs, ends, inner, sets, leaf_ends, values, scores):
    few, many = np.empty(scores.shape[1], np.uint8), np.empty(scores.shape[1], np.uint32)
    begin = root = n_sets = 0
    for tree in range(len(outputs)):
        nodes, leaves, output_scores = inner[begin : ends[tree]], values[root : leaf_ends[tree]], scores[outputs[tree]]
        if len(leaves) <= 256:
            n_sets = _follow(few, bins, fixed, places, nodes, sets, n_sets, leaves, output_scores)
        else:
            n_sets = _follow(many, bins, fixed, places, nodes, sets, n_sets, leaves, output_scores)
        begin, root = ends[tree], leaf_ends[tree]


@njit(**OPTIONS)
def _follow(here, bins, fixed, places, inner, sets, n_sets, values, scores):
    """Follow one tree; returns how many sets were read so far."""
    here[:] = 0
    for k in range(len(inner)):
        node, column, cut, span = inner[k, 0], inner[k, 1], inner[k, 2], inner[k, 3]
        left, right = inner[k, 4], inner[k, 5]
        place = places[column]
        if span < 0:
            if place >= 0:
                _move_by_set(here, bins[place], node, sets[n_sets], left, right)
            else:
                _move_by_set(here, fixed[column], node, sets[n_sets], left, right)
            n_sets += 1
        elif place >= 0:
            _move(here, bins[place], node, cut, span, left, right)
        else:
            _move(here, fixed[column], node, cut, span, left, right)
    for i in range(len(scores)):
        scores[i] += values[here[i]]
    return n_sets


@njit(**OPTIONS)
def _move(here, bins, node, cut, span, left, right):
    """Move the rows of one node to its children."""
    place, cell = here.dtype.type, bins.dtype.type
    # A missing bin that the type cannot hold never occurs.
    highest = (np.int64(1) << (8 * bins.itemsize)) - 1
    n = cell(min(span, highest - cut))
    at, to_left, to_right, first = place(node), place(left), place(right), cell(cut + 1)
    for i in range(len(here)):
        # Bins up to the cut wrap around to large numbers.
        child = to_right if cell(bins[i] - first) < n else to_left
        here[i] = child if here[i] == at else here[i]


@njit(**OPTIONS)
def _move_by_set(here, bins, node, goes_left, left, right):
    place = here.dtype.type
    at, to_left, to_right = place(node), place(left), place(right)
    for i in range(len(here)):
        if here[i] == at:
            here[i] = to_left if goes_left[bins[i]] else to_right
