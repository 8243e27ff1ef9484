# mypy: disable-error-code="no-untyped-def,misc,call-arg,assignment"
"""Rows to children, in place, and leaves to scores. A split is a table: does a bin go left?"""

from __future__ import annotations

import numpy as np
from numba import njit, prange

from opboost.trees.kernels.packing import OPTIONS, PARALLEL


@njit(**PARALLEL)
def number_rows(rows):
    """Put all rows into the order of the table."""
    for i in prange(len(rows)):
        rows[i] = i


@njit(**PARALLEL)
def divide_nodes(bins, rows, gradients, begins, ends, nodes, columns, goes_left, lefts, n_threads):
    """Divide the rows of nodes among their children, in every area, left before right and both in their old order.

    ``begins[node, area]`` and ``ends[node, area]`` say where a node's rows of an area are; they get those of the
    children. Gradients move along. Behind the rows of the table there is room for those of an area, for each thread.
    """
    n_rows, n_areas = bins.shape[1], begins.shape[1]
    room = (len(rows) - n_rows) // n_threads
    for thread in prange(n_threads):
        for area in range(n_areas * thread // n_threads, n_areas * (thread + 1) // n_threads):
            for k in range(len(nodes)):
                begin, end, left = begins[nodes[k], area], ends[nodes[k], area], lefts[k]
                middle = _divide(bins[columns[k]], rows, gradients, begin, end, goes_left[k], n_rows + thread * room)
                begins[left, area], ends[left, area] = begin, middle
                begins[left + 1, area], ends[left + 1, area] = middle, end


@njit(**OPTIONS)
def _divide(column, rows, gradients, begin, end, goes_left, beside):
    """Put rows that go left before the others, which wait in the room `beside`; returns where they begin."""
    own_rows, own_gradients = rows[begin:end], gradients[begin:end]
    left, right, one = np.uint64(begin), np.uint64(beside), np.uint64(1)
    for i in range(len(own_rows)):
        row, gradient = own_rows[i], own_gradients[i]
        is_left = goes_left[column[row]]
        # Which way a row goes cannot be predicted: a place is chosen without a branch.
        place = left if is_left else right
        rows[place], gradients[place] = row, gradient
        left += np.uint64(is_left)
        right += one - np.uint64(is_left)
    middle, last = np.int64(left), np.int64(right)
    rows[middle:end], gradients[middle:end] = rows[beside:last], gradients[beside:last]
    return middle


@njit(**PARALLEL)
def add_to_scores(scores, rows, begins, ends, values, n_threads):
    """Add each leaf's value to the scores of its rows.

    A thread takes areas of its own: no other core's cache holds their scores (two threads take a quarter less time).
    """
    n_areas = begins.shape[1]
    for thread in prange(n_threads):
        for area in range(n_areas * thread // n_threads, n_areas * (thread + 1) // n_threads):
            for k in range(len(begins)):
                for i in range(begins[k, area], ends[k, area]):
                    scores[rows[i]] += values[k]


@njit(**PARALLEL)
def add_children_to_scores(
    bins, scores, rows, begins, ends, splits, columns, goes_left, lefts, rights, values, n_threads
):
    """Add the values of two leaves to the scores of their parent's rows, which need not be divided for that.

    Nodes `splits` are the parents; begins, ends and values are those of all nodes. Which way a row goes cannot be
    predicted, so values are looked up by its bin (a branch takes twice the time).
    """
    of_bins, n_areas = np.where(goes_left, values[lefts][:, None], values[rights][:, None]), begins.shape[1]
    for thread in prange(n_threads):
        for area in range(n_areas * thread // n_threads, n_areas * (thread + 1) // n_threads):
            for k in range(len(splits)):
                column, of_bin = bins[columns[k]], of_bins[k]
                for i in range(begins[splits[k], area], ends[splits[k], area]):
                    row = rows[i]
                    scores[row] += of_bin[column[row]]
