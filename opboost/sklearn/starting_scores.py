"""Checks of base margins and of ranking groups, and refusal of dates where numbers are needed."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from opboost.arrays import Values
from opboost.errors import DataError, ParameterError
from opboost.sklearn.data_frames import with_times
from opboost.trees.losses import LambdaRank, Loss, PairwiseRank
from opboost.trees.losses.ranking import group_numbers
from opboost.trees.losses.survival import AcceleratedFailure


def refuse_times(what: str, numbers: ArrayLike | None) -> None:
    """Refuse dates, durations and periods among labels of a regressor, weights or base margins.

    Raises
    ------
    DataError
    """
    if with_times(numbers):
        raise DataError(
            f"{what} hold dates or durations, and numbers are needed. Give durations in days, or the like, and days "
            "since a date that is public for dates. Nothing was released"
        )


def margins_of(base_margin: ArrayLike | None, n_rows: int, loss: Loss) -> Values:
    """Base margins of rows, shape ``(n_rows, n_outputs)``, or ``(n_rows, 0)`` without any."""
    if base_margin is None:
        return np.empty((n_rows, 0))
    refuse_times("the base margins", base_margin)
    margins = np.asarray(base_margin, np.float64)
    margins = margins[:, None] if margins.ndim == 1 else margins
    if margins.shape != (n_rows, loss.n_outputs) or not np.isfinite(margins).all():
        raise DataError(f"base_margin must be finite, of shape {(n_rows, loss.n_outputs)}; got {np.shape(base_margin)}")
    return margins


def named_margins(margins: Values) -> dict[str, Values]:
    """Base margins as columns, by the names that they have in a model."""
    return {f"base_margin[{k}]": one for k, one in enumerate(margins.T)}


def with_groups(
    labels: ArrayLike, qid: ArrayLike | None, objective: str | Loss | None, *, are_numbers: bool
) -> ArrayLike:
    """Labels with the number of each row's group beside them, as objectives that rank take them.

    Labels that are numbers may be no dates or durations. Of bounds of times, an infinite upper one becomes 0, which
    stands for none as well.
    """
    if are_numbers:
        refuse_times("the labels", labels)
    if qid is None:
        is_of_times = objective == AcceleratedFailure.name or isinstance(objective, AcceleratedFailure)
        if not is_of_times or np.ndim(labels) != 2:
            return labels
        bounds = np.asarray(labels, np.float64)
        return np.where(bounds == np.inf, 0.0, bounds)
    if not isinstance(objective, LambdaRank) and objective not in (LambdaRank.name, PairwiseRank.name):
        raise ParameterError(f"qid goes with objectives that rank; got {objective!r}. Nothing was released")
    return np.column_stack([np.asarray(labels, np.float64), group_numbers(qid)])
