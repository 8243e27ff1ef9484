"""One dtype per unit, so that a rank can never be taken for a code, a bin or a value.

=========  =========  ======================================================================
alias      dtype      unit
=========  =========  ======================================================================
`Values`   float64    what a column holds in the outside world; NaN means missing
`Codes`    int64      points of a mapped integer domain ``[lo, hi]``
`Ranks`    uint32     dense ranks ``0..k-1`` of released codes
`Bins`     uint8/16   histogram bins of a column; the last one holds the missing values
`Sums`     int64      gradient and Hessian sums on a fixed grid, shape ``(..., 2)``
`Mask`     bool       one flag per row
=========  =========  ======================================================================
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Values = NDArray[np.float64]
Codes = NDArray[np.int64]
Ranks = NDArray[np.uint32]
Bins = NDArray[np.uint8] | NDArray[np.uint16]
Sums = NDArray[np.int64]
Mask = NDArray[np.bool_]
Nodes = NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class HistogramAxes:
    """Where each column's bins lie in a flat histogram.

    Column ``c`` owns the bins ``offsets[c] .. offsets[c + 1] - 1``; the last of them counts the missing values.

    Attributes
    ----------
    offsets : ndarray of int64, shape (n_columns + 1,)
    """

    offsets: NDArray[np.int64]

    @classmethod
    def from_bin_counts(cls, n_value_bins: list[int]) -> HistogramAxes:
        """Axes for columns with so many value bins each, one missing bin added to every column."""
        return cls(np.concatenate([[0], np.cumsum([n + 1 for n in n_value_bins], dtype=np.int64)]))

    @property
    def n_columns(self) -> int:
        return len(self.offsets) - 1

    @property
    def n_bins(self) -> int:
        return int(self.offsets[-1])

    def n_value_bins(self, column: int) -> int:
        """Bins of a column that hold values, the missing bin left out."""
        return int(self.offsets[column + 1] - self.offsets[column] - 1)
