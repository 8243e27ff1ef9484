"""Weight of evidence and information value of columns, in monotone bins."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from opboost.arrays import Values
from opboost.columns import OwnColumn
from opboost.errors import DataError
from opboost.table_format.times import time_in_words
from opboost.trees.binning import bin_categories, bin_values

# Events and non-events that are added to every bin, so that an empty one has a finite weight.
PRIOR = 0.5

# Bins of a column at the end and at the start, and the least share of the records in one.
MOST_SCORE_BINS, FINE_BINS, LEAST_SHARE = 6, 40, 0.05


@dataclass(frozen=True, slots=True, eq=False)
class Characteristic:
    """A column in bins, with how many events fall into each.

    Attributes
    ----------
    name : str
    bins : tuple of str
        What each bin holds, in words; a bin of missing cells comes last.
    events, others : ndarray of float64, shape (n_bins,)
        Records with label 1 and 0; of a noised column, estimates for its exact values.
    cells : ndarray of float64, shape (n_cells, n_bins)
        Shares of the bins in each fine cell that `places` name.
    places : ndarray of int64, shape (n_rows,)
        The fine cell of every record.
    owner : str, optional
        The passive party that released the column.
    is_corrected : bool
        Whether the counts are corrected for the release's noise.
    """

    name: str
    bins: tuple[str, ...]
    events: Values
    others: Values
    cells: Values
    places: NDArray[np.int64]
    owner: str | None = None
    is_corrected: bool = False

    @property
    def shares(self) -> Values:
        """Share of the records in each bin."""
        total = self.events + self.others
        return total / total.sum()

    @property
    def event_rates(self) -> Values:
        """Share of events in each bin."""
        return (self.events + PRIOR) / (self.events + self.others + 2 * PRIOR)

    @property
    def weights(self) -> Values:
        """Weight of evidence of each bin: ``ln(share of non-events / share of events)``; high is good."""
        good, bad = self._shares_of_kinds
        return np.log(good / bad)

    @property
    def information_value(self) -> float:
        """Sum of the weights times the differences of the shares."""
        good, bad = self._shares_of_kinds
        return float(((good - bad) * np.log(good / bad)).sum())

    @property
    def of_records(self) -> Values:
        """Expected weight of evidence of every record, shape ``(n_rows,)``."""
        return (self.cells @ self.weights)[self.places]

    @property
    def _shares_of_kinds(self) -> tuple[Values, Values]:
        good, bad = self.others + PRIOR, self.events + PRIOR
        return good / good.sum(), bad / bad.sum()


def own_characteristic(column: OwnColumn, labels: Values) -> Characteristic:
    """Bin one of the active party's columns: numbers monotonely, categories each or with those of their rate.

    Raises
    ------
    DataError
        If labels are others than 0 and 1, or all the same.
    """
    check_events(labels)
    fine = (
        bin_categories(column.values, max_bin=len(np.unique(column.values)) + 1)
        if column.is_categorical
        else bin_values(column.values, max_bin=FINE_BINS)
    )
    n_cells = fine.n_value_bins + bool((fine.bins == fine.n_value_bins).any())
    events, others = counts_of(fine.bins, labels, n_cells)
    ordered = np.arange(fine.n_value_bins)
    if column.is_categorical:
        ordered = np.argsort((events / np.maximum(events + others, 1))[ordered], kind="stable")
    groups = monotone_groups(events[ordered], others[ordered])
    if column.is_categorical:
        words = tuple(", ".join(_word_of(column, fine.cuts[c]) for c in ordered[group]) for group in groups)
    else:
        words = _interval_words([_word_of(column, float(fine.cuts[group[-1]])) for group in groups[:-1]])
    return in_bins(
        Characteristic(column.name, words, events, others, np.eye(n_cells), fine.bins.astype(np.int64)),
        [ordered[group] for group in groups],
    )


def in_bins(fine: Characteristic, groups: Sequence[NDArray[np.int64]]) -> Characteristic:
    """Put the cells of a characteristic into bins; a cell behind all of them, of missing values, becomes the last."""
    n_grouped = sum(map(len, groups))
    lists = [*groups, *([np.array([n_grouped])] if len(fine.events) > n_grouped else [])]
    members = np.zeros((len(fine.events), len(lists)))
    for b, group in enumerate(lists):
        members[group, b] = 1
    words = (*fine.bins, "missing")[: len(lists)]
    return replace(
        fine, bins=words, events=fine.events @ members, others=fine.others @ members, cells=fine.cells @ members
    )


def monotone_groups(events: Values, others: Values, *, most_bins: int = MOST_SCORE_BINS) -> list[NDArray[np.int64]]:
    """Neighbouring cells merged into bins whose event rates rise or fall throughout.

    Pools adjacent violators in the direction of the correlation, then merges the bins that are too small, and those
    whose merging loses least information, until there are few enough.
    """
    total, n_cells = events + others, len(events)
    rate, middle = events / np.maximum(total, 1e-12), np.arange(n_cells)
    slope = np.sum(total * (middle - np.average(middle, weights=total + 1e-12)) * rate)
    sign = 1.0 if slope >= 0 else -1.0
    bins: list[list[int]] = []
    for cell in range(n_cells):
        bins.append([cell])
        while len(bins) > 1 and sign * (_rate(events, total, bins[-2]) - _rate(events, total, bins[-1])) >= 0:
            bins[-2:] = [bins[-2] + bins[-1]]
    least = LEAST_SHARE * total.sum()
    while len(bins) > 1:
        sizes = [total[one].sum() for one in bins]
        if min(sizes) >= least and len(bins) <= most_bins:
            break
        losses = [_loss(events, others, low, high) for low, high in pairwise(bins)]
        if min(sizes) < least:
            small = int(np.argmin(sizes))
            near = [k for k in (small - 1, small) if 0 <= k < len(losses)]
            k = min(near, key=lambda at: losses[at])
        else:
            k = int(np.argmin(losses))
        bins[k : k + 2] = [bins[k] + bins[k + 1]]
    return [np.array(one, np.int64) for one in bins]


def interval_words(edges: Sequence[float], *, what: str = "", unit_s: int | None = None) -> tuple[str, ...]:
    """Names of bins between ascending edges, each of which belongs to the bin below it."""
    return _interval_words([number_word(edge, unit_s) for edge in edges], what=what)


def _interval_words(edges: Sequence[str], *, what: str = "") -> tuple[str, ...]:
    if not edges:
        return (f"{what}all",)
    inner = [f"{what}over {low} up to {high}" for low, high in pairwise(edges)]
    return (f"{what}up to {edges[0]}", *inner, f"{what}over {edges[-1]}")


def _word_of(column: OwnColumn, number: float) -> str:
    """A value of a column, or a cut behind it: the category that it is the number of, where there are any."""
    return column.categories[int(number)] if column.categories else number_word(number, column.unit_s)


def number_word(number: float, unit_s: int | None = None) -> str:
    """A number in as few digits as tell it from all others, or the date or time of so many units since 1970."""
    if unit_s is not None:
        return time_in_words(number, unit_s)
    short = f"{number:g}"
    return short if float(short) == number else repr(float(number)).removesuffix(".0")


def counts_of(places: NDArray[Any], labels: Values, n_places: int) -> tuple[Values, Values]:
    """Events and others at every place."""
    events, others = (np.bincount(places, weights, n_places) for weights in (labels, 1 - labels))
    return events.astype(np.float64), others.astype(np.float64)


def check_events(labels: Values) -> None:
    """Refuse labels that are no events.

    Raises
    ------
    DataError
    """
    if labels.ndim != 1 or set(np.unique(labels).tolist()) != {0.0, 1.0}:
        raise DataError("a scorecard needs labels 0 and 1, and records of both; found others. Nothing was computed")


def _rate(events: Values, total: Values, cells: list[int]) -> float:
    return float(events[cells].sum() / max(total[cells].sum(), 1e-12))


def _loss(events: Values, others: Values, low: list[int], high: list[int]) -> float:
    """Information value that merging two bins loses."""

    def value(cells: list[int]) -> float:
        good, bad = (others[cells].sum() + PRIOR) / others.sum(), (events[cells].sum() + PRIOR) / events.sum()
        return float((good - bad) * np.log(good / bad))

    return value(low) + value(high) - value(low + high)
