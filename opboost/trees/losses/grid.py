"""The fixed integer grid on which gradients are summed.

Its step is a power of two, fixed before training. Sums of integers do not depend on their order, so any number of
threads and any division of the rows gives the same trees to the last bit.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from opboost.arrays import Values
from opboost.trees.kernels.packing import GRAD_BITS, HESS_BITS

# Weights up to this are taken for counts if all are integers.
MAX_COUNT_OF_A_ROW = 16


@dataclass(frozen=True, slots=True)
class GradientGrid:
    """Steps of the integer gradients: ``gradient = integer / scale``.

    The largest weight and residual fix the step, 22 bits below them for gradients and 17 for Hessians; one that is
    millions of times larger than the others leaves these no precision. Weights that are small integers multiply
    rounded gradients, so that a row of weight 2 counts exactly as the row twice.

    Attributes
    ----------
    grad_scale, hess_scale : float
        Powers of two.
    weights_are_counts : bool
        Whether gradients are rounded before the weights, which are integers, multiply them.
    """

    grad_scale: float
    hess_scale: float
    weights_are_counts: bool = False

    @property
    def rounding(self) -> tuple[float, float, bool]:
        """Rounding parameters for the compiled loops."""
        return self.grad_scale, self.hess_scale, self.weights_are_counts

    @classmethod
    def for_bounds(cls, max_grad: float, max_hess: float) -> GradientGrid:
        """The finest grid that holds gradients up to these magnitudes; those beyond twice of them saturate."""
        return cls(_scale(GRAD_BITS - 1, max_grad), _scale(HESS_BITS - 1, max_hess))

    @classmethod
    def for_weights(cls, max_grad: float, max_hess: float, weights: Values) -> GradientGrid:
        """The finest grid that holds gradients up to these magnitudes, times the weights."""
        heaviest = float(weights.max())
        if heaviest > 1 and _are_counts(weights):
            return replace(cls.for_bounds(max_grad, max_hess), weights_are_counts=True)
        return cls.for_bounds(max_grad * heaviest, max_hess * heaviest)

    @classmethod
    def for_unit_hessians(cls, max_grad: float, weights: Values) -> GradientGrid:
        """The finest grid for gradients up to this magnitude and Hessians of 1, times the weights.

        Hessians that are counts take steps of 1, so that more of them fit a packed sum.
        """
        grid = cls.for_weights(max_grad, 1.0, weights)
        return replace(grid, hess_scale=1.0) if _are_counts(weights) else grid


def _are_counts(weights: Values) -> bool:
    return bool(weights.max() <= MAX_COUNT_OF_A_ROW and (weights == np.rint(weights)).all())


def _scale(n_bits: int, bound: float) -> float:
    """The largest power of two by which numbers up to the bound stay within so many bits."""
    return 2.0 ** min(n_bits - math.ceil(math.log2(bound)), 1000)
