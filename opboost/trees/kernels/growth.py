# mypy: disable-error-code="no-untyped-def,misc,call-arg"
"""A tree grown level by level on the rows of this process, in one call: a quarter of the time of small tables."""

from __future__ import annotations

import numpy as np
from numba import njit, prange

from opboost.trees.kernels.cuts import best_cuts, choose_columns, no_cuts, no_cuts_of_columns, search_columns
from opboost.trees.kernels.division import divide_nodes
from opboost.trees.kernels.histograms import build_histograms, sum_part
from opboost.trees.kernels.nodes import make_leaf, split_nodes
from opboost.trees.kernels.packing import OPTIONS, PARALLEL

# Threads that share columns in place of rows wait for each other half as often: trees of up to so many rows take 3 to
# 10 % less time.
_FEW_ROWS = 1 << 16


@njit(**OPTIONS)
def grow_levels(bins, rows, gradients, begins, ends, rules, least_gain, max_depth, n_threads, even, odd, tree):
    """Split all nodes of a level whose best gain is at least `least_gain`, then those of the next, up to `max_depth`.

    Parameters
    ----------
    bins, rows, gradients, begins, ends
        Of the rows, which are in the order of the table, as in `divide_nodes`. With room for all nodes.
    rules : tuple
        As in `best_cuts`; limits are the same for all nodes.
    n_threads : int
    even, odd : ndarray of int64, shape (n_nodes, 2, n_bins)
        Room for the histograms of every other level.
    tree : ndarray of NODE
        With room for all nodes; gets them.

    Returns
    -------
    tuple
        The number of nodes; of levels whose rows were divided; and the splits whose rows were not, those of the last
        level, as from `split_nodes`.
    """
    offsets, shares_columns = rules[0], 1 < n_threads <= len(bins) // 4 and bins.shape[1] <= _FEW_ROWS
    sizes = offsets[1:] - offsets[:-1]
    asked, totals, n_nodes, n_divided = np.zeros(1, dtype=np.int32), np.empty((1, 2), dtype=np.int64), np.int64(1), 0
    nodes, histograms, rest, parents, chosen = asked, even[:1], even[:0], odd[:0], np.zeros(1, dtype=np.int64)
    while True:
        best = no_cuts(len(nodes))
        if n_divided and shares_columns:
            _search_own_columns(
                bins, rows, gradients, begins[asked], ends[asked], histograms, parents, chosen, rest, totals, rules,
                n_threads, best,
            )  # fmt: skip
        else:
            row_order = rows if n_divided else rows[:0]
            build_histograms(bins, row_order, gradients, begins[asked], ends[asked], offsets, n_threads, histograms)
            if n_divided == 0:
                # Every row is in one bin of the first column.
                totals[0] = histograms[0, 0, : sizes[0]].sum(), histograms[0, 1, : sizes[0]].sum()
                make_leaf(tree[0], totals[0, 0], totals[0, 1])
            best_cuts(histograms, parents, chosen, rest, totals, rules, n_threads, best)
        chosen = np.flatnonzero(best[0] >= least_gain)
        split, columns, cuts, missing_left, goes_left, lefts, nodes, totals = split_nodes(
            chosen, nodes, totals, best, sizes, n_nodes, tree
        )
        n, n_nodes = len(chosen), n_nodes + 2 * len(chosen)
        if n == 0 or n_divided + 1 == max_depth:
            return n_nodes, n_divided, split, columns, cuts, missing_left, goes_left, lefts
        divide_nodes(bins, rows, gradients, begins, ends, split, columns, goes_left, lefts, n_threads)
        n_divided += 1
        # The other siblings' histograms are kept for their children, if these will ask.
        room, n_kept = odd if n_divided % 2 else even, 2 * n if n_divided + 1 < max_depth else n
        parents = (even if n_divided % 2 else odd)[: len(histograms) + len(rest)]
        histograms, rest, asked = room[:n], room[n:n_kept], nodes[:n]


@njit(**PARALLEL)
def _search_own_columns(
    bins, rows, gradients, begins, ends, histograms, parents, parent_of, rest, totals, rules, n_threads, best
):
    """The same as `build_histograms` and `best_cuts`, but every thread takes columns of its own, and waits once."""
    n_columns, n_nodes, offsets = len(bins), len(begins), rules[0]
    of_columns = no_cuts_of_columns(len(totals), n_columns)
    for part in prange(n_threads):
        own = slice(n_columns * part // n_threads, n_columns * (part + 1) // n_threads)
        own_offsets, nothing = offsets[own.start : own.stop + 1], np.empty((0, *histograms.shape), np.int64)
        sum_part(bins[own], rows, gradients, begins, ends, own_offsets, 0, 0, 1, nothing, histograms)
        every = slice(0, n_nodes * (own.stop - own.start))
        search_columns(own, every, histograms, parents, parent_of, rest, totals, rules, of_columns)
    choose_columns(of_columns, totals, rules, best)
