"""Classes over divided rows: one model for two, and for more one per class against the rest, on a shared budget."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import Tags
from sklearn.utils.multiclass import check_classification_targets

from opboost.arrays import Values
from opboost.errors import DataError


class ClassLabels:
    """Labels of two or more classes, and their probabilities, for estimators over `simulated_rows.DividedRows`."""

    classes_: NDArray[Any]

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()  # type: ignore[misc]
        tags.classifier_tags.poor_score = self.epsilon is not None  # type: ignore[attr-defined]
        return tags

    def _learn_classes(self, targets: NDArray[Any], classes: ArrayLike | None = None) -> list[Values]:
        """What `_against_rest` gives. Which classes there are is public; give them to hide that one does not occur."""
        check_classification_targets(targets)
        self.classes_ = np.unique(targets if classes is None else np.asarray(classes))
        if len(self.classes_) < 2:
            raise DataError(f"labels must have at least two classes; found {len(self.classes_)} class")
        return self._against_rest(targets)

    def _against_rest(self, targets: NDArray[Any]) -> list[Values]:
        """Labels 0 and 1 of one class after the other; of two classes, of the second one alone."""
        if not np.isin(targets, self.classes_).all():
            raise DataError("there are labels of classes that were not known when training began")
        ones = self.classes_[1:] if len(self.classes_) == 2 else self.classes_
        return [(targets == each).astype(np.float64) for each in ones]

    def predict_proba(self, X: ArrayLike) -> Values:
        """Probabilities of the classes, shape ``(n_rows, n_classes)``; of more than two, shares of their sum."""
        shares = np.clip(self._scores(X), 0.0, 1.0)  # type: ignore[attr-defined]
        if shares.shape[1] == 1:
            return np.column_stack([1 - shares, shares])
        totals = shares.sum(axis=1, keepdims=True)
        return np.where(totals > 0, shares / np.where(totals > 0, totals, 1.0), 1.0 / shares.shape[1])

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """The most probable class of every row, shape ``(n_rows,)``."""
        probabilities = self.predict_proba(X)
        return np.asarray(self.classes_[probabilities.argmax(axis=1)])
