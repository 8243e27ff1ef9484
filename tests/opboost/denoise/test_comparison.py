"""The error of a mean prediction over draws, estimated without bias."""

from __future__ import annotations

import numpy as np
import pytest

from opboost.denoise.comparison import squared_errors
from opboost.errors import DataError


def test_the_error_of_the_mean_is_estimated_without_bias() -> None:
    """Predictions are the truth plus noise of variance 4: the plain mean of three draws would be off by 4/3.

    200,000 rows: the estimate's standard deviation is below .01; a false alarm needs six of them.
    """
    rng = np.random.default_rng(0)
    targets = rng.normal(size=(200_000, 1))
    predictions = targets + 0.5 + 2 * rng.normal(size=(3, 200_000, 1))
    assert squared_errors(targets, predictions).mean() == pytest.approx(0.25, abs=0.06)
    assert ((targets - predictions.mean(axis=0)) ** 2).mean() > 1.4


def test_products_of_different_draws_by_hand() -> None:
    targets, predictions = np.array([[1.0, 0.0]]), np.array([[[0.0, 0.0]], [[3.0, 1.0]]])
    assert squared_errors(targets, predictions).tolist() == [1 * -2 + 0 * -1]
    with pytest.raises(DataError, match="at least two draws"):
        squared_errors(targets, predictions[:1])
