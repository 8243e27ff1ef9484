"""Refinement of the draws of the exact codes: resampling by the label densities of trees grown on first draws.

The mixture is a coarse model of the label: what a column does only beside others escapes it. Trees grown on its draws
know better. Proposals from the mixture are drawn again by weights: the density of the label that the trees give, over
the one that the mixture gives. No tree has seen the rows that it weighs. This is one step of stochastic expectation and
maximisation (Celeux and Diebolt, 1985) by importance resampling (Rubin, 1987).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from opboost.arrays import Values
from opboost.denoise.imputation import FITTED_ROWS, N_CLASSES, Imputation
from opboost.denoise.mixture import States
from opboost.fitting.choice import by_turns
from opboost.fitting.noised_table import NoisedRows, in_bins, versions_of
from opboost.fitting.recipe import MANY_ROWS, Recipe, raw_scores
from opboost.fitting.trials import open_share
from opboost.trees.alternating import Alternates
from opboost.trees.boosting import BoostingParameters
from opboost.trees.kernels.threads import threads_for
from opboost.trees.losses import SquaredError

# Proposals of each row, and rows whose proposals are held at a time.
N_PROPOSALS, _PIECE_ROWS = 40, 1 << 14

# Trees that weigh proposals.
_TREES = BoostingParameters(n_estimators=60, max_depth=4, learning_rate=0.15, subsample=0.5)

# Groups of equally many predictions, in each of which a number's variance is its own.
_VARIANCES = 10

# Least density of a label.
_LEAST = 1e-6


def can_refine(recipe: Recipe, n_rows: int) -> bool:
    """Whether predictions give a density of the label, and rows are not too many."""
    return n_rows <= MANY_ROWS and (recipe.n_classes > 0 or isinstance(recipe.loss, SquaredError))


def refine_draws(
    noised: NoisedRows, fit: Imputation, states: States, recipe: Recipe, *, max_bin: int, rng: np.random.Generator
) -> States:
    """Resample draws of the exact codes; all rows are trained on, and `fit` is an imputation of them."""
    resampled, fold, seed = np.empty_like(states), rng.integers(2, size=len(noised.labels)), int(rng.integers(2**63))
    # Where draws leave little open, released codes keep what the mixture loses.
    sources, turns = fit.sources, by_turns(open_share(states))
    binned, alternates = versions_of(noised, sources, states, turns, max_bin=max_bin)
    table = noised.filled(binned)
    # The same parameters for a model and one that continues it, whatever their numbers of rounds.
    weighing = replace(recipe, parameters=_TREES)
    for k in range(2):
        others = np.sort(rng.permutation(np.flatnonzero(fold != k))[:FITTED_ROWS])
        trees, base_scores = weighing.grow(
            table.of_rows(others), noised.labels[others], noised.weights[others], alternates.of_rows(others)
        )
        here = np.flatnonzero(fold == k)
        for rows in np.array_split(here, 1 + len(here) // _PIECE_ROWS):
            with threads_for(len(rows) * len(noised.columns) * N_CLASSES):
                row_fit = fit.of_rows(rows)
                proposals = row_fit.draw(N_PROPOSALS, seed=seed + int(rows[0]))
                mixture_densities = row_fit.label_densities(proposals)
            draws = np.concatenate([states[:, :, rows], proposals])
            versions = Alternates(alternates.columns, in_bins(noised, sources, binned, draws), tuple(range(len(draws))))
            scores = raw_scores(table.of_rows(rows), trees, base_scores, versions)
            predictions = np.stack([recipe.loss.predictions(version.T).reshape(len(rows), -1) for version in scores])
            tree_densities = _label_densities(noised.labels[rows], predictions, recipe, n_known=len(states))
            ratios = tree_densities[len(states) :] / np.maximum(mixture_densities, _LEAST)
            resampled[:, :, rows] = _resampled(proposals, ratios, len(states), rng=rng)
    return resampled


def _label_densities(labels: Values, predictions: Values, recipe: Recipe, *, n_known: int) -> Values:
    """Density of each row's label, shape ``(n_versions, n_rows)``.

    A number is normal around its prediction, with the variance of the residuals of `n_known` first versions, which were
    drawn given the label, between predictions that are about as high.
    """
    # Loaded here: it takes 0.4 s, which every command would pay.
    from scipy.stats import norm

    if recipe.n_classes:
        shares = predictions if recipe.n_classes > 2 else np.concatenate([1 - predictions, predictions], axis=2)
        return np.asarray(np.maximum(shares[:, np.arange(len(labels)), labels.astype(np.int64)], _LEAST))
    means = predictions[..., 0]
    known = means[:n_known].ravel()
    squares = ((labels - means[:n_known]) ** 2).ravel()
    group = np.searchsorted(np.quantile(known, np.linspace(0, 1, _VARIANCES + 1)[1:-1]), known)
    sizes = np.bincount(group, minlength=_VARIANCES)
    is_there = sizes > 0
    middles, variances = (np.bincount(group, x, _VARIANCES)[is_there] / sizes[is_there] for x in (known, squares))
    spread = np.sqrt(np.maximum(np.interp(means, middles, variances), 1e-12))
    return np.asarray(norm.pdf(labels, means, spread))


def _resampled(proposals: States, weights: Values, n_draws: int, *, rng: np.random.Generator) -> States:
    """Draws among each row's proposals by their weights, of shape ``(n_proposals, n_rows)``: systematic resampling."""
    cumulative = np.cumsum(weights, axis=0)
    positions = (np.arange(n_draws)[:, None] + rng.random(cumulative.shape[1])) / n_draws * cumulative[-1]
    chosen = np.minimum((cumulative[None] < positions[:, None]).sum(axis=1), len(proposals) - 1)
    chosen = rng.permuted(chosen, axis=0)
    return np.take_along_axis(proposals, chosen[:, None], axis=0)
