"""Matrices over GF(2) of packed bits: transposition and product.

Bits are packed little-endian: bit b of byte k of a row stands in column 8 k + b.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

BitMatrix = NDArray[np.uint8]

# Swaps that transpose eight rows of eight bits in a word (Warren, Hacker's Delight, 7-3).
_SWAPS = ((7, 0x00AA00AA00AA00AA), (14, 0x0000CCCC0000CCCC), (28, 0x00000000F0F0F0F0))


def transpose(bits: BitMatrix) -> BitMatrix:
    """Transpose a bit matrix whose numbers of rows and columns are multiples of eight."""
    n_rows, n_bytes = bits.shape
    blocks = bits.reshape(n_rows // 8, 8, n_bytes).transpose(2, 0, 1).copy().view("<u8")
    for shift, mask in _SWAPS:
        swapped = (blocks ^ (blocks >> np.uint64(shift))) & np.uint64(mask)
        blocks ^= swapped ^ (swapped << np.uint64(shift))
    eights = blocks.view(np.uint8).reshape(n_bytes, n_rows // 8, 8)
    return np.ascontiguousarray(eights.transpose(0, 2, 1)).reshape(8 * n_bytes, n_rows // 8)


def multiply(choices: BitMatrix, rows: BitMatrix) -> BitMatrix:
    """Product of two bit matrices: for every row of `choices`, the sum of the `rows` that its bits name.

    The sums of each eight rows are tabulated (the method of four Russians). Rows have a multiple of eight bytes.
    """
    words = rows.view("<u8")
    total = np.zeros((len(choices), words.shape[1]), "<u8")
    for group in range(choices.shape[1]):
        table = np.zeros((256, words.shape[1]), "<u8")
        for bit, row in enumerate(words[8 * group : 8 * group + 8]):
            table[1 << bit : 2 << bit] = table[: 1 << bit] ^ row
        total ^= table[choices[:, group]]
    return total.view(np.uint8)
