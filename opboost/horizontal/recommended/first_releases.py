"""Releases before the trees: the range of the numbers, the first scores, and a noisy count of the records."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.optimize import brentq
from scipy.special import logit

from opboost.arrays import Values
from opboost.horizontal.noise.initial_score import half_sums
from opboost.horizontal.noise.noisy_holder import gaussian_noise
from opboost.horizontal.rows.public_grid import PublicGrid
from opboost.horizontal.splits.noisy_cells import STEPS, cell_shares, noisy_counts
from opboost.rng import BitSource

# Cells of a count of labels.
N_LABEL_CELLS = 16

# What the whole range of labels costs, against records beyond a narrower one, at one record of signal: a range of w of
# the bounds is worth ``_RANGE_PRICE w / (n mu)`` of the records. Mean R^2 on inner folds of five tables for 10, 30 and
# 60: .607, .606, .608 at their bounds; .417, .547, .606 at bounds 10 times as wide. On Abalone the search costs .02.
_RANGE_PRICE = 60.0

# Fewer records than so many deviations of the noise on a count tell nothing of the range: the bounds stay, and labels
# are taken to deviate so far, in halves of the range. Mean R^2 on inner folds of five tables at 50 and 100 records
# times mu: .280 and .371; with 8 and the counted deviation .158 and .345. With 17 it is .288 and .369, but -2.1 in
# place of .09 at 100 where label bounds are 10 times too wide.
_LEAST_RECORDS, USUAL_DEVIATION = 12.0, 0.3

# Bound of a first score of classes. The log of the least share of 10,000 classes is -14; but counts that are few beside
# their noise may have a sum of nearly 0, beside which each is vast.
MAX_SCORE = 16.0

# Classes have at least this share of the records, divided by the number of classes.
_LEAST_SHARE = 0.01

# The bound of numbers' gradients, in deviations of the labels; and the least one, in halves of their range.
GRADIENT_DEVIATIONS, LEAST_UNIT = 0.7, 1 / 32

_STEPS = 2.0**16


@dataclass(frozen=True, slots=True)
class NumberRange:
    """Range that holds most numbers.

    Attributes
    ----------
    lower, upper : float
        Labels beyond them are clipped.
    deviation : float
        Approximate standard deviation of the labels in between, in halves of the range.
    balance : float
        Score, in [-1, 1] for the range, at which bounded gradients add up to about 0.
    """

    lower: float
    upper: float
    deviation: float
    balance: float

    @property
    def unit(self) -> float:
        """Bound of the labels' gradients, in halves of the range."""
        return _gradient_unit(self.deviation)


def number_range(labels: Values, bounds: tuple[float, float], *, mu: float, std: float, rng: BitSource) -> NumberRange:
    """The range of most labels, by two rounds of noisy counts of 16 cells; the second one in the range of the first.

    If the first counts are few beside their noise, the bounds stay, and there is no second round.

    Parameters
    ----------
    labels : ndarray of float64, shape (n_rows,)
    bounds : (lower, upper)
        Public; labels beyond them count as the bounds.
    mu : float
        Of the whole training: how much the noise will weigh, and so how dear a wide range is.
    std : float
        Deviation of the noise on a count.
    rng : BitSource

    Notes
    -----
    Privacy: at most two releases of sensitivity 1 under Gaussian noise of deviation `std`; a record is in one cell of
    each.
    """
    counts = _label_counts(labels, bounds, std, rng)
    within = narrower_bounds(counts, bounds, mu=mu, std=std)
    if within is None:
        return whole_range(counts, bounds, std=std)
    n_records = float(counts.sum())
    return range_of_counts(_label_counts(labels, within, std, rng), within, n_records=n_records, std=std)


def narrower_bounds(
    counts: Values, bounds: tuple[float, float], *, mu: float, std: float
) -> tuple[float, float] | None:
    """Bounds of most labels, from noisy counts of 16 cells; None if the counts are few beside their noise."""
    n_records = max(float(counts.sum()), 1.0)
    if n_records <= _LEAST_RECORDS * std:
        return None
    first, last = _cheapest_range(counts / n_records, price=_RANGE_PRICE / (n_records * mu) / N_LABEL_CELLS)
    edges = np.linspace(*bounds, N_LABEL_CELLS + 1)
    return float(edges[first]), float(edges[last + 1])


