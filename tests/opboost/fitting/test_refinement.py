"""Draws made anew by the trees' own model of the label."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from opboost.fitting.recipe import MANY_ROWS, Recipe
from opboost.fitting.refinement import _resampled, can_refine
from opboost.trees.boosting import BoostingParameters
from opboost.trees.constraints import ColumnConstraints
from opboost.trees.losses import Logistic, Poisson, SquaredError


def test_proposals_are_drawn_again_as_often_as_their_weights_say() -> None:
    """Systematic resampling: each proposal comes as often as its share of ten draws, rounded down or up."""
    rng = np.random.default_rng(0)
    proposals = np.broadcast_to(np.arange(6, dtype=np.uint8)[:, None, None], (6, 1, 500))
    weights = rng.gamma(0.5, size=(6, 500))
    drawn = _resampled(proposals, weights, 10, rng=rng)
    counts = np.array([(drawn[:, 0] == p).sum(axis=0) for p in range(6)])
    expected = 10 * weights / weights.sum(axis=0)
    assert (np.abs(counts - expected) < 1).all()
    assert counts.mean(axis=1) == pytest.approx(expected.mean(axis=1), abs=0.1)


def test_what_is_made_anew() -> None:
    limits = ColumnConstraints().on(["a"], are_categorical=[False], max_delta_step=0.0)
    recipe = Recipe(BoostingParameters(), Logistic(), limits, 0)
    assert can_refine(recipe, MANY_ROWS)
    assert not can_refine(recipe, MANY_ROWS + 1)
    assert can_refine(replace(recipe, loss=SquaredError()), 500)
    assert not can_refine(replace(recipe, loss=Poisson()), 500)
