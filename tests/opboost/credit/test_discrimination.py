"""Gains, rejections and swap sets, counted by hand and against the metrics."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from opboost.credit.discrimination import gains, rejections, swap_set
from opboost.metrics import ks


@pytest.fixture(scope="module")
def scored() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    scores = rng.random(1000)
    return (rng.random(1000) < scores**2).astype(np.float64), scores


def test_bands_hold_all_records_and_events(scored: tuple[np.ndarray, np.ndarray]) -> None:
    labels, scores = scored
    bands = gains(labels, scores)
    assert [one.n_records for one in bands] == [100] * 10
    assert sum(one.n_events for one in bands) == labels.sum()
    assert bands[-1].captured == bands[-1].lift == 1
    assert bands[-1].ks == pytest.approx(0)
    assert all(high.least_score >= low.least_score for high, low in itertools.pairwise(bands))
    assert bands[0].lift == pytest.approx(labels[np.argsort(-scores)[:100]].mean() / labels.mean())
    assert max(one.ks for one in gains(labels, scores, n_bands=1000)) == pytest.approx(ks(labels, scores))


def test_a_rejection_avoids_events_and_loses_others() -> None:
    labels = np.array([1, 1, 0, 1, 0, 0, 0, 0, 0, 0], np.float64)
    (found,) = rejections(labels, np.linspace(1, 0.1, 10), shares=(0.3,))
    assert (found.share, found.events_avoided) == (0.3, 2 / 3)
    assert found.others_lost == pytest.approx(1 / 7)
    assert found.accepted_event_rate == pytest.approx(1 / 7)
    assert found.cutoff == pytest.approx(0.8)


def test_a_better_challenger_swaps_in_fewer_events(scored: tuple[np.ndarray, np.ndarray]) -> None:
    labels, scores = scored
    noisy = scores + np.random.default_rng(1).normal(0, 0.5, 1000)
    found = swap_set(labels, noisy, scores, share=0.3)
    assert found.swapped_in == found.swapped_out > 50
    assert found.in_event_rate < found.out_event_rate
    same = swap_set(labels, scores, scores, share=0.3)
    assert same.swapped_in == same.swapped_out == 0
    assert np.isnan(same.in_event_rate)


def test_records_of_one_score_are_taken_by_chance_and_not_as_the_file_has_them() -> None:
    labels, scores = (np.arange(10_000) < 1000).astype(np.float64), np.full(10_000, 0.1)
    (found,) = rejections(labels, scores, shares=(0.2,))
    # Hypergeometric: a standard deviation of 0.012.
    assert found.events_avoided == pytest.approx(0.2, abs=0.06)
    assert max(abs(one.ks) for one in gains(labels, scores)) < 0.06
    better = np.where(labels == 1, 0.2, 0.1)
    swapped = swap_set(labels, scores, better, share=0.1)
    assert swapped.out_event_rate == 1
    assert swapped.swapped_out == pytest.approx(900, abs=60)
    assert swap_set(labels, scores, 2 * scores, share=0.1).swapped_in == 0
