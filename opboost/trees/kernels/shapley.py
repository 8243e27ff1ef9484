# mypy: disable-error-code="no-untyped-def,misc,call-arg"
"""Path-dependent Shapley values: a pass down and up every tree, for a block of rows at once."""

from __future__ import annotations

import numpy as np
from numba import njit, prange

from opboost.trees.kernels.packing import OPTIONS, PARALLEL
from opboost.trees.kernels.prediction import is_in

# Rows that pass through a tree together, so many that a step costs little beside them (64 take twice as long).
_TOGETHER = 256


@njit(**OPTIONS)
def link_edges(roots, columns, lefts, covers, players, depths, nearest, shares, above, reached):
    """Describe the edge above every node.

    Parameters
    ----------
    players : ndarray of int64, shape (n_columns,)
        Columns with the same number are one player.
    depths : ndarray of int32, shape (n_nodes,)
        Edges from the root.
    nearest : ndarray of int32, shape (n_nodes,)
        Depth of the next edge above that asks the same player; 0 if there is none.
    shares : ndarray of float64, shape (2, n_nodes)
        Share of the cover that takes this edge, and the product of it and those above that ask the same player.
    above : ndarray of float64, shape (n_nodes,)
        That product of the next edge above that asks the same player; 1 if there is none.
    reached : ndarray of float64, shape (n_nodes,)
        Product of all shares from the root.

    Returns
    -------
    int
        Most different players between a root and a leaf.
    """
    parents = np.full(len(lefts), -1)
    n_players = np.zeros(len(lefts), dtype=np.int64)
    depths[roots] = 0
    reached[roots] = 1.0
    for node in range(len(lefts)):
        if lefts[node] == node:
            continue
        player, total = players[columns[node]], covers[lefts[node]] + covers[lefts[node] + 1]
        other = node
        while parents[other] >= 0 and players[columns[parents[other]]] != player:
            other = parents[other]
        is_repeated = parents[other] >= 0
        for child in range(lefts[node], lefts[node] + 2):
            parents[child], depths[child] = node, depths[node] + 1
            nearest[child] = depths[other] if is_repeated else 0
            above[child] = shares[1, other] if is_repeated else 1.0
            shares[0, child] = covers[child] / total if total > 0 else 0.0
            shares[1, child] = above[child] * shares[0, child]
            reached[child] = reached[node] * shares[0, child]
            n_players[child] = n_players[node] + (not is_repeated)
    return n_players.max()


