"""Remote row holder: a `RowHolder` over workers, whose sums take one round of secure aggregation each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from opboost.arrays import Nodes, Sums
from opboost.horizontal.rows.client_rows import Later
from opboost.horizontal.rows.public_grid import PublicGrid
from opboost.trees.splitting import Splits
from opboost.trees.tree import Tree
from protocols.messages.horizontal import Divide, FinishTree, Place, StartTree, WantHistograms, WantTotals
from protocols.messages.message import Message


class Workers(Protocol):
    """Interface of a group of workers: broadcast of messages, and sums of answers."""

    def tell(self, message: Message) -> None:
        """Broadcast a message to every worker, those too that come back later."""

    def want(self, message: Message) -> None:
        """Add a question to those that the next sum is of."""

    def total(self, length: int) -> NDArray[np.int64]:
        """Sum the workers' vectors of all questions, shape ``(length,)``."""


@dataclass(slots=True, eq=False)
class _Question:
    """A question that is part of the next sum, and its part of that sum."""

    size: int
    answer: NDArray[np.int64] | None = None


class RemoteHolder:
    """Row holder of the rows of all workers together.

    Parameters
    ----------
    workers : Workers

    Notes
    -----
    Workers that drop out are missing from the sums from then on. Each worker's vector is seen by nobody; their sum is
    as private as what the workers answer (`opboost.horizontal`). Questions are collected until one's answer is needed;
    all of them are one round then. Splits of several levels are told together.
    """

    def __init__(self, workers: Workers) -> None:
        self._workers = workers
        self._open: list[_Question] = []
        self._splits: list[Splits] = []

    def start_tree(self, output: int) -> None:
        self._send_splits()
        self._workers.tell(StartTree(output=output))

    def write_histograms(self, nodes: Nodes, out: Sums) -> None:
        question = self._ask(WantHistograms(nodes=nodes.astype("<i4")), out.size)
        out[:] = self._answer(question).reshape(out.shape)

    def totals(self, nodes: Nodes) -> Sums:
        return self.totals_later(nodes)()

    def totals_later(self, nodes: Nodes) -> Later:
        question = self._ask(WantTotals(nodes=nodes.astype("<i4")), 2 * len(nodes))
        return lambda: self._answer(question).reshape(-1, 2)

    def place(self, columns: PublicGrid) -> None:
        # Categories keep their cells, and their row says nothing.
        cuts = list(columns.cuts)
        for column in columns.categorical:
            cuts[column] = np.zeros(columns.n_cells - 1)
        self._workers.tell(Place(cuts=np.stack(cuts).astype("<f8")))

    def divide(self, splits: Splits) -> None:
        self._splits.append(splits)

    def finish_tree(self, tree: Tree) -> None:
        self._send_splits()
        self._workers.tell(FinishTree(values=tree.values[tree.is_leaf].astype("<f8")))

    def _send_splits(self) -> None:
        levels, self._splits = self._splits, []
        if not levels:
            return

        def together(name: str) -> NDArray[Any]:
            return np.concatenate([getattr(level, name) for level in levels])

        self._workers.tell(
            Divide(
                levels=np.array([len(level.nodes) for level in levels], "<i4"),
                nodes=together("nodes").astype("<i4"),
                columns=together("columns").astype("<i4"),
                cuts=together("cuts").astype("<i4"),
                missing_left=together("missing_left"),
            )
        )

    def _ask(self, wanted: Message, size: int) -> _Question:
        self._send_splits()
        self._workers.want(wanted)
        self._open.append(_Question(size))
        return self._open[-1]

    def _answer(self, question: _Question) -> NDArray[np.int64]:
        """The answer to a question; runs one round for all open questions if it has not come yet."""
        if question.answer is None:
            ends = np.cumsum([each.size for each in self._open])
            parts = np.split(self._workers.total(int(ends[-1])), ends[:-1])
            for each, part in zip(self._open, parts, strict=True):
                each.answer = part
            self._open = []
        assert question.answer is not None
        return question.answer
