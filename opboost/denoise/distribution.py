"""Exact distribution functions ``Pr[released position <= b | true position x]`` of the order-preserving maps.

They are closed forms, so the channel of a domain of a million points costs no table of its size.
"""

from __future__ import annotations

import math

import numpy as np

from opboost.arrays import Positions, Values
from opboost.privacy.adj_map import AdjMap, OrderPreservingMap
from opboost.privacy.laws import Kernel
from opboost.privacy.order_preserving import LocalMap


def released_at_most(mechanism: OrderPreservingMap, x: Positions, b: Positions) -> Values:
    """``Pr[Z <= b | x]``, elementwise; `x` and `b` are positions ``0 .. n - 1`` and are broadcast, b may be -1."""
    x, b = np.broadcast_arrays(np.asarray(x, np.int64), np.asarray(b, np.int64))
    if isinstance(mechanism, AdjMap):
        return _adj(mechanism, x, b)
    if isinstance(mechanism, LocalMap):
        cell = mechanism.cells.cell_of(x)
        starts, widths = mechanism.cells.extents(cell)
        return _inside(mechanism.inner, widths, x - starts, b - starts)
    return _kernel_at_most(mechanism.kernel, x, b)


def _adj(mechanism: AdjMap, x: Positions, b: Positions) -> Values:
    """The cells before b's are drawn whole; of b's own cell, the part up to b."""
    cells = mechanism.cells
    own, last = cells.cell_of(x), cells.cell_of(np.maximum(b, 0))
    before = _kernel_at_most(mechanism.outer, own, last - 1)
    this = _kernel_at_most(mechanism.outer, own, last) - before
    starts, widths = cells.extents(last)
    inside = _inside(mechanism.inner, widths, np.clip(x - starts, 0, widths - 1), b - starts)
    return np.where(b < 0, 0.0, before + this * inside)


def _inside(kernels: tuple[Kernel, ...], widths: Positions, x: Positions, b: Positions) -> Values:
    out = np.empty(x.shape)
    for one in kernels:
        has_width = widths == one.n
        out[has_width] = _kernel_at_most(one, x[has_width], b[has_width])
    return out


def _kernel_at_most(kernel: Kernel, x: Positions, b: Positions) -> Values:
    """The distribution function of a two-sided geometric kernel, clamped or normalised."""
    inside = np.clip(b, 0, kernel.n - 1)
    if math.isinf(kernel.exponent):
        below: Values = (x <= inside).astype(np.float64)
    elif kernel.is_clamped:
        tail = np.exp(-kernel.exponent * np.abs(inside - x + (inside >= x))) / (1 + math.exp(-kernel.exponent))
        below = np.where(inside >= x, 1 - tail, tail)
    else:
        left, right = _run(kernel, x - inside, x + 1), _run(kernel, inside + 1 - x, kernel.n - x)
        total = _run(kernel, np.zeros_like(x), x + 1) + _run(kernel, np.ones_like(x), kernel.n - x)
        below = np.where(inside <= x, left, total - right) / total
    return np.where(b < 0, 0.0, np.where(b >= kernel.n - 1, 1.0, below))


def _run(kernel: Kernel, first: Positions, end: Positions) -> Values:
    """``(1 - q)`` times the sum of ``q**d`` for d from `first` to before `end`; 0 where that is nothing."""
    first = np.maximum(first, 0)
    span = np.maximum(end - first, 0)
    return -np.exp(-kernel.exponent * first) * np.expm1(-kernel.exponent * span)
