"""Binning of columns: one bin per distinct value where they are few, else bins of about equal weight."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from opboost.arrays import Bins, HistogramAxes, RankRows, Values, read_only
from opboost.errors import DataError, ParameterError
from opboost.trees.kernels.prediction import place_in_bins
from opboost.trees.tree import MAX_CATEGORIES

# Ranks that are looked at together.
_PIECE_ROWS = 1 << 18


@dataclass(frozen=True, slots=True)
class BinnedColumn:
    """One column's bins.

    Attributes
    ----------
    bins : ndarray of uint8 or uint16, shape (n_rows,)
        ``0 .. n_value_bins - 1``; missing rows hold ``n_value_bins``.
    cuts : ndarray of float64, shape (n_value_bins - 1,) or, for categories, (n_value_bins,)
        ``bin <= b`` means ``value <= cuts[b]``. For a column of ranks, the cut behind rank r is r itself. For
        categories: the category of each bin.
    is_categorical : bool
    """

    bins: Bins
    cuts: Values
    is_categorical: bool = False

    @property
    def n_value_bins(self) -> int:
        return len(self.cuts) + (not self.is_categorical)


@dataclass(frozen=True, slots=True)
class BinnedTable:
    """All columns' bins, column-major, with the axes of their histograms.

    Attributes
    ----------
    bins : ndarray of uint8 or uint16, shape (n_columns, n_rows)
    cuts : tuple of ndarray
    axes : HistogramAxes
    """

    bins: Bins
    cuts: tuple[Values, ...]
    axes: HistogramAxes

    @classmethod
    def of(cls, columns: Iterable[BinnedColumn], *, n_columns: int | None = None) -> BinnedTable:
        """Put columns of equal length side by side, in the smallest type that holds them all.

        Where `n_columns` is given, each column is let go of before the next one is asked for.
        """
        if n_columns is None:
            columns = list(columns)
            n_columns = len(columns)
        bins: Any = np.empty((0, 0), dtype=np.uint8)
        sizes, are_categorical, cuts = [], [], []
        for c, column in enumerate(columns):
            if c == 0:
                bins = np.empty((n_columns, len(column.bins)), dtype=column.bins.dtype)
            elif column.bins.dtype.itemsize > bins.dtype.itemsize:
                bins = bins.astype(column.bins.dtype)
            bins[c] = column.bins
            sizes.append(column.n_value_bins)
            are_categorical.append(column.is_categorical)
            cuts.append(column.cuts)
        return cls(bins, tuple(cuts), HistogramAxes.from_bin_counts(sizes, are_categorical))

    @property
    def n_rows(self) -> int:
        return int(self.bins.shape[1])

    def of_rows(self, rows: NDArray[Any]) -> BinnedTable:
        """The same columns of some of the rows."""
        bins: Any = np.ascontiguousarray(self.bins[:, rows])
        return replace(self, bins=bins)


def bin_values(values: Values, *, max_bin: int, also: Values | None = None) -> BinnedColumn:
    """Bin a column of numbers; NaN is missing. Cuts lie midway between neighbouring values, and behind those `also`."""
    is_missing = np.isnan(values)
    distinct, counts = np.unique(values[~is_missing], return_counts=True)
    behind = choose_cuts(counts, max_bin=max_bin - int(is_missing.any()))
    cuts = _midway(distinct[behind], distinct[behind + 1])
    cuts = cuts if also is None else np.union1d(cuts, also)
    bins = np.empty((1, len(values)), dtype=_bin_type(len(cuts) + 1, bool(is_missing.any())))
    place_in_bins(read_only(values[:, None]), cuts, np.array([0, len(cuts)]), bins)
    return BinnedColumn(bins[0], cuts)


def bin_categories(
    values: Values, *, max_bin: int, also: Values | None = None, name: str | None = None, texts: Collection[str] = ()
) -> BinnedColumn:
    """Give every category, numbered 0, 1, ..., that occurs a bin of its own, and those `also`; NaN is missing.

    `name` and the categories' `texts` are for the error if there are too many.
    """
    is_missing = np.isnan(values)
    categories = np.unique(values[~is_missing])
    if len(categories) and not (categories[0] >= 0 and categories[-1] < MAX_CATEGORIES and (categories % 1 == 0).all()):
        where = "" if name is None else f"column {name!r}: "
        raise DataError(f"{where}categories must be numbered by integers of at least 0 and under {MAX_CATEGORIES}")
    if len(categories) + is_missing.any() > max_bin:
        found = f"{'a column' if name is None else f'column {name!r}'} has {len(categories)} categories"
        cure = "raise max_bin"
        if 2 * sum(any(map(str.isdigit, text)) for text in texts) > len(texts):
            cure = "if they are numbers or dates that were read as texts, give numbers or dates; else raise max_bin"
        raise DataError(f"{found}, more than max_bin = {max_bin} allows; {cure}")
    categories = categories if also is None else np.union1d(categories, also)
    n_value_bins = max(len(categories), 1)
    bins = np.full(len(values), n_value_bins, dtype=_bin_type(n_value_bins, bool(is_missing.any())))
    bins[~is_missing] = np.searchsorted(categories, values[~is_missing])
    return BinnedColumn(bins, categories if len(categories) else np.zeros(1), is_categorical=True)


def bin_ranks(ranks: RankRows, n_ranks: int, *, max_bin: int, cuts: NDArray[np.int64] | None = None) -> BinnedColumn:
    """Bin a column of dense ranks, which may lie in a file; rank `n_ranks` is missing. Two passes, no sort.

    With `cuts`, ranks behind which a grid was agreed on, the bins are its cells, whatever `max_bin` is.
    """
    pieces = [slice(start, start + _PIECE_ROWS) for start in range(0, len(ranks), _PIECE_ROWS)]
    counts = np.zeros(n_ranks + 1, dtype=np.int64)
    for piece in pieces:
        counts += np.bincount(ranks[piece], minlength=n_ranks + 1)
    has_missing = bool(counts[n_ranks])
    behind = choose_cuts(counts[:n_ranks], max_bin=max_bin - int(has_missing)) if cuts is None else cuts
    bin_of_rank = np.searchsorted(behind, np.arange(n_ranks + 1)).astype(_bin_type(len(behind) + 1, has_missing))
    bin_of_rank[n_ranks] = len(behind) + has_missing
    bins: Any = np.empty(len(ranks), dtype=bin_of_rank.dtype)
    for piece in pieces:
        bins[piece] = bin_of_rank[ranks[piece]]
    return BinnedColumn(bins, behind.astype(np.float64))


def choose_cuts(counts: NDArray[np.int64], *, max_bin: int) -> NDArray[np.int64]:
    """Positions of the distinct values behind which to cut, so that at most `max_bin` bins of about equal weight arise.

    Depends on the order and the counts alone, so a column and its ranks are divided alike.
    """
    if max_bin < 2:
        raise ParameterError(f"max_bin must be at least 2, and 3 for a column with missing values; got {max_bin}")
    if len(counts) <= max_bin:
        return np.arange(max(len(counts) - 1, 0))
    reached = np.cumsum(counts)
    wanted = reached[-1] * np.arange(1, max_bin) / max_bin
    behind = np.unique(np.searchsorted(reached, wanted))
    return behind[behind < len(counts) - 1]


def _midway(low: Values, high: Values) -> Values:
    """Midpoints m with ``low <= m < high``, also where rounding or overflow would break that."""
    middle = low / 2 + high / 2
    return np.where((low <= middle) & (middle < high), middle, low)


def _bin_type(n_value_bins: int, has_missing: bool) -> Any:
    highest = n_value_bins - 1 + has_missing
    if highest > np.iinfo(np.uint16).max:
        raise ParameterError(f"max_bin must be at most 65535; a column has {n_value_bins} bins")
    return np.uint8 if highest <= np.iinfo(np.uint8).max else np.uint16
