"""Real contributions as integers on a fixed-point grid, and the sensitivity that results.

Noise is drawn on integers, so what it is added to must be integers too, and the sensitivity that the account uses must
be that of the integers. Values are moved towards zero, never away: then no coordinate grows, and no norm does.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from opboost.errors import ParameterError

# A contribution has at most this size, in steps, so that doubles hold it exactly and 2**9 records' sum fits.
LARGEST_CODE = 2**53


@dataclass(frozen=True, slots=True, kw_only=True)
class Sensitivity:
    """How far one record can move an integer query, in steps.

    Attributes
    ----------
    l1 : int
        In the sum of absolute values.
    l2_squared : int
        Square of the Euclidean distance.
    """

    l1: int
    l2_squared: int

    def __post_init__(self) -> None:
        if not 0 < self.l2_squared <= self.l1**2:
            raise ParameterError(
                f"a sensitivity needs 0 < l2 <= l1; got l1={self.l1} and l2 squared={self.l2_squared} steps"
            )

    @property
    def l2(self) -> float:
        """At least the Euclidean distance, in steps."""
        return at_least_sqrt(self.l2_squared)


@dataclass(frozen=True, slots=True)
class FixedPoint:
    """The grid of multiples of ``2**-n_bits``.

    Parameters
    ----------
    n_bits : int
        Between 0 and 40.
    """

    n_bits: int

    def __post_init__(self) -> None:
        if (
            isinstance(self.n_bits, bool)
            or not isinstance(self.n_bits, (int, np.integer))
            or not 0 <= self.n_bits <= 40
        ):
            raise ParameterError(f"a fixed-point grid needs between 0 and 40 bits; got {self.n_bits!r}")

    @property
    def step(self) -> float:
        """Distance between neighbouring points."""
        return 2.0**-self.n_bits

    def encode(self, values: NDArray[np.float64], *, bound: float) -> NDArray[np.int64]:
        """Clip values to ``[-bound, bound]`` and move them to the grid, towards zero; any shape.

        The result is at most ``floor(bound / step)`` in size, whatever the rounding of the input. A value that is not a
        number becomes 0.
        """
        largest = self._steps(bound)
        codes = np.nan_to_num(np.asarray(values, dtype=np.float64), nan=0.0, posinf=np.inf, neginf=-np.inf)
        return np.clip(np.trunc(np.clip(codes, -bound, bound) * 2.0**self.n_bits), -largest, largest).astype(np.int64)

    def encode_rows(
        self,
        rows: NDArray[np.float64],
        *,
        bounds: NDArray[np.float64],
        l1: float | None = None,
        l2: float | None = None,
    ) -> NDArray[np.int64]:
        """Encode one contribution per row, each coordinate within its bound and the row within joint bounds.

        Parameters
        ----------
        rows : ndarray of float64, shape (n_records, n_coordinates)
        bounds : ndarray of float64, shape (n_coordinates,)
        l1, l2 : float, optional
            Bounds on a row's sum of absolute values and on its Euclidean norm. Rows that are longer are shortened.

        Returns
        -------
        ndarray of int64, shape (n_records, n_coordinates)
            Every row is within ``sensitivity(bounds, l1=l1, l2=l2)``.
        """
        codes = np.column_stack(
            [self.encode(column, bound=float(bound)) for column, bound in zip(np.transpose(rows), bounds, strict=True)]
        )
        limit = self.sensitivity(bounds, l1=l1, l2=l2)
        sizes = np.abs(codes.astype(np.float64))
        is_suspect = sizes.sum(axis=1) > limit.l1 * (1 - 1e-12)
        is_suspect |= np.einsum("ij,ij->i", sizes, sizes) > limit.l2_squared * (1 - 1e-12)
        for i in np.flatnonzero(is_suspect):
            total, squares = _norms(codes[i])
            if total > limit.l1 or squares > limit.l2_squared:
                factor = min(1.0, limit.l1 / total, math.sqrt(limit.l2_squared / squares)) * (1 - 1e-15)
                codes[i] = np.trunc(codes[i] * factor)
                total, squares = _norms(codes[i])
                if total > limit.l1 or squares > limit.l2_squared:
                    raise ArithmeticError("a shortened row is still too long; nothing was released")
        return codes

    def sensitivity(
        self, bounds: NDArray[np.float64], *, l1: float | None = None, l2: float | None = None
    ) -> Sensitivity:
        """What one record, added or removed, can change in a sum of encoded rows.

        Parameters
        ----------
        bounds : ndarray of float64, shape (n_coordinates,)
            Bound on the size of each coordinate of a record's contribution: only the coordinates that one record
            touches at a time.
        l1, l2 : float, optional
            Joint bounds, if `encode_rows` enforces them.
        """
        largest = [self._steps(float(bound)) for bound in np.atleast_1d(bounds)]
        total, squares = sum(largest), sum(bound**2 for bound in largest)
        if l1 is not None:
            total = min(total, self._steps(l1))
        if l2 is not None:
            squares = min(squares, math.floor((Fraction(l2) * 2**self.n_bits) ** 2))
        return Sensitivity(l1=total, l2_squared=min(squares, total**2))

    def decode(self, codes: NDArray[np.int64]) -> NDArray[np.float64]:
        """Integers as real numbers."""
        return np.asarray(codes, dtype=np.float64) * self.step

    def steps(self, scale: float) -> float:
        """A real-valued scale or standard deviation of noise in steps; exact."""
        return scale * 2.0**self.n_bits

    def _steps(self, bound: float) -> int:
        """A bound in whole steps, not more than it."""
        if not (math.isfinite(bound) and bound >= self.step):
            raise ParameterError(
                f"a contribution's bound must be finite and at least one step of the grid; got {bound}"
            )
        steps = math.floor(Fraction(bound) * 2**self.n_bits)
        if steps > LARGEST_CODE:
            raise ParameterError(f"a contribution may have at most 2**53 steps; {bound} has {steps}. Use fewer bits")
        return steps


def _norms(row: NDArray[np.int64]) -> tuple[int, int]:
    """Sum of absolute values and of squares, in integers of any size."""
    sizes = [abs(int(code)) for code in row]
    return sum(sizes), sum(size**2 for size in sizes)


def at_least_sqrt(square: int) -> float:
    """The least double whose square is at least an integer, or the next one."""
    root = math.sqrt(square)
    while Fraction(root) ** 2 < square:
        root = math.nextafter(root, math.inf)
    return root
