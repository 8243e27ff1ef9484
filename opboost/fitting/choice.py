"""Which version of the noised columns serves best: candidates grown on some rows and scored on others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from opboost.arrays import Values
from opboost.denoise.comparison import is_worse, squared_errors
from opboost.denoise.imputation import Imputation
from opboost.fitting.imputing import impute
from opboost.fitting.noised_table import NoiseChoice, Noised, bins_of_ranks, in_bins, versions_of
from opboost.fitting.recipe import Recipe, raw_scores
from opboost.trees.alternating import Alternates
from opboost.trees.binning import BinnedColumn, BinnedTable
from opboost.trees.validation import KnownRows, bins_between

# Draws that trees are grown on by turns, and draws that a held-out row is scored on.
N_DRAWS, N_SCORED = 10, 8

# Bins of a noised column: more lose time and win nothing (`docs/architecture/noise.md`).
MOST_BINS = 64

# Share of the rows that is held out to compare candidates on.
HELD_OUT_SHARE = 1 / 3

# Standard errors by which a candidate must be ahead of the model that usually serves best.
AHEAD = 1.5

# Share of the columns' variance that draws leave open, from which on draws alone serve better than by turns with the
# released codes: on seven tables, blends lost up to .07 at a whole-range loss of 2 to 8, and won up to .02 at 32.
OPEN_SHARE = 0.25


@dataclass(frozen=True, slots=True, eq=False)
class ScoredRows:
    """Rows that candidates are scored on.

    Attributes
    ----------
    table : BinnedTable
        The own columns, in bins.
    versions : Alternates
        Of the noised columns: draws, and the released codes last; or what is known of them alone.
    targets : ndarray of float64, shape (n_rows, n_outputs)
    weights : ndarray of float64, shape (n_rows,)
    """

    table: BinnedTable
    versions: Alternates
    targets: Values
    weights: Values

    def errors(self, predictions: Values) -> tuple[Values, Values]:
        """Of each row's prediction from its exact codes, drawn or known, and from the released ones or known."""
        draws, last = predictions[:-1], ((self.targets - predictions[-1]) ** 2).sum(axis=1)
        exact = squared_errors(self.targets, draws) if len(draws) else last
        return self.weights * exact, self.weights * last


@dataclass(frozen=True, slots=True, eq=False)
class Trial:
    """Rows that candidates are grown on, and rows that they are scored on.

    Attributes
    ----------
    table : BinnedTable
    alternates : Alternates
        Draws, the released codes and nothing.
    labels, weights : ndarray of float64, shape (n_rows,)
    scored : ScoredRows
    recipe : Recipe
    open_share : float
        Mean share of the variance of a source's states that lies between the draws of the same row.
    """

    table: BinnedTable
    alternates: Alternates
    labels: Values
    weights: Values
    scored: ScoredRows
    recipe: Recipe
    open_share: float

    def errors(self, choice: NoiseChoice) -> tuple[Values, Values]:
        """Of the scored rows, as `ScoredRows.errors`, with trees grown on a choice of versions."""
        turns, of = replace(self.alternates, turns=choice.turns(N_DRAWS)), self.scored
        trees, base_scores = self.recipe.brief().grow(self.table, self.labels, self.weights, turns)
        scores = raw_scores(replace(self.table, bins=of.table.bins), trees, base_scores, of.versions)
        return of.errors(np.stack([self.recipe.loss.predictions(one.T).reshape(len(of.targets), -1) for one in scores]))


def choose(
    noised: Noised,
    labels: Values,
    weights: Values,
    recipe: Recipe,
    known: KnownRows | None,
    *,
    rng: np.random.Generator,
) -> NoiseChoice:
    """Grow the candidates on the rows, and score them on known ones; or grow on a part, and score on the others."""
    n_held_out = 0 if known is not None else round(HELD_OUT_SHARE * len(labels))
    held_out = np.sort(rng.permutation(len(labels))[:n_held_out])
    trial = _trial(noised, labels, weights, recipe, known, held_out, rng=rng)
    usual = NoiseChoice.CORRECTED if trial.open_share > OPEN_SHARE else NoiseChoice.CORRECTED_AND_PLAIN
    corrected, alone = trial.errors(usual), trial.errors(NoiseChoice.ALONE)
    if not is_worse(corrected[0], alone[0], z=AHEAD):
        return usual
    # Whether released codes help to predict from released codes needs no model of what lies behind them.
    return NoiseChoice.PLAIN if is_worse(alone[1], trial.errors(NoiseChoice.PLAIN)[1], z=0) else NoiseChoice.ALONE


def _trial(
    noised: Noised,
    labels: Values,
    weights: Values,
    recipe: Recipe,
    known: KnownRows | None,
    held_out: NDArray[np.int64],
    *,
    rng: np.random.Generator,
) -> Trial:
    """Draws of all rows but those held out, which are scored, or are none where other rows are known."""
    kept = np.delete(np.arange(len(labels)), held_out)
    imputation, evidence = impute(noised, labels, kept, recipe, rng=rng)
    inside = noised.of_rows(kept)
    states = imputation.of_rows(kept).draw(evidence.rows(kept), N_DRAWS, seed=int(rng.integers(2**63)))
    most = min(recipe.parameters.max_bin, MOST_BINS)
    binned, alternates = versions_of(inside, imputation.sources, states, None, max_bin=most)
    if known is None:
        behind, of_rows = imputation.of_rows(held_out), evidence.rows(held_out)
        drawn = behind.draw(of_rows, N_SCORED, with_label=False, seed=int(rng.integers(2**63)))
        outside, targets = noised.of_rows(held_out), recipe.targets(labels[held_out])
        versions = _drawn_versions(outside, imputation, binned, drawn)
        scored = ScoredRows(outside.table, versions, targets, weights[held_out])
    else:
        scored = _known_rows(known, noised, binned, recipe)
    shares = [one.var(axis=0, ddof=1).mean() / max(one.var(), 1e-12) for one in np.swapaxes(states, 0, 1)]
    table = inside.filled(binned)
    return Trial(table, alternates, labels[kept], weights[kept], scored, recipe, float(np.mean(shares)))


def _drawn_versions(
    outside: Noised, imputation: Imputation, binned: Sequence[BinnedColumn], drawn: NDArray[np.uint8]
) -> Alternates:
    """Draws of held-out rows, and their released codes, in the bins of the training rows."""
    released = [
        bins_of_ranks(column.ranks[:], column.n_ranks, one.cuts)
        for column, one in zip(outside.columns, binned, strict=True)
    ]
    seen = np.concatenate([in_bins(outside, imputation.sources, binned, drawn), np.array(released)[None]])
    return Alternates(np.array(outside.numbers, np.int64), seen, tuple(range(len(seen))))


def _known_rows(known: KnownRows, noised: Noised, binned: Sequence[BinnedColumn], recipe: Recipe) -> ScoredRows:
    """Rows whose codes are known, in the bins of the training rows."""
    seen = [bins_between(known.columns[c], one.cuts) for c, one in zip(noised.numbers, binned, strict=True)]
    versions = Alternates(np.array(noised.numbers, np.int64), np.array(seen, np.uint8)[None], (0,))
    weights = recipe.parameters.weighted(known.labels, np.ones(len(known.labels)), recipe.loss)
    return ScoredRows(known.binned(noised.table), versions, recipe.targets(known.labels), weights)
