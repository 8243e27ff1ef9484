"""A table of visitors, its public bounds, and what they spend."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from opboost import OpBoostRegressor

MODES = ("local", "desensitized", "routed")
SMALL: dict[str, Any] = {"n_estimators": 5, "max_depth": 3, "random_state": 0}


def visitors(n_rows: int = 200, seed: int = 0) -> pd.DataFrame:
    """Ages, incomes and visits."""
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "age": rng.integers(18, 91, n_rows) * 1.0,
            "income": rng.normal(3000, 800, n_rows),
            "visits": rng.integers(0, 12, n_rows) * 1.0,
        }
    )


BOUNDS = {"age": (18, 90), "visits": (0, 11)}


def spending(frame: pd.DataFrame) -> np.ndarray:
    """A label that rises with age and visits."""
    noise = np.random.default_rng(1).normal(size=len(frame))
    return frame["age"].to_numpy() / 10 + np.nan_to_num(frame["visits"].to_numpy()) + noise


def spending_classes(frame: pd.DataFrame, names: list[str]) -> np.ndarray:
    """The label in classes of about one size, from low to high."""
    numbers = spending(frame)
    shares = np.arange(1, len(names)) / len(names)
    return np.array(names)[np.digitize(numbers, np.quantile(numbers, shares))]


def predictions_of(X: Any, bounds: Any, **settings: Any) -> np.ndarray:
    """What a small model that is fitted to a table predicts for it."""
    model = OpBoostRegressor(bounds=bounds, epsilon=1.0, **(SMALL | settings))
    return model.fit(X, spending(visitors())).predict(X)


def later_visitors(n_rows: int = 100) -> tuple[pd.DataFrame, np.ndarray]:
    """Rows that are not among the others, and their labels."""
    frame = visitors(n_rows, seed=7)
    return frame, spending(frame)
