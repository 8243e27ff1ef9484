"""The `sgbdt` section of a horizontal run file."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from opboost.horizontal.sgbdt.training import Shape

_Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
_Least0 = Annotated[float, Field(ge=0, allow_inf_nan=False)]

# What the estimators of this recipe have been tuned to; a test compares the two.
_DEFAULTS: dict[str, dict[str, float]] = {
    "binary:logistic": {
        "n_estimators": 300, "learning_rate": 0.4, "max_grad": 0.5, "denominator_noise": 2.0, "noise_lambda": 10.0,
        "columns_per_tree": 1, "max_cells": 16,
    },
    "reg:squarederror": {
        "n_estimators": 150, "learning_rate": 1.0, "max_grad": 0.25, "denominator_noise": 6.0, "noise_lambda": 35.0,
        "columns_per_tree": 0, "max_cells": 16,
    },
}  # fmt: skip


class SGBDTSection(BaseModel):
    """Parameters of S-GBDT, under the estimators' names; what is left out is as there."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    n_estimators: Annotated[int, Field(ge=1)] = 0
    n_extra_estimators: Annotated[int, Field(ge=0)] = 0
    use_filter: bool | None = None
    max_depth: Annotated[int, Field(ge=0, le=12)] = 3
    learning_rate: _Positive = 0.0
    max_grad: _Positive = 0.0
    denominator_noise: _Positive = 0.0
    reg_lambda: _Least0 = 1.0
    noise_lambda: _Least0 = 0.0
    max_leaf: _Positive = 2.0
    columns_per_tree: Annotated[int, Field(ge=0)] = 0
    subsample: Annotated[float, Field(gt=0, le=1)] = 1.0
    max_cells: Annotated[int, Field(ge=2, le=65535)] = 0

    def completed(self, objective: str) -> SGBDTSection:
        """The section with the defaults of an objective for what was left out."""
        update: dict[str, Any] = {
            name: value for name, value in _DEFAULTS[objective].items() if name not in self.model_fields_set
        }
        return self.model_copy(update=update)

    @property
    def has_filter(self) -> bool:
        """Whether records have accounts of their own."""
        return self.n_extra_estimators > 0 if self.use_filter is None else self.use_filter

    def shape(self, n_columns: int, *, is_printed: bool) -> Shape:
        """What the trees look like."""
        return Shape(
            max_depth=self.max_depth,
            learning_rate=self.learning_rate,
            reg_lambda=self.reg_lambda,
            noise_lambda=0.0 if is_printed else self.noise_lambda,
            max_leaf=self.max_leaf,
            columns_per_tree=min(self.columns_per_tree, n_columns),
            floor=is_printed,
        )
