"""Training through the noise of a table in partitions: fitted to a sample of its rows, drawn partition by partition."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from opboost.arrays import Ranks, Values
from opboost.denoise.imputation import Evidence, Imputation
from opboost.denoise.sources import RankSource, sources_of
from opboost.fitting.choice import choose
from opboost.fitting.imputing import OwnScores, impute_from
from opboost.fitting.noise_correction import FEW_ROUNDS
from opboost.fitting.noised_table import NoiseChoice, NoisedRows, places
from opboost.fitting.recipe import FOLDS, Recipe
from opboost.fitting.trials import MOST_DRAWS, N_SCORED, CodeDraws, n_draws
from opboost.trees.binning import BinnedColumn, BinnedTable
from opboost.trees.validation import KnownRows
from opboost.trees.xgboost_engine import MOST_STACKED


@dataclass(frozen=True, slots=True, eq=False)
class SampleFit:
    """Imputation of noised columns and choice of versions, fitted to a sample of a table's rows.

    Attributes
    ----------
    choice : NoiseChoice
    share : float
        Weight of the trees of this choice in the scores; those on the own columns have the rest.
    imputation : Imputation
    own : OwnScores
    table : BinnedTable
        The sample's.
    numbers : tuple of int
        Columns of the table that are noised.
    labels, scores : ndarray of float64
        Of the sample: evidence of other rows is standardised like these.
    n_classes : int
        Of the label; 0 for a number.
    seed : int
    """

    choice: NoiseChoice
    share: float
    imputation: Imputation
    own: OwnScores
    table: BinnedTable
    numbers: tuple[int, ...]
    labels: Values
    scores: Values
    n_classes: int
    seed: int

    def turns(self, n_rows: int) -> tuple[int, ...]:
        """Versions of a table of `n_rows` rows that trees train on at once: draws, then the released ranks."""
        return self.choice.turns(n_draws(n_rows))[:MOST_STACKED]

    def versions(
        self, columns: Sequence[Values], ranks: Sequence[Ranks], labels: Values, *, first_row: int, n_rows: int
    ) -> list[NDArray[np.unsignedinteger]]:
        """Ranks of the noised columns of some rows, version after version.

        Parameters
        ----------
        columns : sequence of ndarray of float64, shape (n_some,)
            All columns of the table; what stands for noised ones is not read.
        ranks : sequence of ndarray of unsigned integers, shape (n_some,)
            Released, of the noised columns.
        labels : ndarray of float64, shape (n_some,)
        first_row, n_rows : int
            Number of the first of these rows in the whole table, and rows of that.
        """
        turns, number = self.turns(n_rows), np.arange(len(labels)) + first_row
        table = KnownRows(tuple(columns), labels).binned(self.table)
        scores = self.own.of(table, number % FOLDS)
        evidence = Evidence.of(labels, scores, n_classes=self.n_classes, like=(self.labels, self.scores))
        imputation, n_states = self.imputation.with_ranks(ranks, evidence), n_draws(n_rows)
        states = imputation.draw(n_states, seed=self.seed, first_row=first_row)
        versions = list(ranks)
        for place, source, member in places(imputation.sources):
            drawn = source.rank_of_state[member].astype(ranks[place].dtype)
            by_turn = [ranks[place] if turn == n_states else drawn[states[turn, source.number]] for turn in turns]
            versions[place] = np.concatenate(by_turn)
        return versions


def fit_sample(
    binned: Iterable[BinnedColumn | None],
    sources: Mapping[int, RankSource],
    labels: Values,
    rows: NDArray[np.int64],
    recipe: Recipe,
    *,
    n_columns: int,
) -> SampleFit:
    """Fit what lies behind noised columns to a sample, and choose on it what trees are grown on.

    Parameters
    ----------
    binned : iterable of BinnedColumn or None
        None where a column is noised.
    sources : mapping of int to RankSource
        The noised columns, by number.
    labels : ndarray of float64, shape (n_sampled,)
    rows : ndarray of int64, shape (n_sampled,)
        Their numbers in the whole table.
    recipe : Recipe
    n_columns : int
    """
    weights = recipe.parameters.weighted(labels, np.ones(len(labels)), recipe.loss)
    noised = NoisedRows.of(binned, sources, labels, weights, n_columns=n_columns)
    all_rows = np.arange(len(labels))
    comparing, rng = np.random.default_rng(recipe.seed).spawn(2)
    own = OwnScores.fit(noised, all_rows, rows % FOLDS, recipe, rng=rng)
    scores = own.of(noised.table, rows % FOLDS)
    evidence = Evidence.of(labels, scores, n_classes=recipe.n_classes)
    imputation = impute_from(noised, sources_of(noised.columns), evidence, all_rows, rng=rng)
    seed = int(rng.integers(2**62))
    states = imputation.draw(MOST_DRAWS, seed=seed)
    blind = imputation.draw(N_SCORED, with_label=False, seed=seed + 1)

    def draw_codes(kept: NDArray[np.int64], held: NDArray[np.int64]) -> CodeDraws:
        return CodeDraws(imputation.sources, states[:, :, kept], blind[:, :, held])

    blend = choose(noised, recipe.brief(FEW_ROUNDS), None, draw_codes, may_continue_own=False, rng=comparing)
    return SampleFit(
        choice=blend.choice,
        share=blend.share,
        imputation=imputation,
        own=own,
        table=noised.table,
        numbers=noised.numbers,
        labels=labels,
        scores=scores,
        n_classes=recipe.n_classes,
        seed=seed,
    )
