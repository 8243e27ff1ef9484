"""What the core asks of a loss: every objective has a name of its own, a start of its shape and refuses vast labels."""

from __future__ import annotations

from typing import get_args

import numpy as np
import pytest

from opboost.errors import DataError
from opboost.trees.losses import Objective, loss_by_name
from opboost.trees.losses.loss import MAX_LABEL, Loss

LOSSES = [
    loss_by_name(name, 3 if name in ("multi:softprob", "ordinal:logistic") else 0) for name in get_args(Objective)
]


@pytest.mark.parametrize("loss", LOSSES, ids=lambda one: one.name)
def test_a_start_and_leaf_quantiles_have_one_entry_per_output(loss: Loss) -> None:
    labels, weights = np.array([1.0, 1.0, 0.0 if loss.name.startswith(("binary", "multi", "ord")) else 1.0]), np.ones(3)
    labels = np.column_stack([labels, np.zeros(3)]) if loss.name.startswith("rank") else labels
    loss.check_labels(labels)
    assert loss.initial_scores(labels, weights).shape == (loss.n_outputs,)
    assert len(loss.leaf_quantiles) in (0, loss.n_outputs)
    assert loss_by_name(loss.name, getattr(loss, "n_classes", 0), **loss.settings) == loss


@pytest.mark.parametrize("loss", LOSSES, ids=lambda one: one.name)
def test_labels_whose_gradients_could_overflow_are_refused(loss: Loss) -> None:
    for label in (10 * MAX_LABEL, np.inf, np.nan):
        with pytest.raises(DataError):
            loss.check_labels(np.array([1.0, label]))


def test_every_objective_has_a_name_of_its_own() -> None:
    assert len({loss.name for loss in LOSSES}) == len({type(loss) for loss in LOSSES}) == len(LOSSES)


def test_of_one_raw_score_the_prediction_is_the_score() -> None:
    np.testing.assert_array_equal(Loss().predictions(np.array([[1.5], [2.5]])), [1.5, 2.5])
