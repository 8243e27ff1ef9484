"""Which of many columns the labels depend on, from short trees on one column each (post-processing).

Every column has a tree in the first round. The best ones have another in the next round, and so on while trees are
left: they are known better, for a part of the price. No tree of the screen is a step of the model, for a hundred
columns that say nothing would add the noise of a hundred trees to every score.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from opboost.arrays import Values

# Trees in all by columns. A round keeps every column that stands out by so many deviations, and this part of them, or
# so many, at least. Inner folds with 100 columns of noise, epsilon .1, .5 and 1 (1.75 trees and a part of .35 in
# brackets): Power Plant .888, .901, .909 (.894, .901, .909), California housing .538, .659, .681 (.539, .659, .682),
# bike sharing .446, .658, .684 (.443, .657, .683). At least four columns: .865, .501, .407 at .1.
TREES_PER_COLUMN, _KEPT_SHARE, _LEAST_DEVIATIONS, _LEAST_KEPT = 1.5, 0.25, 3.0, 2

# Stands for none where neither noise nor chance add anything.
_LEAST_STD = 1e-100


class ColumnScreen:
    """Columns that are left, best first once a round is over.

    Parameters
    ----------
    n_columns, n_trees : int
    std, hess_std : float
        Deviations of the noise on each sum of gradients and of Hessians; 0 for none.
    energy : float
        Sum of the squared gradients of all records, about: so large are the squares of sums of chance.

    Attributes
    ----------
    kept : ndarray of int64

    Notes
    -----
    Privacy: post-processing, as long as `learn` is given released sums alone.
    """

    def __init__(self, n_columns: int, n_trees: int, *, std: float, hess_std: float, energy: float) -> None:
        self._n_left, self._std, self._hess_std, self._energy = n_trees, std, hess_std, energy
        # Of each column: its trees, how many sums each has, and by output the totals of g^2, g h and h^2. With totals a
        # round costs what its columns do, whatever came before; of many columns the last ones have thousands of rounds.
        self._n_trees, self._n_sums = np.zeros(n_columns), np.ones(n_columns)
        self._squares = [np.zeros((3, 1))] * n_columns
        self._totals = np.zeros((2, 1))
        self.kept: NDArray[np.int64] = np.arange(n_columns)

    def columns(self) -> Iterator[int]:
        """The column of each tree in turn; what the tree released is learned before the next one."""
        while self._n_left:
            of_round = self.kept[: self._n_left]
            yield from of_round.tolist()
            self._n_left -= len(of_round)
            self._keep_best()

    def learn(self, column: int, grad: Values, hess: Values) -> None:
        """Keep what a tree on a column released, shapes ``(n_outputs, n_leaves)``."""
        self._n_trees[column] += 1
        self._n_sums[column] = grad.size
        self._squares[column] = self._squares[column] + np.stack([grad**2, grad * hess, hess**2]).sum(axis=2)
        self._totals = self._totals + np.stack([grad, hess]).sum(axis=2)

    def merits(self) -> Values:
        """Squares of a tree's sums about their mean, less those of noise and chance, shape ``(n_columns,)``."""
        return self._merits(np.arange(len(self._n_trees)))[0]

    def _keep_best(self) -> None:
        merits, stds = self._merits(self.kept)
        found = merits / stds
        order = np.argsort(-found, kind="stable")
        n_kept = min(max(_LEAST_KEPT, math.ceil(_KEPT_SHARE * len(order))), len(order))
        bound = min(_LEAST_DEVIATIONS, found[order[n_kept - 1]])
        self.kept = self.kept[order[found[order] >= bound]]

    def _merits(self, columns: NDArray[np.int64]) -> tuple[Values, Values]:
        """Means over the trees of these columns, and their deviations for columns on which nothing depends.

        Sums of chance have squares that are those of all records together, and each has noise.
        """
        ratios = self._mean_ratios()
        about_mean = np.stack([np.ones_like(ratios), -2 * ratios, ratios**2])
        squares = (np.stack([self._squares[column] for column in columns.tolist()]) * about_mean).sum(axis=(1, 2))
        n_trees, n_sums = self._n_trees[columns], self._n_sums[columns]
        of_chance = self._std**2 + float((ratios**2).mean()) * self._hess_std**2 + self._energy / n_sums
        stds = np.maximum(np.sqrt(2 * n_sums) * of_chance, _LEAST_STD) / np.sqrt(n_trees)
        return squares / n_trees - n_sums * of_chance, stds

    def _mean_ratios(self) -> Values:
        """What the sum of all gradients is of that of all Hessians, of each output, shape ``(n_outputs,)``."""
        grad, hess = self._totals
        return np.clip(grad / np.maximum(hess, _LEAST_STD), -1.0, 1.0)
