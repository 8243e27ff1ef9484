"""Losses of survival times: gradients are the derivatives of the stated likelihoods, checked by differences."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.stats import gumbel_l, logistic, norm

from opboost.errors import DataError, ParameterError
from opboost.trees.kernels.packing import grad_of
from opboost.trees.losses.loss import Loss
from opboost.trees.losses.survival import AcceleratedFailure, Cox, bounds_of, signed_times

DRAW = np.random.default_rng(4)
N = 30
LABELS = DRAW.exponential(2.0, N) * np.where(DRAW.random(N) < 0.7, 1, -1)
NOISES: dict[Any, Any] = {"normal": norm, "logistic": logistic, "extreme": gumbel_l}


def gradients(loss: Loss, scores: np.ndarray) -> np.ndarray:
    grid = loss.grid(LABELS, np.ones(N), np.zeros(1))
    out = np.empty((1, N), np.int64)
    loss.gradients(scores[None, :], LABELS, np.ones(N), grid, out=out)
    return np.array([grad_of(one) / grid.grad_scale for one in out[0].tolist()])


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("scale", [0.7, 2.0])
def test_accelerated_failure_is_the_likelihood_of_log_times(noise: Any, scale: float) -> None:
    def loss_of(scores: np.ndarray) -> np.ndarray:
        z = (np.log(np.abs(LABELS)) - scores) / scale
        return -np.where(LABELS > 0, NOISES[noise].logpdf(z), NOISES[noise].logsf(z))

    scores = DRAW.normal(0, 0.5, N)
    expected = (loss_of(scores + 1e-5) - loss_of(scores - 1e-5)) / 2e-5
    np.testing.assert_allclose(
        gradients(AcceleratedFailure(noise, scale), scores), np.clip(expected, -15, 15), atol=1e-4
    )


def test_cox_is_the_partial_likelihood() -> None:
    times, is_event = np.abs(LABELS), LABELS > 0

    def loss_of(scores: np.ndarray) -> float:
        return -sum(scores[i] - np.log(np.exp(scores[times >= times[i]]).sum()) for i in np.flatnonzero(is_event))

    scores = DRAW.normal(0, 0.5, N)
    steps = 1e-5 * np.eye(N)
    expected = [(loss_of(scores + step) - loss_of(scores - step)) / 2e-5 for step in steps]
    np.testing.assert_allclose(gradients(Cox(), scores), expected, atol=1e-4)


@pytest.mark.parametrize("loss", [Cox(), AcceleratedFailure()], ids=lambda one: one.name)
def test_a_time_is_not_0_and_bounded(loss: Loss) -> None:
    loss.check_labels(LABELS)
    for bad in (0.0, 1e10, np.nan):
        with pytest.raises(DataError, match="times of events"):
            loss.check_labels(np.array([1.0, bad]))


@pytest.mark.parametrize("settings", [("cauchy", 1.0), ("normal", 0.0), ("normal", np.nan)])
def test_other_noise_is_refused(settings: Any) -> None:
    with pytest.raises(ParameterError, match="aft_loss_distribution"):
        AcceleratedFailure(*settings)


def test_xgboost_gets_a_time_without_an_event_as_a_lower_bound() -> None:
    found = AcceleratedFailure().labels_of_xgboost(np.array([2.0, -3.0]))
    assert {name: values.tolist() for name, values in found.items()} == {
        "label_lower_bound": [2.0, 3.0],
        "label_upper_bound": [2.0, np.inf],
    }


@pytest.mark.parametrize("noise", NOISES)
def test_intervals_have_the_slopes_of_their_probability(noise: Any) -> None:
    lower, scores = np.exp(DRAW.normal(0, 1, N)), DRAW.normal(0, 0.5, N)
    labels = np.column_stack([lower, lower * DRAW.uniform(1.05, 3, N)])
    loss, law = AcceleratedFailure(noise, 0.8), NOISES[noise]

    def loss_of(scores: np.ndarray) -> np.ndarray:
        low, high = ((np.log(one) - scores) / 0.8 for one in labels.T)
        return -np.log(law.cdf(high) - law.cdf(low))

    grid, out = loss.grid(labels, np.ones(N), np.zeros(1)), np.empty((1, N), np.int64)
    loss.gradients(scores[None, :], labels, np.ones(N), grid, out=out)
    found = np.array([grad_of(one) / grid.grad_scale for one in out[0].tolist()])
    expected = (loss_of(scores + 1e-5) - loss_of(scores - 1e-5)) / 2e-5
    np.testing.assert_allclose(found, np.clip(expected, -15, 15), atol=1e-4)


def test_bounds_of_a_time_are_read_in_either_form() -> None:
    lower, upper = bounds_of(np.array([[1.0, 2.0], [3.0, 0.0], [4.0, np.inf]]))
    assert (lower.tolist(), upper.tolist()) == ([1, 3, 4], [2, np.inf, np.inf])
    assert signed_times(np.array([[1.0, 2.0], [3.0, 0.0]])).tolist() == [1.5, -3]
    assert [one.tolist() for one in bounds_of(np.array([1.0, -3.0]))] == [[1, 3], [1, np.inf]]
