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

    def restrict(self, columns: NDArray[np.int64], merits: Values, std: float) -> None:
        """Draw these columns alone, at first by the merits that a screen told of all, under such noise."""
        self._merits, self._variance = merits.copy(), std**2
        self._is_known[:], self._is_open[:] = True, False
        self._is_open[columns] = True

    def rescale(self, unit: float) -> None:
        """Go on with sums in another unit."""
        self._merits /= unit**2

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
