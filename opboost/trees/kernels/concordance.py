# mypy: disable-error-code="no-untyped-def,misc,call-arg"
"""Concordant pairs of survival times and predictions."""

from __future__ import annotations

import numpy as np
from numba import njit

from opboost.trees.kernels.packing import OPTIONS


@njit(**OPTIONS)
def count_pairs(times, is_event, places, n_places):
    """Comparable pairs and, ties counting half, those of them that are in order.

    Parameters
    ----------
    times : ndarray of float64, shape (n_rows,)
        In descending order, of equal times those without an event first.
    is_event : ndarray of bool, shape (n_rows,)
    places : ndarray of int64, shape (n_rows,)
        Place of the predicted time among all different ones.
    """
    # A Fenwick tree of the predictions of rows whose time is later.
    tree = np.zeros(n_places + 1, dtype=np.int64)
    n_pairs, n_ordered, n_later, first = 0, 0.0, 0, 0
    for row in range(len(times)):
        # Rows without an event outlive those of the same time with one; two events at once are not compared.
        while first < row and (times[first] > times[row] or not is_event[first]):
            place = places[first] + 1
            while place <= n_places:
                tree[place] += 1
                place += place & -place
            first += 1
            n_later += 1
        if is_event[row]:
            n_up_to, n_below, place = 0, 0, places[row] + 1
            while place > 0:
                n_up_to += tree[place]
                place -= place & -place
            place = places[row]
            while place > 0:
                n_below += tree[place]
                place -= place & -place
            n_pairs += n_later
            n_ordered += n_later - n_up_to + 0.5 * (n_up_to - n_below)
    return n_pairs, n_ordered
