"""Search space: which parameters are tuned, and in which ranges."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import Field, model_validator

from opboost.trees.parameters import BoostingParameters
from parties.config.reading import read_run
from parties.config.section import Section

_Bound = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Range = tuple[_Bound, _Bound]

# Parameters whose values differ by factors rather than by steps.
_BY_FACTORS = {"learning_rate", "reg_lambda", "reg_alpha", "min_child_weight"}
_COUNTS = {"max_depth", "max_leaves", "max_bin"}


class SearchSpace(Section):
    """Ranges of parameters; one that is left out keeps the run's value."""

    learning_rate: Range | None = Field((0.01, 0.3), description="Searched by factors.")
    max_depth: Range | None = Field((2, 8), description="Levels of a tree.")
    max_leaves: Range | None = Field(None, description="Leaves of a tree.")
    max_bin: Range | None = Field(None, description="Bins of a column.")
    min_child_weight: Range | None = Field((0.5, 100), description="Searched by factors.")
    reg_lambda: Range | None = Field((0.1, 100), description="Searched by factors.")
    reg_alpha: Range | None = Field(None, description="Searched by factors.")
    gamma: Range | None = Field(None, description="Least gain.")
    subsample: Range | None = Field((0.4, 1), description="Share of the rows.")
    colsample_bytree: Range | None = Field((0.4, 1), description="Share of the columns.")
    colsample_bylevel: Range | None = Field(None, description="Share of a tree's columns.")
    colsample_bynode: Range | None = Field(None, description="Share of a level's columns.")

    @model_validator(mode="after")
    def _check(self) -> Self:
        for name, (low, high) in self.ranges.items():
            if low > high or (name in _BY_FACTORS and low == 0):
                raise ValueError(f"{name} must be a range from low to high, of a factor greater than 0")
            if name == "max_leaves" and low < 2:
                # 0 means another way to grow, and no tree has a split and 1 leaf: a trial of it would end the tuning.
                raise ValueError(f"max_leaves must be a range from at least 2; found {low:g}")
            for end in (low, high):
                try:
                    given: dict[str, Any] = {name: int(end) if name in _COUNTS else end}
                    BoostingParameters(**given)
                except ValueError as error:
                    raise ValueError(str(error)) from None
        return self

    @property
    def ranges(self) -> dict[str, Range]:
        """Every range that is searched."""
        return {name: given for name in type(self).model_fields if (given := getattr(self, name)) is not None}

    def suggest(self, trial: Any) -> dict[str, Any]:
        """The parameters of an Optuna trial."""
        return {
            name: trial.suggest_int(name, int(low), int(high))
            if name in _COUNTS
            else trial.suggest_float(name, low, high, log=name in _BY_FACTORS)
            for name, (low, high) in self.ranges.items()
        }

    def inside(self, parameters: BoostingParameters) -> dict[str, float] | None:
        """The searched parameters of a run, if they are all within their ranges."""
        own = {name: getattr(parameters, name) for name in self.ranges}
        return own if all(low <= own[name] <= high for name, (low, high) in self.ranges.items()) else None


def read_space(path: Path | None) -> SearchSpace:
    """Read a search space from a YAML file; without one, the usual one.

    Raises
    ------
    ConfigError
    """
    return SearchSpace() if path is None else read_run(path, SearchSpace)
