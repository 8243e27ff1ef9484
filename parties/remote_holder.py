"""Rows at workers, as a `RowHolder`: what needs no answer is told, and what is asked for is one round of a sum."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from opboost.arrays import Nodes, Sums
from opboost.trees.splitting import Splits
from opboost.trees.tree import Tree
from protocols.horizontal_messages import Divide, FinishTree, StartTree, WantHistograms, WantTotals
from protocols.messages import Message


class Workers(Protocol):
    """Whoever carries words to all workers and sums back."""

    def tell(self, message: Message) -> None:
        """Say something that every worker hears, those too that come back later."""

    def total(self, wanted: Sequence[Message], length: int) -> NDArray[np.int64]:
        """The sum of the workers' vectors of what is wanted, shape ``(length,)``."""


class RemoteHolder:
    """The rows of all workers together.

    Parameters
    ----------
    workers : Workers

    Notes
    -----
    Workers that drop out are missing from the sums from then on. Each worker's vector is seen by nobody; their sum is
    as private as what the workers answer (`opboost.horizontal`).
    """

    def __init__(self, workers: Workers) -> None:
        self._workers = workers

    def start_tree(self, output: int) -> None:
        self._workers.tell(StartTree(output=output))

    def add_histograms(self, nodes: Nodes, out: Sums) -> None:
        wanted = WantHistograms(nodes=nodes.astype("<i4"))
        out += self._workers.total([wanted], out.size).reshape(out.shape)

    def totals(self, nodes: Nodes) -> Sums:
        wanted = WantTotals(nodes=nodes.astype("<i4"))
        return self._workers.total([wanted], 2 * len(nodes)).reshape(-1, 2)

    def divide(self, splits: Splits) -> None:
        self._workers.tell(
            Divide(
                nodes=splits.nodes.astype("<i4"),
                columns=splits.columns.astype("<i4"),
                cuts=splits.cuts.astype("<i4"),
                missing_left=splits.missing_left,
                goes_left=splits.goes_left,
                lefts=splits.lefts.astype("<i4"),
                rights=splits.rights.astype("<i4"),
            )
        )

    def finish_tree(self, tree: Tree) -> None:
        self._workers.tell(
            FinishTree(
                columns=tree.columns.astype("<i4"),
                thresholds=tree.thresholds.astype("<f8"),
                missing_left=tree.missing_left,
                lefts=tree.lefts.astype("<i4"),
                rights=tree.rights.astype("<i4"),
                values=tree.values.astype("<f8"),
            )
        )
