"""A table as a folder of Parquet files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd


def in_a_folder(table: pd.DataFrame, folder: Path, n_parts: int = 4) -> Path:
    folder.mkdir()
    for i, rows in enumerate(np.array_split(np.arange(len(table)), n_parts)):
        table.iloc[rows].to_parquet(folder / f"{i}.parquet", index=False)
    return folder
