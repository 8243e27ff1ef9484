"""Skellam noise on sums of g and of h. It may be drawn in shares, since its sums are Skellam too, exactly."""

from __future__ import annotations

from opboost.horizontal.rows.record_holder import Clipping
from opboost.privacy.additive import Skellam


def skellam_laws(clipping: Clipping, grad_std: float) -> tuple[Skellam, Skellam]:
    """Skellam noise on sums of g and of h, of at least the deviations `grad_std` and ``grad_std * ratio``."""
    grid = clipping.grid
    stds = grad_std * grid.grad_scale, grad_std * clipping.ratio * grid.hess_scale
    grad, hess = (Skellam.of_variance(std**2 * (1 + 1e-14)) for std in stds)
    return grad, hess
