"""The `model` section of the active party's run file."""

from __future__ import annotations

from dataclasses import fields
from typing import Annotated, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from opboost.metrics import default_metric, metric_by_name
from opboost.trees.boosting import BoostingParameters
from opboost.trees.constraints import ColumnConstraints
from opboost.trees.losses import Loss, loss_by_name
from opboost.trees.validation import Metric
from opboost.vertical import Engine, ValidationPlan
from parties.errors import ConfigError


class ModelSection(BaseModel):
    """Objective and hyperparameters, under XGBoost's names; defaults are those of `BoostingParameters`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    objective: Literal["binary:logistic", "reg:squarederror", "count:poisson", "multi:softprob"] = "binary:logistic"
    n_classes: int = 0
    engine: Engine = "native"
    n_estimators: int = 100
    max_depth: int = 6
    max_leaves: int = 0
    learning_rate: float = 0.3
    reg_lambda: float = 1.0
    gamma: float = 0.0
    min_child_weight: float = 1.0
    max_delta_step: float | None = None
    subsample: float = 1.0
    colsample_bytree: float = 1.0
    max_bin: int = 256
    max_cat_to_onehot: int = 4
    scale_pos_weight: float = 1.0
    base_score: float | None = None
    early_stopping_rounds: int | None = None
    validation_fraction: Annotated[float, Field(gt=0, lt=1)] | None = None
    eval_metric: tuple[str, ...] = ()
    monotone_constraints: dict[str, Literal[-1, 0, 1]] = {}
    interaction_constraints: tuple[tuple[str, ...], ...] = ()
    seed: int | None = None

    def check_partitions(self) -> None:
        """Refuse what training on partitions does not offer.

        Raises
        ------
        ValueError
        """
        held_out = {"early_stopping_rounds", "validation_fraction"} & set(self.model_dump(exclude_none=True))
        if held_out:
            raise ValueError(f"engine: dask holds no rows out: leave model.{' and model.'.join(sorted(held_out))} out")
        if "engine" in self.model_fields_set and self.engine != "xgboost":
            raise ValueError(
                f"engine: dask grows trees with XGBoost: leave model.engine out or say xgboost; found {self.engine}"
            )

    def parameters(self) -> BoostingParameters:
        """The hyperparameters, checked."""
        if self.early_stopping_rounds is not None and self.validation_fraction is None:
            raise ConfigError("model.early_stopping_rounds needs model.validation_fraction: rows to validate on")
        self.metrics()
        names = {field.name for field in fields(BoostingParameters)}
        return BoostingParameters(**self.model_dump(include=names))

    @property
    def constraints(self) -> ColumnConstraints:
        """Constraints by column name."""
        return ColumnConstraints(self.monotone_constraints, self.interaction_constraints)

    def metrics(self) -> tuple[Metric, ...]:
        """How rows that are held out are scored; the last metric decides when to stop."""
        loss = self.loss()
        return tuple(metric_by_name(name, loss) for name in self.eval_metric or (default_metric(loss),))

    def validation(self, n_rows: int) -> ValidationPlan | None:
        """Which of the rows are held out, if any are, and by what metrics."""
        if self.validation_fraction is None:
            return None
        rng = np.random.default_rng(self.seed)
        return ValidationPlan.of_share(self.validation_fraction, n_rows, self.metrics(), rng=rng)

    def loss(self) -> Loss:
        """The objective."""
        return loss_by_name(self.objective, self.n_classes)
