# mypy: disable-error-code="no-untyped-def,misc,call-arg"
"""Rows of a binned table through trees that others grew, to scores."""

from __future__ import annotations

import numpy as np
from numba import njit, prange

from opboost.trees.kernels.packing import OPTIONS, PARALLEL

# Rows that one thread takes at a time.
_ROWS = 1 << 11


@njit(**PARALLEL)
def follow_tree(bins, fixed, places, nodes, columns, cuts, spans, sets, lefts, rights, values, scores):
    """Add the value of the leaf that each row comes to.

    Every inner node is compared with all rows of a block, most of them in vain: several rows at once, that takes a
    fraction of the time of following each row from node to node.

    Parameters
    ----------
    bins : ndarray of uint8, shape (n_alternating, n_rows)
        Of the columns that alternate.
    fixed : ndarray of uint8 or uint16, shape (n_columns, n_rows)
        Of all columns; read where ``places[column]`` is negative, else row ``places[column]`` of `bins` is.
    nodes, columns, lefts, rights : ndarray of int32, shape (n_inner,)
        Inner nodes, parents before children.
    cuts, spans : ndarray of int32, shape (n_inner,)
        A row goes right if its bin is one of the `spans` bins behind the cut.
    sets : ndarray of bool, shape (n_inner, most bins) or (0, 0)
        Where ``spans[node]`` is negative: which bins go left.
    values : ndarray of float64, shape (n_nodes,)
    scores : ndarray of float32 or float64, shape (n_rows,)
    """
    n_rows = len(scores)
    for block in prange((n_rows + _ROWS - 1) // _ROWS):
        first, last = block * _ROWS, min((block + 1) * _ROWS, n_rows)
        if len(values) <= 256:
            _follow(
                np.zeros(last - first, np.uint8),
                bins[:, first:last],
                fixed[:, first:last],
                places,
                nodes,
                columns,
                cuts,
                spans,
                sets,
                lefts,
                rights,
                values,
                scores[first:last],
            )
        else:
            _follow(
                np.zeros(last - first, np.uint32),
                bins[:, first:last],
                fixed[:, first:last],
                places,
                nodes,
                columns,
                cuts,
                spans,
                sets,
                lefts,
                rights,
                values,
                scores[first:last],
            )


@njit(**OPTIONS)
def _follow(here, bins, fixed, places, nodes, columns, cuts, spans, sets, lefts, rights, values, scores):
    for k in range(len(nodes)):
        place = places[columns[k]]
        if spans[k] < 0:
            if place >= 0:
                _move_by_set(here, bins[place], nodes[k], sets[k], lefts[k], rights[k])
            else:
                _move_by_set(here, fixed[columns[k]], nodes[k], sets[k], lefts[k], rights[k])
        elif place >= 0:
            _move(here, bins[place], nodes[k], cuts[k], spans[k], lefts[k], rights[k])
        else:
            _move(here, fixed[columns[k]], nodes[k], cuts[k], spans[k], lefts[k], rights[k])
    for i in range(len(scores)):
        scores[i] += values[here[i]]


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
