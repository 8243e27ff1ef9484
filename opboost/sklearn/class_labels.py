"""Classification over partitioned rows: one model for two classes, else one-vs-rest on a shared budget."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import Tags
from sklearn.utils.multiclass import check_classification_targets

from opboost.arrays import Mask, Values
from opboost.errors import DataError, ParameterError
from opboost.sklearn.whole_fits import with_parameters

# A part of the classifiers' docstrings.
CLASSES = """
    `classes` lists the classes that labels may have, all of them labels of one type. With a budget they are public, by
    default 0 and 1, and other labels are refused; the probabilities of all of them are predicted, whether they occur or
    not. Without a budget they are by default those that occur.
"""


@with_parameters
class ClassLabels:
    """Classifier mixin for `simulated_rows.DividedRows`: labels of two or more `classes`, and their probabilities."""

    _is_classification: ClassVar[bool] = True

    classes: Sequence[Any] | None = None
    classes_: NDArray[Any] = field(init=False)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()  # type: ignore[misc]
        tags.classifier_tags.poor_score = self.epsilon is not None  # type: ignore[attr-defined]
        return tags

    def _targets(self, labels: NDArray[Any], call_classes: ArrayLike | None = None) -> list[Values]:
        """Fix the classes of a first fit; then `against_rest`. `call_classes` are those of a call of `partial_fit`."""
        check_same(call_classes, self.classes)
        named = self.classes if call_classes is None else call_classes
        if named is None and math.isfinite(self._budget()):  # type: ignore[attr-defined]
            named = (0, 1)
        classes = _occurring(labels) if named is None else _named(named)
        targets = against_rest(labels, classes)
        self.classes_ = classes
        return targets

    def _known_targets(self, labels: NDArray[Any], call_classes: ArrayLike | None = None) -> list[Values]:
        """`against_rest` for records that arrive after a first fit."""
        check_same(call_classes, self.classes_)
        return against_rest(labels, self.classes_)

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


def against_rest(targets: NDArray[Any], classes: NDArray[Any]) -> list[Values]:
    """Labels 0 and 1 of one class after the other; of two classes, of the second one alone.

    Raises
    ------
    DataError
        If a label is none of the classes.
    """
    otherwise = (
        "Unknown label type: there are labels beyond the classes. List all classes as the parameter `classes`; by "
        "default they are 0 and 1 with a budget, and those of the first records without"
    )
    is_each = matched(targets, classes, otherwise=otherwise)
    return [each.astype(np.float64) for each in (is_each[1:] if len(is_each) == 2 else is_each)]


def check_class_labels(targets: NDArray[Any]) -> None:
    """Refuse labels that are no classes; what scikit-learn says of objects, such as integers, is about numbers.

    Raises
    ------
    DataError
        If labels are Python objects and not all texts.
    ValueError
        If labels are numbers of a scale.
    """
    if targets.dtype == object and not all(isinstance(one, str) for one in targets.flat):
        raise DataError(
            "Unknown label type: labels are of dtype object, and not all of them are texts; give them one type, as "
            "y.astype(int) or y.astype(str) does. Nothing was trained"
        )
    check_classification_targets(targets)


def check_same(call_classes: ArrayLike | None, known: ArrayLike | None) -> None:
    """Refuse classes that `partial_fit` is told if others are known already."""
    if call_classes is None or known is None or np.array_equal(_named(call_classes), _named(known)):
        return
    raise ParameterError("partial_fit was told other classes than those that are known; say the same, or none")


def distinct(parameter: str, listed: ArrayLike, *, least: int) -> NDArray[Any]:
    """The labels that a parameter lists, in ascending order.

    Raises
    ------
    ParameterError
        If there are fewer than `least`, or one comes twice.
    """
    labels = np.asarray(listed)
    try:
        ascending = np.unique(labels)
    except TypeError:
        ascending = labels[:0]
    if labels.ndim != 1 or not least <= len(ascending) == len(labels) or (ascending != ascending).any():
        raise ParameterError(
            f"{parameter} must list at least {least} labels of one type, each of them once; got {listed!r}"
        )
    return ascending


def matched(values: NDArray[Any], listed: Iterable[Any], *, otherwise: str) -> list[Mask]:
    """For each listed label, which values are equal to it.

    Raises
    ------
    DataError
        If a value is not listed; it says `otherwise`.
    """
    is_each = [np.asarray(values == label) for label in listed]
    if not np.any(is_each, axis=0).all():
        raise DataError(f"{otherwise}. Nothing was released")
    return is_each


def _named(classes: ArrayLike) -> NDArray[Any]:
    return distinct("classes", classes, least=2)


def _occurring(targets: NDArray[Any]) -> NDArray[Any]:
    """Classes that occur among the labels. A single record can change them: for fits without a budget only."""
    check_class_labels(targets)
    found = np.unique(targets)
    if len(found) < 2:
        raise DataError("labels must have at least two classes; found 1 class, and `classes` names none")
    return found
