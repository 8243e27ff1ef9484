"""Parameters of the vertical estimators."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
from sklearn.base import BaseEstimator

from opboost.cell_grid import DEFAULT_CELLS
from opboost.column_positions import Bounds, ColumnKey
from opboost.errors import ParameterError, shown
from opboost.metrics import metrics_of
from opboost.sklearn.whole_fits import with_parameters
from opboost.trees.boosting import OnRound, RoundReport
from opboost.trees.losses import Loss
from opboost.trees.validation import Metric


@with_parameters
class VerticalParameters(BaseEstimator):  # type: ignore[misc]
    """The parameters, as dataclass fields; `opboost.sklearn.vertical` says what they mean."""

    epsilon: float | None = None
    mechanism: Literal["global", "local", "adj"] = "global"
    law: str = "clamped"
    theta: int | None = None
    alpha: float = 1.0
    domain_size: int | None = None
    category_epsilon: float | None = None
    whole_range: float | None = None
    budgets: Mapping[ColumnKey, Mapping[str, Any]] | None = None
    passive_columns: Sequence[ColumnKey] | None = None
    bounds: Bounds = None
    missing: Literal["refuse", "category"] = "refuse"
    prediction: Literal["local", "desensitized", "routed"] = "routed"
    answers: Literal["tests", "cells"] = "tests"
    cells: int = DEFAULT_CELLS
    correct_noise: bool = True
    objective: str | Loss | None = None
    engine: Literal["native", "xgboost"] = "native"
    n_estimators: int | None = None
    max_depth: int | None = None
    max_leaves: int = 0
    learning_rate: float | None = None
    reg_lambda: float | None = None
    reg_alpha: float = 0.0
    gamma: float = 0.0
    min_child_weight: float = 1.0
    max_delta_step: float | None = None
    subsample: float | None = None
    colsample_bytree: float = 1.0
    colsample_bylevel: float = 1.0
    colsample_bynode: float = 1.0
    max_bin: int = 256
    max_cat_to_onehot: int = 4
    scale_pos_weight: float = 1.0
    class_weight: Mapping[Any, float] | Literal["balanced"] | None = None
    base_score: float | None = None
    early_stopping_rounds: int | None = None
    booster: Literal["gbtree", "dart"] = "gbtree"
    rate_drop: float = 0.0
    skip_drop: float = 0.0
    one_drop: bool = False
    sample_type: Literal["uniform", "weighted"] = "uniform"
    normalize_type: Literal["tree", "forest"] = "tree"
    device: Literal["cpu", "cuda"] = "cpu"
    n_jobs: int | None = None
    callbacks: Sequence[OnRound] | None = None
    eval_metric: str | Metric | Sequence[str | Metric] | None = None
    monotone_constraints: Mapping[ColumnKey, int] | Sequence[int] | None = None
    interaction_constraints: Sequence[Sequence[ColumnKey]] | None = None
    categorical_features: Sequence[ColumnKey] | None = None
    continue_from: Any = None
    random_state: int | np.random.RandomState | None = None

    def _metrics(self, loss: Loss) -> tuple[Metric, ...]:
        """The metrics that score what a loss predicts.

        Raises
        ------
        ParameterError
            If one is unknown, or a function.
        """
        chosen = self.eval_metric
        metrics = chosen if isinstance(chosen, Sequence) and not isinstance(chosen, str) else [chosen]
        if chosen is not None and (wrong := [metric for metric in metrics if not isinstance(metric, str | Metric)]):
            raise ParameterError(
                "eval_metric must be a name, an opboost.trees.validation.Metric, such as Metric('own', function), or a "
                f"list of these; got {shown(wrong[0])}. Nothing was trained"
            )
        return metrics_of(chosen, loss)

    def _watch(self, verbose: object) -> OnRound:
        """Make the function called after every round: it prints scores as `verbose` says and calls all callbacks."""
        if not isinstance(verbose, int) or verbose < 0:
            raise ParameterError(f"verbose is true, false or a number of rounds; got {shown(verbose)}")

        def after(report: RoundReport) -> bool:
            if verbose and ((report.finished - 1) % verbose == 0 or report.finished == report.total):
                scores = "".join(f"  {name}: {score:.5f}" for name, score in report.scores.items())
                sys.stdout.write(f"[{report.finished}/{report.total}]{scores}\n")
            return any([bool(each(report)) for each in self.callbacks or ()])

        return after
