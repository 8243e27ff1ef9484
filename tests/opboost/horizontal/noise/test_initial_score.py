"""The first score of a model: the mean or the log odds, from sums to which a record adds one."""

from __future__ import annotations

import math

import numpy as np
import pytest

from opboost.horizontal.noise.initial_score import half_sums, score_of_classes, score_of_numbers
from opboost.rng import seeded


@pytest.mark.parametrize("label", [-7.0, -1.0, -0.3, 0.0, 0.77, 1.0, 7.0])
def test_a_record_adds_exactly_one_to_both_half_sums_together(label):
    recorded = []
    score_of_numbers(np.array([label]), seeded(0), noise=lambda unit: recorded.append(unit))
    high, low = half_sums(np.array([(1 + np.clip(label, -1, 1)) / 2]), noise=lambda unit: None, rng=seeded(0))
    assert high >= 0
    assert low >= 0
    assert high + low == 1.0
    assert recorded == [2.0**20]


def test_first_scores_are_the_means_and_the_log_odds():
    labels = np.array([0.5, -1.0, 0.25])
    assert score_of_numbers(labels, seeded(0), noise=lambda unit: None) == pytest.approx(labels.mean(), abs=1e-5)
    classes = np.array([1.0, 0.0, 0.0, 0.0])
    assert score_of_classes(classes, seeded(0), noise=lambda unit: None) == pytest.approx(math.log(1 / 3), abs=1e-5)
    assert score_of_numbers(np.empty(0), seeded(0), noise=lambda unit: None) == 0.0