def range_of_counts(counts: Values, bounds: tuple[float, float], *, n_records: float, std: float) -> NumberRange:
    """The bounds with the deviation of the labels between them, from noisy counts of 16 cells."""
    # In halves of the range: squares of the labels' own unit may overflow.
    shares, middles = cell_shares(counts, max(n_records, 1.0), std), (2 * np.arange(N_LABEL_CELLS) + 1) / N_LABEL_CELLS
    deviation = float(shares @ (middles - shares @ middles) ** 2) ** 0.5
    return NumberRange(*bounds, deviation, _balance(shares, deviation))


def whole_range(counts: Values, bounds: tuple[float, float], *, std: float) -> NumberRange:
    """The public bounds, of labels that deviate as usual; from counts that are few beside their noise."""
    shares = cell_shares(counts, max(float(counts.sum()), 1.0), std)
    return NumberRange(*bounds, USUAL_DEVIATION, _balance(shares, USUAL_DEVIATION))


def _balance(shares: Values, deviation: float) -> float:
    """The score in [-1, 1] at which the bounded gradients of labels add up to 0, from the shares of 16 even cells."""
    middles, unit = (2 * np.arange(N_LABEL_CELLS) + 1) / N_LABEL_CELLS - 1, _gradient_unit(deviation)
    return float(brentq(lambda score: shares @ np.clip(score - middles, -unit, unit), -1.0, 1.0))


def _gradient_unit(deviation: float) -> float:
    """Bound of numbers' gradients for labels of a deviation, both in halves of the range."""
    return min(max(GRADIENT_DEVIATIONS * deviation, LEAST_UNIT), 1.0)


def _cheapest_range(shares: Values, *, price: float) -> tuple[int, int]:
    """The first and the last cell of the range whose cells, at a price each, and records beyond it cost least."""
    reached = np.concatenate([[0.0], np.cumsum(shares)])
    first, last = np.triu_indices(len(shares))
    beyond = np.maximum(reached[-1] - reached[last + 1] + reached[first], 0.0)
    best = (beyond + price * (last - first)).argmin()
    return int(first[best]), int(last[best])


def first_score_of_numbers(labels: Values, *, std: float, rng: BitSource) -> tuple[Values, float]:
    """The mean of labels in [-1, 1], shape ``(1,)``, and how many records there are, about.

    Notes
    -----
    Privacy: one release of sensitivity 1 under Gaussian noise of deviation `std`.
    """
    return score_of_half_sums(*half_sums((1 + labels) / 2, noise=lambda scale: gaussian_noise(std, scale), rng=rng))


def score_of_half_sums(high: float, low: float) -> tuple[Values, float]:
    """The mean of labels in [-1, 1] and their number, from noisy sums of ``(1 + y) / 2`` and of ``(1 - y) / 2``."""
    return np.clip(np.array([(high - low) / max(1.0, high + low)]), -1.0, 1.0), max(high + low, 1.0)


def first_scores_of_classes(labels: Values, *, std: float, rng: BitSource) -> tuple[Values, float]:
    """The log odds of the second of two classes, or the logs of all shares; and how many records there are, about.

    Parameters
    ----------
    labels : ndarray of float64, shape (n_classes, n_rows)
        1 for a record's class and 0 for the others.
    std : float
    rng : BitSource

    Notes
    -----
    Privacy: one release of sensitivity 1 under Gaussian noise of deviation `std`: a record is in one count.
    """
    counts, noise = labels.sum(axis=1), gaussian_noise(std, _STEPS)
    if noise is not None:
        counts = counts + noise.draw(len(counts), rng=rng) / _STEPS
    return scores_of_counts(counts)


def scores_of_counts(counts: Values) -> tuple[Values, float]:
    """Scores of two or more classes and the number of records, from noisy counts of the classes."""
    n_records, n_classes = max(float(counts.sum()), 1.0), len(counts)
    shares = np.maximum(counts, _LEAST_SHARE * n_records / n_classes)
    shares /= shares.sum()
    scores = logit(shares[1:]) if n_classes == 2 else np.log(shares)
    return np.clip(scores, -MAX_SCORE, MAX_SCORE), n_records


def _label_counts(labels: Values, bounds: tuple[float, float], std: float, rng: BitSource) -> Values:
    """Noisy counts of the cells."""
    noise = gaussian_noise(std, STEPS)
    return noisy_counts(PublicGrid([bounds], N_LABEL_CELLS), labels[:, None], noise=noise, rng=rng)[0]
