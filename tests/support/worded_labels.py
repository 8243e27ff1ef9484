"""Tables of owners whose labels are words."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pandas as pd


def label_by_words(root: Path, names: Iterable[str]) -> None:
    """Write the labels 1 and 0 in the owners' data files as words."""
    for name in names:
        path = root / name / "data.csv"
        frame = pd.read_csv(path)
        frame.assign(y=frame["y"].map({1: "ill", 0: "well"})).to_csv(path, index=False)
