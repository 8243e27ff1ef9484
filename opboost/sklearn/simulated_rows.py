"""Base classes of the estimators over partitioned rows: public bounds, scaled labels, guarantee."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import field
from typing import Any, ClassVar, Literal, Self

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted, validate_data

from opboost import rng
from opboost.arrays import Values
from opboost.column_positions import Bounds, ColumnPositions, are_positions, check_labels, column_names, labels_of
from opboost.covers import with_covers
from opboost.errors import DataError, ParameterError, SchemaError, check_choice, is_number
from opboost.horizontal.public_task import PublicTask as PublicTask
from opboost.horizontal.rows.public_grid import PublicGrid
from opboost.privacy.record_guarantee import ADDED_OR_REMOVED, RecordGuarantee
from opboost.sklearn.data_frames import refuse_all_but_numbers
from opboost.sklearn.random_states import bit_source, seed_of
from opboost.sklearn.starting_scores import refuse_times
from opboost.sklearn.whole_fits import whole, with_parameters
from opboost.trees.tree import Ensemble

# Budget per record when the user gives bounds but no epsilon.
DEFAULT_EPSILON = 1.0

FROM_DATA = "from_data"


@with_parameters
class DividedRows(BaseEstimator):  # type: ignore[misc]
    """Base of the estimators that train on rows of several owners.

    Parameters are dataclass fields, so that every estimator has an explicit signature and lists each parameter once.
    Subclasses add `delta` and what their recipe needs, and grow the trees in `_train`; `ClassLabels` adds
    `classes`, `BoundedNumbers` adds `label_bounds`.
    """

    _modes: ClassVar[tuple[str, ...]] = ("certified", "paper")
    _is_classification: ClassVar[bool]

    epsilon: float | None = None
    bounds: Bounds | Literal["from_data"] = None
    mode: Literal["certified", "paper"] = "certified"
    random_state: int | np.random.RandomState | None = None
    guarantee_: RecordGuarantee = field(init=False)
    models_: tuple[Ensemble, ...] = field(init=False)
    model_: Ensemble = field(init=False)
    _task: PublicTask = field(init=False)
    _labels: pd.Index | None = field(init=False)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags

    @whole
    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Train on a table of shape ``(n_rows, n_columns)`` and labels of shape ``(n_rows,)``."""
        rows, targets = self._check_rows(X, y, reset=True)
        self._train(rows, self._targets(targets))
        return self

    def _fit_further(self, X: ArrayLike, y: ArrayLike, *call_classes: ArrayLike | None) -> Self:
        """Go on with newly arrived records, or begin with them; `call_classes` are the classes that the call lists."""
        is_first = not hasattr(self, "model_")
        rows, labels = self._check_rows(X, y, reset=is_first)
        if is_first:
            self._train(rows, self._targets(labels, *call_classes))
        else:
            self._go_on(rows, self._known_targets(labels, *call_classes))
        return self

    @abstractmethod
    def _train(self, X: Values, targets: Sequence[Values]) -> None:
        """Train one model per target: one for two classes or numbers, one per class against the rest."""

    @abstractmethod
    def _targets(self, labels: NDArray[Any]) -> list[Values]:
        """Targets of each model."""

    def _public(self, X: Values, labels: Values) -> PublicTask:
        """Public description of the training; bounds come from the data only where there is no certified guarantee."""
        check_choice("mode", self.mode, *self._modes)
        epsilon = self._budget()
        from_data = isinstance(self.bounds, str)
        if from_data and self.bounds != FROM_DATA:
            raise ParameterError(f"bounds must be numbers or the word {FROM_DATA!r}; got {self.bounds!r}")
        is_classification, label_bounds = self._is_classification, getattr(self, "label_bounds", None)
        is_private = math.isfinite(epsilon)
        positions = self._positions
        names = positions.names
        public_bounds = {} if from_data else positions.bounds(self.bounds)  # type: ignore[arg-type]
        listed = positions.named("categorical_features", getattr(self, "categorical_features", None))
        categorical = sorted(map(positions.of, listed))
        unbounded = [name for i, name in enumerate(names) if i not in public_bounds]
        if not is_classification and label_bounds is None:
            unbounded.append("the label (label_bounds)")
        if unbounded and is_private and not from_data:
            raise SchemaError(
                f"a private fit needs public bounds, and these have none: {', '.join(unbounded)}. Say bounds="
                f"{FROM_DATA!r} to take them from the data, which reveals its extremes and is not certified. "
                "Nothing was released"
            )
        bounds = [
            public_bounds.get(i) or _extremes(X[:, i], are_categories=i in categorical) for i in range(len(names))
        ]
        centre, spread = 0.0, 1.0
        if not is_classification:
            lower, upper = _label_bounds(label_bounds) if label_bounds is not None else _extremes(labels)
            centre, spread = (lower + upper) / 2, (upper - lower) / 2
        return PublicTask(
            names,
            PublicGrid(bounds, self._n_cells(), categorical=tuple(categorical)),
            centre,
            spread,
            epsilon,
            not unbounded,
            is_classification,
        )

    @property
    def _positions(self) -> ColumnPositions:
        """The columns of the training table, as parameters name them."""
        return ColumnPositions(column_names(self), are_positions(self._labels))

    def _n_cells(self) -> int:
        """Cells of the public grid per column."""
        return self.max_cells

    def _budget(self) -> float:
        if self.epsilon is None:
            return math.inf if self.bounds is None else DEFAULT_EPSILON
        if not is_number(self.epsilon) or not self.epsilon > 0:
            raise ParameterError(f"epsilon must be a number greater than 0, inf for no noise; got {self.epsilon!r}")
        return float(self.epsilon)

    def _guarantee(
        self,
        task: PublicTask,
        *,
        epsilon: float,
        delta: float,
        account: str,
        is_secure: bool,
        claimed: float | None = None,
        neighbours: str = ADDED_OR_REMOVED,
    ) -> RecordGuarantee:
        return RecordGuarantee(
            epsilon=epsilon,
            delta=delta if math.isfinite(epsilon) else 0.0,
            account=account_of_models(account, len(self.models_)),
            mode=self.mode,
            is_secure=is_secure,
            bounds_are_public=task.bounds_are_public,
            claimed_epsilon=claimed,
            neighbours=neighbours,
        )

    def _bits(self) -> rng.BitSource:
        """Secure bits, or with a seed bits that can be drawn again and that no guarantee rests on."""
        return bit_source(seed_of(self.random_state))

    def _check_rows(self, X: ArrayLike, y: ArrayLike, *, reset: bool) -> tuple[Values, NDArray[Any]]:
        refuse_all_but_numbers(X)
        if reset:
            self._labels = labels_of(X)
        check_labels(X, self._labels)
        if not self._is_classification:
            refuse_times("the labels", y)
        return validate_data(
            self,
            X,
            y,
            dtype=np.float64,
            ensure_all_finite="allow-nan",
            reset=reset,
            y_numeric=getattr(self, "_estimator_type", None) == "regressor",
        )

    def _keep(self, task: PublicTask, models: Sequence[Ensemble]) -> None:
        """Keep the trained models: one, or one per class."""
        self._task, self.models_, self.model_ = task, tuple(models), models[0]

    def contributions(self, X: ArrayLike, *, background: ArrayLike | None = None) -> Values:
        """Shapley values of the columns for raw scores, shape ``(n_rows, n_columns + 1)``, the mean score last.

        Of several classes the shape is ``(n_rows, n_classes, n_columns + 1)``. The models keep no statistics of the
        rows that they were trained on: means are over the rows of `background`, by default X itself.
        """
        rows, others = self._rows(X), self._rows(X if background is None else background)
        found = np.concatenate([with_covers(model, others).contributions(rows) for model in self.models_], axis=1)
        return found[:, 0] if found.shape[1] == 1 else found

    def _scores(self, X: ArrayLike) -> Values:
        """Predictions of the models for rows, shape ``(n_rows, n_models)``."""
        rows = self._rows(X)
        return np.column_stack([model.predict(rows) for model in self.models_])

    def _rows(self, X: ArrayLike) -> Values:
        check_is_fitted(self, "models_")
        refuse_all_but_numbers(X)
        check_labels(X, self._labels)
        return validate_data(self, X, dtype=np.float64, ensure_all_finite="allow-nan", reset=False)


