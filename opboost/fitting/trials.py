"""Trials of candidate versions of noised columns: trees are grown on some rows and scored on others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from opboost.arrays import Values
from opboost.denoise.comparison import squared_errors
from opboost.denoise.mixture import States
from opboost.denoise.sources import Source
from opboost.fitting.noised_table import NoiseChoice, NoisedRows, in_bins, versions_of
from opboost.fitting.recipe import Recipe, raw_scores
from opboost.trees.alternating import Alternates
from opboost.trees.binning import BinnedColumn, BinnedTable
from opboost.trees.validation import KnownRows, bins_between

# Draws that trees are grown on by turns, and draws that a held-out row is scored on.
MOST_DRAWS, FEWEST_DRAWS, N_SCORED = 10, 2, 8
# Rows over all draws: in a large table the chance of one draw is the mean of many rows' in every leaf.
_DRAWN_ROWS = 3_000_000

# Bins of a noised column: more lose time and win nothing (`docs/architecture/noise-trials.md`).
MOST_BINS = 64

# Parts of the rows. Each is held out once to compare candidates on, until so many rows were.
N_PARTS, _SCORED_ROWS = 3, 5_000


def n_draws(n_rows: int) -> int:
    """Number of draws that trees are grown on by turns, for a table of `n_rows` rows."""
    return min(MOST_DRAWS, max(FEWEST_DRAWS, _DRAWN_ROWS // n_rows))


@dataclass(frozen=True, slots=True, eq=False)
class CodeDraws:
    """Draws of the exact codes of rows to grow candidates on and of rows to score them on.

    Attributes
    ----------
    sources : tuple of Source
    states : ndarray of uint8, shape (n_draws, n_sources, n_rows)
        Draws for rows that candidates are grown on, given their labels.
    blind : ndarray of uint8, shape (n_draws, n_sources, n_others)
        Draws for rows that they are scored on, without their labels.
    """

    sources: tuple[Source, ...]
    states: States
    blind: States


DrawCodes = Callable[[NDArray[np.int64], NDArray[np.int64]], CodeDraws]


@dataclass(frozen=True, slots=True, eq=False)
class ScoredRows:
    """Rows that candidates are scored on.

    Attributes
    ----------
    table : BinnedTable
        The own columns, in bins.
    versions : Alternates
        Of the noised columns: draws, or what is known of them.
    targets : ndarray of float64, shape (n_rows, n_outputs)
    weights : ndarray of float64, shape (n_rows,)
    """

    table: BinnedTable
    versions: Alternates
    targets: Values
    weights: Values

    def errors(self, predictions: Values) -> Values:
        """Squared errors of each row, from predictions of shape ``(n_versions, n_rows, n_outputs)``."""
        if len(predictions) == 1:
            return self.weights * ((self.targets - predictions[0]) ** 2).sum(axis=1)
        return self.weights * squared_errors(self.targets, predictions)


@dataclass(frozen=True, slots=True, eq=False)
class Trial:
    """Rows that candidates are grown on, and rows that they are scored on.

    Attributes
    ----------
    own : BinnedTable
        Table whose noised columns hold nothing that a tree could split.
    table : BinnedTable
    alternates : Alternates
        Versions of the noised columns: draws, the released codes, and constants.
    labels, weights : ndarray of float64, shape (n_rows,)
    scored : ScoredRows
    recipe : Recipe
    own_depth : int, optional
        Depth of trees on the own columns, if it is not the recipe's.
    """

    own: BinnedTable
    table: BinnedTable
    alternates: Alternates
    labels: Values
    weights: Values
    scored: ScoredRows
    recipe: Recipe
    own_depth: int | None = None

    def scores(self, choice: NoiseChoice, margins: Values | float = 0.0) -> Values:
        """Scores of the scored rows by trees grown on a choice, shape ``(n_versions, n_outputs, n_rows)``.

        The trees continue from `margins`, which these scores do not include.
        """
        alternates = replace(self.alternates, turns=choice.turns(len(self.alternates) - 2))
        recipe = self.recipe.on_own(self.own_depth) if choice is NoiseChoice.ALONE else self.recipe
        trees, base_scores = recipe.grow(self.table, self.labels, self.weights, alternates, margins=margins)
        scored_table = replace(self.table, bins=self.scored.table.bins)
        return np.stack(raw_scores(scored_table, trees, base_scores, self.scored.versions))

    @property
    def base_scores(self) -> Values:
        """Base scores, shape ``(n_outputs, 1)``."""
        return self.recipe.base_scores(self.labels, self.weights)[:, None]

    def margins(self) -> Values:
        """Scores of each row by trees on the own columns that have not seen it, shape ``(n_outputs, n_rows)``."""
        return self.recipe.on_own(self.own_depth).margins(self.own, self.labels, self.weights)

    def errors(self, scores: Values) -> Values:
        """Errors of the scored rows, from scores of their versions; see `ScoredRows.errors`."""
        n_rows = len(self.scored.targets)
        predictions = [self.recipe.loss.predictions(version.T).reshape(n_rows, -1) for version in scores]
        return self.scored.errors(np.stack(predictions))


def trials_of(
    noised: NoisedRows, recipe: Recipe, known: KnownRows | None, draw_codes: DrawCodes, *, rng: np.random.Generator
) -> tuple[list[Trial], float]:
    """Trials, one for each part of the rows or one on known rows; and the share of variance that draws leave open."""
    most, n_rows = min(recipe.parameters.max_bin, MOST_BINS), len(noised.labels)
    if known is not None:
        drawn = draw_codes(np.arange(n_rows), np.arange(0))
        binned, alternates = versions_of(noised, drawn.sources, drawn.states, None, max_bin=most)
        scored = _known_rows(known, noised, binned, recipe)
        return [_trial(noised, binned, alternates, scored, recipe)], open_share(drawn.states)
    part, trials, opens = rng.permutation(n_rows) % N_PARTS, [], []
    for k in range(min(N_PARTS, 1 + N_PARTS * _SCORED_ROWS // (n_rows + 1))):
        kept, held = np.flatnonzero(part != k), np.flatnonzero(part == k)
        inside, outside, drawn = noised.of_rows(kept), noised.of_rows(held), draw_codes(kept, held)
        binned, alternates = versions_of(inside, drawn.sources, drawn.states, None, max_bin=most)
        blind = in_bins(outside, drawn.sources, binned, drawn.blind)
        versions = Alternates(alternates.columns, blind, tuple(range(len(blind))))
        scored = ScoredRows(outside.table, versions, recipe.targets(outside.labels), outside.weights)
        trials.append(_trial(inside, binned, alternates, scored, recipe))
        opens.append(open_share(drawn.states))
    return trials, float(np.mean(opens))


def _trial(
    noised: NoisedRows, binned: Sequence[BinnedColumn], alternates: Alternates, scored: ScoredRows, recipe: Recipe
) -> Trial:
    return Trial(
        own=noised.table,
        table=noised.filled(binned),
        alternates=alternates,
        labels=noised.labels,
        weights=noised.weights,
        scored=scored,
        recipe=recipe,
    )


def _known_rows(known: KnownRows, noised: NoisedRows, binned: Sequence[BinnedColumn], recipe: Recipe) -> ScoredRows:
    """Rows whose codes are known, in the bins of the training rows."""
    bins = [bins_between(known.columns[c], column.cuts) for c, column in zip(noised.numbers, binned, strict=True)]
    versions = Alternates(np.array(noised.numbers, np.int64), np.array(bins, np.uint8)[None], (0,))
    weights = recipe.parameters.weighted(known.labels, np.ones(len(known.labels)), recipe.loss)
    return ScoredRows(known.binned(noised.table), versions, recipe.targets(known.labels), weights)


def open_share(states: States) -> float:
    """Mean share of the variance of a source's states that lies between the draws of the same row."""
    return float(
        np.mean([draws.var(axis=0, ddof=1).mean() / max(draws.var(), 1e-12) for draws in np.swapaxes(states, 0, 1)])
    )
