"""Objectives in XGBoost's form: settings come back as they were, to the precision that XGBoost keeps."""

from __future__ import annotations

import numpy as np
import pytest

from opboost.errors import ModelFileError
from opboost.export.xgboost_objectives import SECTIONS, objective_settings, read_objective
from opboost.trees.losses import (
    AcceleratedFailure,
    Loss,
    Poisson,
    PseudoHuber,
    Quantiles,
    Softmax,
    Tweedie,
    loss_by_name,
)

LOSSES: list[Loss] = [
    *(loss_by_name(name, 3 if name == Softmax.name else 0) for name in SECTIONS),  # type: ignore[arg-type]
    Tweedie(1.3),
    Quantiles((0.1, 0.9)),
    PseudoHuber(0.7),
    AcceleratedFailure("logistic", 0.3),
]


@pytest.mark.parametrize("loss", LOSSES, ids=repr)
def test_a_loss_comes_back_with_its_settings(loss: Loss) -> None:
    found = read_objective({"name": loss.name, **objective_settings(loss)}, 3)
    assert type(found) is type(loss)
    for key, value in loss.settings.items():
        if isinstance(value, str):
            assert found.settings[key] == value
        else:
            np.testing.assert_allclose(found.settings[key], value, rtol=1e-6)


def test_every_setting_is_a_text_as_xgboost_writes_it() -> None:
    for loss in LOSSES:
        for section in objective_settings(loss).values():
            assert all(isinstance(value, str) for value in section.values())
    assert objective_settings(Poisson()) == {"poisson_regression_param": {"max_delta_step": "0.7"}}


def test_an_objective_that_an_ensemble_cannot_have_is_refused() -> None:
    with pytest.raises(ModelFileError, match="its objective is 'rank:map'"):
        read_objective({"name": "rank:map"}, 0)
