"""Estimate of a model's squared error on exact codes, from rows whose codes are noised.

A row's codes are drawn given all that is known of it but the label, and the label is compared with the mean prediction
over the draws. The squared error of that mean is estimated without bias by products of two different draws' residuals;
the error of a mean of finitely many draws would hold their variance against models that use the columns most. No model
is better under this score than the mean of the label given the exact codes, whereas on noised codes a model that takes
them for exact ones scores best.
"""

from __future__ import annotations

import numpy as np

from opboost.arrays import Values
from opboost.errors import DataError


def squared_errors(targets: Values, predictions: Values) -> Values:
    """Unbiased estimate of each row's squared error of the mean prediction, summed over outputs, shape ``(n_rows,)``.

    Parameters
    ----------
    targets : ndarray of float64, shape (n_rows, n_outputs)
    predictions : ndarray of float64, shape (n_draws, n_rows, n_outputs)
        Of each of at least two draws.
    """
    n_draws = len(predictions)
    if n_draws < 2:
        raise DataError(f"an unbiased error needs at least two draws; got {n_draws}")
    residuals = targets - predictions
    products = residuals.sum(axis=0) ** 2 - (residuals**2).sum(axis=0)
    return np.asarray(products.sum(axis=-1) / (n_draws * (n_draws - 1)))
