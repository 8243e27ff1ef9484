"""ONNX models, run by onnxruntime."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from opboost.errors import ParameterError
from opboost.export.onnx_model import to_onnx
from opboost.trees.losses import Logistic, Loss, Ordinal
from opboost.trees.tree import LEAF, Ensemble
from tests.support.exported_models import LOSSES, rows, trained

onnxruntime = pytest.importorskip("onnxruntime")


def _run(ensemble: Ensemble, features: Any) -> Any:
    session = onnxruntime.InferenceSession(to_onnx(ensemble).SerializeToString())
    return session.run(["scores", "predictions"], {"features": features})


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.name)
def test_a_runtime_scores_as_the_ensemble_does(loss: Loss) -> None:
    ensemble, _ = trained(loss)
    new = rows(2000, seed=2)
    scores, predictions = _run(ensemble, new)
    np.testing.assert_allclose(scores, ensemble.scores(new), rtol=0, atol=1e-12)
    np.testing.assert_allclose(predictions.reshape(ensemble.predict(new).shape), ensemble.predict(new), atol=1e-5)


def test_doubles_next_to_a_threshold_go_their_own_ways() -> None:
    ensemble, _ = trained(Logistic(), n_rounds=1)
    tree = ensemble.trees[0]
    asked = np.flatnonzero((tree.columns == 0) & (tree.thresholds < 1e300))
    at = np.zeros((2 * len(asked), 3))
    at[:, 0] = [side for t in tree.thresholds[asked] for side in (t, np.nextafter(t, np.inf))]
    np.testing.assert_allclose(_run(ensemble, at)[0], ensemble.scores(at), atol=1e-12)


def test_trees_of_a_single_leaf_and_no_trees_at_all_are_written() -> None:
    ensemble, matrix = trained(Logistic(), n_rounds=2)
    constant = replace(LEAF, values=np.array([0.25]))
    for trees in ((ensemble.trees[0], constant), (constant,), ()):
        changed = replace(ensemble, trees=trees)
        np.testing.assert_allclose(_run(changed, matrix)[0], changed.scores(matrix), atol=1e-12)


def test_names_of_the_features_travel() -> None:
    ensemble, _ = trained(Logistic(), n_rounds=1)
    properties = {one.key: one.value for one in to_onnx(ensemble).metadata_props}
    assert properties == {"feature_0": "width", "feature_1": 'the "height"', "feature_2": "kind"}


def test_other_losses_and_models_without_features_are_refused() -> None:
    ensemble, _ = trained(Logistic(), n_rounds=1)
    with pytest.raises(ParameterError, match=r"predictions of ordinal:logistic.*No model was exported"):
        to_onnx(replace(ensemble, trees=(), base_scores=np.zeros(2), loss=Ordinal(3)))
    with pytest.raises(ParameterError, match="needs a feature"):
        to_onnx(replace(ensemble, trees=(), features=()))
