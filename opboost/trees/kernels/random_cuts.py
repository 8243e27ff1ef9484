# mypy: disable-error-code="no-untyped-def,misc,call-arg"
"""Splits of a level that are drawn without a look at the data, within the bins that may reach each node."""

from __future__ import annotations

import numpy as np
from numba import njit

from opboost.trees.kernels.packing import OPTIONS


@njit(**OPTIONS)
def draw_cuts(limits, whole, is_alone, drawn, places, cuts):
    """Draw a column and a cut for every node, and give the limits of the children.

    Parameters
    ----------
    limits : ndarray of int64, shape (n_nodes, 2, n_columns)
        The first and the last bin of each column that may reach the node.
    whole : ndarray of int64, shape (2, n_columns)
        The same for the root; for nodes that no column can cut any more.
    is_alone : ndarray of bool, shape (n_columns,)
        Where one bin is parted from all others.
    drawn : ndarray of float64, shape (at least 2, n_nodes)
        In [0, 1): which of the columns, which of its cuts.
    places : ndarray of int64, shape (n_nodes,)
        Takes the drawn columns.
    cuts : ndarray of int32, shape (n_nodes,)
        Takes the drawn cuts.

    Returns
    -------
    ndarray of int64, shape (2 n_nodes, 2, n_columns)
        Siblings side by side.
    """
    n_nodes, _, n_columns = limits.shape
    children = np.empty((2 * n_nodes, 2, n_columns), dtype=np.int64)
    for node in range(n_nodes):
        own = limits[node]
        n_open = _n_open(own)
        if n_open == 0:
            own, n_open = whole, _n_open(whole)
        place, nth = -1, int(drawn[0, node] * n_open)
        while nth >= 0:
            place += 1
            nth -= own[0, place] < own[1, place]
        low, high = own[0, place], own[1, place]
        cut = low + int(drawn[1, node] * (high - low + is_alone[place]))
        places[node], cuts[node] = place, cut
        left, right = children[2 * node], children[2 * node + 1]
        left[:] = own
        right[:] = own
        left[1, place] = cut
        if is_alone[place]:
            # The drawn bin is still among those of the others, unless it was the first or the last.
            left[0, place] = cut
            right[0, place] = low + (cut == low)
            right[1, place] = high - (cut == high)
        else:
            right[0, place] = cut + 1
    return children


@njit(**OPTIONS)
def _n_open(limits):
    """Number of columns that have a cut left."""
    count = 0
    for column in range(limits.shape[1]):
        count += limits[0, column] < limits[1, column]
    return count
