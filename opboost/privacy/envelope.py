"""Rejection sampling from a two-sided geometric envelope: proposals from random words, and their acceptance.

A proposal is ``y = +-(block * width + offset)``, at a distance from the law's mode: the sign is a coin, the block is
geometric, ``Pr[block >= k] = exp(-k * width / scale)``, and the offset is uniform in ``0 .. width - 1``. It is kept
with probability ``exp(log w(y) + block * width / scale - peak)``, where w is the law's weight relative to its mode and
`peak` bounds the exponent, so that what is kept follows w exactly. This is the discrete Gaussian sampler of Canonne,
Kamath and Steinke (NeurIPS 2020, algorithm 3) with its two rejections joined in one and a faster proposal; Poisson
draws are the same with another weight. How many proposals are needed is independent of which one is kept.

Doubles decide (`opboost.privacy.sampling`), except where they could be wrong; here is the exact decision, in decimals.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Context, Decimal
from enum import IntEnum
from fractions import Fraction
from functools import cache

from opboost.privacy.settling import Boundary, LazyUniform, largest_where
from opboost.rng import BitSource

# A block has at most this share of the envelope's scale, so that few offsets are refused for their place in the block.
_LARGEST_WIDTH = 1 / 8

# Proposals farther out than this do not fit an int64. At the largest scale, 2**40, one comes up with probability
# exp(-2**22): never.
_FARTHEST = 2**62

# Words that one proposal takes: sign and offset, block, verdict, fraction of a step.
WORDS_PER_PROPOSAL = 4


class Weight(IntEnum):
    """Weight of a noise distribution relative to its mode, as a function of the distance y from it."""

    LAPLACE = 0  # exp(-|y| / scale)
    ROUNDED_GAUSSIAN = 1  # exp(-y^2 / (2 spread^2)) for a real y, of which the nearest integer is released
    POISSON = 2  # mean^y mean! / (mean + y)!, the mean an integer


@dataclass(frozen=True, slots=True)
class Envelope:
    """A distribution on the integers, and the geometric envelope of its proposals.

    Attributes
    ----------
    weight : Weight
    scale : float
        Scale of the proposals; the double stands for itself, exactly. At most 2**40.
    spread : float
        Standard deviation of a Gaussian, mean of a Poisson law (an integer); unused for Laplace.
    peak : float
        At least the largest ``log w(y) + |y| / scale``. Only for Poisson; known in closed form for the others.
    """

    weight: Weight
    scale: float
    spread: float = 0.0
    peak: float = 0.0

    @property
    def width_bits(self) -> int:
        """Base-2 logarithm of the width of a block."""
        return max(0, math.floor(math.log2(self.scale * _LARGEST_WIDTH)))

    def settle(self, words: tuple[int, ...], *, rng: BitSource) -> int | None:
        """Decide exactly on the proposal that begins with these words: its value, or None if it is rejected."""
        width = 1 << self.width_bits
        magnitude = LazyUniform(words[1], 64, rng=rng)
        block = _last(lambda k: magnitude.is_below(self._block_tail(k)), _FARTHEST // width)
        offset = words[0] & (width - 1)
        is_negative = bool(words[0] >> 63)
        verdict = LazyUniform(words[2], 64, rng=rng)
        if self.weight is Weight.ROUNDED_GAUSSIAN:
            value = block * width + offset + (words[3] >> 63)
            is_kept = self._keeps_real(block, offset, verdict, words[3], rng)
        else:
            value = block * width + offset
            if is_negative and value == 0:
                return None
            is_kept = verdict.is_below(self.kept(block, offset, is_negative=is_negative))
        if not is_kept:
            return None
        return -value if is_negative else value

    def kept(self, block: int, offset: int, *, is_negative: bool, fraction: Fraction = Fraction(0)) -> Boundary:
        """Acceptance probability of a proposal, to any precision."""

        def boundary(context: Context) -> Decimal:
            # A Poisson weight is a difference of numbers of up to 22 digits.
            wide = Context(prec=context.prec + 40, Emax=context.Emax, Emin=context.Emin)
            start = wide.divide(Decimal(block << self.width_bits), Decimal(self.scale))
            y = wide.add(
                Decimal((block << self.width_bits) + offset),
                wide.divide(Decimal(fraction.numerator), Decimal(fraction.denominator)),
            )
            if self.weight is Weight.LAPLACE:
                exponent = wide.subtract(start, wide.divide(y, Decimal(self.scale)))
            elif self.weight is Weight.POISSON:
                signed = -int(y) if is_negative else int(y)
                if signed < -int(self.spread):
                    return Decimal(0)
                log_weight = _log_poisson_ratio(int(self.spread), signed, wide)
                exponent = wide.subtract(wide.add(log_weight, start), Decimal(self.peak))
            else:
                variance = wide.multiply(Decimal(self.spread), Decimal(self.spread))
                gap = wide.subtract(y, wide.divide(variance, Decimal(self.scale)))
                square = wide.divide(wide.multiply(gap, gap), wide.multiply(Decimal(2), variance))
                within = wide.subtract(start, wide.divide(y, Decimal(self.scale)))
                exponent = wide.subtract(within, square)
            return wide.exp(exponent)

        return boundary

    def _keeps_real(self, block: int, offset: int, verdict: LazyUniform, prefix: int, rng: BitSource) -> bool:
        """The same for a real distance, known to more and more bits; farther out is kept less often."""
        n_bits = 64
        while True:
            low, high = Fraction(prefix, 1 << n_bits), Fraction(prefix + 1, 1 << n_bits)
            if verdict.is_below(self.kept(block, offset, is_negative=False, fraction=high)):
                return True
            if not verdict.is_below(self.kept(block, offset, is_negative=False, fraction=low)):
                return False
            prefix = (prefix << 64) | int(rng.words(1)[0])
            n_bits += 64

    def _block_tail(self, k: int) -> Boundary:
        """``Pr[block >= k]``."""

        def boundary(context: Context) -> Decimal:
            return context.exp(context.divide(Decimal(-(k << self.width_bits)), Decimal(self.scale)))

        return boundary


@cache
def poisson_envelope(mean: int) -> Envelope:
    """The envelope of a Poisson law with an integer mean, which is its mode."""
    scale = math.sqrt(mean) + 1.0
    # log w(y) + |y| / scale is concave on either side of 0 and greatest where x = mean + y passes mean * e^(+-1/scale).
    places = [round(mean * math.expm1(sign / scale)) + near for sign in (1, -1) for near in range(-2, 3)]
    context = Context(prec=60)
    heights = [
        float(_log_poisson_ratio(mean, y, context) + Decimal(abs(y)) / Decimal(scale)) for y in places if y >= -mean
    ]
    return Envelope(Weight.POISSON, scale, float(mean), max([0.0, *heights]) + 1e-9)


def _last(holds_at: Callable[[int], bool], limit: int) -> int:
    """The largest k up to `limit` with ``holds_at(k)``, which holds at 0 and, once false, stays so."""
    high = 1
    while high < limit and holds_at(high):
        high *= 2
    return largest_where(holds_at, high // 2, min(high, limit))


def _log_poisson_ratio(mean: int, y: int, context: Context) -> Decimal:
    """``log(mean^y mean! / (mean + y)!)``."""
    first = context.multiply(Decimal(y), context.ln(Decimal(mean)))
    difference = context.subtract(_log_factorial(mean, context), _log_factorial(mean + y, context))
    return context.add(first, difference)


def _log_factorial(x: int, context: Context) -> Decimal:
    """Log of x!, less ``log(2 pi) / 2``, by Stirling's series, shifted to where it is accurate.

    The series' error is below its first omitted term, and its terms fall to ``exp(-2 pi x)`` before they rise.
    """
    shift = context.prec if x < context.prec else 0
    top = x + shift
    ln = context.ln(Decimal(top))
    total = context.subtract(context.multiply(context.add(Decimal(top), Decimal("0.5")), ln), Decimal(top))
    least = Decimal((0, (1,), -context.prec))
    for k, number in enumerate(_bernoulli_numbers(context.prec // 2), start=1):
        divisor = number.denominator * 2 * k * (2 * k - 1) * top ** (2 * k - 1)
        term = context.divide(Decimal(number.numerator), Decimal(divisor))
        total = context.add(total, term)
        if abs(term) < least:
            break
    return context.subtract(total, context.ln(Decimal(math.perm(top, shift))))


@cache
def _bernoulli_numbers(count: int) -> tuple[Fraction, ...]:
    """``B_2, B_4, ...`` by their recurrence."""
    numbers = [Fraction(1), Fraction(-1, 2)]
    for m in range(2, 2 * count + 1):
        total = sum((math.comb(m + 1, k) * numbers[k] for k in range(m)), Fraction(0)) if m % 2 == 0 else Fraction(0)
        numbers.append(-total / (m + 1))
    return tuple(numbers[2::2])
