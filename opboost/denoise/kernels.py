# mypy: disable-error-code="no-untyped-def,misc,call-arg"
"""Compiled loops of the latent classes: responsibilities, weighted counts, draws."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit, prange

_OPTIONS: dict[str, Any] = {"cache": True, "nogil": True, "error_model": "numpy"}

# Rows that one thread takes at a time.
_ROWS = 256


@njit(parallel=True, **_OPTIONS)
def responsibilities(states, offsets, log_law, numbers, log_weights, means, precisions, log_norms, out):
    """``out[row, class]``: the class's probability given all that is seen of the row; returns the log likelihood.

    ``log_law[offsets[v] + states[row, v], class]`` is the law of a state; numbers are normal within a class, NaN says
    nothing.
    """
    n_rows, n_classes = out.shape
    total = np.zeros((n_rows + _ROWS - 1) // _ROWS)
    for block in prange(len(total)):
        for i in range(block * _ROWS, min((block + 1) * _ROWS, n_rows)):
            row = out[i]
            row[:] = log_weights
            for v in range(states.shape[1]):
                law = log_law[offsets[v] + states[i, v]]
                for k in range(n_classes):
                    row[k] += law[k]
            _add_normal(numbers[i], means, precisions, log_norms, row)
            highest = row[0]
            for k in range(n_classes):
                highest = max(highest, row[k])
            mass = np.float32(0.0)
            for k in range(n_classes):
                row[k] = np.exp(row[k] - highest)
                mass += row[k]
            for k in range(n_classes):
                row[k] /= mass
            total[block] += highest + np.log(mass)
    return total.sum()


@njit(**_OPTIONS)
def _add_normal(numbers, means, precisions, log_norms, out):
    """Add the log density of a row's numbers in every class."""
    for v in range(len(numbers)):
        x = numbers[v]
        if x == x:
            for k in range(len(out)):
                gap = x - means[v, k]
                out[k] += log_norms[v, k] - precisions[v, k] * gap * gap


@njit(parallel=True, **_OPTIONS)
def weighted_counts(states, offsets, weights, out):
    """Add each row's responsibilities to the counts ``out[offsets[v] + state, class]`` of its states."""
    for v in prange(states.shape[1]):
        for i in range(states.shape[0]):
            of_state, row = out[offsets[v] + states[i, v]], weights[i]
            for k in range(len(row)):
                of_state[k] += row[k]


@njit(**_OPTIONS)
def _mixed(x):
    """A step of splitmix64."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


@njit(**_OPTIONS)
def _uniform(key, number):
    """A number in [0, 1) that depends on the key and the running number alone: any threads, any pieces, same draws."""
    word = _mixed(np.uint64(key) + _mixed((np.uint64(number) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)))
    return np.float64(word >> np.uint64(11)) * 2.0**-53


@njit(parallel=True, **_OPTIONS)
def draw_states(key, first_row, weights, released, cumulative, starts, n_true, n_released, out):
    """Draw true states ``out[draw, source, row]``: a class by its responsibility, then a state given what was released.

    ``cumulative[starts[s] + (class * n_released[s] + z) * n_true[s] + x]`` is the probability, within a class and given
    the released state z, that the state of source s is at most x.
    """
    n_draws, n_sources, n_rows = out.shape
    n_classes = weights.shape[1]
    for block in prange((n_rows + _ROWS - 1) // _ROWS):
        for i in range(block * _ROWS, min((block + 1) * _ROWS, n_rows)):
            for m in range(n_draws):
                number = ((first_row + i) * n_draws + m) * (n_sources + 1)
                left, k = _uniform(key, number) * weights[i].sum(), 0
                left -= weights[i, 0]
                while left >= 0 and k < n_classes - 1:
                    k += 1
                    left -= weights[i, k]
                for s in range(n_sources):
                    at = starts[s] + (k * n_released[s] + released[i, s]) * n_true[s]
                    u = np.float32(_uniform(key, number + s + 1))
                    low, high = 0, n_true[s] - 1
                    while low < high:
                        middle = (low + high) // 2
                        if cumulative[at + middle] > u:
                            high = middle
                        else:
                            low = middle + 1
                    out[m, s, i] = low
