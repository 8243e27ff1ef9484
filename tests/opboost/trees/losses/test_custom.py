"""A custom objective: its derivatives are checked before they are used, and without them a model only predicts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from opboost.errors import DataError, ParameterError
from opboost.trees.kernels.packing import grad_of
from opboost.trees.losses.custom import Custom

LABELS = np.array([1.0, 2.0, 4.0])


def squared(labels: np.ndarray, scores: np.ndarray) -> Any:
    return scores - labels, np.ones_like(labels)


def test_its_derivatives_are_the_gradients() -> None:
    loss, weights = Custom(squared), np.ones(3)
    grid = loss.grid(LABELS, weights, loss.initial_scores(LABELS, weights))
    out = np.empty((1, 3), np.int64)
    loss.gradients(np.array([[0.5, 2.5, 3.0]]), LABELS, weights, grid, out=out)
    np.testing.assert_allclose([grad_of(one) / grid.grad_scale for one in out[0].tolist()], [-0.5, 0.5, -1], atol=1e-4)


@pytest.mark.parametrize(
    "slopes",
    [
        lambda labels, scores: (scores[:2], np.ones(3)),
        lambda labels, scores: (scores, np.ones((3, 1))),
        lambda labels, scores: (np.full(3, np.nan), np.ones(3)),
        lambda labels, scores: (scores, -np.ones(3)),
        lambda labels, scores: (scores, np.full(3, np.inf)),
    ],
)
def test_other_numbers_or_shapes_are_refused(slopes: Any) -> None:
    with pytest.raises(DataError, match=r"finite derivatives of shape \(3,\)"):
        Custom(slopes).pairs(LABELS, np.zeros(3))


def test_the_objective_cannot_change_the_scores_of_the_training() -> None:
    def meddle(labels: np.ndarray, scores: np.ndarray) -> Any:
        scores += 100
        return np.zeros(3), np.ones(3)

    loss, scores = Custom(meddle), np.zeros((1, 3))
    grid = Custom(squared).grid(LABELS, np.ones(3), np.zeros(1))
    loss.gradients(scores, LABELS, np.ones(3), grid, out=np.empty((1, 3), np.int64))
    assert not scores.any()


def test_without_derivatives_it_does_not_train() -> None:
    with pytest.raises(ParameterError, match="can predict, and not train"):
        Custom().pairs(LABELS, np.zeros(3))