@njit(**PARALLEL)
def add_shapley_values(features, trees, edges, weights, out, pairs):
    """Add every player's Shapley value to ``out[row, output, player]``, and half of what two add together to `pairs`.

    Parameters
    ----------
    trees : tuple of ndarray
        As `prediction.predict_scores` takes them.
    edges : tuple of ndarray
        Players of the columns; by node: depths, nearest, shares of `link_edges`, and factors of shape
        ``(n_nodes, n_points, 4)`` as `opboost.trees.explanation` has them.
    weights : ndarray of float64, shape (n_points,)
    pairs : ndarray of float64, shape (n_rows, n_outputs, n_players, n_players)
        Empty if nobody asks for it.
    """
    n_rows = len(features)
    for block in prange((n_rows + _TOGETHER - 1) // _TOGETHER):
        rows = slice(block * _TOGETHER, min((block + 1) * _TOGETHER, n_rows))
        _add_block(features[rows], trees, edges, weights, out[rows], pairs[rows])


@njit(**OPTIONS)
def _add_block(features, trees, edges, weights, out, pairs):
    """Add the contributions of a block of rows that pass through the trees together."""
    roots, _, outputs, columns, thresholds, missing_left, lefts, places, sets, values = trees
    _, depths, nearest, shares, factors = edges
    n_levels, n_points, n = depths.max() + 1, len(weights), len(features)
    cells, contributions = np.ascontiguousarray(features.T), np.zeros((out.shape[1], out.shape[2], n))
    # Per level: whether rows take its edge, and all edges down to it that ask the same player.
    takes, takes_all = np.ones((n_levels, n)), np.ones((n_levels, n))
    # Products on the way down, and sums over leaves on the way up.
    down, up = np.empty((n_levels, n_points, n)), np.empty((n_levels, n_points, n))
    for point in range(n_points):
        down[0, point, :] = weights[point]
    path, waiting = np.zeros(n_levels, dtype=np.int32), np.empty(2 * n_levels, dtype=np.int32)
    for t in range(len(roots)):
        level, path[0] = np.int64(0), roots[t]
        of_output = contributions[outputs[t]], pairs[:, outputs[t] : outputs[t] + 1]
        n_waiting = _open(roots[t], lefts, waiting, np.int64(0))
        while n_waiting:
            n_waiting -= 1
            node = waiting[n_waiting]
            depth = np.int64(depths[node])
            parent, above = path[depth - 1], takes_all[nearest[node]]
            _rise(level, depth, path, columns, edges, takes, takes_all, up, of_output)
            if node == lefts[parent]:
                members = sets[max(places[parent], 0) : places[parent] + 1]
                _ask(cells[columns[parent]], thresholds[parent], missing_left[parent], members, takes[depth])
            else:
                _invert(takes[depth])
            level, path[depth] = depth, node
            edge = takes[depth], above, factors[node]
            _descend(edge, shares[0, node], values[node], takes_all[depth], down[depth - 1], down[depth], up[depth])
            n_waiting = _open(node, lefts, waiting, n_waiting)
        _rise(level, np.int64(1), path, columns, edges, takes, takes_all, up, of_output)
    for i in range(n):
        for output in range(out.shape[1]):
            for player in range(out.shape[2]):
                out[i, output, player] += contributions[output, player, i]


@njit(**OPTIONS)
def _rise(level, depth, path, columns, edges, takes, takes_all, up, of_output):
    """Add what the edges of a path contribute, from the lowest level up to a depth."""
    players, _, nearest, _, factors = edges
    out, pairs = of_output
    for here in range(level, depth - 1, -1):
        player, node = players[columns[path[here - 1]]], path[here]
        edge = takes[here], takes_all[nearest[node]], factors[node]
        _add_share(edge, up[here], up[here - 1], out[player])
        for there in range(1, here if pairs.size else 1):
            partner, node = players[columns[path[there - 1]]], path[there]
            if partner != player:
                other = takes[there], takes_all[nearest[node]], factors[node]
                _add_shared(edge, other, up[here], pairs[:, 0], player, partner)


@njit(**OPTIONS)
def _open(node, lefts, waiting, n_waiting):
    """Have the children of a node wait, the left one before the right one; how many nodes wait then."""
    if lefts[node] == node:
        return n_waiting
    waiting[n_waiting], waiting[n_waiting + 1] = lefts[node] + 1, lefts[node]
    return n_waiting + 2


@njit(**OPTIONS)
def _ask(cells, threshold, is_missing_left, members, goes_left):
    """Write 1 for rows that go left and 0 for the others."""
    if len(members):
        for i in range(len(cells)):
            goes_left[i] = is_missing_left if cells[i] != cells[i] else is_in(members[0], cells[i])
    else:
        for i in range(len(cells)):
            goes_left[i] = is_missing_left if cells[i] != cells[i] else cells[i] <= threshold


@njit(**OPTIONS)
def _invert(takes):
    for i in range(len(takes)):
        takes[i] = 1.0 - takes[i]


@njit(**OPTIONS)
def _descend(edge, share, value, takes_all, above, below, sums):
    """The products below an edge from those above it; sums over leaves begin with the value of a leaf, or with 0."""
    takes, takes_above, factors = edge
    for i in range(len(takes)):
        takes_all[i] = takes_above[i] * takes[i]
    for point in range(len(sums)):
        off, on = factors[point, 0] - share, factors[point, 1]
        for i in range(len(takes)):
            product = above[point, i] * (share + takes_above[i] * (off + on * takes[i]))
            below[point, i] = product
            sums[point, i] = product * value


@njit(**OPTIONS)
def _add_share(edge, sums, above, out):
    """Add what an edge contributes to its player's value, and its sums to those above it."""
    takes, takes_above, factors = edge
    for point in range(len(sums)):
        off, on = factors[point, 2], factors[point, 3]
        for i in range(len(takes)):
            out[i] += takes_above[i] * (off + on * takes[i]) * sums[point, i]
            above[point, i] += sums[point, i]


@njit(**OPTIONS)
def _add_shared(edge, other, sums, out, player, partner):
    """Add half of what two edges on one path contribute together to both of their players' entries."""
    takes, takes_above, factors = edge
    takes_other, above_other, factors_other = other
    for i in range(len(takes)):
        total = 0.0
        for point in range(len(sums)):
            here = factors[point, 2] + factors[point, 3] * takes[i]
            there = factors_other[point, 2] + factors_other[point, 3] * takes_other[i]
            total += here * there * sums[point, i]
        total *= 0.5 * takes_above[i] * above_other[i]
        out[i, player, partner] += total
        out[i, partner, player] += total
