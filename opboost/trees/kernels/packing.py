# mypy: disable-error-code="no-untyped-def,misc,call-arg,no-untyped-call"
"""Gradients as integers: g in the low 35 bits and h in the high 29 bits of one 64-bit word.

One addition adds both. Before a field could overflow, the sum is taken apart into a pair of int64. ``|g| < 2^23`` and
``h < 2^18``, so any `BLOCK` packed words, counting repeated ones, fit.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.core.cpu_options import ParallelOptions
from numba.extending import intrinsic

# Rows whose packed gradients fit a sum, whatever they are.
BLOCK = 1 << 11

GRAD_BITS, HESS_BITS = 23, 18
LARGEST_GRAD, LARGEST_HESS = 2.0**GRAD_BITS - 1, 2.0**HESS_BITS - 1

_HESS_SHIFT = np.uint64(35)
_GRAD_FIELD = np.uint64((1 << 35) - 1)

LARGEST_GRAD_SUM, LARGEST_HESS_SUM = (1 << 34) - 1, (1 << 29) - 1

# Added before a sum is taken apart, so that no borrow crosses from g to h.
_BIAS = np.uint64(1 << 34)

# Adding 1.5 * 2^52 rounds a float64 to the nearest integer, which then fills the low bits.
ROUNDER = 6755399441055744.0
_ROUNDER_BITS = np.int64(np.float64(ROUNDER).view(np.int64))

# The bits of 2^52, and of 2^84 + 2^63: a float64 with these holds 32 bits of an integer in its last ones.
_LOW_BITS = np.uint64(np.float64(2.0**52).view(np.uint64))
_HIGH_BITS = np.uint64(np.float64(2.0**84).view(np.uint64)) | np.uint64(1 << 31)
_BOTH = 2.0**84 + 2.0**63 + 2.0**52

OPTIONS: dict[str, Any] = {"cache": True, "nogil": True, "error_model": "numpy"}

# Threads share `prange` alone. Each statement on a whole array, which is short, would start them and wait for them too.
_NOT_SHARED = ("comprehension", "reduction", "inplace_binop", "setitem", "numpy", "stencil")
PARALLEL: dict[str, Any] = OPTIONS | {"parallel": ParallelOptions(dict.fromkeys(_NOT_SHARED, False))}


@intrinsic
def bits_of_float(typing_context, value):
    """The bits of a float64 as int64."""

    def generate(context, builder, signature, arguments):
        return builder.bitcast(arguments[0], ir.IntType(64))

    return types.int64(types.float64), generate


@intrinsic
def float_of(typing_context, bits):
    """The float64 that has these bits."""

    def generate(context, builder, signature, arguments):
        return builder.bitcast(arguments[0], ir.DoubleType())

    return types.float64(types.int64), generate


@njit(**OPTIONS)
def as_float(x):
    """An int64 as the nearest float64; processors without AVX-512 convert several at once by these steps alone.

    The high and the low half become the last bits of two floats, whose sum is rounded once.
    """
    bits = np.uint64(x)
    high = float_of(np.int64((bits >> np.uint64(32)) ^ _HIGH_BITS)) - _BOTH
    return high + float_of(np.int64((bits & np.uint64(0xFFFFFFFF)) | _LOW_BITS))


@intrinsic
def word_at(typing_context, cells, first):
    """Eight bytes of a contiguous array of small unsigned integers from cell `first` on, which has the lowest bits."""
    if cells.layout != "C" or sys.byteorder != "little":
        return None

    def generate(context, builder, signature, arguments):
        array = context.make_array(signature.args[0])(context, builder, arguments[0])
        at = builder.gep(array.data, [arguments[1]])
        word = builder.load(builder.bitcast(at, ir.IntType(64).as_pointer()))
        # Rows of a table begin anywhere.
        word.align = 1
        return word

    return types.uint64(cells, types.int64), generate


@intrinsic
def fetch(typing_context, cells, place):
    """Have a cell of a contiguous array brought near, to the second level of the cache, while other work goes on."""
    if cells.layout != "C":
        return None

    def generate(context, builder, signature, arguments):
        array = context.make_array(signature.args[0])(context, builder, arguments[0])
        at = builder.bitcast(builder.gep(array.data, [arguments[1]]), ir.IntType(8).as_pointer())
        number = ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [at.type, number, number, number])
        prefetch = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
        # To read, to the second level, as data.
        builder.call(prefetch, [at, number(0), number(2), number(1)])
        return context.get_dummy_value()

    return types.none(cells, types.int64), generate


@intrinsic
def cell_bits(typing_context, cells):
    """The bits of an array's cell, known to the compiler."""

    def generate(context, builder, signature, arguments):
        return context.get_constant(types.uint64, cells.dtype.bitwidth)

    return types.uint64(cells), generate


@njit(**OPTIONS)
def packed(grad, hess):
    """Pack a gradient and a Hessian, already multiplied by their grid's scales; beyond the fields they saturate."""
    g = bits_of_float(min(max(grad, -LARGEST_GRAD), LARGEST_GRAD) + ROUNDER) - _ROUNDER_BITS
    h = bits_of_float(min(hess, LARGEST_HESS) + ROUNDER) - _ROUNDER_BITS
    return (h << np.int64(_HESS_SHIFT)) + g


@njit(**OPTIONS)
def weighted(grad, hess, weight, grad_scale, hess_scale, is_count):
    """Pack a row's gradient, times its weight; a weight that is a count repeats the packed word."""
    if is_count:
        return packed(grad * grad_scale, hess * hess_scale) * np.int64(weight)
    return packed(weight * grad * grad_scale, weight * hess * hess_scale)


@njit(**OPTIONS)
def grad_of(word):
    """The sum of g in a packed sum."""
    return np.int64((np.uint64(word) + _BIAS) & _GRAD_FIELD) - np.int64(_BIAS)


@njit(**OPTIONS)
def hess_of(word):
    """The sum of h in a packed sum."""
    return np.int64((np.uint64(word) + _BIAS) >> _HESS_SHIFT)
