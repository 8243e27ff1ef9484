"""Rows that were sorted on disk, put back in the order of their ids."""

from __future__ import annotations

import numpy as np

from protocols.alignment.sorted_rows import Ascending


def by_id(rows: Ascending) -> np.ndarray:
    """The row of each id."""
    positions, found = (np.concatenate(parts) for parts in zip(*rows.ascending(), strict=True))
    result = np.empty_like(found)
    result[positions] = found
    return result
