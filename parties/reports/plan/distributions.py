"""Distributions of a column before and after its noise: histograms, and example values that are not from the data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from opboost.desensitize import ColumnMechanism
from opboost.map_analysis import Counts
from opboost.order_metrics import Table
from opboost.privacy.local import RandomisedResponse
from opboost.table_format.times import time_in_words

# Bars of a histogram.
MOST_BARS = 40

# Shares of the outputs between which an observer sees a value with probability 0.9.
OBSERVED = (0.05, 0.5, 0.95)


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """An example value and its release: a point of the public range, not a value of the data.

    Attributes
    ----------
    value : float
    low, middle, high : float
        The release lies below each with probability 0.05, 0.5 and 0.95. An observer sees its rank alone.
    rank_low, rank_high : float
        The expected share of this column's releases below `low`, and up to `high`: where the rank lies 9 of 10 times.
    """

    value: float
    low: float
    middle: float
    high: float
    rank_low: float
    rank_high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Histogram:
    """Histogram of the values, and the expected one after the noise.

    Attributes
    ----------
    labels : tuple of str
        Lower edge of each bar, or the category in it; empty where there is none.
    before, after : tuple of float
        Records; `after` is empty for a domain that is too large to tabulate.
    """

    labels: tuple[str, ...]
    before: tuple[float, ...]
    after: tuple[float, ...]


def examples_of(mechanism: ColumnMechanism, table: Table, counts: Counts) -> tuple[Example, ...]:
    """Examples at a quarter, half and three quarters of the public range."""
    n, (lower, upper) = len(table), mechanism.schema.bounds
    below = np.concatenate([[0.0], np.cumsum(counts @ np.exp(table))]) / max(1, counts.sum())
    found = []
    for share in (0.25, 0.5, 0.75):
        position = round(share * (n - 1))
        cumulative = np.cumsum(np.exp(table[position]))
        outputs = np.searchsorted(cumulative, np.array(OBSERVED) * cumulative[-1])
        low, middle, high = (lower + outputs * (upper - lower) / (n - 1)).tolist()
        found.append(
            Example(
                value=lower + position * (upper - lower) / (n - 1),
                low=low,
                middle=middle,
                high=high,
                rank_low=float(below[outputs[0]]),
                rank_high=min(1.0, float(below[outputs[-1] + 1])),
            )
        )
    return tuple(found)


def histogram_of(
    mechanism: ColumnMechanism, counts: Counts, table: Table | None, unit_s: int | None = None
) -> Histogram:
    """Histogram of codes in at most `MOST_BARS` bars; of times, whose unit has so many seconds, by date or time."""
    after = counts @ np.exp(table) if table is not None else np.empty(0)
    n, schema = len(counts), mechanism.schema
    if isinstance(mechanism.value, RandomisedResponse):
        return Histogram(labels=schema.categories, before=_floats(counts), after=_floats(after))
    lower, upper = schema.bounds
    starts = np.unique(np.linspace(0, n, min(n, MOST_BARS) + 1)[:-1].astype(np.int64))
    edges = [lower + start * (upper - lower) / (n - 1) for start in starts.tolist()]
    labels = tuple(f"{edge:.4g}" if unit_s is None else time_in_words(edge, unit_s) for edge in edges)
    if schema.categories:
        places = np.ceil(np.arange(len(schema.categories)) * (n - 1) / (len(schema.categories) - 1))
        names = dict(zip(np.searchsorted(starts, places, side="right") - 1, schema.categories, strict=True))
        labels = tuple(names.get(bar, "") for bar in range(len(starts)))
    heights = [_floats(np.add.reduceat(part, starts)) if len(part) else () for part in (counts, after)]
    return Histogram(labels=labels, before=heights[0], after=heights[1])


def _floats(numbers: NDArray[Any]) -> tuple[float, ...]:
    return tuple(map(float, numbers.tolist()))
