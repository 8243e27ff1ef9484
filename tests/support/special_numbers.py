"""Numbers at which a threshold in doubles and a condition in singles may part rows differently."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from opboost.trees.xgboost_numbers import PRESENT

F32 = np.finfo(np.float32)

SPECIAL = [
    0.0,
    -0.0,
    0.5,
    1.0,
    -1.0,
    0.1,
    float(np.float32(0.1)),
    1 / 3,
    16777217.0,
    1e-45,
    1e-46,
    -1e-46,
    1e-300,
    float(F32.tiny),
    float(F32.max),
    -float(F32.max),
    3.4028235677973366e38,
    1e39,
    -1e39,
    PRESENT,
    -PRESENT,
]


def around(thresholds: list[float]) -> np.ndarray:
    """Every threshold's float32 and its neighbours, the infinities and NaN; shape ``(n_rows, 1)``."""
    far = np.float32(np.inf)
    with np.errstate(over="ignore"):
        near = np.array(thresholds).astype(np.float32)
        parts = [near, np.nextafter(near, far), np.nextafter(near, -far), np.float32([np.nan, np.inf, -np.inf])]
    return np.unique(np.concatenate(parts))[:, None]


numbers = st.one_of(
    st.sampled_from(SPECIAL),
    st.floats(-2, 2),
    st.floats(-2, 2, width=32),
    st.floats(allow_nan=False, allow_infinity=False),
)
