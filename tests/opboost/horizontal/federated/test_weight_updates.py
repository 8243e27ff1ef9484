"""Vectors of records: how long they can get, what comes of their sums, and when a split gains."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from opboost.errors import ParameterError
from opboost.horizontal.federated.weight_updates import LeafRule, weight_update

LEAF = LeafRule(learning_rate=0.3, reg_lambda=1.0, max_leaf=2.0)
SCORES = np.concatenate([np.linspace(-60, 60, 24_001), np.linspace(-3, 3, 24_001)])


def longest(update, labels) -> float:
    """The largest norm of a record's vector, over scores and labels, after rounding, on the real scale."""
    norms = []
    for label in labels:
        codes = update.clipping.encode(*update.gradients(SCORES, np.full(len(SCORES), float(label))))
        norms.append(np.hypot(*(code / scale for code, scale in zip(codes, update.scales, strict=True))).max())
    return float(max(norms))


@pytest.mark.parametrize(
    ("name", "is_printed", "used", "true"),
    [
        ("newton", False, 1.0, 1.0),
        ("newton", True, math.sqrt(17) / 4, 1.0),
        ("gradient", False, math.sqrt(2), math.sqrt(2)),
        ("gradient", True, math.sqrt(2), math.sqrt(2)),
        ("averaging", False, 1.0, 1.0),
        ("averaging", True, math.sqrt(2), math.sqrt(2)),
    ],
)
def test_noise_is_scaled_by_no_less_than_the_longest_vector(name, is_printed, used, true):
    update = weight_update(name, is_classification=True, is_printed=is_printed)
    assert update.clipping.sensitivity == pytest.approx(used, rel=1e-9)
    assert update.true_sensitivity == pytest.approx(true, rel=1e-9)
    found = longest(update, (0, 1))
    assert found <= update.true_sensitivity * (1 + 1e-12) <= update.clipping.sensitivity * (1 + 1e-12)
    assert found > 0.999 * true  # a smaller sensitivity would promise too much


def test_numbers_are_clipped_before_they_count():
    for name, true in (("newton", math.hypot(0.5, 1)), ("gradient", math.hypot(0.5, 1)), ("averaging", 1.0)):
        update = weight_update(name, is_classification=False, max_grad=0.5)
        assert longest(update, (-1, 0.3, 1)) <= update.clipping.sensitivity
        assert update.clipping.sensitivity == pytest.approx(true, rel=1e-9)


def test_hessians_of_the_newton_update_are_at_most_a_quarter_and_counts_one():
    for name, expected in (("newton", 0.25), ("gradient", 1.0), ("averaging", 1.0)):
        update = weight_update(name, is_classification=True)
        assert update.hess_sensitivity == expected
        codes = np.stack(update.clipping.encode(*update.gradients(SCORES, (SCORES > 0).astype(float))))
        weights, scale = update.weights(codes.T[:, :, None])
        assert weights.max() / scale == pytest.approx(expected, abs=1e-6)
        assert weights.max() / scale <= expected


@given(st.floats(-50, 50), st.floats(-5, 50))
def test_a_gain_is_twice_what_the_best_value_within_bounds_saves(grad, hess):
    weight = hess + LEAF.reg_lambda
    gain = float(LEAF.gain(np.array([grad]), np.array([hess]))[0])
    if weight <= 1e-9:
        return
    value = min(max(-grad / weight, -2.0), 2.0)
    assert gain == pytest.approx(-2 * (grad * value + weight * value * value / 2), rel=1e-9, abs=1e-9)
    candidates = np.linspace(-2, 2, 2001)
    assert gain >= (-2 * (grad * candidates + weight * candidates**2 / 2)).max() - 1e-9


def test_leaves_follow_the_papers_rules():
    grad, hess = np.array([3.0, 300.0, 3.0, -3.0]), np.array([9.0, 9.0, -0.5, 0.0])
    for name in ("newton", "gradient"):
        values = weight_update(name, is_classification=True).values(grad, hess, replace(LEAF, is_printed=True))
        np.testing.assert_allclose(values, [-0.09, -0.6, 0.0, 0.0])
    average = weight_update("averaging", is_classification=True)
    np.testing.assert_allclose(average.values(grad, hess, LEAF), [1 / 3, 1.0, 0.5, 0.5])
    numbers = weight_update("averaging", is_classification=False)
    np.testing.assert_allclose(numbers.values(np.array([-3.0, 3.0]), np.array([4.0, -1.0]), LEAF), [-0.75, 0.0])


def test_a_leaf_whose_hessians_noise_has_made_negative_weighs_what_its_regulariser_does():
    grad, hess = np.array([3.0, 1.0, -3.0, 0.5]), np.array([9.0, -0.5, -80.0, 0.0])
    for name in ("newton", "gradient"):
        update = weight_update(name, is_classification=True)
        np.testing.assert_allclose(update.values(grad, hess, LEAF), [-0.09, -0.3, 0.6, -0.15])
        unregularised = update.values(grad, hess, replace(LEAF, reg_lambda=0.0))
        np.testing.assert_allclose(unregularised, [-0.1, 0.0, 0.0, 0.0])


@pytest.mark.parametrize("is_classification", [True, False])
@pytest.mark.parametrize("is_printed", [True, False])
def test_averages_of_labels_come_out_of_either_form(is_classification, is_printed):
    update = weight_update("averaging", is_classification=is_classification, is_printed=is_printed)
    labels = np.array([0.0, 1.0, 1.0, 1.0]) if is_classification else np.array([-0.5, 0.25, 1.0, 0.25])
    codes = np.stack(update.clipping.encode(*update.gradients(np.zeros(4), labels)))
    grad, hess = update.read(codes.sum(axis=1)[None])
    assert hess[0] == pytest.approx(4)
    assert update.values(grad, hess, LEAF)[0] == pytest.approx(labels.mean(), abs=1e-5)


def test_an_unknown_update_is_refused():
    with pytest.raises(ParameterError, match="averaging, gradient or newton; got 'third'"):
        weight_update("third", is_classification=True)
