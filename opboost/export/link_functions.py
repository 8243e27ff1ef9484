"""Link functions: from raw scores to predictions, in the words that other systems have for them."""

from __future__ import annotations

from typing import Literal

from opboost.errors import ParameterError
from opboost.trees.losses import Custom, Logistic, Loss, Ordinal, Softmax
from opboost.trees.losses.numbers import LogMean

LinkFunction = Literal["identity", "sigmoid", "softmax", "exponential"]


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
