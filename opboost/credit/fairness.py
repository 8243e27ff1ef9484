"""Fairness of decisions by groups that the active party knows, with fairlearn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from opboost.arrays import Values
from opboost.credit.discrimination import riskiest_first
from opboost.credit.evidence import check_events, interval_words, number_word

# Values of a column beyond which they are grouped.
MOST_GROUPS = 10


@dataclass(frozen=True, slots=True)
class GroupRates:
    """Decisions about one group.

    Attributes
    ----------
    group : str
    n_records : int
    rejected : float
        Share that is rejected.
    rejected_events, rejected_others : float
        Shares of the events and of the others that are rejected; NaN where there are none.
    """

    group: str
    n_records: int
    rejected: float
    rejected_events: float
    rejected_others: float


@dataclass(frozen=True, slots=True)
class Fairness:
    """Decisions by group.

    Attributes
    ----------
    column : str
    groups : tuple of GroupRates
    demographic_parity, equalized_odds : float
        Largest difference between groups of the rejected share, and of it among events or among others.
    """

    column: str
    groups: tuple[GroupRates, ...]
    demographic_parity: float
    equalized_odds: float


def group_names(values: Values, categories: Sequence[str] = (), unit_s: int | None = None) -> NDArray[np.str_]:
    """The group of every record: its category or value, or which fifth of many numbers it lies in; NaN is its own."""
    known = values[~np.isnan(values)]
    if categories or len(np.unique(known)) <= MOST_GROUPS:
        numbered = [categories[int(one)] if categories else number_word(one, unit_s) for one in known.tolist()]
        names = np.full(len(values), "missing", dtype=object)
        names[~np.isnan(values)] = numbered
        return names.astype(np.str_)
    edges = np.unique(np.quantile(known, [0.2, 0.4, 0.6, 0.8]))
    words = np.array([*interval_words(edges.tolist(), unit_s=unit_s), "missing"])
    return words[np.where(np.isnan(values), len(words) - 1, np.searchsorted(edges, values))]


def fairness(
    column: str,
    groups: Values,
    labels: Values,
    scores: Values,
    *,
    share: float,
    categories: Sequence[str] = (),
    unit_s: int | None = None,
) -> Fairness:
    """How rejecting the riskiest share of the records falls on groups: categories by number, times by unit, or numbers.

    Raises
    ------
    ImportError
        If fairlearn is not installed.
    DataError
    """
    try:
        from fairlearn.metrics import (
            MetricFrame,
            count,
            demographic_parity_difference,
            equalized_odds_difference,
            false_positive_rate,
            selection_rate,
            true_positive_rate,
        )
    except ImportError:
        raise ImportError("fairness needs fairlearn: install opboost[credit]. Nothing was computed") from None
    check_events(labels)
    rejected = np.zeros(len(labels))
    rejected[riskiest_first(scores)[: max(round(share * len(labels)), 1)]] = 1
    names = group_names(groups, categories, unit_s)
    metrics: dict[str, Any] = {
        "n": count,
        "rejected": selection_rate,
        "events": true_positive_rate,
        "others": false_positive_rate,
    }
    data: dict[str, Any] = {"y_true": labels, "y_pred": rejected, "sensitive_features": names}
    table = MetricFrame(metrics=metrics, **data).by_group
    found = tuple(
        GroupRates(str(group), int(row["n"]), float(row["rejected"]), float(row["events"]), float(row["others"]))
        for group, row in table.iterrows()
    )
    return Fairness(
        column, found, float(demographic_parity_difference(**data)), float(equalized_odds_difference(**data))
    )
