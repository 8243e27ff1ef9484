"""Sensitivity of leaf sums: no record of a task has a larger norm, and one has nearly the bound."""

from __future__ import annotations

import math

import numpy as np
import pytest

from opboost.horizontal.noise.leaf_sensitivity import VALUE_STEPS, joint_norm, leaf_clipping, static_sensitivity


@pytest.mark.parametrize("max_grad", [0.1, 0.5, 1.0])
@pytest.mark.parametrize("ratio", [0.25, 1.0, 6.0])
def test_the_norm_of_the_cross_entropy_is_the_largest_over_all_scores(max_grad: float, ratio: float) -> None:
    p = np.linspace(0, 1, 100_003)
    norms = np.hypot(np.minimum(p, max_grad), np.minimum(p * (1 - p), 0.25) / ratio)
    bound = joint_norm(max_grad, 0.25, ratio, is_logistic=True)
    assert norms.max() <= bound * (1 + 1e-12)
    assert bound <= norms.max() + 2e-4 / ratio + 1e-9
    assert bound <= joint_norm(max_grad, 0.25, ratio, is_logistic=False) + 1e-9


def test_where_gradient_and_hessian_are_large_together_the_norm_is_that_of_both() -> None:
    assert joint_norm(3.0, 4.0, 1.0, is_logistic=False) == 5.0
    clipping = leaf_clipping(0.25, 2.0, is_classification=False)
    assert clipping.max_norm == pytest.approx(math.hypot(0.25, 1.0 / clipping.ratio))
    assert leaf_clipping(0.5, 2.0, is_classification=True, counts=True).max_hess == 1.0


@pytest.mark.parametrize("reg_lambda", [0.0, 1.0, 10.0])
def test_one_record_moves_a_leafs_value_by_no_more_than_its_sensitivity(reg_lambda: float) -> None:
    clipping = leaf_clipping(0.5, 2.0, is_classification=False)
    draw, bound = np.random.default_rng(1), static_sensitivity(clipping, reg_lambda)

    def value(gradients: np.ndarray) -> float:
        return (
            round(-gradients.sum() / (len(gradients) + reg_lambda) * VALUE_STEPS) / VALUE_STEPS
            if len(gradients)
            else 0.0
        )

    for n in range(1, 8):
        for _ in range(50):
            gradients = draw.choice([-0.5, 0.5, 0.3], n)
            assert abs(value(gradients) - value(gradients[:-1])) <= bound + 1e-12
