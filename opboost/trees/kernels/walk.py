# mypy: disable-error-code="no-untyped-def,misc,call-arg"
"""Rows through a tree that is known in full: from the root to a leaf in one pass, without sorting rows by node."""

from __future__ import annotations

import numpy as np
from numba import njit, prange
from numpy.typing import NDArray

from opboost.arrays import Bins, Nodes, Sums
from opboost.trees.kernels.packing import BLOCK, OPTIONS, PARALLEL, grad_of, hess_of

# Nodes in which rows are.
RowNodes = NDArray[np.uint8] | NDArray[np.uint16]

# From so many rows on, waking further threads takes less time than they save.
_MANY = 1 << 17


def walk_rows(
    bins: Bins,
    gradients: NDArray[np.int64],
    columns: Nodes,
    cuts: Nodes,
    spans: Nodes,
    depth: int,
    places: RowNodes,
    out: Sums,
) -> None:
    """Take every row `depth` steps down a complete tree, and add its gradient where it ends.

    A row goes right at a node if its bin is one of the `spans` bins behind the cut; inner nodes are numbered level by
    level. ``places[row]`` is the node, ``out[node] = (sum of g, sum of h)``.

    Every node is compared with all rows of a block, most of them in vain: several rows at once, that takes a fraction
    of the time of following each row from node to node.
    """
    walk = _walk_on_threads if len(gradients) >= _MANY else _walk
    kind = bins.dtype.type
    walk(bins, gradients, columns, cuts.astype(kind), spans.astype(kind), depth, places, out)


@njit(**OPTIONS)
def _step(places, bins, node, cut, span):
    """Move the rows of one node to its children."""
    place, cell = places.dtype.type, bins.dtype.type
    at, left, right = place(node), place(2 * node + 1), place(2 * node + 2)
    first = cell(cut + 1)
    for i in range(len(places)):
        # Bins up to the cut wrap around to large numbers.
        child = right if cell(bins[i] - first) < span else left
        places[i] = child if places[i] == at else places[i]


@njit(**OPTIONS)
def add_leaves(scores, places, values):
    """Add to every row's score the value of the node that it is in."""
    for i in range(len(scores)):
        scores[i] += values[places[i]]


@njit(**OPTIONS)
def _sum_block(gradients, places, n_inner, out):
    """Add a block's sums of g and of h per leaf, of which `n_inner` is the first."""
    # Two sums by turns, so that an addition need not wait for the one before it.
    packed = np.zeros((2, len(out)), dtype=np.int64)
    for i in range(len(places)):
        packed[i & 1, places[i]] += gradients[i]
    for node in range(n_inner, len(out)):
        for half in range(2):
            out[node, 0] += grad_of(packed[half, node])
            out[node, 1] += hess_of(packed[half, node])


@njit(**OPTIONS)
def sum_leaves(gradients, places, n_inner, out):
    """Write sums of g and of h per leaf, of which `n_inner` is the first, of rows whose places are known."""
    out[:] = 0
    for begin in range(0, len(places), BLOCK):
        _sum_block(gradients[begin : begin + BLOCK], places[begin : begin + BLOCK], n_inner, out)


def _walk_blocks(bins, gradients, columns, cuts, spans, depth, places, out):
    n_rows, n_inner = len(gradients), 2**depth - 1
    n_blocks = (n_rows + BLOCK - 1) // BLOCK
    sums = np.zeros((n_blocks, len(out), 2), dtype=np.int64)
    for block in prange(n_blocks):
        begin, end = block * BLOCK, min((block + 1) * BLOCK, n_rows)
        here = places[begin:end]
        here[:] = 0
        for node in range(n_inner):
            of_column = bins[columns[node], begin:end]
            _step(here, of_column, node, cuts[node], spans[node])
        _sum_block(gradients[begin:end], here, n_inner, sums[block])
    out[:] = 0
    for block in range(n_blocks):
        out += sums[block]


_walk = njit(**OPTIONS)(_walk_blocks)
_walk_on_threads = njit(**PARALLEL)(_walk_blocks)
