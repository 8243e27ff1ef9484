"""Losses of classes: gradients are the derivatives of the cross-entropy, and predictions are probabilities."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from opboost.errors import DataError, ParameterError
from opboost.trees.kernels.packing import grad_of, hess_of
from opboost.trees.losses.classes import Logistic, Ordinal, Softmax
from opboost.trees.losses.loss import Loss

DRAW = np.random.default_rng(2)
N = 40


def cross_entropy(loss: Loss, scores: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Per row, from the definition, for scores of shape (n_outputs, n_rows)."""
    if isinstance(loss, Softmax):
        return np.log(np.exp(scores).sum(axis=0)) - scores[labels.astype(int), np.arange(len(labels))]
    above = [labels] if isinstance(loss, Logistic) else [(labels > k).astype(float) for k in range(loss.n_outputs)]
    return sum(np.log1p(np.exp(s)) - y * s for s, y in zip(scores, above, strict=True))


@pytest.mark.parametrize("loss", [Logistic(), Softmax(3), Ordinal(4)], ids=lambda one: one.name)
def test_gradients_are_the_derivatives_of_the_cross_entropy(loss: Any) -> None:
    n_classes = getattr(loss, "n_classes", 2)
    labels, weights = DRAW.integers(0, n_classes, N).astype(float), np.ones(N)
    scores = DRAW.normal(0, 1, (loss.n_outputs, N))
    grid = loss.grid(labels, weights, loss.initial_scores(labels, weights))
    out = np.empty((loss.n_outputs, N), np.int64)
    loss.gradients(scores, labels, weights, grid, out=out)
    for k in range(loss.n_outputs):
        step = np.zeros_like(scores)
        step[k] = 1e-5
        high, low = (cross_entropy(loss, scores + sign * step, labels) for sign in (1, -1))
        found = np.array([grad_of(one) for one in out[k].tolist()]) / grid.grad_scale
        np.testing.assert_allclose(found, (high - low) / 2e-5, atol=1e-5)
        assert min(hess_of(one) for one in out[k].tolist()) >= 0


@pytest.mark.parametrize("loss", [Softmax(3), Ordinal(4)], ids=lambda one: one.name)
def test_predictions_are_probabilities_whatever_the_scores(loss: Any) -> None:
    found = loss.predictions(DRAW.normal(0, 5, (N, loss.n_outputs)))
    assert found.shape == (N, loss.n_classes)
    assert (found >= 0).all()
    np.testing.assert_allclose(found.sum(axis=1), 1.0)


def test_the_best_constant_predicts_the_mean() -> None:
    labels, weights = np.array([0.0, 1, 1, 1]), np.array([3.0, 1, 1, 1])
    assert Logistic().predictions(Logistic().initial_scores(labels, weights)[None, :])[0] == pytest.approx(0.5)
    shares = Softmax(3).predictions(Softmax(3).initial_scores(np.array([0.0, 1, 1, 2]), np.ones(4))[None, :])
    np.testing.assert_allclose(shares[0], [0.25, 0.5, 0.25])


@pytest.mark.parametrize(("loss", "bad"), [(Logistic(), 2.0), (Softmax(3), 3.0), (Ordinal(3), 0.5)])
def test_other_labels_are_refused(loss: Any, bad: float) -> None:
    loss.check_labels(np.array([0.0, 1.0]))
    with pytest.raises(DataError):
        loss.check_labels(np.array([0.0, bad]))


@pytest.mark.parametrize(("kind", "n"), [(Softmax, 1), (Ordinal, 2)])
def test_too_few_classes_are_refused(kind: Any, n: int) -> None:
    with pytest.raises(ParameterError, match="needs at least"):
        kind(n)


@pytest.mark.parametrize("base_score", [0.0, 1.0, -0.5])
def test_a_base_score_of_classes_is_a_probability(base_score: float) -> None:
    with pytest.raises(ParameterError, match="base_score is a probability"):
        Logistic().score_of(base_score)
