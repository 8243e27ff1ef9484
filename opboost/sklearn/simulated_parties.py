"""Simulation of all parties of a vertical run in one process, for the scikit-learn estimators."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import fields
from typing import Any, Self

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from sklearn.base import is_regressor
from sklearn.utils import Tags
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from opboost.arrays import Values, python_numbers
from opboost.column_positions import ColumnPositions, are_positions, check_labels, column_names
from opboost.columns import OwnColumn
from opboost.desensitize import ColumnMechanism
from opboost.errors import DataError, ParameterError, SchemaError, check_choice, check_integer
from opboost.fitting.recipe import LEFT_OPEN
from opboost.mechanism_settings import MechanismSettings
from opboost.privacy.guarantee import FRESH_ANSWERS, Guarantee, compose, exposed, nothing_released, with_tests
from opboost.schema import Missing
from opboost.sklearn.data_frames import FrameEncoder, as_frame
from opboost.sklearn.fit_rows import FitRows
from opboost.sklearn.passive_columns import passive_mechanisms, passive_schemas, warn_of_clipped
from opboost.sklearn.random_states import bit_source, seed_of
from opboost.sklearn.starting_scores import margins_of, named_margins, refuse_times, with_groups
from opboost.sklearn.vertical_parameters import VerticalParameters
from opboost.sklearn.whole_fits import whole
from opboost.trees.boosting import BoostingParameters, OnRound
from opboost.trees.losses import Loss
from opboost.trees.tree import Ensemble
from opboost.trees.validation import ValidationPlan
from parties.runs.earlier_model import Earlier
from parties.runs.joint_model import JointModel
from parties.vertical.party_a import train_jointly
from parties.vertical.party_b import PassiveShare, train
from parties.vertical.prediction_client import Evaluation, predict_jointly, predict_locally
from parties.vertical.release_job import PassiveJob
from parties.vertical.release_offer import offered_names
from parties.vertical.simulation import drawn_from, serve, simulate
from parties.vertical.training_job import ActiveJob
from protocols.transport.channel import Channel

_ACTIVE, _PASSIVE = "active", "passive"


class SimulatedParties(VerticalParameters):
    """Base of the vertical estimators: the simulated runs."""

    @whole
    def fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        *,
        qid: ArrayLike | None = None,
        base_margin: ArrayLike | None = None,
        eval_set: Sequence[tuple[ArrayLike, ArrayLike]] = (),
        eval_qid: Sequence[ArrayLike] = (),
        base_margin_eval_set: Sequence[ArrayLike] = (),
        verbose: bool | int = False,
    ) -> Self:
        """Train on a table of shape ``(n_rows, n_columns)`` and labels of shape ``(n_rows,)``.

        `eval_set` holds at most one pair of a table and its labels: rows that nobody trains on, scored after every
        round. Their passive columns are released as well: a training row that is among them is released twice, and its
        losses add up. `base_margin` is where each row's score starts, shape
        ``(n_rows,)`` or one column per output, and `base_margin_eval_set` likewise; predictions then need one, too.
        `qid` names the group of each row, for objectives that rank, and `eval_qid` likewise. `verbose` prints the
        scores of every round, or of every so many, and of the last one.
        """
        after_round = self._watch(verbose)
        frame, earlier = as_frame(X), self._earlier()
        known, kinds = ({}, {}) if earlier is None else (earlier.categories, self.continue_from._encoder.kinds)
        check_labels(frame, None if earlier is None else self.continue_from._encoder.labels)
        self._encoder = FrameEncoder.learn(frame, self.bounds, known, kinds=kinds)
        matrix, targets = validate_data(
            self,
            self._encoder.in_numbers(X),
            with_groups(y, qid, self.objective, are_numbers=is_regressor(self)),
            dtype=np.float64,
            ensure_all_finite="allow-nan",
            y_numeric=is_regressor(self),
            multi_output=is_regressor(self),
        )
        refuse_times("the sample weights", sample_weight)
        weights = _check_sample_weight(sample_weight, matrix, dtype=np.float64, ensure_non_negative=True)
        loss, labels = self._learn_labels(targets)
        trained = FitRows(matrix, labels, weights, margins_of(base_margin, len(matrix), loss)).weighing()
        if len(eval_set) > 1:
            raise ParameterError(
                f"eval_set holds at most one pair of a table and its labels; got {len(eval_set)}. Give validation rows "
                "alone, as [(X_valid, y_valid)]; rows that are trained on are not scored. Nothing was trained"
            )
        nothing = (None,) * len(eval_set)
        validation_sets = zip(eval_set, eval_qid or nothing, base_margin_eval_set or nothing, strict=True)
        scored = [self._scored_rows(*pair, groups, margin, loss) for pair, groups, margin in validation_sets]
        self._fit(trained, scored, loss, after_round)
        return self

    def _scored_rows(self, X: Any, y: Any, groups: Any, margin: ArrayLike | None, loss: Loss) -> FitRows:
        """Validation rows, as those that are trained on were read."""
        pair = self._encoder.in_numbers(X), with_groups(y, groups, self.objective, are_numbers=is_regressor(self))
        rows, truth = validate_data(
            self, *pair, dtype=np.float64, ensure_all_finite="allow-nan", reset=False, multi_output=True
        )
        return FitRows(rows, self._numbered(truth), np.ones(len(rows)), margins_of(margin, len(rows), loss))

    @abstractmethod
    def _learn_labels(self, targets: NDArray[Any]) -> tuple[Loss, Values]:
        """The loss of a fit, and its labels as numbers."""

    @abstractmethod
    def _numbered(self, targets: NDArray[Any]) -> Values:
        """Labels of validation rows as numbers."""

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        is_plain = self.bounds is None and self.passive_columns is None
        tags.input_tags.allow_nan = is_plain or self.missing == "category"
        return tags

    @property
    def guarantee_(self) -> Guarantee:
        """Privacy guarantee for the passive party's columns: of the fit, and of predictions in the present mode."""
        check_is_fitted(self, "model_")
        if self._share is None:
            return nothing_released()
        n_cells = max((one.n_cells for one in self.model_.ensemble.features if one.n_cells is not None), default=None)
        not_protected = exposed(allow_routed=self.prediction == "routed", redraws=False, n_cells=n_cells)
        not_protected += (FRESH_ANSWERS,) * (self.prediction == "desensitized")
        columns, is_secure = tuple(one.guarantee() for one in self._mechanisms), self._share.guarantee.is_secure
        promise = compose(columns, is_secure=is_secure, not_protected=not_protected)
        return with_tests(promise, self._share.router.tests.n_tests)

    def _fit(self, trained: FitRows, scored: Sequence[FitRows], loss: Loss, on_round: OnRound) -> None:
        check_choice("prediction", self.prediction, "local", "desensitized", "routed")
        check_choice("answers", self.answers, "tests", "cells")
        check_choice("missing", self.missing, "refuse", "category")
        check_choice("engine", self.engine, "native", "xgboost")
        rows = FitRows.joined([trained, *scored])
        self._positions = ColumnPositions(column_names(self), are_positions(self._encoder.labels))
        self._names = self._positions.names
        self._mechanisms = self._plan(rows.features)
        is_added, seed = np.arange(len(rows.labels)) >= len(trained.labels), seed_of(self.random_state)
        plan, passive = ValidationPlan(is_added, self._metrics(loss)), self._passive_job(rows.features, seed)
        active = self._active_job(rows, loss, plan if scored else None, seed, on_round)
        shares: list[PassiveShare] = []
        self.model_: JointModel = self._run(
            lambda channels: train_jointly(active, channels), lambda channel: shares.append(train(passive, channel))
        )
        self.noise_choice_ = self.model_.choice and self.model_.choice.value
        self._share, self._prediction_seed = shares[0] if shares else None, seed

    def _active_job(
        self, rows: FitRows, loss: Loss, plan: ValidationPlan | None, seed: int | None, on_round: OnRound
    ) -> ActiveJob:
        categorical, lists = self._categorical(), self._encoder.categories
        own = self._own(rows.features).items()
        return ActiveJob(
            party=_ACTIVE,
            run_id="fit",
            id_digest="",
            own=tuple(OwnColumn(name, each, name in categorical, lists.get(name, ())) for name, each in own),
            labels=rows.labels,
            weights=rows.weights,
            loss=loss,
            parameters=BoostingParameters(**self._parameters_of(BoostingParameters)),
            constraints=self._positions.constraints(self.monotone_constraints, self.interaction_constraints),
            validation=plan,
            margins=tuple(OwnColumn(name, one) for name, one in named_margins(rows.margins).items()),
            earlier=self._earlier(),
            engine=self.engine,
            # Trees on noised codes are the right predictor of noised codes.
            correct_noise=self.correct_noise and self.prediction != "desensitized",
            left_open=frozenset(name for name in LEFT_OPEN if getattr(self, name) is None),
            by_cells=self.answers == "cells",
            seed=seed,
            on_round=on_round,
            column_order=tuple(self._inputs),
        )

    def _passive_job(self, X: Values, seed: int | None) -> PassiveJob:
        table, bits = self._encoder.decode(X, self._names), bit_source(seed)
        return PassiveJob(
            party=_PASSIVE,
            run_id="fit",
            id_digest="",
            features=table[[mechanism.schema.name for mechanism in self._mechanisms]],
            mechanisms=self._mechanisms,
            rng=bits,
            release=drawn_from(bits),
            opaque_names=False,
            share_thresholds=self.prediction == "local",
            n_cells=check_integer("cells", self.cells, least=2) if self.answers == "cells" else None,
            allow_routed=self.prediction == "routed",
        )

    def _earlier(self) -> Earlier | None:
        """The model that `continue_from` names, an estimator of this kind."""
        if self.continue_from is None:
            return None
        if not isinstance(self.continue_from, SimulatedParties):
            raise ParameterError(f"continue_from is a fitted estimator; got {type(self.continue_from).__name__}")
        check_is_fitted(self.continue_from, "model_")
        return Earlier.of(self.continue_from.model_)

    def _predictions(
        self, X: ArrayLike, evaluate: Evaluation = Ensemble.predict, *, base_margin: ArrayLike | None = None
    ) -> Values:
        """Probabilities or numbers for new rows, as the loss defines them, or what else is computed of them."""
        check_is_fitted(self, "model_")
        check_choice("prediction", self.prediction, "local", "desensitized", "routed")
        rows: Values = validate_data(
            self, self._encoder.in_numbers(X), dtype=np.float64, ensure_all_finite="allow-nan", reset=False
        )
        own, table = self._own(rows), self._encoder.decode(rows, self._names)
        offsets, margins = self.model_.ensemble.offsets, margins_of(base_margin, len(rows), self.model_.ensemble.loss)
        if margins.shape[1] != len(offsets):
            with_it = "was" if offsets else "was not"
            raise ParameterError(f"the model {with_it} trained with a base_margin, and predicts so")
        own |= named_margins(margins)
        self._refuse_missing(rows[:, [self._names.index(one.schema.name) for one in self._mechanisms]])
        if self.prediction == "local":
            return predict_locally(self.model_, own, table, evaluate=evaluate)
        ids = pd.Index([str(row) for row in range(len(rows))], dtype=object)
        share, bits = self._share, bit_source(self._prediction_seed)
        predictions, _ = self._run(
            lambda channels: predict_jointly(
                self.model_,
                ids,
                own,
                channels,
                party=_ACTIVE,
                run_id="fit",
                desensitized=self.prediction == "desensitized",
                evaluate=evaluate,
            ),
            lambda channel: (
                share
                and serve(share.router, ids, table, channel, party=_PASSIVE, run_id="fit", rng=bits, may_route=True)
            ),
        )
        return predictions

    def _run(self, active: Callable[[Sequence[Channel]], Any], passive: Callable[[Channel], object]) -> Any:
        return simulate(active, {_PASSIVE: passive} if self._mechanisms else {}, name=_ACTIVE)

    @property
    def _inputs(self) -> dict[str, str]:
        """The column that each input of the trees comes from; a passive column of unordered categories has several."""
        offered = {one.schema.name: offered_names([one], opaque_names=False) for one in self._mechanisms}
        return {column: name for name in self._names for column in offered.get(name, (name,))}

    def _own(self, X: Values) -> dict[str, Values]:
        return {n: X[:, i] for i, n in enumerate(self._names) if n not in {m.schema.name for m in self._mechanisms}}

    def _plan(self, X: Values) -> tuple[ColumnMechanism, ...]:
        """A mechanism for every passive column, in the order of the columns."""
        schemas = passive_schemas(
            self._positions, self.bounds, self.passive_columns, self._encoder, missing=Missing(self.missing)
        )
        warn_of_clipped(schemas, dict(zip(self._names, X.T, strict=True)))
        if not schemas and not (self.epsilon is None and self.whole_range is None and self.budgets is None):
            raise SchemaError(
                "a budget is given, but neither passive_columns nor bounds say which columns to protect. "
                "Nothing was released"
            )
        self._refuse_missing(X[:, [self._names.index(schema.name) for schema in schemas]])
        budgets = (self.budgets or {}).items()
        own = {self._positions.name_of(column): python_numbers(dict(budget)) for column, budget in budgets}
        common = {"epsilon": self.epsilon, "whole_range": self.whole_range}
        return passive_mechanisms(schemas, common, own, **self._parameters_of(MechanismSettings))

    def _parameters_of(self, settings: type[BoostingParameters | MechanismSettings]) -> dict[str, Any]:
        """The parameters of this estimator that such settings consist of."""
        names = {field.name for field in fields(settings)} & self.get_params().keys()
        return {name: value for name in names if (value := getattr(self, name)) is not None}

    def _categorical(self) -> set[str]:
        names = self._positions.named("categorical_features", self.categorical_features)
        names |= self._encoder.categories.keys() - self._encoder.public.keys()
        if passive := sorted(names & {mechanism.schema.name for mechanism in self._mechanisms}):
            raise ParameterError(
                f"categorical_features are the active party's columns, and these are passive: {', '.join(passive)}. "
                "Nothing was released"
            )
        return names

    def _refuse_missing(self, passive: Values) -> None:
        if self.missing == "refuse" and (n_missing := int(np.isnan(passive).sum())):
            raise DataError(
                f"the passive columns have {n_missing} missing cells (NaN); say missing='category' to have missingness "
                "randomised like a category. Nothing was released"
            )
