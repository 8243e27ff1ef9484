"""Rows of clients whose cells may be drawn anew between trees, one client or several asked as one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, runtime_checkable

import numpy as np

from opboost.arrays import Nodes, Sums, Values
from opboost.horizontal.rows.public_grid import PublicGrid
from opboost.horizontal.rows.record_holder import Clipping, Gradients, RecordHolder, WalkingHolder
from opboost.trees.holder import RowHolder, SummedHolders
from opboost.trees.splitting import Splits
from opboost.trees.tree import Tree

# Has sums that were asked for before.
Later = Callable[[], Sums]


@runtime_checkable
class PlacedHolder(RowHolder, Protocol):
    """A row holder that is told new split candidates."""

    def place(self, columns: PublicGrid) -> None:
        """Put the rows into these cells, from the next tree on."""


class ClientHolder(PlacedHolder, Protocol):
    """One that may be asked first and heard later."""

    def totals_later(self, nodes: Nodes) -> Later:
        """What `totals` gives, to be had by a call.

        Further trees may be started before that, and are finished in the order in which they were started. Whatever was
        asked by then is one message.
        """


class ClientRows:
    """One client's rows in this process.

    Parameters
    ----------
    rows : ndarray of float64, shape (n_rows, n_columns)
    labels : ndarray of float64, shape (n_rows,)
    columns : PublicGrid
    gradients : callable
    clipping : Clipping
    walks : bool
        Whether trees are complete and nobody asks for histograms below the root, which is several times faster.
    """

    def __init__(
        self,
        rows: Values,
        labels: Values,
        *,
        columns: PublicGrid,
        gradients: Gradients,
        clipping: Clipping,
        walks: bool,
    ) -> None:
        self._values = rows
        self._rows = client_records(rows, labels, columns=columns, gradients=gradients, clipping=clipping, walks=walks)

    def place(self, columns: PublicGrid) -> None:
        self._rows.rebin(columns.place(self._values))

    def start_tree(self, output: int) -> None:
        self._rows.start_tree(output)

    def add_histograms(self, nodes: Nodes, out: Sums) -> None:
        self._rows.add_histograms(nodes, out)

    def totals(self, nodes: Nodes) -> Sums:
        return self._rows.totals(nodes)

    def totals_later(self, nodes: Nodes) -> Later:
        totals = self.totals(nodes)
        return lambda: totals

    def divide(self, splits: Splits) -> None:
        self._rows.divide(splits)

    def finish_tree(self, tree: Tree) -> None:
        self._rows.finish_tree(tree)


def client_records(
    rows: Values, labels: Values, *, columns: PublicGrid, gradients: Gradients, clipping: Clipping, walks: bool
) -> RecordHolder:
    """The records of `ClientRows` in their first cells, of which the values need not be kept."""
    kind = WalkingHolder if walks else RecordHolder
    return kind(columns.place(rows), labels, gradients=gradients, clipping=clipping, initial_score=0.0)


class SummedClients(SummedHolders):
    """Several clients of disjoint rows, asked as one."""

    def __init__(self, clients: Sequence[ClientHolder]) -> None:
        super().__init__(list(clients))
        self._clients = clients

    def place(self, columns: PublicGrid) -> None:
        for client in self._clients:
            client.place(columns)

    def totals_later(self, nodes: Nodes) -> Later:
        parts = [client.totals_later(nodes) for client in self._clients]
        return lambda: np.sum([part() for part in parts], axis=0)
