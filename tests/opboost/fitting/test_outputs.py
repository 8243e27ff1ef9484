"""Trees of each output: those of several labels are those of each label alone, round by round."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from opboost.errors import ParameterError
from opboost.fitting.noised_table import FilledTable
from opboost.fitting.outputs import OutputTrainer, TrainingTargets
from opboost.trees.binning import BinnedTable, bin_values
from opboost.trees.boosting import BoostingParameters
from opboost.trees.constraints import Constraints
from opboost.trees.losses import Logistic, SquaredError
from opboost.trees.losses.several import Several

pytestmark = pytest.mark.usefixtures("one_thread")

N_ROWS = 200
NO_MARGINS = np.empty((0, N_ROWS))
DRAW = np.random.default_rng(0)
TABLE = BinnedTable.of([bin_values(column, max_bin=16) for column in DRAW.random((2, N_ROWS))])
LABELS = (np.stack([TABLE.bins[0] > 7, TABLE.bins[1] > 3], axis=1) ^ (DRAW.random((N_ROWS, 2)) < 0.1)).astype(float)


def trainer(engine: Any = "native", **parameters: Any) -> OutputTrainer:
    return OutputTrainer(
        filled=FilledTable(None, TABLE),
        weights=np.ones(N_ROWS),
        is_trained=np.ones(N_ROWS, np.bool_),
        parameters=BoostingParameters(**{"n_estimators": 3, "max_depth": 2} | parameters),
        limits=Constraints.none(2),
        validation=None,
        known=None,
        engine=engine,
        seed=1,
        on_round=lambda report: None,
    )


def test_several_labels_have_the_trees_of_each_alone_in_turn() -> None:
    together, base_scores, _ = trainer().train(TrainingTargets(Several(Logistic(), 2), LABELS, NO_MARGINS))
    for k in range(2):
        alone, base, _ = trainer().train_output(TrainingTargets(Logistic(), LABELS[:, k], NO_MARGINS), output=k)
        assert base_scores[k] == base[0]
        assert [tree.values.tolist() for tree in together[k::2]] == [tree.values.tolist() for tree in alone]


def test_a_base_score_of_the_parameters_stands_for_that_of_the_labels_and_margins_for_both() -> None:
    labels = LABELS[:, 0]
    starts = [
        trainer(**given).train(TrainingTargets(SquaredError(), labels, margins))[1].tolist()
        for given, margins in (({}, NO_MARGINS), ({"base_score": 0.25}, NO_MARGINS), ({}, np.ones((1, N_ROWS))))
    ]
    assert starts == [pytest.approx([labels.mean()]), [0.25], [0.0]]


@pytest.mark.parametrize(("engine", "booster"), [("xgboost", "gbtree"), ("native", "dart")])
def test_leaves_that_cannot_be_fitted_anew_are_refused(engine: Any, booster: str) -> None:
    if engine == "xgboost":
        pytest.importorskip("xgboost")
    labels = LABELS[:, 0]
    with pytest.raises(ParameterError, match="leaves cannot be fitted anew"):
        trainer(engine, booster=booster).train(TrainingTargets(SquaredError(), labels, NO_MARGINS, leaf_labels=labels))


def test_leaves_fitted_anew_on_the_same_labels_are_the_same() -> None:
    labels = LABELS[:, 0]
    (grown, _, _), (fitted, _, _) = (
        trainer().train(TrainingTargets(SquaredError(), labels, NO_MARGINS, leaf_labels=leaf_labels))
        for leaf_labels in (None, labels)
    )
    assert [tree.values.tolist() for tree in fitted] == [tree.values.tolist() for tree in grown]
