"""What the estimators over divided rows share: public bounds, labels to a public scale, and the model they end with."""

from __future__ import annotations

import math
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator
from sklearn.utils import Tags
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from opboost import rng
from opboost.arrays import Values
from opboost.column_positions import Bounds, ColumnPositions, column_names
from opboost.errors import DataError, ParameterError, SchemaError
from opboost.horizontal.public_table import PublicGrid
from opboost.horizontal.public_task import PublicTask as PublicTask
from opboost.privacy.guarantee import RecordGuarantee
from opboost.trees.tree import Ensemble

# Budget per record when the user gives bounds but no epsilon.
DEFAULT_EPSILON = 1.0

FROM_DATA = "from_data"


class DividedRows(BaseEstimator):  # type: ignore[misc]
    """Estimators that train on rows of several owners. Subclasses have the parameters, and grow the trees.

    The parameters that all have: `epsilon`, `delta`, `bounds`, `label_bounds` (regressors), `mode`, `max_cells`,
    `random_state`.
    """

    _modes: ClassVar[tuple[str, ...]] = ("certified", "paper")

    epsilon: float | None
    delta: Any
    bounds: Bounds | Literal["from_data"]
    mode: Any
    max_cells: int
    random_state: int | np.random.RandomState | None
    guarantee_: RecordGuarantee
    model_: Ensemble

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags

    def _public(self, X: Values, labels: Values, *, is_classification: bool) -> PublicTask:
        """What may be known without the data; bounds come from them only where nothing is promised."""
        if self.mode not in self._modes:
            raise ParameterError(f"mode must be {' or '.join(self._modes)}; got {self.mode!r}")
        epsilon = self._budget()
        names = column_names(self)
        from_data = isinstance(self.bounds, str)
        if from_data and self.bounds != FROM_DATA:
            raise ParameterError(f"bounds must be numbers or the word {FROM_DATA!r}; got {self.bounds!r}")
        label_bounds = None if is_classification else getattr(self, "label_bounds", None)
        is_private = math.isfinite(epsilon)
        given = {} if from_data else ColumnPositions(names).bounds(self.bounds)  # type: ignore[arg-type]
        without = [name for i, name in enumerate(names) if i not in given]
        if not is_classification and label_bounds is None:
            without.append("the label (label_bounds)")
        if without and is_private and not from_data:
            raise SchemaError(
                f"a private fit needs public bounds, and these have none: {', '.join(without)}. Say bounds="
                f"{FROM_DATA!r} to take them from the data, which reveals its extremes and is not certified. "
                "Nothing was released"
            )
        bounds = [given.get(i) or _extremes(X[:, i]) for i in range(len(names))]
        centre, spread = 0.0, 1.0
        if not is_classification:
            lower, upper = _label_bounds(label_bounds) if label_bounds is not None else _extremes(labels)
            centre, spread = (lower + upper) / 2, (upper - lower) / 2
        return PublicTask(
            names, PublicGrid(bounds, self._n_cells()), centre, spread, epsilon, not without, is_classification
        )

    def _n_cells(self) -> int:
        """Cells of the public grid per column."""
        return self.max_cells

    def _budget(self) -> float:
        if self.epsilon is None:
            return math.inf if self.bounds is None else DEFAULT_EPSILON
        is_number = isinstance(self.epsilon, (int, float, np.integer, np.floating)) and not isinstance(
            self.epsilon, bool
        )
        if not is_number or not self.epsilon > 0:
            raise ParameterError(f"epsilon must be a number greater than 0, inf for no noise; got {self.epsilon!r}")
        return float(self.epsilon)

    def _guarantee(
        self, task: PublicTask, *, epsilon: float, account: str, is_secure: bool, claimed: float | None = None
    ) -> RecordGuarantee:
        return RecordGuarantee(
            epsilon=epsilon,
            delta=self.delta if math.isfinite(epsilon) else 0.0,
            account=account,
            mode=self.mode,
            is_secure=is_secure,
            bounds_are_public=task.bounds_are_public,
            claimed_epsilon=claimed,
        )

    def _bits(self) -> rng.BitSource:
        """Secure bits, or with a seed bits that can be drawn again and that no guarantee rests on."""
        seed = self.random_state
        if seed is None:
            return rng.secure()
        if isinstance(seed, np.random.RandomState):
            return rng.seeded(int(seed.randint(np.iinfo(np.int32).max)))
        if isinstance(seed, (int, np.integer)) and seed >= 0:
            return rng.seeded(int(seed))
        raise ParameterError(f"random_state must be None, an integer of at least 0 or a RandomState; got {seed!r}")

    def _check_rows(self, X: ArrayLike, y: ArrayLike, *, reset: bool) -> tuple[Values, NDArray[Any]]:
        return validate_data(
            self, X, y, dtype=np.float64, ensure_all_finite="allow-nan", reset=reset,
            y_numeric=getattr(self, "_estimator_type", None) == "regressor",
        )  # fmt: skip

    def _scores(self, X: ArrayLike) -> Values:
        check_is_fitted(self, "model_")
        rows = validate_data(self, X, dtype=np.float64, ensure_all_finite="allow-nan", reset=False)
        return self.model_.predict(rows)


