"""Channels of small domains."""

from __future__ import annotations

import numpy as np

from opboost.privacy.domain import IntegerDomain
from opboost.privacy.order_preserving import GlobalMap


def geometric(n: int, epsilon: float) -> np.ndarray:
    """Of a Global-Map, shape ``(n, n)``."""
    return np.exp(GlobalMap(epsilon=epsilon, domain=IntegerDomain(1, n)).log_probabilities())
