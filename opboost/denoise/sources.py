"""Released columns as states that a channel connects, and drawn states back to ranks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from opboost.arrays import RankRows, Ranks, Values
from opboost.denoise.channel import ColumnRelease, NoiseChannel, category_channel, group_ranks, order_channel
from opboost.denoise.mixture import margin
from opboost.errors import DataError
from opboost.privacy.local import RandomisedResponse

# Ranks that are looked at together.
_PIECE_ROWS = 1 << 18

# Categories of a column, whose states and a missing one are one byte.
MOST_CATEGORIES = 254


@dataclass(frozen=True, slots=True, eq=False)
class RankSource:
    """A column of ranks, with what its owner told of the release.

    Attributes
    ----------
    ranks : RankRows
        ``0 .. n_ranks - 1``; missing rows hold ``n_ranks``.
    n_ranks : int
    release : ColumnRelease
    cuts : ndarray of int64, optional
        Ranks behind which alone the column may be cut.
    """

    ranks: RankRows
    n_ranks: int
    release: ColumnRelease
    cuts: NDArray[np.int64] | None = None

    def __post_init__(self) -> None:
        positions, mechanism = self.release.positions, self.release.mechanism
        n_points = 2 if isinstance(mechanism, RandomisedResponse) else mechanism.domain.size
        is_ascending = bool((np.diff(positions) > 0).all())
        if len(positions) != self.n_ranks or not is_ascending or not _are_within(positions, n_points):
            raise DataError(
                f"a column's {self.n_ranks} ranks need as many ascending codes of 0..{n_points - 1}; got "
                f"{len(positions)}. Nothing was trained"
            )

    @property
    def is_exact(self) -> bool:
        """True if the column's values carry no noise."""
        return math.isinf(self.release.mechanism.epsilon)


@dataclass(frozen=True, slots=True, eq=False)
class Source:
    """One column of the passive party, or the indicators of one column of categories.

    Attributes
    ----------
    number : int
        Its place among the sources.
    members : tuple of int
        Which of the given rank columns belong to it.
    channel : NoiseChannel
    states : ndarray of uint8, shape (n_rows,)
        Released states.
    state_of_rank : tuple of ndarray of uint8, shape (n_ranks + 1,)
        For each member: the released state of its ranks, and of a missing one; the least of a row's is the row's.
    rank_of_state : tuple of ndarray of uint32, shape (n_true,)
        For each member: the rank that a true state counts as, between the thresholds of the owner.
    """

    number: int
    members: tuple[int, ...]
    channel: NoiseChannel
    states: NDArray[np.uint8]
    state_of_rank: tuple[NDArray[np.uint8], ...]
    rank_of_state: tuple[Ranks, ...]

    def with_ranks(self, columns: Sequence[RankRows]) -> Source:
        """The source of other rows of the table, given the ranks of all its columns.

        Raises
        ------
        DataError
            If indicators contradict each other.
        """
        tables = zip(self.members, self.state_of_rank, strict=True)
        states = np.array([table[columns[member][:]] for member, table in tables])
        if len(states) > 1:
            _check_indicators((states < len(states)).sum(axis=0), has_missing=self.channel.has_missing)
        return replace(self, states=states.min(axis=0))


def sources_of(columns: Sequence[RankSource]) -> list[Source]:
    """The sources behind rank columns; exact ones are left out.

    Raises
    ------
    DataError
        If a row is missing in a column whose missingness was not randomised, or indicators contradict each other.
    """
    sources: list[Source] = []
    c = 0
    while c < len(columns):
        release = columns[c].release
        n_members = release.mechanism.n_categories if isinstance(release.mechanism, RandomisedResponse) else 1
        members = range(c, c + n_members)
        c += n_members
        if columns[members[0]].is_exact:
            continue
        if release.category is None:
            sources.append(_ordered(columns[members[0]], members[0], number=len(sources)))
        else:
            sources.append(_categories(columns[members.start : members.stop], tuple(members), number=len(sources)))
    return sources


def deconvolved_counts(release: ColumnRelease, counts: NDArray[np.int64]) -> Values:
    """Expected number of exact codes that count as each rank, by the deconvolved distribution of a column.

    Parameters
    ----------
    release : ColumnRelease
        Through an order-preserving map.
    counts : ndarray of int64, shape (n_ranks + 1,)
        How often each rank was released, and a missing cell.
    """
    mechanism, n_ranks = release.mechanism, len(counts) - 1
    assert not isinstance(mechanism, RandomisedResponse)
    groups = group_ranks(release.positions, mechanism.domain.size, counts[:n_ranks])
    channel = order_channel(release, groups, counts[:n_ranks])
    n_states = channel.matrix.shape[1]
    released = np.bincount(np.append(groups, n_states - 1), weights=counts, minlength=n_states)
    law = margin(channel.matrix, released)
    ranks = _nearest_ranks(channel, release.positions)
    return np.bincount(ranks, weights=law * counts.sum(), minlength=n_ranks + 1)[:n_ranks].astype(np.float64)


