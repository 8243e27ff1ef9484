"""Drift between two samples: population and characteristic stability indices."""

from __future__ import annotations

import numpy as np

from opboost.arrays import Values
from opboost.errors import DataError

# Records that are added to every bin, so that an empty one counts finitely.
_PRIOR = 0.5

STABLE, SHIFTED = 0.1, 0.25


def stability_index(before: Values, after: Values) -> float:
    """Stability index of counts in the same bins: ``sum((q - p) ln(q / p))`` of their shares."""
    p, q = ((counts + _PRIOR) / (counts + _PRIOR).sum() for counts in (before, after))
    return float(((q - p) * np.log(q / p)).sum())


def drift(before: Values, after: Values, *, n_bins: int = 10, is_categorical: bool = False) -> float:
    """Stability index of numbers, in bins of equal numbers of the first sample; NaN has a bin of its own.

    A value that fills a bin has one of its own, and so has every category. Of scores the index is the PSI, of a column
    the CSI. Below 0.1 little has changed, above 0.25 much.

    Raises
    ------
    DataError
        If a sample is empty.
    """
    if not len(before) or not len(after):
        raise DataError("drift is between two samples of records; one is empty. Nothing was computed")
    known = before[~np.isnan(before)]
    if is_categorical:
        edges = np.unique(np.r_[known, after[~np.isnan(after)]])
    elif len(known):
        edges, n_times = np.unique(np.quantile(known, np.arange(1, n_bins) / n_bins), return_counts=True)
        edges = np.union1d(edges, np.nextafter(edges[n_times > 1], -np.inf))
    else:
        edges = np.empty(0)
    counts = []
    for sample in (before, after):
        places = np.where(np.isnan(sample), len(edges) + 1, np.searchsorted(edges, sample))
        counts.append(np.bincount(places, minlength=len(edges) + 2).astype(np.float64))
    used = counts[0] + counts[1] > 0
    return stability_index(counts[0][used], counts[1][used])


def words_of(index: float) -> str:
    """What a stability index means by the usual thresholds."""
    return "stable" if index < STABLE else "some shift" if index < SHIFTED else "shifted"
