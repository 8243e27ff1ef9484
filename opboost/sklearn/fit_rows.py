"""Rows of a fit: those that are trained on, and those that every round is scored on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Self

import numpy as np

from opboost.arrays import Values
from opboost.errors import DataError, ParameterError


class FitRows(NamedTuple):
    """Rows of a table, with what is known of each.

    Attributes
    ----------
    features : ndarray of float64, shape (n_rows, n_columns)
    labels : ndarray of float64, shape (n_rows,), or (n_rows, n_labels)
    weights : ndarray of float64, shape (n_rows,)
    margins : ndarray of float64, shape (n_rows, n_outputs)
        Where each row's scores start; without columns where no row says so.
    """

    features: Values
    labels: Values
    weights: Values
    margins: Values

    def weighing(self) -> Self:
        """The rows of which a weight is left."""
        is_used = self.weights > 0
        if not is_used.any():
            raise DataError("all sample weights are zero; there is nothing to learn from")
        return type(self)(*(each[is_used] for each in self))

    @classmethod
    def joined(cls, parts: Sequence[FitRows]) -> Self:
        """The rows of all parts, whose labels have one shape, and all of which have margins, or none."""
        if len({part.labels.shape[1:] for part in parts}) > 1:
            raise DataError(
                "labels of eval_set must have as many columns as those that are trained on, and rows that are ranked "
                "groups in both (qid and eval_qid=[groups]). Nothing was trained"
            )
        if len({part.margins.shape[1] for part in parts}) > 1:
            raise ParameterError("give base_margin and base_margin_eval_set, or neither")
        return cls(*(np.concatenate(each) for each in zip(*parts, strict=True)))
