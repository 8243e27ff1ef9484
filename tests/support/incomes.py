"""Ages and incomes with a label, and what is public about them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

BOUNDS = {"age": (18, 90), "income": (0, 9000)}
PRIVATE: dict[str, Any] = {"epsilon": 2.0, "delta": 1e-5, "bounds": BOUNDS}


def incomes(n_rows: int = 300, seed: int = 0) -> tuple[pd.DataFrame, np.ndarray]:
    """Ages and incomes, and whether somebody is over 50."""
    generator = np.random.default_rng(seed)
    table = pd.DataFrame({"age": generator.uniform(18, 90, n_rows), "income": generator.uniform(0, 9000, n_rows)})
    return table, (table["age"] > 50).to_numpy()
