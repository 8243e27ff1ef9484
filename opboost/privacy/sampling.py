"""Step 2b: exact draws from a kernel, one uniform word per value, no table and no loop that depends on the secret.

A draw inverts the kernel's distribution function in closed form at a uniform number U of which the first 64 bits are
known. Double precision decides where the answer lies; if the interval of all numbers with these 64 bits, widened by
a bound on the rounding error, contains a boundary between two outputs, the draw is *ambiguous* and is settled with
further bits in decimal arithmetic (`opboost.privacy.settling`). So every output has exactly its probability in the
kernel, however small, and the compiled path serves all but about one value in 10^9.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit, prange
from numpy.typing import NDArray

from opboost.privacy.laws import Kernel
from opboost.privacy.settling import settle
from opboost.rng import BitSource

# Relative rounding error allowed for the few operations below, each within an ulp or two of 1.1e-16.
_SLACK = 4e-15


def draw(
    centres: NDArray[np.int64], cells: NDArray[np.int64], kernels: list[Kernel], *, rng: BitSource
) -> NDArray[np.int64]:
    """Draw one output per centre.

    Parameters
    ----------
    centres : ndarray of int64, shape (n_values,)
        Inputs, as positions in their kernel.
    cells : ndarray of int64, shape (n_values,)
        Which kernel each value uses.
    kernels : list of Kernel
        All of one shape (clamped or normalised).
    rng : BitSource

    Returns
    -------
    ndarray of int64, shape (n_values,)
        Positions ``0 .. kernel.n - 1``.
    """
    sizes = np.array([kernel.n for kernel in kernels], dtype=np.int64)
    exponents = np.array([kernel.exponent for kernel in kernels], dtype=np.float64)
    invert = _invert_clamped if kernels[0].is_clamped else _invert_normalised
    words = rng.words(len(centres))
    out = np.empty(len(centres), dtype=np.int64)
    if invert(words, centres, cells, sizes, exponents, out):
        for i in np.flatnonzero(out < 0):
            out[i] = settle(kernels[int(cells[i])], int(centres[i]), int(words[i]), rng=rng)
    return out


@njit(cache=True, nogil=True, parallel=True, error_model="numpy")
def _invert_clamped(words, centres, cells, sizes, exponents, out):  # type: ignore[no-untyped-def]
    """Sign from the top bit, size of the step from the other 63; -1 marks an ambiguous draw."""
    n_ambiguous = 0
    for i in prange(len(words)):
        exponent = exponents[cells[i]]
        last = sizes[cells[i]] - 1
        x = centres[i]
        negative = words[i] >> np.uint64(63)
        v = np.float64(words[i] & np.uint64(0x7FFFFFFFFFFFFFFF)) + 0.5
        # Pr[step >= m] = 2 q^m / (1 + q) for m >= 1, so step = floor(s) with V (1 + q) / 2 = q^s.
        log_v = math.log(v) - 63 * math.log(2.0) + math.log1p(math.expm1(-exponent) / 2)
        s = -log_v / exponent
        margin = (1.0 / v + 64 * _SLACK) / exponent + s * _SLACK
        low = math.floor(max(s - margin, 0.0))
        reach = x if negative else last - x
        if low >= reach:
            out[i] = 0 if negative else last
        elif low == math.floor(max(s + margin, 0.0)) and v > 1.0:
            out[i] = x - np.int64(low) if negative else x + np.int64(low)
        else:
            out[i] = -1
            n_ambiguous += 1
    return n_ambiguous


@njit(cache=True, nogil=True, parallel=True, error_model="numpy")
def _invert_normalised(words, centres, cells, sizes, exponents, out):  # type: ignore[no-untyped-def]
    """Outputs at or below the centre from small U, those above from large U; -1 marks an ambiguous draw."""
    n_ambiguous = 0
    for i in prange(len(words)):
        exponent = exponents[cells[i]]
        n = sizes[cells[i]]
        x = centres[i]
        q = math.exp(-exponent)
        below = -math.expm1(-exponent * (x + 1))
        above = -q * math.expm1(-exponent * (n - 1 - x))
        total = below + above
        u = (np.float64(words[i]) + 0.5) * 2.0**-64
        if u * total < below:
            reach = x
            first = 0
            mass = u * total + math.exp(-exponent * (x + 1))
        else:
            reach = n - 1 - x
            first = 1
            mass = (np.float64(~words[i]) + 0.5) * 2.0**-64 * total + q * math.exp(-exponent * reach)
        s = -math.log(mass) / exponent
        margin = (total * 2.0**-64 / mass + 16 * _SLACK) / exponent + abs(s) * _SLACK
        low = math.floor(s - margin)
        if low == math.floor(s + margin) and first <= low <= reach:
            out[i] = x + np.int64(low) if first else x - np.int64(low)
        else:
            out[i] = -1
            n_ambiguous += 1
    return n_ambiguous
