"""Mechanisms that a plan compares for a column: the chosen one, and a grid of budgets, mechanisms and points."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from opboost.desensitize import ColumnMechanism
from opboost.errors import ParameterError
from opboost.map_analysis import Choice
from opboost.mechanism_settings import MechanismSettings
from opboost.privacy.adj_map import AdjMap
from opboost.privacy.baselines import Piecewise
from opboost.privacy.laws import MOST_EPSILON, Law
from opboost.privacy.local import RandomisedResponse
from opboost.privacy.order_preserving import GlobalMap, LocalMap
from opboost.schema import Kind

MECHANISMS = ("global", "local", "adj")

# Losses over the whole range that are looked at where no budgets were asked for.
BUDGETS = (1, 2, 4, 8, 16, 32, 64, 128)

# Points of a mapped domain that are looked at besides the chosen ones; on more than `MANY_POINTS`, which take seconds
# for ten columns, only the chosen mechanism is.
FEW_POINTS = (20, 100)
MANY_POINTS = 200

# Above this budget doubles no longer tell the window of the Piecewise mechanism from its middle.
MOST_OF_PIECEWISE = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class MechanismGrid:
    """Grid of mechanism settings, of which all combinations are compared; if empty, that of `BUDGETS` and `FEW_POINTS`.

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


@dataclass(frozen=True, slots=True)
class Alternative:
    """A mechanism of a column, on so many points or categories; with the entry of `BUDGETS` that it stands for."""

    choice: Choice
    n_points: int
    budget: int | None = None


def alternatives_for(mechanism: ColumnMechanism, grid: MechanismGrid) -> tuple[Alternative, ...]:
    """Mechanisms to compare for a column, the chosen one first.

    Raises
    ------
    ParameterError
        If a combination of the grid is impossible.
    """
    value, n = mechanism.value, _n_points(mechanism)
    chosen = Alternative(value, n)
    if isinstance(value, RandomisedResponse):
        others: list[tuple[float, int | None]] = [(epsilon, None) for epsilon in grid.epsilons]
        others = others or [(float(budget), budget) for budget in BUDGETS if budget <= MOST_EPSILON]
        return chosen, *(Alternative(replace(value, epsilon=epsilon), n, budget) for epsilon, budget in others)
    alternatives = _what_ifs(mechanism) if grid.is_empty else _combinations(mechanism, grid)
    return tuple(dict.fromkeys([chosen, *alternatives, *_baselines(mechanism.settings)]))


def _n_points(mechanism: ColumnMechanism) -> int:
    value = mechanism.value
    return value.n_categories if isinstance(value, RandomisedResponse) else value.domain.size


def _what_ifs(mechanism: ColumnMechanism) -> Iterator[Alternative]:
    """All mechanisms on few points, and the chosen one on its own points, at every budget; impossible ones left out."""
    chosen, schema = mechanism.settings, mechanism.schema
    points = (len(schema.categories),) if schema.kind is Kind.ORDERED else FEW_POINTS
    for n, name, budget in itertools.product(sorted({*points, chosen.domain_size}), MECHANISMS, BUDGETS):
        # Rounded, and not up, so that the run file says just this.
        epsilon = float(f"{budget / (n - 1) / chosen.law.promise * (1 - 5e-4):.4g}")
        if n > MANY_POINTS and name != chosen.mechanism:
            continue
        theta = None if name == "global" else max(2, n // 10)
        if (name, n) == (chosen.mechanism, chosen.domain_size):
            theta = chosen.theta
        settings = replace(chosen, mechanism=name, epsilon=epsilon, domain_size=n, theta=theta)
        try:
            one = ColumnMechanism(schema, settings)
            is_allowed = epsilon <= MOST_EPSILON and one.guarantee().hides
        except ParameterError:
            continue
        if is_allowed:
            yield Alternative(one.value, n, budget)


def settings_of(choice: Choice) -> dict[str, Any]:
    """Settings of a mechanism as plain values; those that it lacks are left out."""
    found: dict[str, Any] = {"mechanism": choice.name, "epsilon": choice.epsilon}
    if isinstance(choice, (GlobalMap, LocalMap, AdjMap)):
        found |= {"law": choice.law.value, "domain_size": choice.domain.size}
    if isinstance(choice, (LocalMap, AdjMap)):
        found["theta"] = choice.theta
    if isinstance(choice, AdjMap):
        found["alpha"] = choice.alpha
    return found


def label(settings: dict[str, Any]) -> str:
    """Label of a mechanism with these settings."""
    words = [str(settings["mechanism"]).replace("_", " ")]
    words += [str(settings["law"])] if "law" in settings else []
    words += [f"{settings['domain_size']} points"] if "domain_size" in settings else []
    words += [f"{key} {settings[key]:g}" for key in ("epsilon", "theta", "alpha") if key in settings]
    return ", ".join(words)


def _combinations(column: ColumnMechanism, grid: MechanismGrid) -> Iterator[Alternative]:
    chosen = column.settings
    # Points of an ordered column are its categories, and cells no wider than all of them, as in a run file.
    most = chosen.domain_size if column.schema.kind is Kind.ORDERED else math.inf
    thetas = [int(min(theta, most)) for theta in grid.thetas]
    for mechanism, law, epsilon, theta, alpha in itertools.product(
        grid.mechanisms or (chosen.mechanism,),
        grid.laws or (chosen.law,),
        grid.epsilons or (chosen.epsilon,),
        thetas or (chosen.theta,),
        grid.alphas or (chosen.alpha,),
    ):
        settings = replace(chosen, mechanism=mechanism, law=law, epsilon=epsilon, theta=theta, alpha=alpha)
        yield Alternative(settings.build(), chosen.domain_size)


def _baselines(chosen: MechanismSettings) -> Iterator[Alternative]:
    """Baselines: plain local differential privacy at the same epsilon, a far stronger guarantee with far less order."""
    if not MOST_OF_PIECEWISE < chosen.epsilon < math.inf:
        yield Alternative(Piecewise(epsilon=chosen.epsilon, domain=chosen.domain), chosen.domain_size)
    response = RandomisedResponse(epsilon=chosen.epsilon, n_categories=chosen.domain.size)
    yield Alternative(response, chosen.domain_size)
