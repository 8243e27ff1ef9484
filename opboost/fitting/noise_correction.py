"""Train through the noise: draws of the exact codes in place of the released ones, where that is likely to help.

`opboost.denoise` says what the exact codes may have been, `opboost.trees` grows trees on several versions of a column.
All of it works on what was released already, so it costs no privacy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from opboost.arrays import Mask, Values
from opboost.denoise.imputation import Imputation
from opboost.denoise.mixture import States
from opboost.denoise.sources import sources_of
from opboost.fitting.choice import choose
from opboost.fitting.imputing import impute
from opboost.fitting.noised_table import Blend, FilledTable, NoiseChoice, NoisedRows, plain_bins, versions_of
from opboost.fitting.recipe import MANY_ROWS, Recipe, table_scores
from opboost.fitting.refinement import can_refine, refine_draws
from opboost.fitting.trials import MOST_BINS, MOST_DRAWS, N_SCORED, CodeDraws, n_draws
from opboost.trees.boosting import BoostingParameters
from opboost.trees.tree import Tree
from opboost.trees.validation import KnownRows

# Fewest rows for which a mixture is fitted; with fewer, trees are grown on the released codes.
LEAST_ROWS = 400

# Rows that candidates are compared on.
COMPARED_ROWS = 15_000

# Most rounds of candidates, and of them and the trees on the own columns where rows are too many to draw anew. Few
# rounds that learn fast overfit, which speaks for blends of candidates (`docs/architecture/noise-trials.md`).
_ROUNDS, FEW_ROUNDS = 200, 60

# Fits of what lies behind the released codes, each of which has draws and an ensemble of its own: the mean of what
# trees learn from several is closer than from any one (`docs/architecture/noise-trials.md`).
N_FITS = 5

# Fastest rate of an ensemble of its own for every fit, which learns in as many times fewer rounds.
_FASTEST = 0.2

# Choices for which no exact codes are drawn.
_WITHOUT_DRAWS = (NoiseChoice.ALONE, NoiseChoice.PLAIN)

# Held-out rows, known exactly, from which on candidates are compared on them.
LEAST_KNOWN = 200


def fill(
    noised: NoisedRows,
    is_trained: Mask,
    recipe: Recipe,
    known: KnownRows | None = None,
    *,
    choice: NoiseChoice | None = None,
    may_continue_own: bool = True,
) -> FilledTable:
    """Fill in the noised columns of a table with the versions that score best on held-out rows.

    Trees on draws are compared with trees on the own columns, on rows that neither has seen and that are drawn without
    their labels. The comparison decides the weight of each in the scores, and whether the trees on draws continue from
    the scores of the others. If it gives draws no weight, trees on the released ranks are compared with trees on the
    own columns likewise.

    Parameters
    ----------
    noised : NoisedRows
        Its table is written to.
    is_trained : ndarray of bool, shape (n_rows,)
        The other rows are drawn without their labels.
    recipe : Recipe
    known : KnownRows, optional
        If they are enough, candidates are compared on them in place of a part of the training rows.
    choice : NoiseChoice, optional
        Of a model that these trees continue, in place of what the comparison finds.
    may_continue_own : bool
        Whether trees may continue from the scores of trees on the own columns.
    """
    max_bin = recipe.parameters.max_bin
    if not noised.columns:
        return FilledTable(None, noised.table)
    if choice in _WITHOUT_DRAWS:
        return _without_draws(noised, Blend(choice), max_bin=max_bin)
    comparing, rng = np.random.default_rng(recipe.seed).spawn(2)
    trained, noised_max_bin = np.flatnonzero(is_trained), min(max_bin, MOST_BINS)
    is_large = len(trained) > MANY_ROWS
    recipe = replace(recipe, own_depths=()) if is_large else recipe
    brief = recipe.brief(FEW_ROUNDS if is_large else _ROUNDS)
    # The released columns are read into states once for all fits.
    n_fits, sources = 1 if is_large else N_FITS, sources_of(noised.columns)
    fits = [impute(noised, sources, trained, recipe, rng=rng) for _ in range(n_fits)]
    states = _draws(noised, is_trained, fits, recipe, max_bin=noised_max_bin, rng=rng)
    if choice is not None:
        blend = Blend(choice)
    else:
        compared_rows = np.sort(comparing.permutation(trained)[:COMPARED_ROWS])
        known = known if known is not None and len(known.labels) >= LEAST_KNOWN else None
        compared = noised.of_rows(compared_rows)
        if known is None and not is_large:
            draw_codes = partial(_draw_by_own_fit, compared, recipe, max_bin=noised_max_bin, rng=comparing)
        else:
            draw_codes = partial(
                _draw_by_common_fit, fits[0].of_rows(compared_rows), states[:, :, compared_rows], rng=comparing
            )
        blend = choose(compared, brief, known, draw_codes, may_continue_own=may_continue_own, rng=comparing)
    # The released states of all rows are needed no more: the memory of these is freed.
    sources_alone = fits[0].of_rows(trained[:0]).sources
    del fits, sources
    own_trees, margins = _grow_own_trees(noised, is_trained, brief if is_large else recipe, blend)
    if blend.choice in _WITHOUT_DRAWS:
        return replace(_without_draws(noised, blend, max_bin=max_bin), own_trees=own_trees, margins=margins)
    binned, alternates = versions_of(noised, sources_alone, states, blend.choice, max_bin=noised_max_bin)
    alternates = replace(alternates, n_ensembles=n_fits if _has_ensemble_per_fit(recipe.parameters, n_fits) else 1)
    return FilledTable(blend, noised.filled(binned, is_copied=False), alternates, own_trees, margins)


def _grow_own_trees(
    noised: NoisedRows, is_trained: Mask, recipe: Recipe, blend: Blend
) -> tuple[tuple[Tree, ...], Values | None]:
    """Trees on the own columns, and the scores that other trees continue from, where a blend needs them."""
    if not blend.own_share:
        return (), None
    recipe, table = recipe.on_own(blend.own_depth), noised.table
    rows = table, noised.labels, noised.weights
    if not is_trained.all():
        rows = table.of_rows(np.flatnonzero(is_trained)), noised.labels[is_trained], noised.weights[is_trained]
    trees, base_scores = recipe.grow(*rows)
    if not blend.continues_own:
        return tuple(trees), None
    margins = np.empty((len(base_scores), table.n_rows))
    margins[:, is_trained] = recipe.margins(*rows)
    margins[:, ~is_trained] = table_scores(
        table.of_rows(np.flatnonzero(~is_trained)), trees, np.zeros(len(base_scores))
    )
    return tuple(trees), margins


def _without_draws(noised: NoisedRows, blend: Blend, *, max_bin: int) -> FilledTable:
    """A table for which no exact codes are drawn: with the released ranks, or without the noised columns."""
    is_plain = blend.choice is NoiseChoice.PLAIN
    return FilledTable(blend, noised.filled(plain_bins(noised, max_bin), is_copied=False) if is_plain else noised.table)


def _draw_by_own_fit(
    noised: NoisedRows,
    recipe: Recipe,
    kept: NDArray[np.int64],
    held: NDArray[np.int64],
    *,
    max_bin: int,
    rng: np.random.Generator,
) -> CodeDraws:
    """Draws of a fit to the kept rows alone, on which no label of the held-out rows has any influence."""
    fit = impute(noised, sources_of(noised.columns), kept, recipe, rng=rng)
    is_kept = np.isin(np.arange(len(noised.labels)), kept)
    states = _draws(noised, is_kept, [fit], recipe, max_bin=max_bin, rng=rng)
    return _drawn(fit, states, kept, held, rng=rng)


def _draw_by_common_fit(
    imputation: Imputation,
    states: States,
    kept: NDArray[np.int64],
    held: NDArray[np.int64],
    *,
    rng: np.random.Generator,
) -> CodeDraws:
    """Draws of the fit to all rows, where these are many or held-out rows are known: one label hardly matters then."""
    if len(states) < MOST_DRAWS:
        states = imputation.draw(MOST_DRAWS, seed=int(rng.integers(2**63)))
    return _drawn(imputation, states, kept, held, rng=rng)


def _drawn(
    imputation: Imputation,
    states: States,
    kept: NDArray[np.int64],
    held: NDArray[np.int64],
    *,
    rng: np.random.Generator,
) -> CodeDraws:
    """Draws of the kept rows, and of the held-out rows without their labels."""
    seed = int(rng.integers(2**63))
    blind = imputation.of_rows(held).draw(N_SCORED, with_label=False, seed=seed)
    return CodeDraws(imputation.sources, states[:, :, kept], blind)


def _draws(
    noised: NoisedRows,
    is_trained: Mask,
    fits: Sequence[Imputation],
    recipe: Recipe,
    *,
    max_bin: int,
    rng: np.random.Generator,
) -> States:
    """Draws for all rows, of each fit by turns.

    Trained rows are drawn given their labels, and the draws are refined by trees; other rows without their labels.
    """
    held_out, trained, seed = np.flatnonzero(~is_trained), np.flatnonzero(is_trained), int(rng.integers(2**62))
    n_states, states_of_fits = n_draws(len(is_trained)), []
    for number, fit in enumerate(fits):
        states = fit.draw(n_states, seed=seed + 2 * number)
        if len(held_out):
            states[:, :, held_out] = fit.of_rows(held_out).draw(n_states, with_label=False, seed=seed + 2 * number + 1)
        if can_refine(recipe, len(trained)):
            states[:, :, trained] = refine_draws(
                noised.of_rows(trained), fit.of_rows(trained), states[:, :, trained], recipe, max_bin=max_bin, rng=rng
            )
        states_of_fits.append(states)
    return np.stack(states_of_fits, axis=1).reshape(-1, *states.shape[1:])


def _has_ensemble_per_fit(parameters: BoostingParameters, n_fits: int) -> bool:
    """True if every fit can have an ensemble of its own: the learning rate is small, and there is no dropout."""
    return parameters.booster != "dart" and n_fits * parameters.learning_rate <= _FASTEST
