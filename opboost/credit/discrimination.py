"""Discrimination of scores: gains and lift, reject tables, and the swap set of two models."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from opboost.arrays import Values
from opboost.credit.evidence import check_events


def riskiest_first(scores: Values) -> NDArray[np.intp]:
    """Row numbers by falling scores; equal ones in random order, since a file's may follow the labels.

    The order is the same at every call, so that two models differ by their scores alone.
    """
    shuffled = np.random.default_rng(0).permutation(len(scores))
    return shuffled[np.argsort(-scores[shuffled], kind="stable")]


@dataclass(frozen=True, slots=True)
class Band:
    """Records with about the same score; those of the riskiest bands before them are counted with them.

    Attributes
    ----------
    n_records, n_events : int
    least_score : float
        Lowest score of the event in the band.
    event_rate : float
    captured : float
        Share of all events up to this band.
    lift : float
        Event rate up to this band, as a multiple of the overall one.
    ks : float
        Difference of the captured shares of events and others.
    """

    n_records: int
    n_events: int
    least_score: float
    event_rate: float
    captured: float
    lift: float
    ks: float


def gains(labels: Values, scores: Values, *, n_bands: int = 10) -> tuple[Band, ...]:
    """Gains table: bands of about equally many records, the riskiest first; higher scores are riskier."""
    check_events(labels)
    order = riskiest_first(scores)
    bands, seen, events = [], 0, 0.0
    n_events, n_rows = labels.sum(), len(labels)
    for part in np.array_split(order, n_bands):
        if len(part) == 0:
            continue
        mine = labels[part].sum()
        seen, events = seen + len(part), events + mine
        captured, others = events / n_events, (seen - events) / (n_rows - n_events)
        lift = captured / (seen / n_rows)
        least = float(scores[part].min())
        bands.append(Band(len(part), int(mine), least, mine / len(part), captured, lift, captured - others))
    return tuple(bands)


@dataclass(frozen=True, slots=True)
class Rejection:
    """Row of a reject table: what happens if the riskiest share of the records is rejected.

    Attributes
    ----------
    share : float
    cutoff : float
        The lowest rejected score.
    events_avoided, others_lost : float
        Shares of the events and of the others that are rejected.
    accepted_event_rate : float
    """

    share: float
    cutoff: float
    events_avoided: float
    others_lost: float
    accepted_event_rate: float


def rejections(
    labels: Values, scores: Values, *, shares: tuple[float, ...] = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5)
) -> tuple[Rejection, ...]:
    """Reject table: one row per share of the records."""
    check_events(labels)
    order, found = riskiest_first(scores), []
    for share in shares:
        n = min(max(round(share * len(labels)), 1), len(labels) - 1)
        rejected, accepted = labels[order[:n]], labels[order[n:]]
        avoided, lost = rejected.sum() / labels.sum(), (1 - rejected).sum() / (1 - labels).sum()
        found.append(Rejection(n / len(labels), float(scores[order[n - 1]]), avoided, lost, float(accepted.mean())))
    return tuple(found)


@dataclass(frozen=True, slots=True)
class SwapSet:
    """Records that two models decide differently about, each rejecting the same share.

    Attributes
    ----------
    share : float
    swapped_in, swapped_out : int
        Accepted by the challenger alone, and by the champion alone.
    in_event_rate, out_event_rate : float
        NaN where there are none; the challenger is better if the first is lower.
    """

    share: float
    swapped_in: int
    swapped_out: int
    in_event_rate: float
    out_event_rate: float


def swap_set(labels: Values, champion: Values, challenger: Values, *, share: float) -> SwapSet:
    """Swap set of a champion and a challenger: who would be accepted instead of whom."""
    check_events(labels)
    n = min(max(round(share * len(labels)), 1), len(labels) - 1)
    rejected = np.zeros((2, len(labels)), np.bool_)
    for row, scores in zip(rejected, (champion, challenger), strict=True):
        row[riskiest_first(scores)[:n]] = True
    came, went = rejected[0] & ~rejected[1], rejected[1] & ~rejected[0]
    rates = [float(labels[one].mean()) if one.any() else float("nan") for one in (came, went)]
    return SwapSet(n / len(labels), int(came.sum()), int(went.sum()), *rates)
