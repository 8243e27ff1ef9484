"""An owner's answers in the recommended recipe: which questions are due, and the noise on what is answered."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

import numpy as np

from opboost.arrays import Nodes, Sums
from opboost.errors import AccountError
from opboost.horizontal.recommended.first_rounds import FirstRounds
from opboost.horizontal.recommended.residual_size import LEAST_FACTOR
from opboost.horizontal.rows.client_rows import Later, PlacedHolder
from opboost.horizontal.rows.public_grid import PublicGrid
from opboost.horizontal.splits.column_screen import dependences
from opboost.privacy.additive import Noise
from opboost.rng import BitSource
from opboost.trees.holder import ForwardingHolder, RowHolder
from opboost.trees.splitting import Splits
from opboost.trees.tree import Tree

_ROOT = np.zeros(1, np.int32)


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
        # Exact sums of the outputs that a screen has begun, in every bin.
        self._sums: list[Sums] = []

    def start_tree(self, output: int) -> None:
        super().start_tree(output)
        self._number, self._output = self._number + (output == 0), output
        kind = self._rounds.kinds[self._number]
        self._may_ask = self._may_ask or output == 0 or kind == "score"
        if kind == "columns":
            exact = np.empty((1, 2, self._rounds.grid.axes.n_bins), np.int64)
            super().write_histograms(_ROOT, exact)
            self._sums = [*self._sums[:output], exact[0, 0].copy()]

    def finish_tree(self, tree: Tree) -> None:
        """Add what a round settled, after a check that depends on no label: a later refusal could reveal labels."""
        settled = [*self._settled, float(tree.values[0])]
        self._rounds.check(settled)
        super().finish_tree(tree)
        self._settled = settled

    def write_histograms(self, nodes: Nodes, out: Sums) -> None:
        self._take_turn("labels", "cells", "columns")
        if self._rounds.kinds[self._number] == "columns":
            axes = self._rounds.grid.axes
            out[...] = 0
            out[0, 0, axes.offsets[:-1]] = dependences(np.stack(self._sums), axes)
        else:
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
        Number of trees, of whole rounds, and the holder that answers for them; further trees are refused.
    n_outputs : int
        Trees of a round, one per output.
    """

    def __init__(self, rows: PlacedHolder, stages: Sequence[tuple[int, RowHolder]], *, n_outputs: int) -> None:
        self._rows, self._n_outputs = rows, n_outputs
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
        """Move the cells; a round has the same ones for all outputs, or a screen's numbers would tell too much."""
        if self._n_started % self._n_outputs:
            raise AccountError("cells were moved before all outputs of a round were begun; nothing was released")
        self._rows.place(columns)

    @property
    def _current(self) -> RowHolder:
        return self._stages[0][1]
