"""Link functions: from raw scores to predictions, in the words that other systems have for them."""

from __future__ import annotations

from typing import Literal

from opboost.errors import ParameterError
from opboost.trees.losses import Custom, Logistic, Loss, Ordinal, Several, Softmax
from opboost.trees.losses.numbers import LogMean
from opboost.trees.tree import Ensemble

LinkFunction = Literal["identity", "sigmoid", "softmax", "exponential"]


def check_exportable(ensemble: Ensemble) -> None:
    """Refuse models whose scores other systems' trees do not add up to.

    Raises
    ------
    ParameterError
    """
    if ensemble.offsets or isinstance(ensemble.loss, Several):
        raise ParameterError("a model with a base margin or several labels has no form there. No model was exported")


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
