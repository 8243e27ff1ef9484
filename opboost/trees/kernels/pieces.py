# mypy: disable-error-code="no-untyped-def,misc,call-arg"
"""Pieces of nodes: rows of an area of the table whose gradients fit a packed sum, in the order of their summing."""

from __future__ import annotations

import numpy as np
from numba import njit

from opboost.trees.kernels.packing import LARGEST_GRAD_SUM, LARGEST_HESS_SUM, OPTIONS, grad_of, hess_of

# Rows that are added to a piece at a time. As many fit a packed sum, whatever their gradients and weights as counts.
STRIDE = 1 << 7


@njit(**OPTIONS)
def node_sizes(begins, ends):
    """Number of rows of every node."""
    sizes = np.zeros(len(begins), dtype=np.int64)
    for node in range(len(begins)):
        for area in range(begins.shape[1]):
            sizes[node] += ends[node, area] - begins[node, area]
    return sizes


@njit(**OPTIONS)
def pieces_of(rows, gradients, begins, ends, firsts, lasts):
    """Cut nodes' rows, from each node's `firsts` to its `lasts`, into pieces within an area that fit a packed sum.

    Returns one line per piece, area by area: node, begin, end, sums of abs(g) and of h, and from where to where the
    table's bins are fetched meanwhile, which the next area will need.
    """
    n_pieces, earlier, met = 0, 0, np.zeros(len(firsts), dtype=np.int64)
    pieces = np.empty((len(firsts) * begins.shape[1], 7), dtype=np.int64)
    for area in range(begins.shape[1]):
        first_piece = n_pieces
        for node in range(len(firsts)):
            size = ends[node, area] - begins[node, area]
            begin = begins[node, area] + max(firsts[node] - met[node], 0)
            last = begins[node, area] + min(lasts[node] - met[node], size)
            met[node] += size
            while begin < last:
                if n_pieces == len(pieces):
                    pieces = np.concatenate((pieces, pieces))
                end, grad, hess = _end_of_piece(gradients, begin, last)
                piece = pieces[n_pieces]
                piece[0], piece[1], piece[2], piece[3], piece[4], piece[5:] = node, begin, end, grad, hess, 0
                begin = end
                n_pieces += 1
        if len(rows) and n_pieces > first_piece:
            _plan_ahead(rows, pieces[earlier:first_piece], pieces[first_piece:n_pieces])
            earlier = first_piece
    return pieces[:n_pieces]


@njit(**OPTIONS)
def _plan_ahead(rows, pieces, next_pieces):
    """Tell the pieces of an area which bins to fetch meanwhile: the next pieces' first to last, in equal steps."""
    first, last, n_rows, met = np.int64(len(rows)), np.int64(0), np.int64(0), np.int64(0)
    for piece in next_pieces:
        first, last = min(first, np.int64(rows[piece[1]])), max(last, np.int64(rows[piece[2] - 1]))
    for piece in pieces:
        n_rows += piece[2] - piece[1]
    for piece in pieces:
        piece[5] = first + (last - first) * met // n_rows
        met += piece[2] - piece[1]
        piece[6] = first + (last - first) * met // n_rows


@njit(**OPTIONS)
def _end_of_piece(gradients, begin, last):
    """End of the rows from `begin` on that fit into a packed sum, and their sums of abs(g) and of h."""
    end, grad, hess = begin, np.int64(0), np.int64(0)
    while end < last:
        there = min(end + STRIDE, last)
        more_grad, more_hess = _magnitudes(gradients[end:there])
        is_full = grad + more_grad > LARGEST_GRAD_SUM or hess + more_hess > LARGEST_HESS_SUM
        if is_full and end > begin:
            break
        end, grad, hess = there, grad + more_grad, hess + more_hess
    return end, grad, hess


@njit(**OPTIONS)
def _magnitudes(gradients):
    """Sums of abs(g) and of h."""
    grad, hess = np.int64(0), np.int64(0)
    for i in range(len(gradients)):
        grad += abs(grad_of(gradients[i]))
        hess += hess_of(gradients[i])
    return grad, hess
