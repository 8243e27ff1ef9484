"""Parameters of boosting: the weights of classes, what suits an objective, and the most splits of a tree."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from opboost.errors import DataError, ParameterError
from opboost.trees.losses import Logistic, Loss, Poisson, Softmax, SquaredError
from opboost.trees.parameters import BoostingParameters

LABELS, WEIGHTS = np.array([0.0, 0.0, 0.0, 1.0]), np.array([1.0, 1.0, 2.0, 1.0])


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, [1, 1, 2, 1]),
        ({"scale_pos_weight": 3.0}, [1, 1, 2, 3]),
        ({"class_weight": {0: 0.5}}, [0.5, 0.5, 1, 1]),
        # The classes weigh 4 and 1 of 5.
        ({"class_weight": "balanced"}, [0.625, 0.625, 1.25, 2.5]),
    ],
)
def test_weights_of_rows_are_multiplied_by_those_of_their_classes(given: dict[str, Any], expected: list[float]) -> None:
    assert BoostingParameters(**given).weighted(LABELS, WEIGHTS, Logistic()).tolist() == expected


@pytest.mark.parametrize("weight", [1e-100, 1e100])
def test_weights_that_leave_gradients_no_squares_are_refused(weight: float) -> None:
    parameters, weights = BoostingParameters(scale_pos_weight=weight), np.array([0.0, 1.0, 1.0, 1.0])
    assert parameters.weighted(LABELS, weights, Logistic()).tolist() == [0, 1, 1, weight]
    with pytest.raises(DataError, match="those of classes included"):
        parameters.weighted(LABELS, weights * weight, Logistic())


@pytest.mark.parametrize(
    ("given", "loss", "words"),
    [
        ({"scale_pos_weight": 2.0}, SquaredError(), "weighs label 1"),
        ({"class_weight": "balanced"}, SquaredError(), "has none"),
        ({"class_weight": {3: 1.0}}, Softmax(3), "names class 3; there are classes 0 to 2"),
    ],
)
def test_weights_of_classes_that_do_not_exist_are_refused(given: dict[str, Any], loss: Loss, words: str) -> None:
    with pytest.raises(ParameterError, match=words):
        BoostingParameters(**given).check_objective(loss)


def test_the_bound_of_leaves_suits_the_loss_unless_it_is_given() -> None:
    assert [BoostingParameters().delta_step_of(loss) for loss in (Poisson(), Logistic())] == [0.7, 0.0]
    assert BoostingParameters(max_delta_step=0.0).delta_step_of(Poisson()) == 0.0


@pytest.mark.parametrize(
    ("given", "expected"),
    [({"max_depth": 3}, 7), ({"max_depth": 0, "max_leaves": 5}, 4), ({"max_depth": 2, "max_leaves": 9}, 3)],
)
def test_a_tree_has_so_many_splits_at_most(given: dict[str, int], expected: int) -> None:
    assert BoostingParameters(**given).max_splits == expected


@pytest.mark.parametrize("given", [{"rate_drop": 0.1}, {"one_drop": True}])
def test_leaving_trees_out_needs_its_booster(given: dict[str, Any]) -> None:
    with pytest.raises(ParameterError, match="only booster: dart does"):
        BoostingParameters(**given)
    BoostingParameters(booster="dart", **given)
