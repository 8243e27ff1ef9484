"""Bit matrices: transposition and product are those of the same matrices unpacked."""

from __future__ import annotations

import numpy as np
import pytest

from protocols.alignment.bit_matrices import multiply, transpose

RNG = np.random.default_rng(1)


def bits_of(packed: np.ndarray) -> np.ndarray:
    return np.unpackbits(packed, axis=1, bitorder="little").astype(np.int64)


@pytest.mark.parametrize(("n_rows", "n_bytes"), [(8, 1), (16, 3), (80, 64), (512, 10), (128, 16)])
def test_a_matrix_is_transposed(n_rows: int, n_bytes: int) -> None:
    packed = RNG.integers(0, 256, (n_rows, n_bytes), np.uint8)
    np.testing.assert_array_equal(bits_of(transpose(packed)), bits_of(packed).T)
    np.testing.assert_array_equal(transpose(transpose(packed)), packed)


@pytest.mark.parametrize(("n_choices", "n_rows", "n_bytes"), [(1, 8, 8), (300, 64, 64), (512, 80, 24), (0, 80, 16)])
def test_a_product_sums_the_rows_that_bits_name(n_choices: int, n_rows: int, n_bytes: int) -> None:
    choices = RNG.integers(0, 256, (n_choices, n_rows // 8), np.uint8)
    rows = RNG.integers(0, 256, (n_rows, n_bytes), np.uint8)
    np.testing.assert_array_equal(bits_of(multiply(choices, rows)), bits_of(choices) @ bits_of(rows) % 2)
