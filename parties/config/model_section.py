"""The `model` section of the active party's run file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Annotated, ClassVar, Literal

import numpy as np
from pydantic import Field

from opboost.arrays import Values
from opboost.errors import ParameterError
from opboost.fitting.outputs import Engine
from opboost.metrics import metrics_of
from opboost.schema import TableSchema
from opboost.trees.boosting import BoostingParameters
from opboost.trees.constraints import ColumnConstraints
from opboost.trees.losses import LambdaRank, Logistic, Loss, Objective, Poisson, Softmax, SquaredError, loss_by_name
from opboost.trees.validation import Metric, ValidationPlan
from parties.config.section import Section

_OF_LOSSES = {
    "quantile_alpha",
    "tweedie_variance_power",
    "huber_slope",
    "aft_loss_distribution",
    "aft_loss_distribution_scale",
    "lambdarank_num_pair_per_sample",
}
_SUITS_NOISE = "; left open where a column is noised, what suits noise."
_ON_PARTITIONS = (Logistic.name, SquaredError.name, Poisson.name, Softmax.name)


class ModelSection(Section):
    """Objective and hyperparameters, under XGBoost's names; defaults are those of `BoostingParameters`."""

    _aliases: ClassVar[Mapping[str, str]] = {
        "eta": "learning_rate",
        "num_boost_round": "n_estimators",
        "num_round": "n_estimators",
        "lambda": "reg_lambda",
        "alpha": "reg_alpha",
        "min_split_loss": "gamma",
        "random_state": "seed",
        "num_class": "n_classes",
        "max_bins": "max_bin",
        "nthread": "n_jobs",
    }
    _explained: ClassVar[Mapping[str, str]] = {
        **dict.fromkeys(
            ("verbose", "verbosity", "silent"), "is no key: a command is silent but on a terminal, and logs to log.txt"
        ),
        "tree_method": "is no key: trees grow from histograms",
    }

    objective: Objective = Field("binary:logistic", description="The loss.")
    n_classes: int = Field(0, description="Number of classes, for `multi:softprob` and `ordinal:logistic`.")
    quantile_alpha: tuple[float, ...] | None = Field(
        None, description="Quantiles, for `reg:quantileerror`; by default the median."
    )
    tweedie_variance_power: float | None = Field(None, description="For `reg:tweedie`; by default 1.5.")
    huber_slope: float | None = Field(None, description="For `reg:pseudohubererror`; by default 1.")
    aft_loss_distribution: Literal["normal", "logistic", "extreme"] | None = Field(
        None, description="Noise of log times, for `survival:aft`; by default normal."
    )
    aft_loss_distribution_scale: float | None = Field(None, description="Its scale; by default 1.")
    lambdarank_num_pair_per_sample: int | None = Field(
        None, description="How many of the highest scores of a group are paired, for `rank:*`; by default 32."
    )
    engine: Engine = Field("native", description="What grows the trees.")
    n_estimators: int = Field(100, description=f"Rounds of boosting{_SUITS_NOISE}")
    max_depth: int = Field(6, description=f"Most levels of a tree; 0: no limit, with `max_leaves`{_SUITS_NOISE}")
    max_leaves: int = Field(0, description="Most leaves; growth is then by largest gain. 0: no limit.")
    learning_rate: float = Field(0.3, description=f"Factor of every leaf value{_SUITS_NOISE}")
    reg_lambda: float = Field(1.0, description=f"L2 regularisation of leaf values{_SUITS_NOISE}")
    reg_alpha: float = Field(0.0, description="L1 regularisation of leaf values.")
    gamma: float = Field(0.0, description="Least gain of a split.")
    min_child_weight: float = Field(1.0, description="Least sum of Hessians in a child.")
    max_delta_step: float | None = Field(
        None, description="Bound on leaf values before the learning rate, 0 for none; by default 0.7 for counts."
    )
    subsample: float = Field(1.0, description=f"Share of the rows of each round{_SUITS_NOISE}")
    colsample_bytree: float = Field(1.0, description="Share of the columns of each tree.")
    colsample_bylevel: float = Field(1.0, description="Share of these columns at each level of a tree.")
    colsample_bynode: float = Field(1.0, description="Share of these columns at each node.")
    max_bin: int = Field(256, description="Most bins of a column.")
    max_cat_to_onehot: int = Field(4, description="Up to so many categories, a split separates one from the others.")
    scale_pos_weight: float = Field(1.0, description="Weight of positive records.")
    class_weight: dict[Annotated[int, Field(ge=0)], float] | Literal["balanced"] | None = Field(
        None, description="Weights of classes by number; `balanced` gives all classes the same weight in all."
    )
    base_score: float | None = Field(None, description="Initial score; by default the best constant.")
    early_stopping_rounds: int | None = Field(
        None,
        description="Stop after so many rounds without a better score of the rows held out, or with `answers: cells` "
        "of held-out records.",
    )
    booster: Literal["gbtree", "dart"] = Field("gbtree", description="`dart` leaves random trees out of each round.")
    rate_drop: float = Field(0.0, description="Share of the trees that a round leaves out, for `dart`.")
    skip_drop: float = Field(0.0, description="Share of the rounds that leave out none.")
    one_drop: bool = Field(False, description="Whether a round leaves out at least one tree.")
    sample_type: Literal["uniform", "weighted"] = Field(
        "uniform", description="Whether heavier trees are left out more often."
    )
    normalize_type: Literal["tree", "forest"] = Field(
        "tree", description="Whether new trees weigh as much as each of those left out, or as all of them."
    )
    device: Literal["cpu", "cuda"] = Field("cpu", description="What trees grow on; `cuda` with `engine: xgboost`.")
    n_jobs: int | None = Field(None, description="Most threads of training; by default as many as there are cores.")
    validation_fraction: Annotated[float, Field(gt=0, lt=1)] | None = Field(
        None, description="Share of the training records held out, in place of held-out records."
    )
    eval_metric: tuple[str, ...] = Field(
        (), description="Metrics of the rows held out; the last one decides when to stop."
    )
    monotone_constraints: dict[str, Literal[-1, 0, 1]] = Field({}, description="-1, 0 or 1 by column name.")
    interaction_constraints: tuple[tuple[str, ...], ...] = Field(
        (), description="Sets of columns that may occur together on a path."
    )
    seed: Annotated[int, Field(ge=0, lt=2**63)] | None = Field(
        None, description="Seed of sampling and of rows held out; by default drawn once per run."
    )

    def check_partitions(self) -> None:
        """Refuse settings that training on partitions does not support.

        Raises
        ------
        ValueError
        """
        if self.objective not in _ON_PARTITIONS:
            raise ValueError(f"engine: dask has the objectives {', '.join(_ON_PARTITIONS)}; found {self.objective}")
        if self.device != "cpu":
            raise ValueError(f"engine: dask grows trees on processors: leave model.device out; found {self.device}")
        if self.booster != "gbtree":
            raise ValueError(f"engine: dask leaves no trees out: leave model.booster out; found {self.booster}")
        if self.class_weight is not None:
            raise ValueError("engine: dask weighs no classes but by model.scale_pos_weight: leave class_weight out")
        held_out = {"early_stopping_rounds", "validation_fraction"} & set(self.model_dump(exclude_none=True))
        if held_out:
            raise ValueError(f"engine: dask holds no rows out: leave model.{' and model.'.join(sorted(held_out))} out")

    def parameters(self) -> BoostingParameters:
        """The hyperparameters, checked."""
        self.metrics()
        names = {field.name for field in fields(BoostingParameters)}
        return BoostingParameters(**self.model_dump(include=names))

    @property
    def left_open(self) -> frozenset[str]:
        """The hyperparameters that the run file does not name."""
        return frozenset(type(self).model_fields) - self.model_fields_set

    @property
    def constraints(self) -> ColumnConstraints:
        """Constraints by column name."""
        return ColumnConstraints(self.monotone_constraints, self.interaction_constraints)

    def metrics(self) -> tuple[Metric, ...]:
        """Metrics of held-out rows; the last one decides on early stopping."""
        return metrics_of(self.eval_metric, self.loss())

    def validation(self, n_rows: int, labels: Values | None = None) -> ValidationPlan | None:
        """The plan of held-out rows, whole groups of the labels where they are ranked, and their metrics."""
        if self.validation_fraction is None:
            return None
        rng, is_ranking = np.random.default_rng(self.seed), isinstance(self.loss(), LambdaRank)
        groups = labels[:, 1] if labels is not None and is_ranking else None
        return ValidationPlan.of_share(self.validation_fraction, n_rows, self.metrics(), groups=groups, rng=rng)

    def loss(self, n_labels: int = 1) -> Loss:
        """The objective, of so many labels."""
        given = self.model_dump(include=_OF_LOSSES, exclude_none=True)
        return loss_by_name(self.objective, self.n_classes, n_labels=n_labels, **given)

    def loss_of(self, schema: TableSchema) -> Loss:
        """The objective, of a schema's labels.

        Raises
        ------
        ParameterError
            If records are ranked without groups, or grouped without being ranked.
        """
        loss = self.loss(len(schema.labels) + (schema.group is not None))
        if isinstance(loss, LambdaRank) != (schema.group is not None):
            raise ParameterError(
                f"objectives that rank, and no others, need a `group` in the schema; found {loss.name} and "
                f"{schema.group or 'none'}. Nothing was sent"
            )
        return loss
