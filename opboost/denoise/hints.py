"""Hints: what the active party's own columns say of a released column's true states, as a channel of its own.

Rows of which the own columns let expect about the same make a group. Given a row's class, its group tells of its true
state besides what was released: as ``Pr[group | true state]``, through which a draw is seen once more. It says nothing
of the class, of which the score of the own columns tells already; counted there as well, it would count twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from opboost.arrays import Values
from opboost.denoise.deconvolution import group_shares

# Groups of rows, of about as many each.
_MOST_GROUPS = 8

# Part of a released column's variance that must be expected, by trees that have not seen a row, to be a hint.
_LEAST_EXPECTED = 0.005


@dataclass(frozen=True, slots=True, eq=False)
class StateHints:
    """What own columns say of every source.

    Attributes
    ----------
    groups : ndarray of uint8, shape (n_rows, n_sources)
    shares : tuple of ndarray of float64, shape (n_true, n_groups)
        Of each source ``Pr[group | true state]``; of one group where nothing is said.
    """

    groups: NDArray[np.uint8]
    shares: tuple[Values, ...]

    @classmethod
    def of(
        cls,
        channels: Sequence[Values],
        states: NDArray[np.uint8],
        expected: Sequence[Values | None],
        rows: NDArray[np.int64],
    ) -> StateHints:
        """Group the rows by what is expected of their released states, and see by `rows` what the groups mean.

        Parameters
        ----------
        channels : sequence of ndarray of float64, shape (n_true, n_released)
            Of each source.
        states : ndarray of uint8, shape (n_rows, n_sources)
            Released.
        expected : sequence of ndarray of float64, shape (n_rows,), or None
            Of each source the expected state, by what has not seen it; None where none is known.
        rows : ndarray of int64
        """
        groups, shares = np.zeros(states.shape, np.uint8), []
        for s, (channel, values) in enumerate(zip(channels, expected, strict=True)):
            released = states[rows, s]
            if values is None or _explained(released, values[rows]) < _LEAST_EXPECTED:
                shares.append(np.ones((len(channel), 1)))
                continue
            between = np.unique(np.quantile(values[rows], np.linspace(0, 1, _MOST_GROUPS + 1)[1:-1]))
            groups[:, s] = np.searchsorted(between, values, side="right")
            counts = np.zeros((len(between) + 1, channel.shape[1]))
            np.add.at(counts, (groups[rows, s], released), 1.0)
            shares.append(group_shares(channel, counts))
        return cls(groups, tuple(shares))

    def rows(self, rows: slice | NDArray[np.int64]) -> StateHints:
        """The same of some rows."""
        return replace(self, groups=self.groups[rows])


def _explained(values: NDArray[np.uint8], expected: Values) -> float:
    """Part of the variance that is expected."""
    spread = np.var(values)
    return 0.0 if spread == 0 else float(1 - np.mean((values - expected) ** 2) / spread)