class BinaryLabels:
    """Labels of two classes, and their probabilities."""

    classes_: NDArray[Any]

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()  # type: ignore[misc]
        tags.classifier_tags.multi_class = False
        tags.classifier_tags.poor_score = self.epsilon is not None  # type: ignore[attr-defined]
        return tags

    def _learn_classes(self, targets: NDArray[Any], classes: ArrayLike | None = None) -> Values:
        """Two classes as 0 and 1. Which classes there are is public; give them to hide that one does not occur."""
        check_classification_targets(targets)
        self.classes_ = np.unique(targets if classes is None else np.asarray(classes))
        if len(self.classes_) != 2:
            found = f"{len(self.classes_)} class" + ("es" if len(self.classes_) > 1 else "")
            raise DataError(f"Only binary classification is supported: the labels must have two classes; found {found}")
        return self._as_numbers(targets)

    def _as_numbers(self, targets: NDArray[Any]) -> Values:
        if not np.isin(targets, self.classes_).all():
            raise DataError("there are labels of classes that were not known when training began")
        return np.searchsorted(self.classes_, targets).astype(np.float64)

    def predict_proba(self, X: ArrayLike) -> Values:
        """Probabilities of the two classes, shape ``(n_rows, 2)``."""
        share: Values = self._scores(X)  # type: ignore[attr-defined]
        return np.column_stack([1 - share, share])

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """The more probable class of every row, shape ``(n_rows,)``."""
        probabilities = self.predict_proba(X)
        return np.asarray(self.classes_[probabilities.argmax(axis=1)])


class BoundedNumbers:
    """Labels within public bounds, and predictions within the same."""

    _task: PublicTask

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()  # type: ignore[misc]
        tags.regressor_tags.poor_score = self._scores_poorly()
        return tags

    def predict(self, X: ArrayLike) -> Values:
        """Predicted numbers, within the label's bounds, shape ``(n_rows,)``."""
        scores: Values = self._scores(X)  # type: ignore[attr-defined]
        return np.clip(scores, self._task.centre - self._task.spread, self._task.centre + self._task.spread)

    def _scores_poorly(self) -> bool:
        """Whether a few hundred rows are too few for the defaults: with noise they are."""
        return self.epsilon is not None  # type: ignore[attr-defined]


def _extremes(values: Values) -> tuple[float, float]:
    """Bounds taken from data, with room if they fall together."""
    present = values[np.isfinite(values)]
    lower, upper = (float(present.min()), float(present.max())) if len(present) else (0.0, 0.0)
    return (lower, upper) if lower < upper else (lower - 0.5, lower + 0.5)


def _label_bounds(bounds: Any) -> tuple[float, float]:
    try:
        lower, upper = (float(bound) for bound in bounds)
    except (TypeError, ValueError):
        raise ParameterError(f"label_bounds must be a pair of numbers; got {bounds!r}") from None
    if not (math.isfinite(upper - lower) and lower < upper):
        raise ParameterError(f"label_bounds must be finite with lower < upper; got {bounds!r}")
    return lower, upper
