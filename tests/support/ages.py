"""Ages and incomes of made-up people, with their public bounds."""

from __future__ import annotations

import numpy as np
import pandas as pd

BOUNDS = {"age": (18, 90), "income": (0, 9000)}


def frame(n_rows: int = 200, seed: int = 0) -> tuple[pd.DataFrame, np.ndarray]:
    generator = np.random.default_rng(seed)
    table = pd.DataFrame({"age": generator.uniform(18, 90, n_rows), "income": generator.uniform(0, 9000, n_rows)})
    return table, table["age"].to_numpy() / 10
