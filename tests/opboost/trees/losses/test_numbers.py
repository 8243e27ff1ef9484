"""Losses of numbers: gradients are the derivatives of the stated losses, checked by differences."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from opboost.errors import DataError, ParameterError
from opboost.trees.kernels.packing import grad_of
from opboost.trees.losses.loss import Loss
from opboost.trees.losses.numbers import MAX_MEAN, Gamma, Poisson, PseudoHuber, SquaredError, Tweedie

DRAW = np.random.default_rng(3)
LABELS = DRAW.gamma(2.0, 1.0, 40)

# Loss of a raw score s and a label y.
STATED: list[tuple[Loss, Callable[[np.ndarray, np.ndarray], np.ndarray]]] = [
    (SquaredError(), lambda s, y: (s - y) ** 2 / 2),
    (Poisson(), lambda s, y: np.exp(s) - y * s),
    (Gamma(), lambda s, y: s + y * np.exp(-s)),
    (Tweedie(1.3), lambda s, y: -y * np.exp(-0.3 * s) / -0.3 + np.exp(0.7 * s) / 0.7),
    (PseudoHuber(0.7), lambda s, y: 0.49 * (np.sqrt(1 + ((s - y) / 0.7) ** 2) - 1)),
]


@pytest.mark.parametrize(("loss", "stated"), STATED, ids=[loss.name for loss, _ in STATED])
def test_gradients_are_the_derivatives(loss: Loss, stated: Callable[[np.ndarray, np.ndarray], np.ndarray]) -> None:
    weights, start = np.ones(len(LABELS)), loss.initial_scores(LABELS, np.ones(len(LABELS)))
    scores = (start[0] + DRAW.normal(0, 0.2, len(LABELS))).astype(loss.score_type)
    grid = loss.grid(LABELS, weights, start)
    out = np.empty((1, len(LABELS)), np.int64)
    loss.gradients(scores[None, :], LABELS, weights, grid, out=out)
    wide = scores.astype(float)
    expected = (stated(wide + 1e-5, LABELS) - stated(wide - 1e-5, LABELS)) / 2e-5
    np.testing.assert_allclose([grad_of(one) / grid.grad_scale for one in out[0].tolist()], expected, atol=2e-5)


@pytest.mark.parametrize("loss", [Poisson(), Gamma(), Tweedie()], ids=lambda one: one.name)
def test_a_loss_on_a_mean_predicts_means(loss: Loss) -> None:
    start = loss.initial_scores(LABELS, np.ones(len(LABELS)))
    assert loss.predictions(start[None, :])[0] == pytest.approx(LABELS.mean())
    assert loss.score_of(2.0) == pytest.approx(np.log(2.0))
    with pytest.raises(ParameterError, match="base_score is a mean"):
        loss.score_of(0.0)
    for bad in (-1.0, 2 * MAX_MEAN):
        with pytest.raises(DataError):
            loss.check_labels(np.array([1.0, bad]))


def test_gamma_alone_has_no_label_0() -> None:
    Poisson().check_labels(np.zeros(2))
    Tweedie().check_labels(np.zeros(2))
    with pytest.raises(DataError, match="greater than 0"):
        Gamma().check_labels(np.zeros(2))


@pytest.mark.parametrize("power", [1.0, 2.0, np.nan])
def test_a_variance_grows_with_a_power_between_poisson_and_gamma(power: float) -> None:
    with pytest.raises(ParameterError):
        Tweedie(power)


@pytest.mark.parametrize("slope", [0.0, -1.0, np.inf, np.nan])
def test_a_slope_is_a_positive_number(slope: float) -> None:
    with pytest.raises(ParameterError):
        PseudoHuber(slope)
