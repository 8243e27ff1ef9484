"""An owner's rows in the recommended recipe: exact answers in every round, and checks of which questions are due."""

from __future__ import annotations

import copy
from collections.abc import Collection, Sequence
from typing import NoReturn, Self

import numpy as np

from opboost.arrays import Nodes, Sums, Values
from opboost.errors import AccountError
from opboost.horizontal.recommended.first_releases import N_LABEL_CELLS
from opboost.horizontal.recommended.first_rounds import FirstRounds
from opboost.horizontal.recommended.residual_size import LEAST_FACTOR
from opboost.horizontal.recommended.tree_training import TreeTask, scaled_labels
from opboost.horizontal.rows.client_rows import Later, PlacedHolder
from opboost.horizontal.rows.joint_rows import JointRows
from opboost.horizontal.rows.public_grid import PublicGrid
from opboost.horizontal.splits.noisy_cells import N_COUNTED
from opboost.privacy.additive import Noise
from opboost.rng import BitSource
from opboost.trees.binning import BinnedTable
from opboost.trees.holder import ForwardingHolder, RowHolder
from opboost.trees.splitting import Splits
from opboost.trees.tree import Tree


class RoundRows:
    """Row holder with exact answers; the trees of the first rounds have a single leaf.

    Parameters
    ----------
    table : BinnedTable
        Of `FirstRounds.grid`.
    labels : ndarray of float64, shape (n_rows,)
        In their own unit.
    rounds : FirstRounds
    task : TreeTask
    bound_trees : collection of int
        Numbers, after the first rounds, of the trees whose leaf value multiplies the bound of gradients.
    margins : ndarray of float64, shape (1, n_rows), optional
        Scores of an earlier model: two classes go on from them, and trees on numbers learn the residuals.
    """

    def __init__(
        self,
        table: BinnedTable,
        labels: Values,
        rounds: FirstRounds,
        task: TreeTask,
        bound_trees: Collection[int] = (),
        *,
        margins: Values | None = None,
    ) -> None:
        self._table, self._labels, self._rounds, self._task = table, labels, rounds, task
        self._bound_trees = bound_trees
        self._margins = None if task.is_numbers else margins
        if task.is_numbers and margins is not None:
            self._labels = labels - margins[0]
        self._kinds = rounds.kinds
        self._number, self._output, self._n_finished = -1, rounds.n_outputs - 1, 0
        self._settled: list[float] = []
        self._joint: JointRows | None = None

    def rebin(self, table: BinnedTable) -> None:
        """Put the rows into other bins, from the next tree on."""
        self._table = table

    def copied(self) -> Self:
        """Independent copy of the records; immutable parts are shared."""
        twin = copy.copy(self)
        twin._settled = self._settled.copy()
        twin._joint = None if self._joint is None else self._joint.copied()
        return twin

    def start_tree(self, output: int) -> None:
        if output != (self._output + 1) % self._rounds.n_outputs:
            raise AccountError("the outputs of a round are begun one after the other; nothing was released")
        self._output = output
        if output:
            return
        self._number, self._n_finished = self._number + 1, 0
        if self._number >= len(self._kinds) and not self._is_bound_tree:
            if self._joint is None:
                start = self._rounds.start(self._settled)
                labels, n_counted = self._rounds.tree_labels(self._labels, start), self._rounds.plan.n_counted
                scores = start.scores if self._margins is None else self._margins
                self._joint = self._task.rows(self._table, labels, scores, n_counted=n_counted)
            self._joint.start_tree(0)

    def write_histograms(self, nodes: Nodes, out: Sums) -> None:
        """Write counts to the released places of `out`, of labels' cells or of columns' cells, and 0 elsewhere."""
        kind = self._kinds[self._number]
        if kind == "labels":
            grid = PublicGrid([self._rounds.range_of(self._settled)], N_LABEL_CELLS)
            cells = [grid.place(self._labels[:, None]).bins[0]]
        else:
            cells = [self._table.bins[column] for column in self._rounds.counted]
        counts = np.concatenate([np.bincount(column, minlength=N_COUNTED)[:N_COUNTED] for column in cells])
        out[...] = 0
        out.reshape(-1)[self._rounds.released(kind)] = counts * int(self._rounds.steps(kind))

    def totals(self, nodes: Nodes) -> Sums:
        if self._joint is not None:
            return self._joint.outputs[self._output].totals(nodes)
        rounds, unit = self._rounds, self._rounds.steps("score")
        if rounds.n_classes > 2:
            return np.array([[int((self._labels == self._output).sum() * unit), 0]])
        shares = self._labels
        if not rounds.n_classes:
            shares = (1 + scaled_labels(shares, *rounds.range_of(self._settled))) / 2
        codes = np.trunc(shares * unit).astype(np.int64)
        return np.array([[codes.sum(), (int(unit) - codes).sum()]])

    def divide(self, splits: Splits) -> None:
        if self._joint is not None:
            self._joint.outputs[self._output].divide(splits)

    @property
    def _is_bound_tree(self) -> bool:
        return self._number - len(self._kinds) in self._bound_trees

    def finish_tree(self, tree: Tree) -> None:
        """Note what a first round settled, tighten the bound, or add the leaves' values of the batch's oldest tree."""
        if self._joint is None:
            self._settled.append(float(tree.values[0]))
        elif self._is_bound_tree:
            self._joint.tighten(float(tree.values[0]))
        else:
            self._joint.outputs[self._n_finished].finish_tree(tree)
        self._n_finished += 1

    def __sizeof__(self) -> int:
        return int(self._table.bins.nbytes) + self._labels.nbytes * (1 + 6 * self._task.n_outputs)


