"""Tables with noised columns: the rows before these are filled in, and the table that trees are grown on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from opboost.arrays import HistogramAxes, Mask, Ranks, Values
from opboost.denoise.sources import RankSource, Source
from opboost.fitting.recipe import Recipe, table_scores
from opboost.trees.alternating import Alternates
from opboost.trees.binning import BinnedColumn, BinnedTable, bin_ranks, choose_cuts
from opboost.trees.tree import Tree
from opboost.trees.validation import HeldOutRows


class NoiseChoice(StrEnum):
    """Versions of the noised columns that the trees of a model are grown on by turns."""

    ALONE = "alone"
    """Nothing: the own columns alone."""
    PLAIN = "plain"
    """The released codes, as if they were exact."""
    CORRECTED_AND_PLAIN = "corrected and plain"
    CORRECTED = "corrected"
    """Draws of the exact codes."""

    @property
    def sentence(self) -> str:
        """For people: what the trees were grown on."""
        return {
            NoiseChoice.ALONE: "the passive columns add nothing at this budget: trees use the own columns alone",
            NoiseChoice.PLAIN: "trees take the released codes for exact ones, which serves best here",
            NoiseChoice.CORRECTED_AND_PLAIN: "trees learn through the noise, by turns with the released codes",
            NoiseChoice.CORRECTED: "trees learn through the noise",
        }[self]

    def turns(self, n_draws: int) -> tuple[int, ...]:
        """Version of each round by turns: draws are 0 to `n_draws - 1`, then the released codes, then nothing."""
        draws, plain, nothing = range(n_draws), n_draws, n_draws + 1
        match self:
            case NoiseChoice.CORRECTED:
                return tuple(draws)
            case NoiseChoice.PLAIN:
                return (plain,)
            case NoiseChoice.ALONE:
                return (nothing,)
            case NoiseChoice.CORRECTED_AND_PLAIN:
                return tuple(version for draw in draws for version in (draw, plain))


@dataclass(frozen=True, slots=True)
class Blend:
    """Weights of two groups of trees in a model: *noised trees*, grown on all columns, and *own trees*.

    Attributes
    ----------
    choice : NoiseChoice
        Versions of the noised columns that noised trees are grown on.
    share : float
        Weight of the noised trees' scores; that of own trees is ``1 - share``.
    continues_own : bool
        Whether noised trees continue from the scores of own trees, whose weight is 1 then.
    own_depth : int, optional
        Depth of own trees, if it is not the parameters'.
    """

    choice: NoiseChoice
    share: float = 1.0
    continues_own: bool = False
    own_depth: int | None = None

    @property
    def own_share(self) -> float:
        """Weight of the own trees' scores."""
        return 1.0 if self.continues_own else 1.0 - self.share


@dataclass(frozen=True, slots=True, eq=False)
class NoisedRows:
    """Training rows before their noised columns are filled in.

    Attributes
    ----------
    table : BinnedTable
        All columns; those that are noised hold nothing that a tree could split.
    numbers : tuple of int
        Columns of the table that are noised.
    columns : tuple of RankSource
        What was released of them.
    labels, weights : ndarray of float64, shape (n_rows,)
    """

    table: BinnedTable
    numbers: tuple[int, ...]
    columns: tuple[RankSource, ...]
    labels: Values
    weights: Values

    @classmethod
    def of(
        cls,
        binned: Iterable[BinnedColumn | None],
        sources: Mapping[int, RankSource],
        labels: Values,
        weights: Values,
        *,
        n_columns: int,
    ) -> NoisedRows:
        """Rows of these columns, of which one at a time is held; None stands for a noised one."""
        constant = BinnedColumn(np.zeros(len(labels), np.uint8), np.empty(0))
        table = BinnedTable.of((column or constant for column in binned), n_columns=n_columns)
        return cls(table, tuple(sources), tuple(sources.values()), labels, weights)

    @property
    def has_own(self) -> bool:
        """Whether trees could split a column that is not noised."""
        own = np.delete(np.arange(self.table.axes.n_columns), self.numbers)
        return bool((self.table.axes.sizes[own] >= 3).any())

    def filled(self, binned: Sequence[BinnedColumn], *, is_copied: bool = True) -> BinnedTable:
        """The table with these bins for the noised columns; unless `is_copied`, bins of `table` are overwritten."""
        table = self.table
        kind = np.result_type(table.bins, *(column.bins for column in binned))
        bins: Any = table.bins.astype(kind, copy=is_copied)
        cuts, sizes = list(table.cuts), (table.axes.sizes - 1).tolist()
        for number, column in zip(self.numbers, binned, strict=True):
            bins[number] = column.bins
            cuts[number], sizes[number] = column.cuts, column.n_value_bins
        axes = HistogramAxes.from_bin_counts(sizes, table.axes.is_categorical.tolist())
        return BinnedTable(bins, tuple(cuts), axes)

    def of_rows(self, rows: NDArray[np.int64]) -> NoisedRows:
        """The rows with these numbers."""
        columns = tuple(replace(column, ranks=_ranks_of(column, rows)) for column in self.columns)
        return NoisedRows(self.table.of_rows(rows), self.numbers, columns, self.labels[rows], self.weights[rows])


