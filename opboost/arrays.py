"""Array types: one alias and dtype per unit, so that a rank can never be taken for a code, a bin or a value.

===========  =========  ======================================================================
alias        dtype      unit
===========  =========  ======================================================================
`Values`     float64    what a column holds in the outside world; NaN means missing
`Codes`      int64      points of a mapped integer domain ``[lo, hi]``
`KeptCodes`  signed     the same in a type that just holds them, for columns of many rows
`Positions`  int64      codes counted from the domain's first point, ``0 .. size - 1``
`Ranks`      uint32     dense ranks ``0..k-1`` of released codes
`Bins`       uint8/16   histogram bins of a column; the last one holds the missing values
`Scores`     float32/64 raw scores of rows while trees grow
`Sums`       int64      sums of g and h on a fixed grid: ``(n_nodes, 2)``, or ``(n_nodes, 2, n_bins)`` per bin
`Mask`       bool       one flag per row
===========  =========  ======================================================================
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

Values = NDArray[np.float64]
Codes = NDArray[np.int64]
KeptCodes = NDArray[np.signedinteger]
Positions = NDArray[np.int64]
Ranks = NDArray[np.uint32]
Bins = NDArray[np.uint8] | NDArray[np.uint16]
Scores = NDArray[np.float32] | NDArray[np.float64]
Sums = NDArray[np.int64]
Mask = NDArray[np.bool_]
Nodes = NDArray[np.int32]


def read_only(values: NDArray[Any]) -> Values:
    """C-contiguous floats that cannot be written to: loops are compiled once, whatever a caller's layout and rights."""
    view = np.ascontiguousarray(values, np.float64).view()
    view.flags.writeable = False
    return view


class RankRows(Protocol):
    """Ranks of one column that are read by slices of rows; an array is one."""

    def __len__(self) -> int: ...

    def __getitem__(self, rows: slice, /) -> NDArray[np.unsignedinteger]: ...


def python_numbers(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings with NumPy's scalars, such as grids of parameters have, as the numbers that messages and files hold."""
    return {name: value.item() if isinstance(value, np.generic) else value for name, value in settings.items()}


def plain_values(value: object) -> object:
    """A value for JSON: infinity as ``"inf"``, tuples as lists."""
    if value == math.inf:
        return "inf"
    if isinstance(value, (tuple, list)):
        return [plain_values(item) for item in value]
    if isinstance(value, dict):
        return {key: plain_values(item) for key, item in value.items()}
    return value


@dataclass(frozen=True)
class HistogramAxes:
    """Layout of a flat histogram: where each column's bins lie.

    Column ``c`` owns the bins ``offsets[c] .. offsets[c + 1] - 1``; the last of them counts the missing values.

    Attributes
    ----------
    offsets : ndarray of int64, shape (n_columns + 1,)
    is_categorical : ndarray of bool, shape (n_columns,)
        Whether a column's bins are categories without an order.
    """

    offsets: NDArray[np.int64]
    is_categorical: Mask

    @classmethod
    def from_bin_counts(cls, n_value_bins: list[int], is_categorical: list[bool] | None = None) -> HistogramAxes:
        """Axes for columns with so many value bins each, one missing bin added to every column."""
        offsets = np.concatenate([[0], np.cumsum([n + 1 for n in n_value_bins], dtype=np.int64)])
        return cls(offsets, np.array(is_categorical or [False] * len(n_value_bins), dtype=np.bool_))

    @property
    def n_columns(self) -> int:
        return len(self.offsets) - 1

    @cached_property
    def sizes(self) -> NDArray[np.int64]:
        """Bins of every column, its missing bin included."""
        return np.diff(self.offsets)

    @cached_property
    def largest(self) -> int:
        """Most bins of a column."""
        return int(self.sizes.max())

    @property
    def n_bins(self) -> int:
        return int(self.offsets[-1])

    def n_value_bins(self, column: int) -> int:
        """Bins of a column that hold values, the missing bin left out."""
        return int(self.sizes[column]) - 1
