"""A table some of whose columns are known in several versions: trees grow on one version after the other.

Every version has scores of its own, which all trees are added to. The ensemble is close to the mean of as many models
as there are versions, and costs one of them. Columns without versions are kept and binned once.

Where the trees are assigned to several ensembles, each learns from its own trees alone; the model is their mean.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from opboost.arrays import Mask, Scores, Values
from opboost.errors import DataError
from opboost.trees.binning import BinnedTable
from opboost.trees.holder import LocalHolder
from opboost.trees.losses import GradientGrid, Loss
from opboost.trees.rows import FollowedTree, PutBack, add_trees
from opboost.trees.tree import Tree


class EnsembleVersion(NamedTuple):
    """An ensemble and a version of the columns that its trees look at."""

    ensemble: int
    version: int


@dataclass(frozen=True, slots=True, eq=False)
class Alternates:
    """Versions of some columns' bins.

    Attributes
    ----------
    columns : ndarray of int64, shape (n_alternating,)
        Which columns of the table they stand for.
    versions : ndarray of uint8, shape (n_versions, n_alternating, n_rows)
        In the bins of the table.
    turns : tuple of int
        Version of each round, repeated cyclically.
    n_ensembles : int
        Number of ensembles that rounds are assigned to by turns. The model is their mean, so a tree has `n_ensembles`
        times as much weight in its ensemble as in the model.
    """

    columns: NDArray[np.int64]
    versions: NDArray[np.uint8]
    turns: tuple[int, ...]
    n_ensembles: int = 1

    def __len__(self) -> int:
        return len(self.versions)

    def turn(self, number: int) -> EnsembleVersion:
        """Ensemble of a round, and the version that its trees are grown on."""
        return EnsembleVersion(number % self.n_ensembles, self.turns[number % len(self.turns)])

    def of_rows(self, rows: NDArray[np.int64] | Mask) -> Alternates:
        """The same versions of some of the rows."""
        return replace(self, versions=np.ascontiguousarray(self.versions[:, :, rows]))


class AlternatingHolder(LocalHolder):
    """Rows in this process; each round trains on the next version of the columns that alternate.

    Parameters
    ----------
    table : BinnedTable
        Its alternating columns are overwritten.
    alternates : Alternates
    labels, weights, loss, grid, initial_scores, subsample, rng
        As for `LocalHolder`.
    n_rounds : int
        Rounds of the earlier model, whose turns come first.
    """

    def __init__(
        self,
        table: BinnedTable,
        alternates: Alternates,
        labels: Values,
        weights: Values,
        *,
        loss: Loss,
        grid: GradientGrid,
        initial_scores: Values,
        subsample: float = 1.0,
        rng: np.random.Generator,
        n_rounds: int = 0,
    ) -> None:
        super().__init__(
            table, labels, weights, loss=loss, grid=grid, initial_scores=initial_scores, subsample=subsample, rng=rng
        )
        if alternates.versions.shape[1:] != (len(alternates.columns), table.n_rows) or not alternates.turns:
            raise DataError(f"versions of shape {alternates.versions.shape} do not fit {table.n_rows} rows")
        self._followed = FollowedVersions(table, alternates, self._rows.scores)
        self._alternates = alternates
        self._n_started = n_rounds
        self._turn = alternates.turn(n_rounds)

    def start_tree(self, output: int) -> None:
        if output == 0:
            self._turn = self._alternates.turn(self._n_started)
            self._table.bins[self._alternates.columns] = self._alternates.versions[self._turn.version]
            self._rows.scores = self._followed.up_to_date(self._turn.version, self._turn.ensemble)
            self._n_started += 1
        super().start_tree(output)

    def finish_tree(self, tree: Tree) -> None:
        ensemble_tree = tree.scaled(self._alternates.n_ensembles)
        super().finish_tree(ensemble_tree)
        self._followed.add_to_ensemble(ensemble_tree, self._output, self._turn)

    def add_tree(self, tree: Tree, output: int) -> None:
        self._followed.add(tree, output)

    def take_out(self, trees: Sequence[tuple[int, Tree]]) -> PutBack:
        def add(weight: float) -> None:
            for output, tree in trees:
                self.add_tree(tree.scaled(weight), output)

        add(-1.0)
        return add


class FollowedVersions:
    """Scores of every version that an ensemble is grown on, updated lazily: trees wait until scores are asked for.

    Parameters
    ----------
    table : BinnedTable
    alternates : Alternates
    scores : ndarray, shape (n_outputs, n_rows)
        At the start, of every version.
    """

    def __init__(self, table: BinnedTable, alternates: Alternates, scores: Scores) -> None:
        self._table = table
        self._alternates = alternates
        n_turns = math.lcm(alternates.n_ensembles, len(alternates.turns))
        turns = sorted({alternates.turn(number) for number in range(n_turns)})
        self._scores = {turn: scores.copy() for turn in turns}
        self._waiting: dict[EnsembleVersion, list[tuple[int, FollowedTree]]] = {turn: [] for turn in turns}
        self._places = np.full(table.axes.n_columns, -1, np.int32)
        self._places[alternates.columns] = np.arange(len(alternates.columns))

    def add(self, tree: Tree, output: int) -> None:
        """Queue a tree for every version of every ensemble."""
        self._note(tree, output, list(self._waiting))

    def add_to_ensemble(self, tree: Tree, output: int, turn: EnsembleVersion) -> None:
        """Queue a tree for every version that its ensemble is grown on, but the one of this turn."""
        self._note(
            tree, output, [other for other in self._waiting if other != turn and other.ensemble == turn.ensemble]
        )

    def up_to_date(self, version: int, ensemble: int = 0) -> Scores:
        """Scores of a version, with all trees so far."""
        turn = EnsembleVersion(ensemble, version)
        scores, bins = self._scores[turn], self._alternates.versions[version]
        add_trees(scores, bins, self._table.bins, self._places, self._waiting[turn])
        self._waiting[turn].clear()
        return scores

    def _note(self, tree: Tree, output: int, turns: Sequence[EnsembleVersion]) -> None:
        followed = FollowedTree.of(tree, self._table.axes)
        for turn in turns:
            self._waiting[turn].append((output, followed))
