"""Column sampling by tree, level and node, and tree dropout (DART), as in XGBoost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from opboost.arrays import Mask
from opboost.trees.constraints import NodeLimits
from opboost.trees.parameters import BoostingParameters
from opboost.trees.rows import PutBack
from opboost.trees.tree import Tree


@dataclass(frozen=True, slots=True)
class ColumnSampler:
    """Sampler of the columns of one tree's levels and nodes.

    Parameters
    ----------
    columns : ndarray of int64
        Columns of the tree.
    by_level, by_node : float
        Shares of the columns.
    rng : numpy Generator
        Never for privacy.
    """

    columns: NDArray[np.int64]
    by_level: float
    by_node: float
    rng: np.random.Generator
    _levels: dict[int, NDArray[np.int64]] = field(default_factory=dict)

    @property
    def draws_once(self) -> bool:
        """True if all nodes of a tree have the same columns."""
        return self.by_level == self.by_node == 1

    def sampled(self, limits: NodeLimits, depth: int, n_nodes: int) -> NodeLimits:
        """The limits of nodes of a level, with the columns that were drawn for them alone."""
        if self.draws_once:
            return limits
        if depth not in self._levels:
            self._levels[depth] = draw_columns(self.columns, self.by_level, self.rng)
        drawn: Mask = np.zeros((n_nodes, limits.allowed.shape[1]), dtype=np.bool_)
        for node in drawn:
            node[draw_columns(self._levels[depth], self.by_node, self.rng)] = True
        return replace(limits, allowed=limits.allowed & drawn)


def draw_columns(columns: NDArray[np.int64], share: float, rng: np.random.Generator) -> NDArray[np.int64]:
    """A share of columns, at least one of them."""
    return rng.permutation(columns)[: max(1, round(share * len(columns)))] if share < 1 else columns


class BoostedRows(Protocol):
    """Rows whose scores contain the trees so far."""

    def take_out(self, trees: Sequence[tuple[int, Tree]]) -> PutBack:
        """Take trees, each with its output, out of the scores; returns what puts them back, times a weight."""


@dataclass(slots=True, kw_only=True)
class TreeDropout:
    """Dropout of random trees from each round's scores: DART (Rashmi and Gilad-Bachrach 2015), as in XGBoost.

    Parameters
    ----------
    parameters : BoostingParameters
    n_outputs : int
    rows : sequence of LocalHolder or ValidationRows
        Whose scores the trees are in.
    rng : numpy Generator
        Never for privacy.
    """

    parameters: BoostingParameters
    n_outputs: int
    rows: Sequence[BoostedRows]
    rng: np.random.Generator
    _weights: list[float] = field(default_factory=list)
    _dropped: list[int] = field(default_factory=list)
    _put_back: list[PutBack] = field(default_factory=list)
    _kept_share: float = 1.0

    def drop(self, trees: list[Tree]) -> float:
        """Take some of the trees out of the scores; returns the factor of the round's new trees."""
        self._weights += [1.0] * (len(trees) - len(self._weights))
        self._dropped = self._drawn() if trees and self.rng.random() >= self.parameters.skip_drop else []
        n_dropped, rate = len(self._dropped), self.parameters.learning_rate / self.n_outputs
        if not n_dropped:
            return 1.0
        dropped = [(i % self.n_outputs, trees[i]) for i in self._dropped]
        self._put_back = [rows.take_out(dropped) for rows in self.rows]
        n_shares = n_dropped if self.parameters.normalize_type == "tree" else 1
        self._kept_share = n_shares / (n_shares + rate)
        return self._kept_share / n_shares

    def bring_back(self, trees: list[Tree], factor: float) -> None:
        """Put the trees that were left out back, weighted less; the new ones, which come last, have this factor."""
        for i in self._dropped:
            trees[i] = trees[i].scaled(self._kept_share)
            self._weights[i] *= self._kept_share
        for put_back in self._put_back:
            put_back(self._kept_share)
        self._put_back = []
        self._weights += [factor] * self.n_outputs

    def _drawn(self) -> list[int]:
        weights = np.array(self._weights) if self.parameters.sample_type == "weighted" else np.ones(len(self._weights))
        chances = self.parameters.rate_drop * weights / weights.mean()
        dropped = np.flatnonzero(self.rng.random(len(weights)) < chances).tolist()
        if not dropped and self.parameters.one_drop:
            dropped = [int(self.rng.choice(len(weights), p=weights / weights.sum()))]
        return dropped
