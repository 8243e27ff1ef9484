"""Rows with several outputs: what one record adds to the sums of a tree, over all outputs together."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from opboost.horizontal.recommended.tree_training import logistic_of_one
from opboost.horizontal.rows.joint_rows import SOFTMAX_NORM, JointRows, softmax_gradients
from opboost.horizontal.rows.public_grid import PublicGrid
from opboost.horizontal.rows.record_holder import Clipping, squared_gradients
from opboost.trees.complete import tree_of

pytestmark = pytest.mark.usefixtures("one_thread")


GRID = PublicGrid([(0.0, 1.0)] * 3, 8)


@pytest.mark.parametrize("n_classes", [3, 4])
def test_the_gradients_of_all_classes_have_the_norm_of_the_account_together(n_classes: int) -> None:
    """All corners, edges and inner points of a grid of scores; the Hessians add nothing, and no less would do."""
    scores = np.array(list(itertools.product((-30.0, -1.0, 0.0, 0.7, 5.0, 30.0), repeat=n_classes))).T
    norms = []
    for own in range(n_classes):
        labels = np.zeros_like(scores)
        labels[own] = 1.0
        grad, hess = softmax_gradients(scores, labels)
        norms.append(np.sqrt((grad**2 + hess**2).sum(axis=0)))
    assert np.max(norms) <= SOFTMAX_NORM * (1 + 1e-15)
    assert np.max(norms) > 0.9999 * SOFTMAX_NORM


@pytest.mark.parametrize("n_outputs", [1, 3, 26])
def test_a_record_moves_the_sums_of_a_tree_by_the_sensitivity_at_most(n_outputs: int) -> None:
    """What a single record adds, as integers, over scores that make it as wrong as can be."""
    clipping = Clipping(max_grad=1.0, max_hess=0.25, ratio=1.0)
    found = []
    for score in (-40.0, -1.0, 0.0, 1.0, 40.0):
        labels = np.zeros((n_outputs, 1))
        labels[0] = 1.0
        gradients = softmax_gradients if n_outputs > 1 else logistic_of_one
        scores = np.full(n_outputs, -40.0)
        scores[-1] = score
        table = GRID.place(np.full((1, 3), 0.5))
        rows = JointRows(table, labels, gradients=gradients, clipping=clipping, initial_scores=scores)
        rows.start_tree(0)
        totals = rows.totals(np.array([0], np.int32)).astype(float)
        assert totals.shape == (n_outputs, 2)
        found.append(math.hypot(*(totals[:, 0] / clipping.grid.grad_scale), *(totals[:, 1] / clipping.grid.hess_scale)))
    bound = SOFTMAX_NORM if n_outputs > 1 else 1.0
    assert 0.99 * bound < max(found) <= bound
    assert not max(found) <= 0.7 * bound


def test_a_smaller_bound_is_the_new_unit_of_what_a_record_adds() -> None:
    """Residuals of numbers are clipped by the smaller bound, and no record adds more than one in the new unit."""
    clipping = Clipping(max_grad=1.0, max_hess=1.0, ratio=6.0)
    labels = np.array([[0.9, 0.5, 0.1, -3.0]])
    table = GRID.place(np.full((4, 3), 0.5))
    rows = JointRows(table, labels, gradients=squared_gradients, clipping=clipping, initial_scores=np.array([0.25]))
    for bound, factor in ((1.0, 1.0), (0.5, 0.5), (0.4, 0.8)):
        rows.tighten(factor)
        rows.start_tree(0)
        clipped = np.clip(0.25 - labels[0], -bound, bound) / bound
        total = rows.totals(np.array([0], np.int32))[0] / [clipping.grid.grad_scale, clipping.grid.hess_scale]
        np.testing.assert_allclose(total, [clipped.sum(), 4.0], atol=1e-6)
        rows.finish_trees([tree_of([], np.zeros(1), GRID.axes)])
    before = rows.copied()
    rows.tighten(0.5)
    before.start_tree(0)
    np.testing.assert_allclose(before.totals(np.array([0], np.int32))[0, 0] / clipping.grid.grad_scale, clipped.sum())
