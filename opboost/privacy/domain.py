"""Integer domains and their partitions: where codes live and which of them count as neighbours."""

from __future__ import annotations

from dataclasses import dataclass, field
from numbers import Integral

import numpy as np
from numpy.typing import NDArray

from opboost.arrays import Codes
from opboost.errors import ParameterError, is_integer

# Cells of a partition: each is a number in memory, for as long as the mechanism lives.
MAX_CELLS = 1 << 20


@dataclass(frozen=True, slots=True)
class IntegerDomain:
    """The mapped domain ``[lo, hi]``, both ends included.

    Raises
    ------
    ParameterError
        Unless ``lo < hi``, both integers.
    """

    lo: int
    hi: int

    def __post_init__(self) -> None:
        if not (is_integer(self.lo) and is_integer(self.hi)):
            raise ParameterError(f"a domain needs integer ends; got lo={self.lo!r}, hi={self.hi!r}")
        if not self.lo < self.hi:
            raise ParameterError(f"a domain needs lo < hi; got lo={self.lo}, hi={self.hi}")

    @property
    def size(self) -> int:
        """Number of points."""
        return int(self.hi - self.lo + 1)

    def clip(self, codes: Codes) -> Codes:
        """Move every code into the domain."""
        return np.clip(codes, self.lo, self.hi)

    def positions(self, codes: Codes) -> NDArray[np.int64]:
        """Codes as positions ``0 .. size - 1``.

        Raises
        ------
        ParameterError
            If a code is not an integer or lies outside the domain; nothing is drawn then.
        """
        codes = np.asarray(codes)
        if codes.ndim != 1 or (codes.dtype.kind not in "iu" and codes.size):
            raise ParameterError(
                f"codes must be integers in one dimension; got {codes.ndim} of {codes.dtype}. Nothing was drawn"
            )
        if codes.size and (codes.min() < self.lo or codes.max() > self.hi):
            n_outside = int(((codes < self.lo) | (codes > self.hi)).sum())
            raise ParameterError(f"{n_outside} codes lie outside the domain [{self.lo}, {self.hi}]. Nothing was drawn")
        return codes.astype(np.int64) - self.lo


@dataclass(frozen=True, slots=True)
class Partition:
    """A division of a domain into neighbouring cells.

    Attributes
    ----------
    domain : IntegerDomain
    starts : tuple of int
        First point of every cell, strictly increasing, the first one equal to ``domain.lo``. The last cell ends at
        ``domain.hi``.
    cell_starts : ndarray of int64, shape (n_cells,)
        Position of every cell's first point, counted from ``domain.lo``.
    widths : ndarray of int64, shape (n_cells,)
        Number of points in every cell.
    even_width : int or None
        The width that all cells have, the last one at most; None if they differ.
    """

    domain: IntegerDomain
    starts: tuple[int, ...]
    cell_starts: NDArray[np.int64] = field(init=False, repr=False, compare=False)
    widths: NDArray[np.int64] = field(init=False, repr=False, compare=False)
    even_width: int | None = field(init=False, repr=False, compare=False)
    _cells: NDArray[np.int32] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not all(issubclass(kind, Integral) and not issubclass(kind, bool) for kind in set(map(type, self.starts))):
            raise ParameterError("the edges of a partition must be integers")
        edges = np.array([*self.starts, self.domain.hi + 1], dtype=np.int64) - self.domain.lo
        if len(self.starts) == 0 or edges[0] != 0:
            raise ParameterError(f"the first cell of a partition must start at {self.domain.lo}; got {self.starts[:1]}")
        widths = np.diff(edges)
        if (widths <= 0).any():
            raise ParameterError(
                f"the edges of a partition must increase strictly and stay within [{self.domain.lo}, {self.domain.hi}]"
            )
        is_even = bool((widths[:-1] == widths[0]).all() and widths[-1] <= widths[0])
        cells = np.empty(0, np.int32) if is_even else np.repeat(np.arange(len(widths), dtype=np.int32), widths)
        object.__setattr__(self, "cell_starts", edges[:-1])
        object.__setattr__(self, "widths", widths)
        object.__setattr__(self, "even_width", int(widths[0]) if is_even else None)
        object.__setattr__(self, "_cells", cells)

    @classmethod
    def of_width(cls, domain: IntegerDomain, theta: int) -> Partition:
        """Cells of width `theta`, anchored at ``domain.lo``; the last one may be narrower."""
        if not is_integer(theta) or not 1 <= theta <= domain.size:
            raise ParameterError(f"theta must be an integer between 1 and the {domain.size} points; got {theta!r}")
        if (n_cells := -(-domain.size // int(theta))) > MAX_CELLS:
            raise ParameterError(
                f"theta={theta} divides the domain of {domain.size} points into {n_cells} cells; at most {MAX_CELLS} "
                "can be held"
            )
        return cls(domain, tuple(range(domain.lo, domain.hi + 1, int(theta))))

    @property
    def n_cells(self) -> int:
        return len(self.starts)

    def extents(self, cells: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """First position and width of each of these cells."""
        if self.even_width is not None:
            starts = cells * self.even_width
            return starts, np.minimum(self.even_width, self.domain.size - starts)
        return self.cell_starts[cells], self.widths[cells]

    def cell_of(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """Index of the cell that holds each position."""
        if self.even_width is not None:
            return positions // self.even_width
        return self._cells[positions].astype(np.int64)
