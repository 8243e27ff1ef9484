"""Step 2b: exact draws from a kernel, one uniform word per value, no table and no loop that depends on the secret.

A draw inverts the kernel's distribution function in closed form at a uniform number U of which the first 64 bits are
known. Double precision decides where the answer lies; if the interval of all numbers with these 64 bits, widened by
a bound on the rounding error, contains a boundary between two outputs, the draw is *ambiguous* and is settled with
further bits in decimal arithmetic (`opboost.privacy.settling`). So every output has exactly its probability in the
kernel, however small, and the compiled path serves all but a few values in a million.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numba import njit, prange
from numpy.typing import NDArray

from opboost.privacy.laws import Kernel
from opboost.privacy.settling import settle
from opboost.rng import BitSource

# Rounding error allowed for a mass in [0, 2] and, relatively, for a step: each is the result of a few operations that
# are within an ulp or two of 1.1e-16.
_SLACK = 8e-15

# Probabilities below this are always settled, so that the error of the logarithm is bounded by one number.
_LEAST = 2.0**-20

# Powers of q are products of two table entries, q^(k mod 256) and q^(256 * (k div 256)); the tables stay in the cache.
_LOW_POWERS = 256


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
        s = -(math.log(max(v, _LEAST)) + shifts[k]) * inverses[k]
        margin = _SLACK / _LEAST * inverses[k] + abs(s) * _SLACK
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
        s = -math.log(max(mass, _LEAST)) * inverses[k]
        margin = _SLACK / _LEAST * inverses[k] + s * _SLACK
        step = np.int64(s + margin)
        if mass > _LEAST and s - margin > step and is_above <= step <= reach:
            out[i] = x + step if is_above else x - step
        else:
            out[i] = -1
            n_ambiguous += 1
    return n_ambiguous


@njit(cache=True, nogil=True, inline="always")
def _unit(word):  # type: ignore[no-untyped-def]
    """A number in [0, 1] within 2**-63 of all those that start with these 64 bits."""
    return np.float64(np.int64(word >> np.uint64(1))) * 2.0**-63