class TableRows(ForwardingHolder):
    """Rows of one table, whose values are kept to be put into other cells.

    Parameters
    ----------
    values : ndarray of float64, shape (n_rows, n_columns)
    records : RoundRows
    """

    def __init__(self, values: Values, records: RoundRows) -> None:
        super().__init__(records)
        self._values, self._records = values, records

    def place(self, columns: PublicGrid) -> None:
        self._records.rebin(columns.place(self._values))


class FirstAnswers(ForwardingHolder):
    """Holder of the first rounds: one noisy answer per round, and per output for the first scores.

    Parameters
    ----------
    holder : RowHolder
        Holder with exact answers.
    rounds : FirstRounds
    noises : sequence of Noise or None
        On the numbers of each round, in steps.
    rng : BitSource
        Each round has a stream of its own: a holder that is made again from the same key answers the same.
    """

    def __init__(
        self, holder: RowHolder, *, rounds: FirstRounds, noises: Sequence[Noise | None], rng: BitSource
    ) -> None:
        super().__init__(holder)
        self._rounds, self._noises, self._rng = rounds, noises, rng
        self._number, self._output, self._may_ask = -1, 0, False
        self._settled: list[float] = []

    def start_tree(self, output: int) -> None:
        super().start_tree(output)
        self._number, self._output = self._number + (output == 0), output
        self._may_ask = self._may_ask or output == 0 or self._rounds.kinds[self._number] == "score"

    def finish_tree(self, tree: Tree) -> None:
        """Add what a round settled, after a check that depends on no label: a later refusal could reveal labels."""
        settled = [*self._settled, float(tree.values[0])]
        self._rounds.check(settled)
        super().finish_tree(tree)
        self._settled = settled

    def write_histograms(self, nodes: Nodes, out: Sums) -> None:
        self._take_turn("labels", "cells")
        super().write_histograms(nodes, out)
        out[...] = self._noisy(out)

    def totals(self, nodes: Nodes) -> Sums:
        self._take_turn("score")
        return self._noisy(super().totals(nodes))

    def divide(self, splits: Splits) -> None:
        raise AccountError("first rounds have trees of a single leaf; nothing was released")

    def _take_turn(self, *kinds: str) -> None:
        if not self._may_ask or self._rounds.kinds[self._number] not in kinds:
            raise AccountError("a question that this first round does not have; nothing was released")
        self._may_ask = False

    def _noisy(self, exact: Sums) -> Sums:
        """The released numbers with noise; all others stay 0."""
        noise, places = self._noises[self._number], self._rounds.released(self._rounds.kinds[self._number])
        out = np.zeros_like(exact)
        out.reshape(-1)[places] = exact.reshape(-1)[places]
        if noise is not None:
            rng = self._rng.fork(f"first round {self._number} output {self._output}")
            out.reshape(-1)[places] += noise.draw(len(places), rng=rng)
        return out


class BoundAnnouncement(ForwardingHolder):
    """Holder for trees that announce a factor of the gradients' bound, from 1/2 to 1, and ask for no sums."""

    def write_histograms(self, nodes: Nodes, out: Sums) -> None:
        self._refuse()

    def totals(self, nodes: Nodes) -> Sums:
        self._refuse()

    def divide(self, splits: Splits) -> None:
        self._refuse()

    def _refuse(self) -> NoReturn:
        raise AccountError("a bound is told by this tree, and nothing is asked; nothing was released")

    def finish_tree(self, tree: Tree) -> None:
        if not LEAST_FACTOR <= tree.values[0] <= 1:
            raise AccountError(
                f"the bound of gradients is multiplied by {LEAST_FACTOR} to 1; found {tree.values[0]:.6g}. "
                "Nothing was released"
            )
        super().finish_tree(tree)


class StagedHolder:
    """Sequence of row holders over the same rows, each of which answers for a fixed number of trees.

    Parameters
    ----------
    rows : PlacedHolder
        Rows that all of the holders answer from.
    stages : sequence of (int, RowHolder)
        Number of trees, and the holder that answers for them; further trees are refused.
    """

    def __init__(self, rows: PlacedHolder, stages: Sequence[tuple[int, RowHolder]]) -> None:
        self._rows = rows
        self._stages = [stage for stage in stages if stage[0]]
        self._n_started = 0

    def start_tree(self, output: int) -> None:
        stages, n_started = self._stages, self._n_started
        if stages and n_started == stages[0][0]:
            stages, n_started = stages[1:], 0
        if not stages:
            raise AccountError("the account was made for the trees before this one; nothing was released")
        stages[0][1].start_tree(output)
        self._stages, self._n_started = stages, n_started + 1

    def write_histograms(self, nodes: Nodes, out: Sums) -> None:
        self._current.write_histograms(nodes, out)

    def totals(self, nodes: Nodes) -> Sums:
        return self._current.totals(nodes)

    def totals_later(self, nodes: Nodes) -> Later:
        """Ask for `totals`; the answer is returned by a call."""
        totals = self.totals(nodes)
        return lambda: totals

    def divide(self, splits: Splits) -> None:
        self._current.divide(splits)

    def finish_tree(self, tree: Tree) -> None:
        self._current.finish_tree(tree)

    def place(self, columns: PublicGrid) -> None:
        self._rows.place(columns)

    @property
    def _current(self) -> RowHolder:
        return self._stages[0][1]
