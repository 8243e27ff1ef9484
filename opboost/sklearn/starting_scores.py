"""Base margins: where the scores of single rows start, given with the rows."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from opboost.arrays import Values
from opboost.errors import DataError
from opboost.trees.losses import Loss


def margins_of(given: ArrayLike | None, n_rows: int, loss: Loss) -> Values:
    """Base margins of rows, shape ``(n_rows, n_outputs)``, or ``(n_rows, 0)`` without any."""
    if given is None:
        return np.empty((n_rows, 0))
    margins = np.asarray(given, np.float64)
    margins = margins[:, None] if margins.ndim == 1 else margins
    if margins.shape != (n_rows, loss.n_outputs) or not np.isfinite(margins).all():
        raise DataError(f"base_margin must be finite, of shape {(n_rows, loss.n_outputs)}; got {np.shape(given)}")
    return margins


def named_margins(margins: Values) -> dict[str, Values]:
    """Base margins as columns, by the names that they have in a model."""
    return {f"base_margin[{k}]": one for k, one in enumerate(margins.T)}
