"""Shapley values of a model's features for single predictions, exact and path-dependent, as XGBoost's `pred_contribs`.

Of a row, the features in a set S are known. A tree's value is then an average over leaves: at a split on a known
feature the row takes its way, at any other it takes both, in the proportion of the covers. A leaf of value v whose path
asks the players 1..D is a product, ``v * prod(o_j for j in S) * prod(z_j for j not in S)``: o_j is 1 if the row takes
all edges that ask j and else 0, z_j is the product of their shares in the covers. Player i's Shapley value is

    v * (o_i - z_i) * integral over t from 0 to 1 of prod(t o_j + (1 - t) z_j for j other than i),

the integral of a polynomial of degree D - 1, for which Gauss-Legendre quadrature with D / 2 points is exact. At every
point, products go down a tree and sums over leaves come back up, once per edge: a row takes O(edges * D), where the
algorithm of Lundberg et al. (2018) takes O(leaves * D^2). What two players contribute together leaves out both factors.

The factors of an edge do not depend on the row but for whether it takes the edge (o = 1) and all edges above it that
ask the same player. If it takes those, their factor f' = t + (1 - t) z' gives way to f = t o + (1 - t) z, and the
player's value changes by (o - z) / f - (1 - z') / f' times the sum of the leaves below. If it does not, f = f' times
the edge's share, and nothing changes.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from opboost.arrays import Values
from opboost.errors import DataError
from opboost.trees.flat_trees import FlatTrees
from opboost.trees.kernels.shapley import add_shapley_values, link_edges
from opboost.trees.kernels.threads import threads_for


def shapley_values(
    features: Values, trees: FlatTrees, players: NDArray[np.int64], base_scores: Values, *, in_pairs: bool
) -> Values:
    """Shapley values of players for the raw scores of rows, or what every two of them contribute together.

    Parameters
    ----------
    features : ndarray of float64, shape (n_rows, n_features)
    trees : FlatTrees
    players : ndarray of int64, shape (n_features,)
        The player that each feature belongs to.
    base_scores : ndarray of float64, shape (n_outputs,)
    in_pairs : bool

    Returns
    -------
    ndarray of float64
        Of shape ``(n_rows, n_outputs, n_players + 1)``: each player's value, and behind them the mean score; or, in
        pairs, of shape ``(n_rows, n_outputs, n_players + 1, n_players + 1)``, whose rows add up to the former.

    Raises
    ------
    DataError
        If the trees have no covers.
    """
    n_rows, n_outputs, n_players = len(features), len(base_scores), int(players.max(initial=-1)) + 1
    out = np.zeros((n_rows, n_outputs, n_players + 1))
    pairs = np.zeros((n_rows, n_outputs, n_players + 1, n_players + 1) if in_pairs else (n_rows, n_outputs, 0, 0))
    out[..., -1] = base_scores
    _add_trees(np.ascontiguousarray(features, dtype=np.float64), trees, players, out, pairs)
    if not in_pairs:
        return out
    diagonal = np.arange(n_players + 1)
    pairs[..., diagonal, diagonal] = out - pairs.sum(axis=-1)
    return pairs


def _add_trees(features: Values, trees: FlatTrees, players: NDArray[np.int64], out: Values, pairs: Values) -> None:
    roots, lefts, covers, is_leaf = trees.roots, trees.lefts, trees.covers, trees.is_leaf
    if (covers[roots] <= 0)[~is_leaf[roots]].any():
        raise DataError(
            "contributions need the trees' covers, and this model has none: it was saved without statistics, or its "
            "recipe keeps none. Count covers on rows that you have (`opboost.covers.with_covers`)"
        )
    depths, nearest = np.empty((2, len(lefts)), np.int32)
    shares, (above, reached) = np.ones((2, len(lefts))), np.ones((2, len(lefts)))
    most = link_edges(roots, trees.columns, lefts, covers, players, depths, nearest, shares, above, reached)
    points, weights = np.polynomial.legendre.leggauss(max((most + 1) // 2, 1))
    factors = _factors((points + 1) / 2, shares[1, :, None], above[:, None])
    out[..., -1] += np.bincount(trees.node_outputs, np.where(is_leaf, trees.values * reached, 0.0), out.shape[1])
    edges = players, depths, nearest, shares, factors
    with threads_for(features.size * len(roots)):
        add_shapley_values(features, trees[:-1], edges, weights / 2, out, pairs)


def _factors(points: Values, product: Values, above: Values) -> Values:
    """By node and point: the factor of an edge not taken and what taking it adds; likewise the change of the value.

    Parameters
    ----------
    points : ndarray of float64, shape (n_points,)
    product, above : ndarray of float64, shape (n_nodes, 1)
        The player's product of shares with this edge, and without it.
    """
    before, alone = points + (1 - points) * above, (1 - points) * product
    off = -1 / (1 - points) - (1 - above) / before
    on = (1 - product) / (points + alone) - (1 - above) / before
    return np.stack([alone / before, points / before, off, on - off], axis=2)
