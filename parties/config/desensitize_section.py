"""The `desensitize` section of a passive party's run file."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field

from opboost.desensitize import ColumnMechanism
from opboost.errors import ParameterError, nearest
from opboost.mechanism_settings import MechanismSettings, StatedBudget, stated_budget
from opboost.privacy.laws import Law
from opboost.schema import ColumnSchema, Kind, TableSchema
from parties.config.protection import Epsilon, Finite, GivenBudget, given_budgets
from parties.config.section import Section
from parties.errors import ConfigError

# The most points of a mapped domain: some steps take memory for each of them.
MAX_POINTS = 1_000_000

CellCount = Annotated[int, Field(ge=1)]
Share = Annotated[float, Field(ge=1e-6, le=1e6)]
Points = Annotated[int, Field(ge=2, le=MAX_POINTS)]


class OddsSection(Section):
    """Odds with which a difference may be told apart."""

    within: Finite = Field(description="Difference, in the column's own unit.")
    at_most: Annotated[float, Field(gt=1, allow_inf_nan=False)] = Field(description="The odds, to 1.")


class BudgetKeys(Section):
    """A budget in one of four ways; the last one that is stated for a column counts."""

    epsilon: Epsilon | None = Field(None, description="Budget per point of the mapped domain.")
    cost: Epsilon | None = Field(None, description="Or: loss of a difference of `per`, at most.")
    per: Finite | None = Field(None, description="Difference that `cost` is for, in the column's own unit.")
    whole_range: Epsilon | None = Field(None, description="Or: loss between any two values of a column, at most.")
    odds: OddsSection | None = Field(None, description="Or: odds with which a difference is told apart, at most.")

    def stated(self, place: str) -> StatedBudget:
        """The budget, checked."""
        try:
            return stated_budget(**self.model_dump(include=set(BudgetKeys.model_fields)))
        except ParameterError as error:
            raise ConfigError(f"{place}: {error}") from None


class ColumnBudget(BudgetKeys):
    """Settings of one column that differ."""

    mechanism: Literal["global", "local", "adj"] | None = Field(None, description="The order-preserving mechanism.")
    law: Law | None = Field(None, description="The noise distribution.")
    theta: CellCount | None = Field(None, description="Width of cells, in points.")
    alpha: Share | None = Field(
        None, description="Weight of the budget between cells over that inside them, for `adj`."
    )
    domain_size: Points | None = Field(None, description="Points of the mapped domain.")
    category_epsilon: Epsilon | None = Field(None, description="Budget of randomised response.")


class DesensitizeSection(BudgetKeys):
    """Mechanisms and budgets of a passive party's columns; by default `whole_range: 8`, of ordered columns less."""

    mechanism: Literal["global", "local", "adj"] = Field("global", description="The order-preserving mechanism.")
    law: Law = Field(Law.CLAMPED, description="The noise distribution.")
    theta: CellCount | None = Field(None, description="Width of cells in points, for `local` and `adj`.")
    alpha: Share = Field(1.0, description="Weight of the budget between cells over that inside them, for `adj`.")
    domain_size: Points | None = Field(
        None, description="Points of the mapped domain; by default 100, or 1,000 with `epsilon`."
    )
    category_epsilon: Epsilon | None = Field(
        None,
        description="Budget for categories and empty cells; by default 2.3, with `epsilon` the larger of 3 and it.",
    )
    columns: dict[str, ColumnBudget] = Field({}, description="What differs for single columns.")
    leave_out: tuple[str, ...] = Field((), description="Columns that are not released, such as scouting found useless.")

    def mechanisms(self, schema: TableSchema) -> tuple[ColumnMechanism, ...]:
        """Build a mechanism for every column of the schema that is released; one without a guarantee is refused.

        Columns may go by ``column 0``, ``column 1``, ..., the names under which a guarantee travels.
        """
        numbered = {f"column {i}": name for i, name in enumerate(schema.names)} | {name: name for name in schema.names}
        for key, named in (("columns", list(self.columns)), ("leave_out", self.leave_out)):
            if unknown := sorted(set(named) - numbered.keys()):
                names = f"{', '.join(unknown)}{nearest(unknown, schema.names)}"
                raise ConfigError(f"desensitize.{key} names columns that the schema lacks: {names}")
            meant = [numbered[name] for name in named]
            if twice := sorted({name for name in meant if meant.count(name) > 1}):
                raise ConfigError(f"desensitize.{key} names columns twice: {', '.join(twice)}")
        if len(self.leave_out) == len(schema.names):
            raise ConfigError("desensitize.leave_out names every column, so nothing would be released")
        left_out = {numbered[name] for name in self.leave_out}
        by_name = self.model_copy(update={"columns": {numbered[name]: column for name, column in self.columns.items()}})
        released = (column for column in schema.columns if column.name not in left_out)
        column_mechanisms = tuple(ColumnMechanism(column, by_name._resolved(column)) for column in released)
        for mechanism in column_mechanisms:
            mechanism.guarantee()
        return column_mechanisms

    def budgets(self) -> Iterator[GivenBudget]:
        """Budgets of all columns and of single ones that are known without the schema: those per point or category.

        Raises
        ------
        ConfigError
            If keys do not go together.
        """
        for name in (None, *self.columns):
            section, place = self._section_of(name), _place(name)
            self._settings(name)
            yield from given_budgets(place, epsilon=section.epsilon, category_epsilon=section.category_epsilon)

    def _section_of(self, name: str | None) -> DesensitizeSection | ColumnBudget:
        return self if name is None else self.columns.get(name, ColumnBudget())

    def _stated(self, name: str | None) -> StatedBudget:
        """The budget of all columns or, by name, of one."""
        stated = self._section_of(name).stated(_place(name))
        return stated if stated.ways else self.stated(_place(None))

    def _settings(self, name: str | None) -> MechanismSettings:
        """The settings of all columns or, by name, of one; of budgets only `epsilon`, others take the schema."""
        stated, place = self._stated(name), _place(name)
        given = self.model_dump(exclude=_NOT_SETTINGS, exclude_none=True)
        given |= self._section_of(name).model_dump(exclude=_NOT_SETTINGS, exclude_none=True)
        given |= {} if stated.epsilon is None else {"epsilon": stated.epsilon}
        try:
            settings = MechanismSettings(**{"domain_size": stated.points, **given})
        except ParameterError as error:
            raise ConfigError(f"{place}: {error}") from None
        if settings.mechanism != "global" and settings.theta is None:
            raise ConfigError(
                f"{place}: mechanism {settings.mechanism} needs `theta`, the width of its cells: a whole number from 1 "
                "to domain_size; found none"
            )
        return settings

    def _resolved(self, column: ColumnSchema) -> MechanismSettings:
        """The settings of a column, with the epsilon that its stated budget comes to."""
        column_budget, stated = self.columns.get(column.name, ColumnBudget()), self._stated(column.name)
        if column.kind is Kind.UNORDERED and (column_budget.cost is not None or column_budget.odds is not None):
            raise ConfigError(
                f"{_place(column.name)}: unordered categories have no distance; state `whole_range` or "
                "`category_epsilon`"
            )
        try:
            return stated.resolve(
                column,
                self._settings(column.name),
                own_points=column_budget.domain_size is not None,
                is_own=bool(column_budget.stated(_place(column.name)).ways) and column_budget.category_epsilon is None,
            )
        except ParameterError as error:
            raise ConfigError(f"{_place(column.name)}: {error}") from None


_NOT_SETTINGS = {"columns", "leave_out", *BudgetKeys.model_fields}


def _place(name: str | None) -> str:
    return "desensitize" if name is None else f"desensitize.columns.{name}"
