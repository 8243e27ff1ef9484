"""Bounds on the budgets in run files: beyond them nothing is protected, and the run file must say ``no_privacy: true``.

A column's is what its guarantee says of neighbouring values. Far smaller budgets protect little, too; where good ones
end is for people to decide.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Annotated

from pydantic import AfterValidator, Field

from opboost.desensitize import ColumnMechanism
from opboost.mechanism_settings import MechanismSettings
from opboost.privacy.laws import MOST_EPSILON
from opboost.privacy.local import RandomisedResponse


def _ascending(bounds: tuple[float, float]) -> tuple[float, float]:
    """Check that the bounds have a positive, finite difference, by which labels are scaled."""
    if not 0 < bounds[1] - bounds[0] < math.inf:
        raise ValueError("must be a lower and a higher number, whose difference is finite")
    return bounds


Epsilon = Annotated[float, Field(gt=0)]
Delta = Annotated[float, Field(gt=0, lt=1)]
LabelBounds = Annotated[tuple[float, float], AfterValidator(_ascending)]
Finite = Annotated[float, Field(gt=0, allow_inf_nan=False)]


@dataclass(frozen=True, slots=True)
class GivenBudget:
    """A budget that a run file gives, or that several of its keys come to.

    Attributes
    ----------
    words : str
        Says the keys and the value.
    value : float
    most : float
    """

    words: str
    value: float
    most: float = MOST_EPSILON

    @classmethod
    def at(cls, place: str, value: float, most: float = MOST_EPSILON) -> GivenBudget:
        """The value of one key."""
        return cls(f"{place} is {value:.9g}", value, most)


def excessive(budgets: Iterable[GivenBudget]) -> list[GivenBudget]:
    """The budgets that protect nothing."""
    return [budget for budget in budgets if not budget.value <= budget.most]


def check_protection(budgets: Iterable[GivenBudget], *, no_privacy: bool) -> None:
    """Refuse budgets that protect nothing.

    Raises
    ------
    ValueError
    """
    refused = [] if no_privacy else excessive(budgets)
    if refused:
        raise ValueError(
            " | ".join(
                f"{budget.words}, which protects nothing: at most {budget.most:g} is allowed, or more together with "
                "`no_privacy: true` in the run file"
                for budget in refused
            )
        )


def given_budgets(section: str, **keys: float | None) -> Iterator[GivenBudget]:
    """The budgets under keys of one section, without those that are left out."""
    for key, value in keys.items():
        if value is not None:
            yield GivenBudget.at(f"{section}.{key}", value)


def loss_of(mechanism: ColumnMechanism, key: str) -> GivenBudget:
    """The loss of the smallest difference that a column's guarantee is for: one unit of its own, or an empty cell."""
    promise = mechanism.guarantee()
    loss = max(promise.epsilon, promise.missing_epsilon)
    is_unordered = isinstance(mechanism.value, RandomisedResponse)
    keys = f"epsilon {mechanism.value.epsilon:g}" if is_unordered else _keys(mechanism.settings)
    return GivenBudget(f"{key} comes to {loss:g} per {promise.unit} ({keys})", loss)


def _keys(settings: MechanismSettings) -> str:
    cells = f", theta {settings.theta}" if settings.mechanism != "global" else ""
    share = f", alpha {settings.alpha:g}" if settings.mechanism == "adj" else ""
    return f"epsilon {settings.epsilon:g}, law {settings.law.value}{cells}{share}"
