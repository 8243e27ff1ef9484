"""What trees are trained on: bounds of a record's gradients, and how labels are scaled."""

from __future__ import annotations

import math

import numpy as np
import pytest

from opboost.horizontal.noise.noisy_holder import gaussian_noise
from opboost.horizontal.recommended.first_releases import LEAST_UNIT
from opboost.horizontal.recommended.tree_training import (
    TreeTask,
    leaf_noises,
    logistic_of_one,
    regulariser_part,
    scaled_labels,
)


def test_labels_are_scaled_to_the_range_and_clipped_at_its_ends() -> None:
    assert scaled_labels(np.array([-9.0, 1.0, 2.0, 3.0, 7.0]), 1.0, 3.0).tolist() == [-1.0, -1.0, 0.0, 1.0, 1.0]


def test_gradients_of_two_classes_are_those_of_cross_entropy() -> None:
    scores = np.linspace(-4, 4, 9)
    for label in (0.0, 1.0):
        shares = 1 / (1 + np.exp(-scores))
        grad, hess = logistic_of_one(scores[None], np.full((1, 9), label))
        np.testing.assert_allclose(grad, [shares - label], atol=1e-12)
        np.testing.assert_allclose(hess, [shares * (1 - shares)], atol=1e-12)


def test_numbers_have_leaves_within_the_range_whatever_their_unit() -> None:
    for unit in (LEAST_UNIT, 0.5, 1.0):
        task = TreeTask.of_numbers(unit)
        assert task.max_leaf * unit == pytest.approx(TreeTask.of_numbers(1.0).max_leaf)
        assert not task.is_of_two


def test_the_regulariser_of_numbers_is_whole_where_records_stand_out() -> None:
    parts = [regulariser_part(signal) for signal in (0.0, 50.0, 96.0, 120.0, 1e6, math.inf)]
    assert parts == [0.75, 0.75, 0.8, 1.0, 1.0, 1.0]


def test_noise_on_hessians_is_that_on_gradients_times_the_ratio() -> None:
    clipping = TreeTask.of_numbers(1.0).clipping
    assert leaf_noises(clipping, 3.0) == (
        gaussian_noise(3.0, clipping.grid.grad_scale),
        gaussian_noise(3.0 * clipping.ratio, clipping.grid.hess_scale),
    )
    assert leaf_noises(clipping, 0.0) == (None, None)
    assert math.isfinite(clipping.ratio)