@dataclass(frozen=True, slots=True, eq=False)
class FilledTable:
    """Table to train on, whose noised columns are filled in, and trees on the own columns that go with it.

    Attributes
    ----------
    blend : Blend or None
        Weights of trees that are grown on this table and of `own_trees`; None where no column is noised.
    table : BinnedTable
    alternates : Alternates or None
        Versions of the noised columns, of the same rows.
    own_trees : tuple of Tree
        Grown on the columns without noise alone, from the same base scores.
    margins : ndarray of float64, shape (n_outputs, n_rows), or None
        Out-of-fold scores by trees on the own columns, if the trees on this table continue from these.
    """

    blend: Blend | None
    table: BinnedTable
    alternates: Alternates | None = None
    own_trees: tuple[Tree, ...] = ()
    margins: Values | None = None

    @property
    def choice(self) -> NoiseChoice | None:
        """Versions of the noised columns that trees are grown on."""
        return None if self.blend is None else self.blend.choice

    def grown_by(self, recipe: Recipe) -> Recipe:
        """The recipe of trees on this table: that of own trees, if they see no noised column."""
        if self.blend is None or self.blend.choice is not NoiseChoice.ALONE:
            return recipe
        return recipe.on_own(self.blend.own_depth)

    def beside_own(self, held_out: HeldOutRows, n_outputs: int) -> HeldOutRows:
        """Held-out rows, scored as by the model: with the part of the own trees, and the share of the others."""
        if self.blend is None or not self.own_trees:
            return held_out
        own = table_scores(held_out.table.of_rows(np.arange(len(held_out.labels))), self.own_trees, np.zeros(n_outputs))
        return held_out._replace(margins=self.blend.own_share * own, share=self.blend.share)

    def shared(self, trees: Sequence[Tree]) -> list[Tree]:
        """Trees grown on this table and those of the own columns, each with its share of the scores."""
        if self.blend is None:
            return list(trees)
        parts = (trees, self.blend.share), (self.own_trees, self.blend.own_share)
        return [tree if share == 1.0 else tree.scaled(share) for part, share in parts for tree in part]


def held_out_table(filled: FilledTable, rows: Mask, *, n_draws: int) -> BinnedTable:
    """Rows of a filled table that are held out, repeated for each of their draws."""
    table = filled.table.of_rows(rows)
    if filled.alternates is None:
        return table
    alternates = filled.alternates.of_rows(rows)
    draws = alternates.versions[:n_draws]
    bins: Any = np.tile(table.bins, (1, n_draws))
    bins[alternates.columns] = np.swapaxes(draws, 0, 1).reshape(len(alternates.columns), -1)
    return replace(table, bins=bins)


def plain_bins(noised: NoisedRows, max_bin: int) -> list[BinnedColumn]:
    """Bins of the released ranks of the noised columns."""
    return [bin_ranks(column.ranks, column.n_ranks, max_bin=max_bin, cuts=column.cuts) for column in noised.columns]


def versions_of(
    noised: NoisedRows,
    sources: Sequence[Source],
    states: NDArray[np.uint8],
    choice: NoiseChoice | None,
    *,
    max_bin: int,
) -> tuple[list[BinnedColumn], Alternates]:
    """Versions of the noised columns in common bins, whose cuts lie where the owner has thresholds.

    Draws come first; then, where trees look at them or nothing is chosen yet, the released ranks and nothing.
    """
    n_draws, _, n_rows = states.shape
    n_versions = n_draws + 2 if choice is None else max(choice.turns(n_draws)) + 1
    versions = np.zeros((n_versions, len(noised.columns), n_rows), np.uint8)
    binned: dict[int, BinnedColumn] = {}
    for place, source, member in places(sources):
        column, ranks = noised.columns[place], source.rank_of_state[member]
        state_counts = sum(np.bincount(draw, minlength=len(ranks)) for draw in states[:, source.number])
        counts = np.bincount(ranks, weights=state_counts, minlength=column.n_ranks + 1).astype(np.int64)
        has_missing = source.channel.has_missing
        cut_ranks = column.cuts
        if cut_ranks is None:
            cut_ranks = choose_cuts(counts[: column.n_ranks], max_bin=max_bin - has_missing)
        cuts = cut_ranks.astype(np.float64)
        versions[:n_draws, place] = bins_of_ranks(ranks, column.n_ranks, cuts)[states[:, source.number]]
        if n_versions > n_draws:
            bin_of_rank = bins_of_ranks(np.arange(column.n_ranks + 1, dtype=np.uint32), column.n_ranks, cuts)
            versions[n_draws, place] = bin_of_rank[column.ranks[:]]
        binned[place] = BinnedColumn(versions[0, place], cuts)
    columns = [binned[place] for place in range(len(noised.columns))]
    turns = tuple(range(n_draws)) if choice is None else choice.turns(n_draws)
    return columns, Alternates(np.array(noised.numbers, np.int64), versions, turns)


def in_bins(
    noised: NoisedRows, sources: Sequence[Source], binned: Sequence[BinnedColumn], states: NDArray[np.uint8]
) -> NDArray[np.uint8]:
    """Other draws of the noised columns, of any rows, in the same bins, shape ``(n_draws, n_columns, n_rows)``."""
    bins = np.empty((len(states), len(binned), states.shape[2]), np.uint8)
    for place, source, member in places(sources):
        bin_of_state = bins_of_ranks(source.rank_of_state[member], noised.columns[place].n_ranks, binned[place].cuts)
        bins[:, place] = bin_of_state[states[:, source.number]]
    return bins


def bins_of_ranks(ranks: Ranks, n_ranks: int, cuts: Values) -> NDArray[np.uint8]:
    """Bins of ranks between these cuts; rank `n_ranks` is missing."""
    return np.where(ranks == n_ranks, len(cuts) + 1, np.searchsorted(cuts, ranks)).astype(np.uint8)


def places(sources: Sequence[Source]) -> list[tuple[int, Source, int]]:
    """For each noised column: its place among them, its source, and which of the source's members it is."""
    return [(place, source, m) for source in sources for m, place in enumerate(source.members)]


def _ranks_of(column: RankSource, rows: NDArray[np.int64]) -> Ranks:
    """The ranks of some rows, of a column that may lie in a file."""
    return np.asarray(column.ranks[:], np.uint32)[rows]
