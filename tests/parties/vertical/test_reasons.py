"""Reason codes of records."""

from __future__ import annotations

import numpy as np
import pytest

from opboost.trees.losses import Logistic, Loss, Softmax
from opboost.trees.tree import Ensemble, Feature
from parties.config.score_policy import RevealSection
from parties.errors import ConfigError
from parties.vertical.reasons import check_reasons, reason_table


def _model(n_outputs: int = 1) -> Ensemble:
    loss: Loss = Logistic() if n_outputs == 1 else Softmax(n_outputs)
    features = (Feature("age"), Feature("c0", "shop", 3), Feature("c1", "shop", 1), Feature("c0", "shop", 5))
    return Ensemble((), np.zeros(n_outputs), loss, features)


def test_reasons_are_the_positive_contributions_the_largest_first() -> None:
    found = reason_table(_model(), np.array([[0.1, 0.3, -1], [-1, -2, -3], [0, 0.2, 0.2], [np.nan] * 3]), 2)
    expected = [["shop: c0", "age"], ["", ""], ["shop: c0", "shop: c1"], ["", ""]]
    assert found.fillna("").to_numpy().tolist() == expected
    assert list(found.columns) == ["reason_1", "reason_2"]
    assert reason_table(_model(), np.ones((1, 3)), 9).shape == (1, 3)


def test_reasons_beside_coarse_scores_or_of_several_scores_are_refused() -> None:
    check_reasons(_model(), RevealSection())
    with pytest.raises(ConfigError, match=r"one score per record, but the model has 3\. Nothing was sent"):
        check_reasons(_model(3), RevealSection())
    for policy in (RevealSection(round=2), RevealSection(bins=4), RevealSection(top=5)):
        with pytest.raises(ConfigError, match="more of a score than `reveal` lets out"):
            check_reasons(_model(), policy)
