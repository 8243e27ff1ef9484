"""Column sampling weighted by importance in earlier released trees (post-processing, no privacy cost).

The noisy sums of a tree are public once they are released, and so is the size of their noise: what is left of the
squares after the noise's share is how much the gradients still depend on the tree's columns. Trees on a column that
tells nobody apart are the same release as the others, and are wasted.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from opboost.arrays import Values
from opboost.trees.complete import Uniforms

# A column without any merit is drawn as if it stood out by so many variances of the noise on one sum.
_LEAST_MERIT = 2.0

# Columns are kept whose merit is so many deviations of what noise and chance alone make of it, and so many at least.
# Inner folds with 100 columns of noise at epsilon .1, .5 and 1: Power Plant .768, .859, .867, California housing .461,
# .574, .642, Adult .857, .895, .904; with 2 deviations and at least a root of all .730, .839, .856; .437, .574, .646;
# .848, .891, .901. Spambase at .5, 1 and 4: .949, .959, .974 for .950, .962, .974.
_LEAST_DEVIATIONS, _LEAST_KEPT = 3.0, 4

# How much of what is known of a column remains when it is asked again: gradients change.
_MEMORY = 0.5


class LearntColumns:
    """Column sampler whose weights are learned from released sums.

    Every column has a first tree before one has a second.

    Parameters
    ----------
    n_columns, n_drawn : int
        Columns in all, and per tree.
    uniforms : callable

    Notes
    -----
    Privacy: post-processing, as long as `learn` is given released sums alone.
    """

    def __init__(self, n_columns: int, n_drawn: int, uniforms: Uniforms) -> None:
        self._n_drawn = n_drawn
        self._uniforms = uniforms
        self._merits = np.zeros(n_columns)
        self._is_known = np.zeros(n_columns, np.bool_)
        self._is_open = np.ones(n_columns, np.bool_)
        self._drawn: NDArray[np.int64] = np.arange(0)
        self._variance = 0.0

    def __call__(self) -> NDArray[np.int64]:
        """The columns of the next tree."""
        return self.draw(self._n_drawn)

    def draw(self, n_drawn: int) -> NDArray[np.int64]:
        """So many columns for the next tree, or all if there are fewer."""
        waits = -np.log1p(-self._uniforms(len(self._merits)))
        weights = np.maximum(self._merits, 0.0) + _LEAST_MERIT * self._variance
        if not weights.any():
            weights[:] = 1.0
        # The first to come, of arrivals at these rates, are drawn in proportion to the weights.
        with np.errstate(divide="ignore", invalid="ignore"):
            arrivals = np.where(weights > 0, waits / weights, np.inf)
        order = np.lexsort((waits, arrivals, self._is_known))
        self._drawn = order[self._is_open[order]][:n_drawn]
        return self._drawn

    def keep_best(self, *, std: float, energy: float, n_sums: NDArray[np.int64]) -> int:
        """Draw no more columns whose sums did not stand out; returns how many are left, at least four.

        Parameters
        ----------
        std : float
            Deviation of the noise on each sum that was learned from.
        energy : float
            Sum of the squared gradients of all records, about: so large are the squares of sums of chance.
        n_sums : ndarray of int64, shape (n_columns,)
            Of a tree of each.
        """
        variance = std**2 + energy / n_sums
        if not np.all(variance):
            return len(self._merits)
        stands_out = (self._merits - energy) / (variance * np.sqrt(2 * n_sums))
        least = np.sort(stands_out)[-min(_LEAST_KEPT, len(stands_out))]
        self._is_open = stands_out >= min(_LEAST_DEVIATIONS, float(least))
        return int(self._is_open.sum())

    def learn(self, sums: Values, std: float) -> None:
        """Update the weights with the noisy gradient sums of the tree whose columns were drawn last.

        Parameters
        ----------
        sums : ndarray of float64, shape (n_leaves,)
        std : float
            Deviation of the noise on each; 0 for none.
        """
        merit = float((sums**2 - std**2).sum())
        memory = np.where(self._is_known[self._drawn], _MEMORY, 0.0)
        self._merits[self._drawn] = memory * self._merits[self._drawn] + (1 - memory) * merit
        self._is_known[self._drawn] = True
        self._variance = std**2
