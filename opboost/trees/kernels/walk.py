# mypy: disable-error-code="no-untyped-def,misc,call-arg"
"""Rows through a tree that is known in full: from the root to a leaf in one pass, without sorting rows by node."""

from __future__ import annotations

import numpy as np
from numba import njit, prange
from numpy.typing import NDArray

from opboost.arrays import Bins, Mask, Sums
from opboost.trees.kernels.packing import OPTIONS, grad_of, hess_of

# Rows that one thread takes at a time.
_ROWS = 1 << 12


# From so many rows on, waking further threads takes less time than they save.
_MANY = 1 << 17


def walk_rows(
    bins: Bins,
    gradients: NDArray[np.int64],
    columns: NDArray[np.int32],
    goes_left: Mask,
    lefts: NDArray[np.int32],
    depth: int,
    places: NDArray[np.int32],
    out: Sums,
) -> None:
    """Take every row `depth` steps down from the root, and add its gradient where it ends.

    ``places[row]`` is the node, ``out[node] = (sum of g, sum of h)``. Right children come behind left ones.
    """
    walk = _walk_on_threads if len(gradients) >= _MANY else _walk
    walk(bins, gradients, columns, goes_left, lefts, depth, places, out)


def _walk_blocks(bins, gradients, columns, goes_left, lefts, depth, places, out):
    n_rows = len(gradients)
    n_blocks = (n_rows + _ROWS - 1) // _ROWS
    sums = np.zeros((n_blocks, len(out), 2), dtype=np.int64)
    for block in prange(n_blocks):
        for i in range(block * _ROWS, min((block + 1) * _ROWS, n_rows)):
            node = np.int64(0)
            for _ in range(depth):
                node = lefts[node] + np.int64(not goes_left[node, bins[columns[node], i]])
            places[i] = node
            sums[block, node, 0] += grad_of(gradients[i])
            sums[block, node, 1] += hess_of(gradients[i])
    out[:] = 0
    for block in range(n_blocks):
        out += sums[block]


_walk = njit(**OPTIONS)(_walk_blocks)
_walk_on_threads = njit(parallel=True, **OPTIONS)(_walk_blocks)
