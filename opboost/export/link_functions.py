"""Link functions: from raw scores to predictions, in the words that other systems have for them."""

from __future__ import annotations

from typing import Literal

from opboost.errors import ParameterError
from opboost.trees.losses import (
    AbsoluteError,
    Gamma,
    Logistic,
    Loss,
    Poisson,
    PseudoHuber,
    Quantiles,
    Softmax,
    SquaredError,
    Tweedie,
)

LinkFunction = Literal["identity", "sigmoid", "softmax", "exponential"]

_LINKS: dict[str, LinkFunction] = {
    Logistic.name: "sigmoid",
    Softmax.name: "softmax",
    **{loss.name: "exponential" for loss in (Poisson, Gamma, Tweedie)},
    **{loss.name: "identity" for loss in (SquaredError, AbsoluteError, PseudoHuber, Quantiles)},
}


def link_function(loss: Loss) -> LinkFunction:
    """The link function of a loss.

    Raises
    ------
    ParameterError
        If the loss has none of these.
    """
    if loss.name not in _LINKS:
        raise ParameterError(
            f"a model of {loss.name} cannot be exported; those of {', '.join(_LINKS)} can. No model was exported"
        )
    return _LINKS[loss.name]
