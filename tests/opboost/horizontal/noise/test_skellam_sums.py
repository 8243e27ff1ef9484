"""Skellam noise on sums: at least the asked deviation on the grid's integers, and no more than a hair above it."""

from __future__ import annotations

import pytest

from opboost.horizontal.noise.leaf_sensitivity import leaf_clipping
from opboost.horizontal.noise.skellam_sums import skellam_laws


@pytest.mark.parametrize("std", [0.5, 3.0, 40.0])
@pytest.mark.parametrize("is_classification", [False, True])
def test_each_sum_has_its_own_deviation_in_steps_of_its_grid(std: float, is_classification: bool) -> None:
    clipping = leaf_clipping(0.5, 2.0, is_classification=is_classification)
    grad, hess = skellam_laws(clipping, std)
    grid = clipping.grid
    for law, wanted in ((grad, std * grid.grad_scale), (hess, std * clipping.ratio * grid.hess_scale)):
        assert wanted**2 <= law.variance <= wanted**2 * (1 + 1e-6) + 1
