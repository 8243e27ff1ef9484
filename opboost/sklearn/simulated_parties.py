"""All parties of a vertical run in one process, running their own code, behind scikit-learn's interface."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from typing import Any, Literal

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from opboost.arrays import Values
from opboost.column_positions import Bounds, Column, ColumnPositions, column_names
from opboost.desensitize import ColumnMechanism
from opboost.errors import DataError, ParameterError, SchemaError
from opboost.mechanism_settings import MechanismSettings
from opboost.metrics import default_metric, metric_by_name
from opboost.privacy.guarantee import Guarantee, nothing_released
from opboost.schema import ColumnSchema, Missing
from opboost.sklearn.random_states import bit_source, seed_of
from opboost.trees.boosting import BoostingParameters, OnRound
from opboost.trees.losses import Loss
from opboost.trees.validation import Metric
from opboost.vertical import OwnColumn, ValidationPlan
from parties.runs.joint_model import JointModel
from parties.vertical.party_a import train_jointly
from parties.vertical.party_b import PassiveJob, PassiveShare, drawn_from, serve, train
from parties.vertical.prediction_client import predict_jointly, predict_locally
from parties.vertical.simulation import simulate
from parties.vertical.training_job import ActiveJob
from protocols.transport.channel import Channel

# Budget per point of the mapped domain when the user names passive columns but no epsilon.
EPSILON_PER_POINT = 0.1

_ACTIVE, _PASSIVE = "active", "passive"


class SimulatedParties(BaseEstimator):  # type: ignore[misc]
    """What classifier and regressor share: the split of the columns, the simulated runs, the parameters."""

    def __init__(
        self,
        *,
        epsilon: float | None = None,
        mechanism: Literal["global", "local", "adj"] = "global",
        law: str = "clamped",
        theta: int | None = None,
        alpha: float = 1.0,
        domain_size: int = 1000,
        category_epsilon: float | None = None,
        passive_columns: Sequence[Column] | None = None,
        bounds: Bounds = None,
        missing: Literal["refuse", "category"] = "refuse",
        prediction: Literal["local", "desensitized", "routed"] = "routed",
        objective: str | None = None,
        engine: Literal["native", "xgboost"] = "native",
        n_estimators: int = 100,
        max_depth: int = 6,
        max_leaves: int = 0,
        learning_rate: float = 0.3,
        reg_lambda: float = 1.0,
        gamma: float = 0.0,
        min_child_weight: float = 1.0,
        max_delta_step: float | None = None,
        subsample: float = 1.0,
        colsample_bytree: float = 1.0,
        max_bin: int = 256,
        max_cat_to_onehot: int = 4,
        scale_pos_weight: float = 1.0,
        base_score: float | None = None,
        early_stopping_rounds: int | None = None,
        eval_metric: str | Sequence[str] | None = None,
        monotone_constraints: Mapping[Column, int] | Sequence[int] | None = None,
        interaction_constraints: Sequence[Sequence[Column]] | None = None,
        categorical_features: Sequence[Column] | None = None,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.epsilon = epsilon
        self.mechanism = mechanism
        self.law = law
        self.theta = theta
        self.alpha = alpha
        self.domain_size = domain_size
        self.category_epsilon = category_epsilon
        self.passive_columns = passive_columns
        self.bounds = bounds
        self.missing = missing
        self.prediction = prediction
        self.objective = objective
        self.engine = engine
        self.n_estimators = n_estimators
        self.max_depth = max_depth
        self.max_leaves = max_leaves
        self.learning_rate = learning_rate
        self.reg_lambda = reg_lambda
        self.gamma = gamma
        self.min_child_weight = min_child_weight
        self.max_delta_step = max_delta_step
        self.subsample = subsample
        self.colsample_bytree = colsample_bytree
        self.max_bin = max_bin
        self.max_cat_to_onehot = max_cat_to_onehot
        self.scale_pos_weight = scale_pos_weight
        self.base_score = base_score
        self.early_stopping_rounds = early_stopping_rounds
        self.eval_metric = eval_metric
        self.monotone_constraints = monotone_constraints
        self.interaction_constraints = interaction_constraints
        self.categorical_features = categorical_features
        self.random_state = random_state

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        is_plain = self.bounds is None and self.passive_columns is None
        tags.input_tags.allow_nan = is_plain or self.missing == "category"
        return tags

    @property
    def guarantee_(self) -> Guarantee:
        """What the fit promises about the passive party's columns."""
        check_is_fitted(self, "model_")
        return self.model_.guarantees.get(_PASSIVE, nothing_released())

    @property
    def feature_importances_(self) -> Values:
        """Share of each column in the gain of all splits, shape ``(n_features_in_,)``."""
        check_is_fitted(self, "model_")
        ensemble, shares = self.model_.ensemble, np.zeros(self.n_features_in_)
        for feature, gain in zip(ensemble.features, ensemble.importance("total_gain"), strict=True):
            shares[self._names.index(feature.name)] += gain
        return shares / (shares.sum() or 1)

    @property
    def evals_result_(self) -> dict[str, list[float]]:
        """Scores of the validation rows by metric, round by round."""
        check_is_fitted(self, "model_")
        return self.model_.history.scores

    @property
    def best_iteration_(self) -> int:
        """Number, from 0, of the round with the best score of the last metric; -1 without validation rows."""
        check_is_fitted(self, "model_")
        return self.model_.history.best_round - 1

    def _fit(
        self,
        X: Values,
        labels: Values,
        weights: Values,
        loss: Loss,
        validation: tuple[Values, Values] | None,
        on_round: OnRound | None,
    ) -> None:
        if self.prediction not in ("local", "desensitized", "routed"):
            raise ParameterError(f"prediction must be local, desensitized or routed; got {self.prediction!r}")
        if self.missing not in ("refuse", "category"):
            raise ParameterError(f"missing must be refuse or category; got {self.missing!r}")
        if self.engine not in ("native", "xgboost"):
            raise ParameterError(f"engine must be native or xgboost; got {self.engine!r}")
        parameters = BoostingParameters(**self._parameters_of(BoostingParameters))
        self._positions = ColumnPositions(column_names(self))
        self._names = self._positions.names
        is_used = weights > 0
        if not is_used.any():
            raise DataError("all sample weights are zero; there is nothing to learn from")
        X, labels, weights, plan = X[is_used], labels[is_used], weights[is_used], None
        if validation is not None:
            n_held_out = len(validation[0])
            plan = ValidationPlan(np.arange(len(X) + n_held_out) >= len(X), self._metrics(loss))
            X, labels = np.concatenate([X, validation[0]]), np.concatenate([labels, validation[1]])
            weights = np.concatenate([weights, np.ones(n_held_out)])
        self._mechanisms = self._plan(X)
        categorical = self._categorical()
        seed = seed_of(self.random_state)
        table = pd.DataFrame(X, columns=list(self._names))
        active = ActiveJob(
            party=_ACTIVE,
            run_id="fit",
            id_digest="",
            own=tuple(
                OwnColumn(name, values, is_categorical=name in categorical) for name, values in self._own(X).items()
            ),
            labels=labels,
            weights=weights,
            loss=loss,
            parameters=parameters,
            constraints=self._positions.constraints(self.monotone_constraints, self.interaction_constraints),
            validation=plan,
            engine=self.engine,
            seed=seed,
            on_round=on_round or (lambda _: None),
            column_order=self._names,
        )
        passive = PassiveJob(
            party=_PASSIVE,
            run_id="fit",
            id_digest="",
            features=table[[mechanism.schema.name for mechanism in self._mechanisms]],
            mechanisms=self._mechanisms,
            rng=(bits := bit_source(seed)),
            release=drawn_from(bits),
            opaque_names=False,
            share_thresholds=self.prediction == "local",
            allow_routed=self.prediction == "routed",
        )
        shares: list[PassiveShare] = []
        self.model_: JointModel = self._run(
            lambda channels: train_jointly(active, channels), lambda channel: shares.append(train(passive, channel))
        )
        self._share = shares[0] if shares else None
        self._prediction_seed = seed

    def _predict(self, X: Values) -> Values:
        own, table = self._own(X), pd.DataFrame(X, columns=list(self._names))
        self._refuse_missing(table[[mechanism.schema.name for mechanism in self._mechanisms]].to_numpy())
        if self.prediction == "local":
            return predict_locally(self.model_, own, table)
        ids = pd.Index([str(row) for row in range(len(X))], dtype=object)
        share, bits = self._share, bit_source(self._prediction_seed)
        predictions, _ = self._run(
            lambda channels: predict_jointly(
                self.model_, ids, own, channels,
                party=_ACTIVE, run_id="fit", desensitized=self.prediction == "desensitized",
            ),
            lambda channel: share and serve(
                share.router, ids, table, channel, party=_PASSIVE, run_id="fit", rng=bits, may_route=True
            ),
        )  # fmt: skip
        return predictions

    def _run(self, active: Callable[[Sequence[Channel]], Any], passive: Callable[[Channel], object]) -> Any:
        return simulate(active, {_PASSIVE: passive} if self._mechanisms else {}, name=_ACTIVE)

    def _own(self, X: Values) -> dict[str, Values]:
        passive = {mechanism.schema.name for mechanism in self._mechanisms}
        return {name: X[:, i] for i, name in enumerate(self._names) if name not in passive}

    def _plan(self, X: Values) -> tuple[ColumnMechanism, ...]:
        """A mechanism for every passive column, in the order of the columns."""
        bounds = self._positions.bounds(self.bounds)
        if self.passive_columns is None:
            passive = sorted(bounds)
        else:
            passive = sorted({self._positions.of(column) for column in self.passive_columns})
        if not passive:
            if self.epsilon is not None:
                raise SchemaError(
                    "epsilon is given, but neither passive_columns nor bounds say which columns to protect. "
                    "Nothing was released"
                )
            return ()
        given = self._parameters_of(MechanismSettings)
        settings = MechanismSettings(
            **{**given, "epsilon": EPSILON_PER_POINT if self.epsilon is None else self.epsilon}
        )
        without = [self._names[i] for i in passive if i not in bounds]
        if without:
            raise SchemaError(
                f"passive columns need public bounds, and these have none: {', '.join(without)}. Give them as "
                "`bounds`; taken from the data they would reveal its extremes. Nothing was released"
            )
        self._refuse_missing(X[:, passive])
        missing = Missing(self.missing)
        return tuple(
            ColumnMechanism(
                ColumnSchema(name=self._names[i], lower=bounds[i][0], upper=bounds[i][1], missing=missing), settings
            )
            for i in passive
        )

    def _parameters_of(self, settings: type[BoostingParameters | MechanismSettings]) -> dict[str, Any]:
        """The parameters of this estimator that such settings consist of."""
        names = {field.name for field in fields(settings)} & self.get_params().keys()
        return {name: getattr(self, name) for name in names}

    def _categorical(self) -> set[str]:
        names = {self._positions.name_of(column) for column in self.categorical_features or ()}
        passive = sorted(names & {mechanism.schema.name for mechanism in self._mechanisms})
        if passive:
            raise ParameterError(
                f"categorical_features are the active party's columns, and these are passive: {', '.join(passive)}. "
                "Nothing was released"
            )
        return names

    def _metrics(self, loss: Loss) -> tuple[Metric, ...]:
        names = (self.eval_metric,) if isinstance(self.eval_metric, str) else self.eval_metric
        return tuple(metric_by_name(name, loss) for name in names or (default_metric(loss),))

    def _refuse_missing(self, passive: Values) -> None:
        n_missing = int(np.isnan(passive).sum())
        if n_missing and self.missing == "refuse":
            raise DataError(
                f"the passive columns have {n_missing} missing cells (NaN); say missing='category' to have missingness "
                "randomised like a category. Nothing was released"
            )
