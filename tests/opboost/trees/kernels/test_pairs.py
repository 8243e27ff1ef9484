"""Sums over pairs against a slow twin that writes XGBoost's definition out, pair by pair."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from opboost.trees.kernels.pairs import pair_gradients
from opboost.trees.losses.ranking import Groups

pytestmark = pytest.mark.usefixtures("one_thread")


def slow(scores: np.ndarray, degrees: np.ndarray, n_pairs: int, *, is_pairwise: bool) -> tuple[np.ndarray, np.ndarray]:
    """Gradients of one group."""
    n, order = len(scores), sorted(range(len(scores)), key=lambda row: (-scores[row], row))
    gain = {row: 2 ** int(degrees[row]) - 1 for row in order}
    discount = {row: 1 / math.log2(place + 2) for place, row in enumerate(order)}
    best = sorted(gain.values(), reverse=True)[:n_pairs]
    ideal = sum(one / math.log2(place + 2) for place, one in enumerate(best))
    grad, hess, total = np.zeros(n), np.zeros(n), 0.0
    for i, first in enumerate(order[:n_pairs]):
        for second in order[i + 1 :]:
            if gain[first] == gain[second]:
                continue
            high, low = (first, second) if gain[first] > gain[second] else (second, first)
            delta = abs((gain[high] - gain[low]) * (discount[high] - discount[low])) / ideal
            delta = 1.0 if is_pairwise else delta
            if scores.max() > scores.min():
                delta /= abs(scores[high] - scores[low]) + 0.01
            share = 1 / (1 + math.exp(-(scores[high] - scores[low])))
            step, bend = (1 - share) * delta, 2 * share * (1 - share) * delta
            grad[[high, low]] += -step, step
            hess[[high, low]] += bend
            total += 2 * step
    scale = math.log2(1 + total) / total if total else 1.0
    return grad * scale, hess * scale


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 2**32 - 1), st.integers(1, 8), st.booleans())
def test_every_group_has_the_sums_over_its_pairs(seed: int, n_pairs: int, is_pairwise: bool) -> None:
    rng = np.random.default_rng(seed)
    numbers = rng.integers(0, 4, 30).astype(float)
    scores = rng.normal(size=30).round(1) * (numbers != 2)
    degrees, groups = rng.integers(0, 4, 30).astype(float), Groups.of(numbers)
    weights = rng.uniform(0.5, 2, len(groups.begins) - 1)
    grad, hess = np.empty((2, 30))
    discounts, gains = 1 / np.log2(np.arange(2, 32)), 2.0**degrees - 1
    best = [np.sort(gains[numbers == number])[::-1][:n_pairs] for number in np.unique(numbers)]
    ideals = np.array([0.0 if is_pairwise else float(one @ discounts[: len(one)]) for one in best])
    at = groups.rows, groups.begins
    pair_gradients(scores, gains[groups.rows], ideals, discounts, *at, weights, n_pairs, grad, hess)
    for number, weight in zip(np.unique(numbers), weights, strict=True):
        mine = numbers == number
        expected = slow(scores[mine], degrees[mine], n_pairs, is_pairwise=is_pairwise)
        np.testing.assert_allclose(grad[mine], weight * expected[0], atol=1e-10)
        np.testing.assert_allclose(hess[mine], weight * expected[1], atol=1e-10)
        assert abs(grad[mine].sum()) < 1e-9
