"""treelite models, run by treelite's reference interpreter."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from opboost.errors import ParameterError
from opboost.export.treelite_model import to_treelite
from opboost.trees.losses import Logistic, Loss, Ordinal
from tests.support.exported_models import LOSSES, rows, trained

treelite = pytest.importorskip("treelite")


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.name)
def test_treelite_scores_as_the_ensemble_does(loss: Loss) -> None:
    ensemble, _ = trained(loss)
    new = rows(2000, seed=2)
    model = to_treelite(ensemble)
    scores, predictions = treelite.gtil.predict(model, new, pred_margin=True), treelite.gtil.predict(model, new)
    np.testing.assert_allclose(scores.reshape(len(new), -1), ensemble.scores(new), atol=1e-12)
    np.testing.assert_allclose(predictions.reshape(ensemble.predict(new).shape), ensemble.predict(new), atol=1e-7)


def test_a_model_without_trees_is_its_base_score() -> None:
    ensemble, matrix = trained(Logistic(), n_rounds=1)
    empty = replace(ensemble, trees=())
    scores = treelite.gtil.predict(to_treelite(empty), matrix, pred_margin=True)
    np.testing.assert_allclose(scores.reshape(-1, 1), empty.scores(matrix))


def test_other_losses_are_refused() -> None:
    ensemble, _ = trained(Logistic(), n_rounds=1)
    with pytest.raises(ParameterError, match="predictions of ordinal:logistic"):
        to_treelite(replace(ensemble, trees=(), base_scores=np.zeros(2), loss=Ordinal(3)))
