"""What is released before the trees: first scores with the number of records, and the range of most labels."""

from __future__ import annotations

import math

import numpy as np
import pytest

from opboost.horizontal.recommended.first_releases import (
    LEAST_UNIT,
    MAX_SCORE,
    NumberRange,
    first_score_of_numbers,
    first_scores_of_classes,
    number_range,
    scores_of_counts,
)
from opboost.horizontal.recommended.plan import TrainingPlan
from opboost.rng import seeded

pytestmark = pytest.mark.usefixtures("one_thread")


DELTA = 1e-6


def test_first_scores_are_means_and_shares_with_their_count() -> None:
    labels = np.array([1.0, -1.0, 0.5, 0.5])
    scores, n_records = first_score_of_numbers(labels, std=0.0, rng=seeded(0))
    assert scores == pytest.approx([0.25], abs=1e-5)
    assert n_records == pytest.approx(4.0)
    classes = np.repeat(np.eye(3), [1, 2, 5], axis=1)
    scores, n_records = first_scores_of_classes(classes, std=0.0, rng=seeded(0))
    assert np.exp(scores) == pytest.approx([1 / 8, 2 / 8, 5 / 8])
    assert n_records == 8.0
    scores, _ = first_scores_of_classes(classes[:2], std=0.0, rng=seeded(0))
    assert scores == pytest.approx([math.log(2)])


def test_counts_that_are_few_beside_their_noise_leave_scores_that_workers_take() -> None:
    """A sum of counts near 0 makes each of many classes seem vast beside it; a worker refuses scores beyond 16."""
    for counts in (np.array([-(2.0**39), 2.0**39]), np.repeat([-60.0, 60.0], 50)):
        scores, _ = scores_of_counts(counts)
        assert abs(scores).max() == MAX_SCORE
        assert abs(scores_of_counts(counts[::-1])[0]).max() == MAX_SCORE


@pytest.mark.parametrize("width", [1, 10, 100])
def test_the_range_of_most_numbers_is_found_between_bounds_that_are_far_too_wide(width: float) -> None:
    labels = np.random.default_rng(0).normal(0.3, 0.2, 5000)
    plan = TrainingPlan.for_budget(1.0, DELTA, n_classes=0, cells_l2=1.0)
    found = number_range(labels, (-width, width), mu=plan.mu, std=plan.labels_std, rng=seeded(1))
    assert found.lower < 0 < 0.6 < found.upper
    assert found.upper - found.lower <= max(2.0, width)


@pytest.mark.parametrize("unit", [1e-200, 1.0, 1e200])
def test_the_deviation_is_in_halves_of_the_range_whatever_the_unit_of_the_labels(unit: float) -> None:
    """Squares in the labels' own unit would vanish or overflow, and an infinite deviation leaves no bound."""
    labels = np.random.default_rng(0).uniform(-1, 1, 5000)
    found = number_range(unit * labels, (-unit, unit), mu=1.0, std=0.0, rng=seeded(0))
    assert (found.lower, found.upper) == (-unit, unit)
    assert found.deviation == pytest.approx(3**-0.5, rel=0.02)


def test_no_numbers_and_no_records_leave_a_range() -> None:
    found = number_range(np.empty(0), (0.0, 2.0), mu=0.1, std=5.0, rng=seeded(0))
    assert 0.0 <= found.lower < found.upper <= 2.0
    assert found.deviation >= 0


@pytest.mark.parametrize(("deviation", "unit"), [(0.0, LEAST_UNIT), (0.5, 0.35), (9.0, 1.0)])
def test_the_bound_of_gradients_follows_the_deviation_within_limits(deviation: float, unit: float) -> None:
    assert NumberRange(0.0, 1.0, deviation, balance=0.0).unit == pytest.approx(unit)


@pytest.mark.parametrize("power", [1.0, 4.0])
def test_bounded_gradients_at_the_balance_add_up_to_about_nothing(power: float) -> None:
    """The twin, the mean, leaves a part of skewed labels, which every column of a screen would have."""
    labels = np.random.default_rng(0).random(20_000) ** power
    found = number_range(labels, (0.0, 1.0), mu=100.0, std=0.0, rng=seeded(0))
    unit = found.unit

    def mean_gradient(score: float) -> float:
        scaled = (labels - found.lower) / (found.upper - found.lower) * 2 - 1
        return float(np.clip((score - np.clip(scaled, -1, 1)) / unit, -1, 1).mean())

    mean = (labels.mean() - found.lower) / (found.upper - found.lower) * 2 - 1
    assert abs(mean_gradient(found.balance)) < max(0.01, abs(mean_gradient(mean)) / 2)
    assert abs(mean_gradient(mean)) > 0.1 or power == 1.0
