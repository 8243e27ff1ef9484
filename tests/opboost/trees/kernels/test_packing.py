"""Gradients and Hessians in one word: their sums are those of pairs of Python integers, to the last unit."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numba import njit, prange

from opboost.trees.kernels.packing import (
    BLOCK,
    GRAD_BITS,
    HESS_BITS,
    LARGEST_GRAD,
    LARGEST_HESS,
    PARALLEL,
    as_float,
    bits_of_float,
    float_of,
    grad_of,
    hess_of,
    packed,
)

MAX_GRAD, MAX_HESS = 2**GRAD_BITS - 1, 2**HESS_BITS - 1

pytestmark = pytest.mark.usefixtures("one_thread")

PAIRS = st.tuples(
    st.integers(-MAX_GRAD, MAX_GRAD) | st.sampled_from([-MAX_GRAD, -1, 0, 1, MAX_GRAD]),
    st.integers(0, MAX_HESS) | st.sampled_from([0, 1, MAX_HESS]),
)


def _sum_of_words(pairs: list[tuple[int, int]]) -> int:
    """The words' sum as the loops compute it, modulo 2^64."""
    words = np.array([packed(float(g), float(h)) for g, h in pairs], np.int64)
    return int(np.add.reduce(words))


@njit
def _floats_of(numbers: np.ndarray) -> np.ndarray:
    floats = np.empty(len(numbers))
    for i in range(len(numbers)):
        floats[i] = as_float(numbers[i])
    return floats


@settings(max_examples=300, deadline=None)
@given(st.lists(st.integers(-(2**63), 2**63 - 1), max_size=40))
@example([0, 1, -1, 2**63 - 1, -(2**63), 2**53 + 1, -(2**53) - 1, 2**54 + 3, 2**32, 2**32 - 1, -(2**32)])
def test_an_integer_becomes_the_nearest_float(numbers: list[int]) -> None:
    np.testing.assert_array_equal(_floats_of(np.array(numbers, np.int64)), [float(number) for number in numbers])


@settings(max_examples=300, deadline=None)
@given(st.lists(PAIRS, min_size=0, max_size=40))
def test_one_addition_adds_both(pairs: list[tuple[int, int]]) -> None:
    total = _sum_of_words(pairs)
    assert (grad_of(total), hess_of(total)) == (sum(g for g, _ in pairs), sum(h for _, h in pairs))


@pytest.mark.parametrize("grad", [-MAX_GRAD, MAX_GRAD])
@pytest.mark.parametrize("hess", [0, MAX_HESS])
def test_a_block_of_the_largest_words_overflows_no_field(grad: int, hess: int) -> None:
    total = _sum_of_words([(grad, hess)]) * BLOCK
    total = (total + 2**63) % 2**64 - 2**63
    assert (grad_of(total), hess_of(total)) == (grad * BLOCK, hess * BLOCK)


@pytest.mark.parametrize("grad", [-(MAX_GRAD // 2 + 1), MAX_GRAD // 2 + 1])
@pytest.mark.parametrize("hess", [0, MAX_HESS // 2 + 1])
def test_of_words_of_half_that_size_twice_as_many_less_one_overflow_no_field(grad: int, hess: int) -> None:
    """And one more does, for the largest."""
    for n, fits in ((2 * BLOCK - 1, True), (2 * BLOCK, grad < 0 and hess == 0)):
        total = (_sum_of_words([(grad, hess)]) * n + 2**63) % 2**64 - 2**63
        assert ((grad_of(total), hess_of(total)) == (grad * n, hess * n)) is fits


def test_a_block_of_twice_as_many_words_would_overflow() -> None:
    word = int(packed(LARGEST_GRAD, LARGEST_HESS))
    total = (word * 2 * BLOCK + 2**63) % 2**64 - 2**63
    assert (grad_of(total), hess_of(total)) != (2 * BLOCK * MAX_GRAD, 2 * BLOCK * MAX_HESS)


@settings(max_examples=300, deadline=None)
@given(st.floats(-1e9, 1e9), st.floats(0, 1e9))
@example(0.5, 0.5)
@example(1.5, 1.5)
@example(-2.5, 2.5)
@example(MAX_GRAD + 0.5, MAX_HESS + 0.5)
def test_numbers_are_rounded_to_the_nearest_even_integer_and_saturate_beyond_the_fields(
    grad: float, hess: float
) -> None:
    word = packed(grad, hess)
    assert grad_of(word) == round(min(max(grad, -MAX_GRAD), MAX_GRAD))
    assert hess_of(word) == round(min(hess, MAX_HESS))


@pytest.mark.parametrize("grad", [-np.inf, np.inf, -1.7e308, 1.7e308])
def test_infinite_gradients_saturate_and_keep_their_sign(grad: float) -> None:
    word = packed(grad, np.inf)
    assert (grad_of(word), hess_of(word)) == (np.sign(grad) * MAX_GRAD, MAX_HESS)


@njit
def _to_and_fro(value):  # type: ignore[no-untyped-def]
    return bits_of_float(value), float_of(bits_of_float(value))


@settings(deadline=None)  # The first call compiles.
@given(st.floats())
def test_a_number_is_its_bits_and_back(value: float) -> None:
    bits, again = _to_and_fro(value)
    assert bits == int(np.float64(value).view(np.int64))
    assert np.float64(again).tobytes() == np.float64(value).tobytes()


@pytest.mark.parametrize("_", range(2), ids=["first", "again"])
def test_threads_share_prange_alone(_: int) -> None:
    @njit(**PARALLEL | {"cache": False})  # type: ignore[untyped-decorator]
    def tripled(values):  # type: ignore[no-untyped-def]
        out = np.zeros(len(values))
        for i in prange(len(out)):
            out[i] = 3 * values[i]
        out[:] += 0
        return out

    assert (tripled(np.ones(4)) == 3).all()
    assert tripled.inspect_llvm(tripled.signatures[0]).count("call void @numba_parallel_for") == 1
