"""Distribution functions of the order-preserving maps against sums over the mechanisms' own tables."""

from __future__ import annotations

import math

import numpy as np
import pytest

from opboost.denoise.distribution import released_at_most
from opboost.privacy.laws import Law
from tests.support.order_preserving_maps import mechanisms


@pytest.mark.parametrize("law", Law)
@pytest.mark.parametrize("n", [2, 5, 12])
@pytest.mark.parametrize("epsilon", [0.01, 0.7, math.inf])
def test_the_distribution_function_is_the_sum_of_the_table_and_starts_at_nothing(
    law: Law, n: int, epsilon: float
) -> None:
    points = np.arange(n)
    for mechanism in mechanisms(n, law, epsilon):
        sums = np.exp(mechanism.log_probabilities()).cumsum(axis=1)
        found = released_at_most(mechanism, points[:, None], points)
        np.testing.assert_allclose(found, sums, rtol=0, atol=1e-13)
        assert (released_at_most(mechanism, points, np.array(-1)) == 0).all()
        assert (found[:, -1] == 1).all() or found[:, -1] == pytest.approx(1.0)