@with_parameters
class BoundedNumbers:
    """Regressor mixin: labels and predictions within public bounds, `label_bounds`."""

    _is_classification: ClassVar[bool] = False

    label_bounds: tuple[float, float] | None = None
    _task: PublicTask = field(init=False)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()  # type: ignore[misc]
        tags.regressor_tags.poor_score = self._scores_poorly()
        return tags

    def predict(self, X: ArrayLike) -> Values:
        """Predicted numbers, within the label's bounds, shape ``(n_rows,)``."""
        scores: Values = self._scores(X)[:, 0]  # type: ignore[attr-defined]
        return np.clip(scores, *self.prediction_bounds_)

    @property
    def prediction_bounds_(self) -> tuple[float, float]:
        """Between which predictions are kept, whatever the trees add up to: those of the label."""
        return self._task.centre - self._task.spread, self._task.centre + self._task.spread

    def _targets(self, labels: NDArray[Any]) -> list[Values]:
        try:
            numbers = np.asarray(labels, dtype=np.float64)
        except (OverflowError, TypeError, ValueError):
            numbers = np.full(1, np.nan)
        if not np.isfinite(numbers).all():
            raise DataError("a label is not a finite number. Nothing was released")
        return [numbers]

    _known_targets = _targets

    def _scores_poorly(self) -> bool:
        """True if a few hundred rows are too few for the defaults, as they are with noise."""
        return self.epsilon is not None  # type: ignore[attr-defined]


def account_of_models(account: str, n_models: int) -> str:
    """Description of the privacy accounting, for one model or for one model per class."""
    return account if n_models == 1 else f"{account}, shared by one model for each of {n_models} classes"


def bits_of_models(bits: rng.BitSource, n_models: int) -> list[rng.BitSource]:
    """Bits for each model of a training; one model alone takes those of the training."""
    return [bits] if n_models == 1 else [bits.fork(f"model {number}") for number in range(n_models)]


def _extremes(values: Values, *, are_categories: bool = False) -> tuple[float, float]:
    """Bounds taken from data, with room if they fall together."""
    present = values[np.isfinite(values)]
    lower, upper = (float(present.min()), float(present.max())) if len(present) else (0.0, 0.0)
    if are_categories:
        return 0.0, max(upper, 1.0)
    return (lower, upper) if lower < upper else (lower - 0.5, lower + 0.5)


def _label_bounds(bounds: Any) -> tuple[float, float]:
    try:
        lower, upper = (float(bound) for bound in bounds)
    except (TypeError, ValueError):
        raise ParameterError(f"label_bounds must be a pair of numbers; got {bounds!r}") from None
    if not (math.isfinite(upper - lower) and lower < upper):
        raise ParameterError(f"label_bounds must be finite with lower < upper; got {bounds!r}")
    return lower, upper
