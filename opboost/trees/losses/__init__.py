"""Losses: gradients on a fixed integer grid, first scores, and scores to predictions."""

from dataclasses import fields
from typing import Any, Literal

from opboost.errors import ParameterError, nearest, shown
from opboost.trees.losses.classes import Logistic, Ordinal, Softmax
from opboost.trees.losses.custom import Custom
from opboost.trees.losses.grid import GradientGrid
from opboost.trees.losses.loss import Loss
from opboost.trees.losses.numbers import Gamma, Poisson, PseudoHuber, SquaredError, Tweedie
from opboost.trees.losses.quantiles import AbsoluteError, Quantiles
from opboost.trees.losses.ranking import LambdaRank, PairwiseRank
from opboost.trees.losses.several import Several, of_labels
from opboost.trees.losses.survival import AcceleratedFailure, Cox

__all__ = [
    "AbsoluteError",
    "AcceleratedFailure",
    "Cox",
    "Custom",
    "Gamma",
    "GradientGrid",
    "Logistic",
    "Loss",
    "Objective",
    "Ordinal",
    "PairwiseRank",
    "Poisson",
    "PseudoHuber",
    "Quantiles",
    "LambdaRank",
    "Several",
    "Softmax",
    "SquaredError",
    "Tweedie",
    "loss_by_name",
]

Objective = Literal[
    "binary:logistic",
    "reg:squarederror",
    "count:poisson",
    "multi:softprob",
    "ordinal:logistic",
    "reg:gamma",
    "reg:tweedie",
    "reg:quantileerror",
    "reg:absoluteerror",
    "reg:pseudohubererror",
    "survival:cox",
    "survival:aft",
    "rank:ndcg",
    "rank:pairwise",
]

_LOSSES: tuple[type[Loss], ...] = (
    Logistic,
    SquaredError,
    Poisson,
    Softmax,
    Ordinal,
    Gamma,
    Tweedie,
    Quantiles,
    AbsoluteError,
    PseudoHuber,
    Cox,
    AcceleratedFailure,
    LambdaRank,
    PairwiseRank,
    Custom,
)


OTHER_NAMES = {
    "binary:bce": Logistic.name,
    "linear": SquaredError.name,
    "logistic": Logistic.name,
    "mse": SquaredError.name,
    "multi:ce": Softmax.name,
    "multi:softmax": Softmax.name,
    "reg:linear": SquaredError.name,
    "regression:l2": SquaredError.name,
    "tweedie": Tweedie.name,
}
"""Names of objectives in other systems."""


def loss_by_name(name: str, n_classes: int = 0, *, n_labels: int = 1, **settings: Any) -> Loss:
    """The loss that a model file or a run file names, with the settings that it has under XGBoost's names.

    Raises
    ------
    ParameterError
    """
    makers = {kind.name: kind for kind in _LOSSES}
    if not isinstance(name, str):
        raise ParameterError(
            "objective must be a name, or a loss of opboost.trees.losses, such as Custom(function) for one of your "
            f"own; got {shown(name)}. Nothing was trained"
        )
    if name not in makers:
        known = ", ".join(name for name in makers if name != Custom.name)
        meant = f"; did you mean {OTHER_NAMES[name]!r}?" if name in OTHER_NAMES else nearest(name, makers)
        raise ParameterError(f"objective must be one of {known}; got {name!r}{meant}")
    taken = {field.name for field in fields(makers[name])} - {"slopes"}  # type: ignore[arg-type]
    if unknown := settings.keys() - taken:
        raise ParameterError(f"the objective {name} has no {', '.join(sorted(unknown))}")
    if "n_classes" in taken:
        settings["n_classes"] = int(n_classes)
    loss = makers[name](**{k: tuple(value) if isinstance(value, list) else value for k, value in settings.items()})
    return of_labels(loss, int(n_labels))