def _ordered(column: RankSource, member: int, *, number: int) -> Source:
    """Neighbouring ranks are grouped; a true cell counts as the rank between whose thresholds its middle lies."""
    release, n_ranks, mechanism = column.release, column.n_ranks, column.release.mechanism
    assert not isinstance(mechanism, RandomisedResponse)
    counts = np.zeros(n_ranks + 1, np.int64)
    for rows in _pieces(column.ranks):
        counts += np.bincount(column.ranks[rows], minlength=n_ranks + 1)
    if counts[n_ranks] and release.missingness is None:
        raise DataError("rows of a column are missing although its release has no missing cells. Nothing was trained")
    groups = group_ranks(release.positions, mechanism.domain.size, counts[:n_ranks])
    channel = order_channel(release, groups, counts[:n_ranks])
    state_of_rank = np.append(groups, channel.matrix.shape[1] - 1).astype(np.uint8)
    states = np.empty(len(column.ranks), np.uint8)
    for rows in _pieces(column.ranks):
        states[rows] = state_of_rank[column.ranks[rows]]
    return Source(number, (member,), channel, states, (state_of_rank,), (_nearest_ranks(channel, release.positions),))


def _categories(columns: Sequence[RankSource], members: tuple[int, ...], *, number: int) -> Source:
    """The released category of a row is the one whose indicator is 1; there is none where the cell came as missing."""
    first = columns[0].release
    assert isinstance(first.mechanism, RandomisedResponse)
    expected = [(first.mechanism, first.missingness, c) for c in range(first.mechanism.n_categories)]
    if [(one.release.mechanism, one.release.missingness, one.release.category) for one in columns] != expected:
        raise DataError("the indicators of a column of categories must follow one another. Nothing was trained")
    channel = category_channel(first.mechanism, first.missingness)
    if len(columns) > MOST_CATEGORIES:
        raise DataError(
            f"at most {MOST_CATEGORIES} categories can be drawn back; found {len(columns)}. Nothing was trained"
        )
    n_rows, none = len(columns[0].ranks), len(columns)
    states, n_ones, tables = np.full(n_rows, none, np.uint8), np.zeros(n_rows, np.uint8), []
    for c, column in enumerate(columns):
        tables.append(np.where(np.append(column.release.positions == 1, False), c, none).astype(np.uint8))
        for rows in _pieces(column.ranks):
            indicated = tables[c][column.ranks[rows]]
            states[rows] = np.minimum(states[rows], indicated)
            n_ones[rows] += indicated == c
    _check_indicators(n_ones, has_missing=channel.has_missing)
    ranks = tuple(_nearest_ranks(channel, column.release.positions, category=c) for c, column in enumerate(columns))
    return Source(number, members, channel, states, tuple(tables), ranks)


def _check_indicators(n_ones: NDArray[np.integer], *, has_missing: bool) -> None:
    """Refuse rows of several categories, or of none where no cell can be missing: the channel has no such state."""
    if n_ones.max(initial=0) > 1 or (not has_missing and n_ones.min(initial=1) < 1):
        raise DataError("a row has no or several categories in one column. Nothing was trained")


def _nearest_ranks(channel: NoiseChannel, positions: NDArray[np.int64], *, category: int | None = None) -> Ranks:
    """The rank of each true state: a test "rank <= r" asks whether a code lies at most midway to the next one's."""
    middles = (channel.starts + channel.ends - 1) / 2
    if category is not None:
        middles = (channel.starts == category).astype(np.float64)
    thresholds = (positions[:-1] + positions[1:]) / 2
    ranks = np.searchsorted(thresholds, middles).astype(np.uint32)
    return np.append(ranks, np.uint32(len(positions))) if channel.has_missing else ranks


def _are_within(positions: NDArray[np.int64], n_points: int) -> bool:
    return len(positions) > 0 and int(positions[0]) >= 0 and int(positions[-1]) < n_points


def _pieces(rows: RankRows) -> list[slice]:
    return [slice(start, start + _PIECE_ROWS) for start in range(0, len(rows), _PIECE_ROWS)]
