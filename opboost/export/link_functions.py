"""Link functions: from raw scores to predictions, in the words that other systems have for them."""

from __future__ import annotations

from typing import Any, Literal

from opboost.errors import ParameterError
from opboost.trees.losses import Custom, Logistic, Loss, Ordinal, Several, Softmax
from opboost.trees.losses.numbers import LogMean
from opboost.trees.tree import Ensemble

LinkFunction = Literal["identity", "sigmoid", "softmax", "exponential"]


def exportable(model: Any) -> Ensemble:
    """The trees of a model or of a fitted estimator, if other systems' trees can add up to its scores.

    Raises
    ------
    ParameterError
    """
    if (bounds := getattr(model, "prediction_bounds_", None)) is not None:
        raise ParameterError(
            f"predictions of {type(model).__name__} are kept between {bounds[0]:g} and {bounds[1]:g}, which no other "
            "system's trees do: export its `model_`, and keep what that predicts between them. No model was exported"
        )
    found = getattr(model, "model_", model)
    ensemble = getattr(found, "ensemble", found)
    if not isinstance(ensemble, Ensemble):
        raise ParameterError(
            f"a model to export is an Ensemble, a JointModel or a fitted estimator; got {type(model).__name__}. "
            "No model was exported"
        )
    if len(models := getattr(model, "models_", ())) > 1:
        raise ParameterError(
            f"this estimator has a model for each of {len(models)} classes: export each of its `models_`. "
            "No model was exported"
        )
    if ensemble.offsets or isinstance(ensemble.loss, Several):
        raise ParameterError("a model with a base margin or several labels has no form there. No model was exported")
    return ensemble


def link_function(loss: Loss) -> LinkFunction:
    """The link function of a loss.

    Raises
    ------
    ParameterError
        If the loss has none of these.
    """
    match loss:
        case Logistic():
            return "sigmoid"
        case Softmax():
            return "softmax"
        case LogMean():
            return "exponential"
        case Ordinal() | Custom():
            raise ParameterError(
                f"no other system here has predictions of {loss.name}; those of all other objectives can be exported. "
                "No model was exported"
            )
    return "identity"
