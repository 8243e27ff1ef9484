"""Objectives in XGBoost's form, and back."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from opboost.errors import ModelFileError
from opboost.trees.losses import (
    AbsoluteError,
    AcceleratedFailure,
    Cox,
    Gamma,
    LambdaRank,
    Logistic,
    Loss,
    PairwiseRank,
    Poisson,
    PseudoHuber,
    Quantiles,
    Softmax,
    SquaredError,
    Tweedie,
    loss_by_name,
)

# Where XGBoost keeps the settings of an objective; those without any have no section.
SECTIONS: dict[str, str | None] = {
    Logistic.name: "reg_loss_param",
    SquaredError.name: "reg_loss_param",
    Poisson.name: "poisson_regression_param",
    Softmax.name: "softmax_multiclass_param",
    Gamma.name: "reg_loss_param",
    Tweedie.name: "tweedie_regression_param",
    Quantiles.name: "quantile_loss_param",
    AbsoluteError.name: None,
    PseudoHuber.name: "pseudo_huber_param",
    Cox.name: None,
    AcceleratedFailure.name: "aft_loss_param",
    LambdaRank.name: "lambdarank_param",
    PairwiseRank.name: "lambdarank_param",
}


def objective_settings(loss: Loss) -> dict[str, dict[str, str]]:
    """Settings of the objective in the section that XGBoost has for them."""
    settings: dict[str, Any] = dict(loss.settings)
    match loss:
        case Logistic() | SquaredError() | Gamma():
            settings = {"scale_pos_weight": 1}
        case Softmax():
            settings = {"num_class": loss.n_outputs}
        case Poisson():
            settings = {"max_delta_step": loss.max_delta_step}
    section = SECTIONS[loss.name]
    written = {key: json.dumps(value) if isinstance(value, tuple) else str(value) for key, value in settings.items()}
    return {section: written} if section else {}


def read_objective(objective: dict[str, Any], n_classes: int) -> Loss:
    """The loss of an objective that XGBoost wrote.

    Raises
    ------
    ModelFileError
        If an ensemble cannot have it.
    """
    name = objective["name"]
    if name not in SECTIONS:
        raise ModelFileError(f"its objective is {name!r}; an ensemble can have {', '.join(SECTIONS)}")
    plain = loss_by_name(name, n_classes)
    if isinstance(plain, LambdaRank):
        # XGBoost chooses pairs in other ways, too; predictions do not depend on them.
        return plain
    written = objective.get(SECTIONS[name] or "", {})
    return loss_by_name(name, n_classes, **{key: _setting(written[key]) for key in plain.settings if key in written})


def _setting(text: str) -> Any:
    """A setting as XGBoost wrote it: a number of float32, a list of them, or a word."""
    if text.startswith("["):
        return tuple(float(str(np.float32(number))) for number in json.loads(text))
    return text if text.isalpha() else float(str(np.float32(text)))
