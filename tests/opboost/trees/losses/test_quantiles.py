"""Losses of quantiles: a weighted quantile is the smallest value with its share, and gradients are one-sided."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from opboost.errors import ParameterError
from opboost.trees.kernels.packing import grad_of
from opboost.trees.losses.quantiles import AbsoluteError, Quantiles, weighted_quantile

ALPHAS = st.floats(0.01, 0.99)


@given(st.lists(st.tuples(st.integers(-9, 9), st.integers(1, 5)), min_size=1), ALPHAS)
def test_a_quantile_is_the_smallest_value_with_its_share(pairs: list[tuple[int, int]], alpha: float) -> None:
    values, weights = (np.array(part, float) for part in zip(*pairs, strict=True))
    found = weighted_quantile(values, weights, alpha)
    reached = {v: weights[values <= v].sum() for v in values.tolist()}
    assert found == min(v for v, share in reached.items() if share >= alpha * weights.sum())


@given(ALPHAS)
def test_no_constant_has_a_lower_pinball_loss_than_the_start(alpha: float) -> None:
    labels = np.random.default_rng(1).normal(0, 1, 31)

    def pinball(constant: float) -> float:
        residuals = labels - constant
        return float(np.maximum(alpha * residuals, (alpha - 1) * residuals).sum())

    start = Quantiles((alpha,)).initial_scores(labels, np.ones(31))[0]
    assert pinball(start) <= min(map(pinball, labels.tolist())) + 1e-9


def test_gradients_say_on_which_side_of_the_score_a_label_lies() -> None:
    labels, scores = np.array([0.0, 2.0]), np.array([[1.0, 1.0]])
    for loss, expected in ((Quantiles((0.2,)), [0.8, -0.2]), (AbsoluteError(), [1.0, -1.0])):
        grid = loss.grid(labels, np.ones(2), np.zeros(1))
        out = np.empty((1, 2), np.int64)
        loss.gradients(scores, labels, np.ones(2), grid, out=out)
        np.testing.assert_allclose([grad_of(one) / grid.grad_scale for one in out[0].tolist()], expected, atol=1e-4)


@pytest.mark.parametrize("alphas", [(), (0.0,), (1.0,), (0.5, np.nan)])
def test_quantiles_lie_between_0_and_1(alphas: tuple[float, ...]) -> None:
    with pytest.raises(ParameterError, match="quantile_alpha"):
        Quantiles(alphas)


def test_several_quantiles_are_columns_and_one_is_none() -> None:
    assert Quantiles((0.1, 0.9)).predictions(np.ones((3, 2))).shape == (3, 2)
    assert Quantiles((0.1,)).predictions(np.ones((3, 1))).shape == (3,)
    assert Quantiles((0.1, 0.9)).n_outputs == 2
