# mypy: disable-error-code="no-untyped-def,misc,call-arg"
"""Nodes of a tree while it grows: their splits are noted, and its leaves get their values."""

from __future__ import annotations

import numpy as np
from numba import njit

from opboost.trees.kernels.packing import OPTIONS

# A node of a tree that grows; a leaf has the column -1.
NODE = np.dtype(
    [
        ("column", np.int32),
        ("left", np.int32),
        ("cut", np.float64),
        ("missing_left", np.bool_),
        ("gain", np.float64),
        ("sums", np.int64, (2,)),
    ]
)


@njit(**OPTIONS)
def split_nodes(chosen, nodes, totals, best, sizes, first, tree):
    """Split nodes by their best cuts into children, siblings side by side from number `first` on.

    Parameters
    ----------
    chosen : ndarray of int64, shape (n,)
        Which of `nodes` are split; `totals` and `best`, as from `best_cuts`, belong to these.
    sizes : ndarray of int64, shape (n_columns,)
        Bins of every column.
    tree : ndarray of NODE
        With room for the children. Gets the splits, and the children as leaves.

    Returns
    -------
    tuple
        Of the splits: nodes, columns, cuts, ways of missing, tables of the bins that go left, left children; then
        numbers and sums of the children: the lighter one of every two siblings, then the other ones.
    """
    best_gains, best_columns, best_cuts, best_missing_left, best_left_sums = best
    n = len(chosen)
    split, columns = np.empty(n, dtype=np.int32), np.empty(n, dtype=np.int32)
    cuts, lefts = np.empty(n, dtype=np.int32), np.empty(n, dtype=np.int32)
    missing_left, goes_left = np.empty(n, dtype=np.bool_), np.empty((n, sizes.max()), dtype=np.bool_)
    children, sums = np.empty(2 * n, dtype=np.int32), np.empty((2 * n, 2), dtype=np.int64)
    for k in range(n):
        place, left = chosen[k], first + 2 * k
        split[k], columns[k], cuts[k], lefts[k] = nodes[place], best_columns[place], best_cuts[place], left
        missing_left[k] = best_missing_left[place]
        for b in range(goes_left.shape[1]):
            goes_left[k, b] = b <= cuts[k]
        goes_left[k, sizes[columns[k]] - 1] = missing_left[k]
        node = tree[split[k]]
        node.column, node.left, node.cut = columns[k], left, cuts[k]
        node.missing_left, node.gain = missing_left[k], best_gains[place]
        for child in range(2):
            grad, hess = best_left_sums[place]
            if child == 1:
                grad, hess = totals[place, 0] - grad, totals[place, 1] - hess
            make_leaf(tree[left + child], grad, hess)
        lighter = left + (tree[left + 1].sums[1] < tree[left].sums[1])
        other = 2 * left + 1 - lighter
        children[k], children[n + k] = lighter, other
        for of in range(2):
            sums[k, of], sums[n + k, of] = tree[lighter].sums[of], tree[other].sums[of]
    return split, columns, cuts, missing_left, goes_left, lefts, children, sums


@njit(**OPTIONS)
def make_leaf(node, grad, hess):
    """Make a node a leaf with these sums."""
    node.column, node.left, node.cut, node.missing_left, node.gain = -1, 0, 0.0, False, 0.0
    node.sums[0], node.sums[1] = grad, hess


@njit(**OPTIONS)
def widest(offsets):
    """Most bins of a column."""
    return np.max(offsets[1:] - offsets[:-1])


@njit(**OPTIONS)
def shrunk(grad, reg_alpha):
    """A sum of gradients moved towards zero."""
    return np.copysign(max(abs(grad) - reg_alpha, 0.0), grad)


@njit(**OPTIONS)
def newton_values(sums, lower, upper, grad_scale, hess_scale, penalty, min_child_weight, out):
    """``-G / (H + reg_lambda)`` of every node within its bounds, 0 where it is too light; G less reg_alpha.

    Bounds that are the same for all nodes are given once. `penalty` is reg_lambda and reg_alpha.
    """
    reg_lambda, reg_alpha = penalty
    for node in range(len(sums)):
        grad, hess = sums[node, 0] / grad_scale, sums[node, 1] / hess_scale
        weight = hess + reg_lambda
        is_heavy = hess >= min_child_weight and hess > 0 and weight > 0
        value = -shrunk(grad, reg_alpha) / weight if is_heavy else 0.0
        out[node] = min(max(value, lower[node % len(lower)]), upper[node % len(upper)])


@njit(**OPTIONS)
def finish_nodes(nodes, lower, upper, grad_scale, hess_scale, penalty, min_child_weight, learning_rate):
    """Columns, cuts, ways of missing, left and right children, values, gains and covers of a grown tree's nodes.

    Leaves have `newton_values` times the learning rate, covers are sums of Hessians.
    """
    n = len(nodes)
    columns, lefts, rights = np.empty(n, np.int32), np.empty(n, np.int32), np.empty(n, np.int32)
    cuts, missing_left, gains, covers = np.empty(n), np.empty(n, np.bool_), np.empty(n), np.empty(n)
    values, sums = np.empty(n), np.empty((n, 2), np.int64)
    for k in range(n):
        node = nodes[k]
        columns[k], cuts[k], missing_left[k], gains[k] = node.column, node.cut, node.missing_left, node.gain
        lefts[k], rights[k] = node.left, node.left + 1 if node.column >= 0 else 0
        sums[k, 0], sums[k, 1], covers[k] = node.sums[0], node.sums[1], node.sums[1] / hess_scale
    newton_values(sums, lower, upper, grad_scale, hess_scale, penalty, min_child_weight, values)
    for k in range(n):
        values[k] = learning_rate * values[k] if columns[k] < 0 else 0.0
    return columns, cuts, missing_left, lefts, rights, values, gains, covers
