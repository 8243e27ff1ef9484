"""Random columns for every tree, level and node, as XGBoost draws them: each from those of the one before."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from opboost.arrays import Mask
from opboost.trees.constraints import NodeLimits


@dataclass(frozen=True, slots=True)
class ColumnSampler:
    """Draws the columns of one tree's levels and nodes.

    Parameters
    ----------
    columns : ndarray of int64
        Columns of the tree.
    by_level, by_node : float
        Shares.
    rng : numpy Generator
        Never for privacy.
    """

    columns: NDArray[np.int64]
    by_level: float
    by_node: float
    rng: np.random.Generator
    _levels: dict[int, NDArray[np.int64]] = field(default_factory=dict)

    def sampled(self, limits: NodeLimits, depth: int, n_nodes: int) -> NodeLimits:
        """The limits of nodes of a level, with the columns that were drawn for them alone."""
        if self.by_level == self.by_node == 1:
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
