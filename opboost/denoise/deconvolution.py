"""Deconvolution of a column alone: the distribution of its true states from counts of released ones.

The steps are those of Richardson (1972) and Lucy (1974).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from opboost.arrays import Values

# Steps of a column's overall distribution, and of those of groups of its rows.
_MARGIN_STEPS, _GROUP_STEPS = 200, 100

# Rows that the overall distribution counts for in every step of a group's.
_PRIOR_ROWS = 30.0

_LEAST = 1e-30


def margin(channel: Values, counts: Values | NDArray[np.int64]) -> Values:
    """The distribution of a column's true states, by `counts` of its released states.

    Parameters
    ----------
    channel : ndarray of float64, shape (n_true, n_released)
    counts : ndarray, shape (n_released,)

    Returns
    -------
    ndarray of float64, shape (n_true,)
    """
    law = np.full(len(channel), 1.0 / len(channel))
    shares = counts / counts.sum()
    for _ in range(_MARGIN_STEPS):
        law = law * (channel @ (shares / np.maximum(law @ channel, _LEAST)))
        law /= law.sum()
    return law


def group_shares(channel: Values, counts: Values) -> Values:
    """``Pr[group | true state]`` of groups of rows, by `counts` of their released states.

    Few rows, or much noise, leave a group close to all others.

    Parameters
    ----------
    channel : ndarray of float64, shape (n_true, n_released)
    counts : ndarray, shape (n_groups, n_released)

    Returns
    -------
    ndarray of float64, shape (n_true, n_groups)
    """
    overall = margin(channel, counts.sum(axis=0))
    laws = np.tile(overall, (len(counts), 1))
    for _ in range(_GROUP_STEPS):
        laws = laws * ((counts / np.maximum(laws @ channel, _LEAST)) @ channel.T) + _PRIOR_ROWS * overall
        laws /= laws.sum(axis=1, keepdims=True)
    masses = (laws * counts.sum(axis=1, keepdims=True)).T + _LEAST
    return np.asarray(masses / masses.sum(axis=1, keepdims=True))
