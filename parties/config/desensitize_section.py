"""The `desensitize` section of a passive party's run file."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Annotated, Literal

from pydantic import Field

from opboost.desensitize import ColumnMechanism, epsilon_in_units
from opboost.errors import ParameterError, nearest
from opboost.mechanism_settings import MechanismSettings
from opboost.privacy.laws import Law
from opboost.schema import ColumnSchema, TableSchema
from parties.config.protection import MOST_EPSILON, Epsilon, Finite, GivenBudget, budgets_of, given_budgets
from parties.config.section import Section
from parties.errors import ConfigError

# The most points of a mapped domain: some steps take memory for each of them.
MAX_POINTS = 1_000_000

CellCount = Annotated[int, Field(ge=1)]
Share = Annotated[float, Field(ge=1e-6, le=1e6)]
Points = Annotated[int, Field(ge=2, le=MAX_POINTS)]


class ColumnBudget(Section):
    """Settings of one column that differ, or its budget in original units (`cost` for a difference `per`)."""

    epsilon: Epsilon | None = Field(None, description="Budget per point of the mapped domain.")
    cost: Epsilon | None = Field(None, description="Budget of a difference of `per`, in place of `epsilon`.")
    per: Finite | None = Field(None, description="Difference in the column's own unit.")
    mechanism: Literal["global", "local", "adj"] | None = Field(None, description="The order-preserving mechanism.")
    law: Law | None = Field(None, description="The noise distribution.")
    theta: CellCount | None = Field(None, description="Width of cells, in points.")
    alpha: Share | None = Field(
        None, description="Weight of the budget between cells over that inside them, for `adj`."
    )
    domain_size: Points | None = Field(None, description="Points of the mapped domain.")
    category_epsilon: Epsilon | None = Field(None, description="Budget of randomised response.")


class DesensitizeSection(Section):
    """Mechanisms and budgets of a passive party's columns."""

    mechanism: Literal["global", "local", "adj"] = Field("global", description="The order-preserving mechanism.")
    epsilon: Epsilon = Field(0.1, description="Budget per point of the mapped domain.")
    law: Law = Field(Law.CLAMPED, description="The noise distribution.")
    theta: CellCount | None = Field(None, description="Width of cells in points, for `local` and `adj`.")
    alpha: Share = Field(1.0, description="Weight of the budget between cells over that inside them, for `adj`.")
    domain_size: Points = Field(1000, description="Points of the mapped domain.")
    category_epsilon: Epsilon | None = Field(
        None, description="Budget for categories and empty cells; by default the larger of 3 and `epsilon`."
    )
    columns: dict[str, ColumnBudget] = Field({}, description="What differs for single columns.")

    def mechanisms(self, schema: TableSchema) -> tuple[ColumnMechanism, ...]:
        """Build a mechanism for every column of the schema; one without a guarantee is refused."""
        unknown = sorted(set(self.columns) - set(schema.names))
        if unknown:
            names = f"{', '.join(unknown)}{nearest(unknown, schema.names)}"
            raise ConfigError(f"desensitize.columns names columns that the schema lacks: {names}")
        found = tuple(ColumnMechanism(column, self._in_units(column)) for column in schema.columns)
        for mechanism in found:
            mechanism.guarantee()
        return found

    def budgets(self) -> Iterator[GivenBudget]:
        """Budgets of all columns and of single ones, as far as they are known without the schema.

        Raises
        ------
        ConfigError
            If keys do not go together.
        """
        for name in (None, *self.columns):
            own, place = (self, "desensitize") if name is None else (self.columns[name], f"desensitize.columns.{name}")
            settings = self._settings(name)
            yield from given_budgets(place, epsilon=own.epsilon, category_epsilon=own.category_epsilon)
            yield from budgets_of(settings, place)
            if isinstance(own, ColumnBudget) and own.cost is not None:
                # The cost of the whole range, which no `per` can exceed.
                yield GivenBudget.at(f"{place}.cost", own.cost, MOST_EPSILON * settings.domain_size)

    def _settings(self, name: str | None) -> MechanismSettings:
        """The settings of all columns or, by name, of one; a cost in original units is left out."""
        place = "desensitize" if name is None else f"desensitize.columns.{name}"
        own = ColumnBudget() if name is None else self.columns.get(name, ColumnBudget())
        if (own.cost is None) != (own.per is None) or (own.cost is not None and own.epsilon is not None):
            raise ConfigError(f"{place}: give either epsilon, or cost together with per")
        changed = own.model_dump(exclude_none=True, exclude={"cost", "per"})
        try:
            settings = MechanismSettings(**{**self.model_dump(exclude={"columns"}), **changed})
        except ParameterError as error:
            raise ConfigError(f"{place}: {error}") from None
        if settings.mechanism != "global" and settings.theta is None:
            raise ConfigError(
                f"{place}: mechanism {settings.mechanism} needs `theta`, the width of its cells: a whole number from 1 "
                "to domain_size; found none"
            )
        return settings

    def _in_units(self, column: ColumnSchema) -> MechanismSettings:
        """The settings of a column, with the budget per unit of the domain that a cost in original units comes to."""
        own, settings = self.columns.get(column.name, ColumnBudget()), self._settings(column.name)
        if own.cost is None or own.per is None:
            return settings
        return replace(settings, epsilon=epsilon_in_units(own.cost, own.per, column, settings))
