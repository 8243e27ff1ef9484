"""An owner's rows in the recommended recipe: exact answers in every round."""

from __future__ import annotations

import copy
from collections.abc import Collection
from typing import Self

import numpy as np
from numpy.typing import NDArray

from opboost.arrays import Nodes, Sums, Values
from opboost.errors import AccountError
from opboost.horizontal.recommended.first_releases import N_LABEL_CELLS
from opboost.horizontal.recommended.first_rounds import FirstRounds, Round
from opboost.horizontal.recommended.tree_training import TreeTask, scaled_labels
from opboost.horizontal.rows.joint_rows import JointRows
from opboost.horizontal.rows.public_grid import PublicGrid
from opboost.horizontal.splits.column_screen import cell_sums
from opboost.horizontal.splits.noisy_cells import N_COUNTED
from opboost.trees.binning import BinnedTable
from opboost.trees.holder import ForwardingHolder
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
        self._screened: NDArray[np.int64] | None = None

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
        self._screened = self._screen_codes() if self._number < len(self._kinds) and self._kind == "columns" else None
        if self._number >= len(self._kinds) and not self._is_bound_tree:
            if self._joint is None:
                start = self._rounds.start(self._settled)
                labels, n_counted = self._rounds.tree_labels(self._labels, start), self._rounds.plan.n_counted
                scores = start.scores if self._margins is None else self._margins
                self._joint = self._task.rows(self._table, labels, scores, n_counted=n_counted)
            self._joint.start_tree(0)

    @property
    def _kind(self) -> Round:
        return self._kinds[self._number]

    def _screen_codes(self) -> NDArray[np.int64]:
        """Gradients of all records that the screen adds up, in steps, shape ``(n_outputs, n_rows)``."""
        rounds = self._rounds
        labels = rounds.tree_labels(self._labels, rounds.start(self._settled))
        scores = rounds.screen_scores(self._settled) if self._margins is None else self._margins
        return self._task.gradient_codes(labels, scores, rounds.steps("columns"))

    def write_histograms(self, nodes: Nodes, out: Sums) -> None:
        """Write counts to the released places of `out`, of labels' cells or of columns' cells, and 0 elsewhere.

        For the screen, which adds up what is not linear, all of the output's sums in every bin.
        """
        kind = self._kind
        if self._screened is not None:
            out[0, 0], out[0, 1] = cell_sums(self._table, self._screened[self._output]), 0
            return
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
