"""Mechanisms that a plan compares for a column: the chosen one, and others around it or on a given grid."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from opboost.desensitize import ColumnMechanism
from opboost.map_analysis import Choice
from opboost.mechanism_settings import MechanismSettings
from opboost.privacy.adj_map import AdjMap
from opboost.privacy.baselines import Piecewise
from opboost.privacy.laws import Law
from opboost.privacy.local import RandomisedResponse
from opboost.privacy.order_preserving import GlobalMap, LocalMap

MECHANISMS = ("global", "local", "adj")

# Multiples of the chosen budget, where no budgets were asked for.
MULTIPLES = (0.25, 0.5, 2.0, 4.0)
ALPHAS = (1.0, 2.0, 5.0)

# Parts of the domain that cells are wide.
WIDTHS = (20, 5)

# Above this budget doubles no longer tell the window of the Piecewise mechanism from its middle.
MOST_OF_PIECEWISE = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class MechanismGrid:
    """Grid of mechanism settings, of which all combinations are compared; if empty, one setting at a time is varied.

    Attributes
    ----------
    mechanisms, laws, epsilons, thetas, alphas : tuple
        Values to compare; empty keeps the chosen one.
    """

    mechanisms: tuple[str, ...] = ()
    laws: tuple[Law, ...] = ()
    epsilons: tuple[float, ...] = ()
    thetas: tuple[int, ...] = ()
    alphas: tuple[float, ...] = ()

    @property
    def is_empty(self) -> bool:
        return not (self.mechanisms or self.laws or self.epsilons or self.thetas or self.alphas)


def choices_for(mechanism: ColumnMechanism, grid: MechanismGrid) -> tuple[Choice, ...]:
    """Mechanisms to compare for a column, the chosen one first and none twice.

    Raises
    ------
    ParameterError
        If a combination of the grid is impossible.
    """
    if isinstance(mechanism.value, RandomisedResponse):
        budgets = grid.epsilons or tuple(mechanism.value.epsilon * multiple for multiple in MULTIPLES)
        others: Sequence[Choice] = [replace(mechanism.value, epsilon=epsilon) for epsilon in budgets]
    elif grid.is_empty:
        others = [*(one.build() for one in _around(mechanism.settings)), *_baselines(mechanism.settings)]
    else:
        others = [*(one.build() for one in _combinations(mechanism.settings, grid)), *_baselines(mechanism.settings)]
    return tuple(dict.fromkeys([mechanism.value, *others]))


def settings_of(choice: Choice) -> dict[str, Any]:
    """Settings of a mechanism as plain values; those that it lacks are left out."""
    found: dict[str, Any] = {"mechanism": choice.name, "epsilon": choice.epsilon}
    if isinstance(choice, (GlobalMap, LocalMap, AdjMap)):
        found["law"] = choice.law.value
    if isinstance(choice, (LocalMap, AdjMap)):
        found["theta"] = choice.theta
    if isinstance(choice, AdjMap):
        found["alpha"] = choice.alpha
    return found


def label(settings: dict[str, Any]) -> str:
    """Label of a mechanism with these settings."""
    words = [str(settings["mechanism"]).replace("_", " ")]
    words += [str(settings["law"])] if "law" in settings else []
    words += [f"{key} {settings[key]:g}" for key in ("epsilon", "theta", "alpha") if key in settings]
    return ", ".join(words)


def _around(chosen: MechanismSettings) -> list[MechanismSettings]:
    """Settings that differ in one thing: noise distribution, budget, mechanism."""
    n = chosen.domain_size
    thetas = sorted({max(2, n // width) for width in WIDTHS if 2 * max(2, n // width) <= n} or {2})
    adj = [replace(chosen, mechanism="adj", theta=None, alpha=alpha) for alpha in ALPHAS]
    return [
        *(replace(chosen, law=law) for law in Law),
        *(replace(chosen, epsilon=chosen.epsilon * multiple) for multiple in MULTIPLES),
        replace(chosen, mechanism="global"),
        replace(chosen, mechanism="local", theta=None),
        *(replace(chosen, mechanism="local", theta=theta) for theta in thetas),
        *adj,
        *(replace(chosen, mechanism="adj", theta=theta) for theta in thetas),
    ]


def _combinations(chosen: MechanismSettings, grid: MechanismGrid) -> list[MechanismSettings]:
    return [
        replace(chosen, mechanism=mechanism, law=law, epsilon=epsilon, theta=theta, alpha=alpha)
        for mechanism, law, epsilon, theta, alpha in itertools.product(
            grid.mechanisms or (chosen.mechanism,),
            grid.laws or (chosen.law,),
            grid.epsilons or (chosen.epsilon,),
            grid.thetas or (chosen.theta,),
            grid.alphas or (chosen.alpha,),
        )
    ]


def _baselines(chosen: MechanismSettings) -> list[Choice]:
    """Baselines: plain local differential privacy at the same epsilon, a far stronger guarantee with far less order."""
    response = RandomisedResponse(epsilon=chosen.epsilon, n_categories=chosen.domain.size)
    if MOST_OF_PIECEWISE < chosen.epsilon < math.inf:
        return [response]
    return [Piecewise(epsilon=chosen.epsilon, domain=chosen.domain), response]
