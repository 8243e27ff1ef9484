"""The channel of a released column: ``Pr[released state | true state]``, missing cells included.

A column is *drawn back* on states. The true states are cells of neighbouring points of the mapped domain, single
points where there are few, or the categories of randomised response; the last state stands for a missing cell where
missingness is randomised too. The released states are groups of neighbouring ranks, and the missing cell.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from opboost.arrays import Codes, Values
from opboost.denoise.distribution import released_at_most
from opboost.privacy.adj_map import OrderPreservingMap
from opboost.privacy.local import RandomisedResponse

# Most true cells, and most groups of released ranks: both are read by one byte.
MOST_CELLS = 128

# Points of a wide cell at which its row of the channel is evaluated.
_POINTS = 16


@dataclass(frozen=True, slots=True, eq=False)
class ColumnRelease:
    """Public facts that a passive party sends with a column's ranks: its mechanism and the noised codes behind them.

    Attributes
    ----------
    mechanism : OrderPreservingMap or RandomisedResponse
    missingness : RandomisedResponse or None
        Of the bit "this cell is empty", where missingness is a state of its own.
    positions : ndarray of int64, shape (n_ranks,)
        The place in the mapped domain ``0 .. n - 1`` of each rank's code; 0 and 1 for an indicator.
    category : int or None
        Of an indicator: which category it stands for. The indicators of a column follow one another.
    """

    mechanism: OrderPreservingMap | RandomisedResponse
    missingness: RandomisedResponse | None
    positions: Codes
    category: int | None = None


@dataclass(frozen=True, slots=True, eq=False)
class NoiseChannel:
    """``matrix[true, released]``, the law of a released state; of a true cell, the mean over its points.

    It is exact, but for cells of more than 16 points, of which 16 stand for all, and the released codes where these
    are few: noise that is narrow against the gaps between these, on domains of tens of thousands of points, is not
    well described.

    Attributes
    ----------
    matrix : ndarray of float64, shape (n_true, n_released)
        Rows add up to at most 1: codes that were never released are left out.
    starts : ndarray of int64
        First position of every true cell; for categories ``0 .. n_categories``. A missing state is not among them.
    ends : ndarray of int64
        Position behind the last one of every true cell.
    has_missing : bool
        Whether the last true state and the last released state stand for a missing cell.
    """

    matrix: Values
    starts: Codes
    ends: Codes
    has_missing: bool


def order_channel(release: ColumnRelease, groups: NDArray[np.int64], counts: NDArray[np.int64]) -> NoiseChannel:
    """The channel of a column that went through an order-preserving map.

    Parameters
    ----------
    release : ColumnRelease
    groups : ndarray of int64, shape (n_ranks,)
        The released group of each rank, ascending, from `group_ranks`.
    counts : ndarray of int64, shape (n_ranks,)
        How often each rank was released: true cells are narrow where releases are many.
    """
    mechanism = release.mechanism
    assert not isinstance(mechanism, RandomisedResponse)
    n_points = mechanism.domain.size
    starts = _cell_starts(release.positions, counts, n_points)
    ends = np.append(starts[1:], n_points)
    # Single codes have their own probabilities; a group reaches up to the next one's first code.
    first = release.positions[np.searchsorted(groups, np.arange(groups[-1] + 1))]
    is_single = len(first) == len(release.positions)
    last = first if is_single else np.append(first[1:], n_points) - 1
    before = (first if is_single else np.append(0, first[1:])) - 1
    matrix = np.empty((len(starts), len(last)))
    for c, (start, end) in enumerate(zip(starts, ends, strict=True)):
        x = np.linspace(start, end - 1, min(end - start, _POINTS)).round().astype(np.int64)
        if is_single:
            # Through narrow noise no other point would be released as one of these, and a draw would be any.
            x = np.append(x, first[(first >= start) & (first < end)])
        x = np.unique(x)[:, None]
        matrix[c] = (released_at_most(mechanism, x, last[None]) - released_at_most(mechanism, x, before[None])).mean(0)
    return _with_missing(NoiseChannel(np.maximum(matrix, 0.0), starts, ends, has_missing=False), release.missingness)


def category_channel(response: RandomisedResponse, missingness: RandomisedResponse | None) -> NoiseChannel:
    """The channel of unordered categories under randomised response."""
    matrix = np.exp(response.log_probabilities())
    starts = np.arange(response.n_categories)
    return _with_missing(NoiseChannel(matrix, starts, starts + 1, has_missing=False), missingness)


def group_ranks(positions: Codes, n_points: int, counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """A group for every rank: its own where ranks are few, else the cell of the domain that its code lies in."""
    if len(positions) <= MOST_CELLS:
        return np.arange(len(positions))
    cells = np.searchsorted(_cell_starts(positions, counts, n_points), positions, side="right") - 1
    return np.unique(cells, return_inverse=True)[1].astype(np.int64)


def _cell_starts(positions: Codes, counts: NDArray[np.int64], n_points: int) -> Codes:
    """Single points where there are few; else half of the cells of equal width and half of equal numbers of codes."""
    if n_points <= MOST_CELLS:
        return np.arange(n_points)
    even = np.linspace(0, n_points, MOST_CELLS // 2, endpoint=False).astype(np.int64)
    cumulative = np.cumsum(counts)
    quantiles = cumulative[-1] * np.arange(1, MOST_CELLS // 2) / (MOST_CELLS // 2)
    return np.unique(np.concatenate([even, positions[np.searchsorted(cumulative, quantiles)]]))


def _with_missing(channel: NoiseChannel, missingness: RandomisedResponse | None) -> NoiseChannel:
    """Add the missing state: what is missing is published as a draw for the public code 0, unless the bit says so."""
    if missingness is None:
        return channel
    keep, n_true, n_released = missingness.keep, *channel.matrix.shape
    matrix = np.empty((n_true + 1, n_released + 1))
    matrix[:n_true, :n_released] = keep * channel.matrix
    matrix[:n_true, n_released] = 1 - keep
    matrix[n_true, :n_released] = (1 - keep) * channel.matrix[0]
    matrix[n_true, n_released] = keep
    return NoiseChannel(matrix, channel.starts, channel.ends, has_missing=True)
