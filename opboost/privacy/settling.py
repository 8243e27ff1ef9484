"""Ambiguous draws, settled with further random bits in decimal arithmetic of growing precision.

Slow and rare. Everything here is decided by comparing a uniform number, known to as many bits as needed, with a
boundary that is an elementary function of the (exact) exponent; a comparison is answered only when the interval of
the number lies wholly on one side of the interval of the boundary.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal

from opboost.privacy.laws import Kernel
from opboost.rng import BitSource

Boundary = Callable[[Context], Decimal]


class LazyUniform:
    """A uniform number in ``[0, 1)`` whose first bits are given and whose further bits are drawn when needed."""

    def __init__(self, prefix: int, n_bits: int, *, rng: BitSource) -> None:
        self._prefix = prefix
        self._n_bits = n_bits
        self._rng = rng

    def is_below(self, boundary: Boundary) -> bool:
        """Whether the number is below a boundary that can be computed to any precision.

        `boundary` must be a handful of correctly rounded operations, so that twenty guard digits bound its error.
        """
        while True:
            digits = int(self._n_bits * math.log10(2)) + 40
            context = Context(prec=digits, Emax=MAX_EMAX, Emin=MIN_EMIN)
            edge = boundary(context)
            error = Decimal((0, (1,), 20 - digits))
            step = context.divide(Decimal(1), Decimal(2**self._n_bits))
            low = context.multiply(Decimal(self._prefix), step)
            if context.add(context.add(low, step), error) < edge:
                return True
            if context.subtract(low, error) > edge:
                return False
            self._prefix = (self._prefix << 64) | int(self._rng.words(1)[0])
            self._n_bits += 64

    def complement(self) -> LazyUniform:
        """One minus the number, to the bits known so far; the further ones are drawn anew, which is as good."""
        return LazyUniform((1 << self._n_bits) - 1 - self._prefix, self._n_bits, rng=self._rng)


def settle(kernel: Kernel, x: int, word: int, *, rng: BitSource) -> int:
    """The output of `kernel` at input `x` for a uniform number that starts with the 64 bits of `word`."""
    if kernel.is_clamped:
        return _settle_clamped(kernel, x, word, rng=rng)
    below, above = x, kernel.n - 1 - x
    uniform = LazyUniform(word, 64, rng=rng)
    if uniform.is_below(_normalised_tail(kernel, below, 0)):
        return x - largest_where(lambda m: uniform.is_below(_normalised_tail(kernel, below, m)), 0, below)
    complement = uniform.complement()
    return x + largest_where(lambda m: complement.is_below(_normalised_tail(kernel, above, m)), 1, above)


def _settle_clamped(kernel: Kernel, x: int, word: int, *, rng: BitSource) -> int:
    magnitude = LazyUniform(word & ((1 << 63) - 1), 63, rng=rng)
    is_negative = bool(word >> 63)
    reach = x if is_negative else kernel.n - 1 - x
    step = largest_where(lambda m: magnitude.is_below(_clamped_tail(kernel, m)), 0, reach)
    return x - step if is_negative else x + step


def smallest_where(holds_at: Callable[[int], bool], first: int, last: int) -> int:
    """The smallest integer in ``first .. last`` at which a condition holds that, once true, stays so; else `last`."""
    return first + bisect_left(range(first, last), True, key=holds_at)


def largest_where(holds_at: Callable[[int], bool], first: int, last: int) -> int:
    """The largest integer in ``first .. last`` at which a condition holds, which holds at `first` until it ends."""
    return smallest_where(lambda k: not holds_at(k + 1), first, last)


def _clamped_tail(kernel: Kernel, m: int) -> Boundary:
    """``2 q^m / (1 + q)``: the probability of a step of at least m >= 1 points."""

    def boundary(context: Context) -> Decimal:
        one_plus_q = context.add(Decimal(1), _power(kernel, 1, context))
        return context.divide(context.multiply(Decimal(2), _power(kernel, m, context)), one_plus_q)

    return boundary


def _normalised_tail(kernel: Kernel, reach: int, m: int) -> Boundary:
    """``(q^m - q^(r+1)) / (1 + q - q^(r+1) - q^(n-r))``: at least m points towards the end that is r points away."""

    def boundary(context: Context) -> Decimal:
        beyond = _power(kernel, reach + 1, context)
        total = context.add(Decimal(1), _power(kernel, 1, context))
        total = context.subtract(context.subtract(total, beyond), _power(kernel, kernel.n - reach, context))
        return context.divide(context.subtract(_power(kernel, m, context), beyond), total)

    return boundary


def _power(kernel: Kernel, k: int, context: Context) -> Decimal:
    """``q^k``, the exponent taken as the exact number that its double stands for."""
    return context.exp(context.multiply(Decimal(kernel.exponent).copy_negate(), Decimal(k)))
