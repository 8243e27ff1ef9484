"""The fixed integer grid on which gradients are summed.

Its step is a power of two, fixed before training. Sums of integers do not depend on their order, so any number of
threads and any division of the rows gives the same trees to the last bit.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from opboost.arrays import Values
from opboost.trees.kernels.packing import BLOCK, GRAD_BITS, HESS_BITS

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
    block : int
        Rows whose packed gradients may be added before the sum is taken apart.
    """

    grad_scale: float
    hess_scale: float
    weights_are_counts: bool = False
    block: int = BLOCK

    @property
    def rounding(self) -> tuple[float, float, bool]:
        """How the compiled loops are to round."""
        return self.grad_scale, self.hess_scale, self.weights_are_counts

    @classmethod
    def for_bounds(cls, max_grad: float, max_hess: float, *, are_never_exceeded: bool = False) -> GradientGrid:
        """The finest grid that holds gradients up to these magnitudes; those beyond twice of them saturate.

        Of gradients that never exceed the bounds, twice as many less one fit a sum.
        """
        block = 2 * BLOCK - 1 if are_never_exceeded else BLOCK
        return cls(_scale(GRAD_BITS - 1, max_grad), _scale(HESS_BITS - 1, max_hess), block=block)

    @classmethod
    def for_weights(
        cls, max_grad: float, max_hess: float, weights: Values, *, are_never_exceeded: bool = False
    ) -> GradientGrid:
        """The finest grid that holds gradients up to these magnitudes, times the weights."""
        heaviest = float(weights.max())
        if 1 < heaviest <= MAX_COUNT_OF_A_ROW and (weights == np.rint(weights)).all():
            grid = cls.for_bounds(max_grad, max_hess, are_never_exceeded=are_never_exceeded)
            return replace(grid, weights_are_counts=True, block=grid.block >> math.ceil(math.log2(heaviest)))
        return cls.for_bounds(max_grad * heaviest, max_hess * heaviest, are_never_exceeded=are_never_exceeded)


def _scale(n_bits: int, bound: float) -> float:
    """The largest power of two by which numbers up to the bound stay within so many bits."""
    return 2.0 ** min(n_bits - math.ceil(math.log2(bound)), 1000)
