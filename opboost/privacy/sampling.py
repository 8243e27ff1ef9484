"""Exact compiled samplers: of order-preserving kernels (step 2b) and of additive noise.

A draw from a kernel takes one uniform word per value, no table and no loop that depends on the secret. It inverts the
kernel's distribution function in closed form at a uniform number U of which the first 64 bits are known. Double
precision decides where the answer lies; if the interval of all numbers with these 64 bits, widened by a bound on the
rounding error, contains a boundary between two outputs, the draw is *ambiguous* and is settled with further bits in
decimal arithmetic (`opboost.privacy.settling`). So every output has exactly its probability in the kernel, however
small, and the compiled path serves all but a few values in a million.

Additive noise is drawn by rejection (`opboost.privacy.envelope`), decided in the same way: doubles first, decimals
where doubles could be wrong.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numba import njit, prange
from numpy.typing import NDArray

from opboost.privacy.envelope import WORDS_PER_PROPOSAL, Envelope, Weight
from opboost.privacy.laws import Kernel
from opboost.privacy.settling import settle
from opboost.rng import BitSource

# Rounding error allowed for a mass in [0, 2] and, relatively, for a step: each is the result of a few operations that
# are within an ulp or two of 1.1e-16.
_SLACK = 8e-15

# Probabilities below this are always settled: the logarithm of a mass is wrong by the mass's error divided by the mass.
_LEAST = 2.0**-30

# Powers of q are products of two table entries, q^(k mod 256) and q^(256 * (k div 256)); the tables stay in the cache.
_LOW_POWERS = 256

# A number's logarithm is its exponent's, that of the middle of the 256th in which its mantissa lies, and a short series
# of the rest: within 4e-16 of itself, half of the time of `math.log` and the same time everywhere.
_MANTISSA_BITS, _LOW_MANTISSA_BITS = 52, 44
_EXPONENT_BIAS = 1023
_MIDDLES = 1.0 / (1.0 + (np.arange(256) + 0.5) / 256)
_LOGS_OF_MIDDLES = -np.log(_MIDDLES)
_LOG_2 = math.log(2.0)

# Proposals of noise that are decided at a time; their words fill the second-level cache.
_PROPOSALS = 1 << 15

# Bound on the rounding error of a proposal's probability to be kept, with room to spare: the logarithm is a few terms
# of size x, each within some 1e-15 of itself (1e-13 for Poisson), and x exp(-x) is below 1/2.
_VERDICT_SLACK = 1e-11

# Verdicts on a proposal.
_REFUSED, _KEPT, _AMBIGUOUS = 0, 1, 2

_LAPLACE, _ROUNDED = int(Weight.LAPLACE), int(Weight.ROUNDED_GAUSSIAN)


def draw(
    centres: NDArray[np.int64], which: NDArray[np.int64], kernels: Sequence[Kernel], *, rng: BitSource
) -> NDArray[np.int64]:
    """Draw one output per centre.

    Parameters
    ----------
    centres : ndarray of int64, shape (n_values,)
        Inputs, as positions in their kernel.
    which : ndarray of int64, shape (n_values,)
        The index of each value's kernel.
    kernels : sequence of Kernel
        All of one shape (clamped or normalised).
    rng : BitSource

    Returns
    -------
    ndarray of int64, shape (n_values,)
        Positions ``0 .. kernel.n - 1``.
    """
    lasts = np.array([kernel.n - 1 for kernel in kernels], dtype=np.int64)
    exponents = np.array([kernel.exponent for kernel in kernels], dtype=np.float64)
    words = rng.words(len(centres))
    out = np.empty(len(centres), dtype=np.int64)
    if kernels[0].is_clamped:
        n_ambiguous = _invert_clamped(words, centres, which, lasts, exponents, out)
    else:
        low, high, high_starts = _powers(kernels)
        n_ambiguous = _invert_normalised(words, centres, which, lasts, exponents, low, high, high_starts, out)
    if n_ambiguous:
        for i in np.flatnonzero(out < 0):
            out[i] = settle(kernels[int(which[i])], int(centres[i]), int(words[i]), rng=rng)
    return out


def draw_noise(envelope: Envelope, count: int, *, rng: BitSource) -> NDArray[np.int64]:
    """Draw independent distances from the mode, exactly of the envelope's distribution, shape ``(count,)``."""
    out = np.empty(count, dtype=np.int64)
    n_drawn = 0
    while n_drawn < count:
        n_proposals = min(_PROPOSALS, (count - n_drawn) * 3 // 2 + 8)
        words = rng.words(WORDS_PER_PROPOSAL * n_proposals).reshape(n_proposals, WORDS_PER_PROPOSAL)
        kept = judge(envelope, words, rng=rng)[: count - n_drawn]
        out[n_drawn : n_drawn + len(kept)] = kept
        n_drawn += len(kept)
    return out


def judge(envelope: Envelope, words: NDArray[np.uint64], *, rng: BitSource) -> NDArray[np.int64]:
    """The proposals that are kept, in order, of those that begin with these words, shape ``(n_proposals, 4)``."""
    width = 1 << envelope.width_bits
    values = np.empty(len(words), dtype=np.int64)
    verdicts = np.empty(len(words), dtype=np.int8)
    _decide(words, int(envelope.weight), width, envelope.scale, envelope.spread, envelope.peak, values, verdicts)
    for i in np.flatnonzero(verdicts == _AMBIGUOUS):
        settled = envelope.settle(tuple(int(word) for word in words[i]), rng=rng)
        verdicts[i] = _REFUSED if settled is None else _KEPT
        values[i] = 0 if settled is None else settled
    return values[verdicts == _KEPT]


def _powers(kernels: Sequence[Kernel]) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.int64]]:
    """Tables from which ``q^k = low[kernel, k % 256] * high[high_starts[kernel] + k // 256]`` for k up to n."""
    low = np.exp([-kernel.exponent * np.arange(_LOW_POWERS) for kernel in kernels])
    lengths = [kernel.n // _LOW_POWERS + 1 for kernel in kernels]
    steps = [-kernel.exponent * _LOW_POWERS * np.arange(n) for kernel, n in zip(kernels, lengths, strict=True)]
    return low, np.exp(np.concatenate(steps)), np.concatenate([[0], np.cumsum(lengths)[:-1]])


@njit(cache=True, nogil=True, parallel=True, error_model="numpy")
def _invert_clamped(words, centres, which, lasts, exponents, out):  # type: ignore[no-untyped-def]
    """Sign from the top bit, size of the step from the other 63; -1 marks an ambiguous draw."""
    # Pr[step >= m] = 2 q^m / (1 + q) for m >= 1, so step = floor(s) with V (1 + q) / 2 = q^s.
    shifts = np.log1p(np.expm1(-exponents) / 2)
    inverses = np.minimum(1.0 / exponents, 1e300)
    n_ambiguous = 0
    for i in prange(len(words)):
        k = which[i]
        is_negative = words[i] >> np.uint64(63)
        v = np.float64(np.int64(words[i] & np.uint64(0x7FFFFFFFFFFFFFFF))) * 2.0**-63
        reach = centres[i] if is_negative else lasts[k] - centres[i]
        known = max(v, _LEAST)
        s = -(_log(known) + shifts[k]) * inverses[k]
        margin = _SLACK / known * inverses[k] + abs(s) * _SLACK
        least = max(s - margin, 0.0)
        step = reach if least >= reach else np.int64(least)
        if step < reach and (v < _LEAST or step != np.int64(max(s + margin, 0.0))):
            out[i] = -1
            n_ambiguous += 1
        else:
            out[i] = centres[i] - step if is_negative else centres[i] + step
    return n_ambiguous


@njit(cache=True, nogil=True, parallel=True, error_model="numpy")
def _invert_normalised(words, centres, which, lasts, exponents, low, high, high_starts, out):  # type: ignore[no-untyped-def]
    """Outputs at or below the centre from small U, those above from large U; -1 marks an ambiguous draw."""
    inverses = np.minimum(1.0 / exponents, 1e300)
    n_ambiguous = 0
    for i in prange(len(words)):
        k = which[i]
        x = centres[i]
        above = lasts[k] - x
        beyond_low = low[k, (x + 1) % _LOW_POWERS] * high[high_starts[k] + (x + 1) // _LOW_POWERS]
        beyond_high = low[k, (above + 1) % _LOW_POWERS] * high[high_starts[k] + (above + 1) // _LOW_POWERS]
        total = 1.0 - beyond_low + low[k, 1] - beyond_high
        is_above = _unit(words[i]) * total >= 1.0 - beyond_low
        reach = above if is_above else x
        beyond = beyond_high if is_above else beyond_low
        mass = _unit(~words[i] if is_above else words[i]) * total + beyond
        known = max(mass, _LEAST)
        s = -_log(known) * inverses[k]
        margin = _SLACK / known * inverses[k] + abs(s) * _SLACK
        step = np.int64(s + margin)
        if mass > _LEAST and s - margin > step and is_above <= step <= reach:
            out[i] = x + step if is_above else x - step
        else:
            out[i] = -1
            n_ambiguous += 1
    return n_ambiguous


@njit(cache=True, nogil=True, inline="always")
def _log(x):  # type: ignore[no-untyped-def]
    """Natural logarithm of a positive number that is no subnormal, with an error below ``4e-16 * (1 + |log x|)``."""
    bits = np.float64(x).view(np.int64)
    i = (bits >> np.int64(_LOW_MANTISSA_BITS)) & np.int64(0xFF)
    mantissa = np.int64((bits & np.int64(0xFFFFFFFFFFFFF)) | np.int64(0x3FF0000000000000)).view(np.float64)
    r = mantissa * _MIDDLES[i] - 1.0
    series = r - r * r * (0.5 - r * (1.0 / 3.0 - r * (0.25 - r * 0.2)))
    exponent = (bits >> np.int64(_MANTISSA_BITS)) - np.int64(_EXPONENT_BIAS)
    return exponent * _LOG_2 + (_LOGS_OF_MIDDLES[i] + series)


@njit(cache=True, nogil=True, inline="always")
def _unit(word):  # type: ignore[no-untyped-def]
    """A number in [0, 1] within 2**-63 of all those that start with these 64 bits."""
    return np.float64(np.int64(word >> np.uint64(1))) * 2.0**-63


@njit(cache=True, nogil=True, error_model="numpy")
def _decide(words, weight, width, scale, spread, peak, values, verdicts):  # type: ignore[no-untyped-def]
    """What each proposal is and whether it is kept, as far as doubles can tell.

    On one thread: trees ask for a hundred draws at a time, and waking a second thread takes longer than deciding them.
    """
    rate = width / scale
    gap_at_zero = spread * spread / scale
    for i in range(len(words)):
        word = np.float64(words[i, 1])
        blocks = (64.0 * math.log(2.0) - math.log(max(word, 0.5))) / rate
        margin = (1.5 / max(word, 0.5) + 1e-13) / rate + 1e-14 * blocks
        block = np.int64(max(blocks - margin, 0.0))
        is_known = block == np.int64(blocks + margin)
        offset = np.int64(words[i, 0] & np.uint64(width - 1))
        y = block * width + offset
        is_negative = words[i, 0] >> np.uint64(63) == 1
        if weight == _ROUNDED:
            real = y + np.float64(words[i, 3]) * 2.0**-64
            gap = (real - gap_at_zero) / spread
            cost = 0.5 * gap * gap + (real - block * width) / scale
            y += np.int64(words[i, 3] >> np.uint64(63))
        elif weight == _LAPLACE:
            cost = offset / scale
        else:
            log_weight = _log_poisson_ratio(-np.float64(y) if is_negative else np.float64(y), spread)
            cost = peak - log_weight - y / scale + offset / scale
        chance = math.exp(-cost)
        excess = np.float64(words[i, 2]) * 2.0**-64 - chance
        values[i] = -y if is_negative else y
        is_minus_zero = y == 0 and is_negative and weight != _ROUNDED
        if not is_known or (abs(excess) < _VERDICT_SLACK and not is_minus_zero):
            verdicts[i] = _AMBIGUOUS
        else:
            verdicts[i] = _REFUSED if excess > 0 or is_minus_zero else _KEPT


@njit(cache=True, nogil=True)
def _log_poisson_ratio(y, mean):  # type: ignore[no-untyped-def]
    """``log(mean^y mean! / (mean + y)!)`` by the deviance (Loader, 2000), so that large numbers do not cancel."""
    if mean + y < 0:
        return -math.inf
    if mean < 64:
        return y * math.log(mean) + math.lgamma(mean + 1.0) - math.lgamma(mean + y + 1.0)
    e = y / mean
    x = max(mean + y, 1.0)
    if abs(e) < 0.05:
        series = 0.0
        for k in range(16, 1, -1):
            series = 1.0 / (k * (k - 1.0)) - e * series
        deviance = e * e * series
    else:
        deviance = x / mean * math.log(x / mean) - e
    return -mean * deviance - (_stirling_rest(x) - _stirling_rest(mean)) - 0.5 * math.log(x / mean)


@njit(cache=True, nogil=True, inline="always")
def _stirling_rest(x):  # type: ignore[no-untyped-def]
    """What Stirling's formula leaves of log x!."""
    return (1.0 / 12.0 - (1.0 / 360.0 - 1.0 / (1260.0 * x * x)) / (x * x)) / x
