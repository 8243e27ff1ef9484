"""Draws made anew by the trees' own model of the label."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from opboost.denoise.imputation import Evidence
from opboost.fitting.recipe import MANY_ROWS, Recipe
from opboost.fitting.refinement import N_PROPOSALS, _proposed, _resampled, can_refine
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


def test_every_fit_proposes_as_much_and_each_proposal_has_the_density_of_the_fit_that_made_it() -> None:
    """A proposal that has another fit's density would be drawn too often where that thinks little of it."""
    rows, evidence = np.arange(3), Evidence.of(np.zeros(9), np.empty((9, 0)), n_classes=2)
    fits: Any = [Fit(7, 0.25), Fit(9, 0.5)]
    proposals, given = _proposed(fits, evidence, rows, seed=1)
    half = N_PROPOSALS // 2
    assert proposals.tolist() == [[[7] * 3]] * half + [[[9] * 3]] * half
    assert given.tolist() == [[0.25] * 3] * half + [[0.5] * 3] * half
    assert len({seed for fit in fits for seed in fit.seeds}) == 2


class Fit:
    """Always draws one state, and takes each label for as likely."""

    def __init__(self, state: int, density: float) -> None:
        self.state, self.density, self.seeds = state, density, set[int]()

    def of_rows(self, rows: np.ndarray) -> Fit:
        return self

    def draw(self, evidence: Evidence, n_draws: int, *, seed: int) -> np.ndarray:
        self.seeds.add(seed)
        return np.full((n_draws, 1, len(evidence.label_states)), self.state, np.uint8)

    def label_densities(self, evidence: Evidence, states: np.ndarray) -> np.ndarray:
        return np.full(states.shape[1], self.density)
