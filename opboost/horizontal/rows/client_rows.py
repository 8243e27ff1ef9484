"""Client row holders whose split candidates may change between trees, and their sum."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, Self, TypedDict, Unpack, runtime_checkable

import numpy as np

from opboost.arrays import Nodes, Sums, Values
from opboost.horizontal.rows.public_grid import PublicGrid
from opboost.horizontal.rows.record_holder import Clipping, Gradients, RecordHolder, WalkingHolder
from opboost.trees.binning import BinnedTable
from opboost.trees.holder import ForwardingHolder, RowHolder, SummedHolders

# Has sums that were asked for before.
Later = Callable[[], Sums]


@runtime_checkable
class PlacedHolder(RowHolder, Protocol):
    """Row holder whose split candidates can be changed."""

    def place(self, columns: PublicGrid) -> None:
        """Bin the rows by these candidates, from the next tree on."""


class HeldRecords(RowHolder, Protocol):
    """Row holder of records in cells, which can be put into others."""

    def rebin(self, table: BinnedTable) -> None:
        """Move the rows to other bins, from the next tree on."""

    def copied(self) -> Self:
        """Independent copy of the records; immutable parts are shared."""


class ClientHolder(PlacedHolder, Protocol):
    """Row holder with deferred answers."""

    def totals_later(self, nodes: Nodes) -> Later:
        """Ask for `totals`; the answer is returned by a call.

        Further trees may be started before that, and are finished in the order in which they were started. Whatever was
        asked by then is one message.
        """


class RecordSettings(TypedDict):
    """How a client's records are placed and what they contribute; see `ClientRows`."""

    columns: PublicGrid
    gradients: Gradients
    clipping: Clipping
    walks: bool


class ClientRows(ForwardingHolder):
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

    def __init__(self, rows: Values, labels: Values, **settings: Unpack[RecordSettings]) -> None:
        self._values = rows
        self._rows = client_records(rows, labels, **settings)
        super().__init__(self._rows)

    def place(self, columns: PublicGrid) -> None:
        self._rows.rebin(columns.place(self._values))

    def totals_later(self, nodes: Nodes) -> Later:
        totals = self.totals(nodes)
        return lambda: totals


def client_records(
    rows: Values, labels: Values, *, columns: PublicGrid, gradients: Gradients, clipping: Clipping, walks: bool
) -> RecordHolder:
    """Record holder of a client's rows in their first cells; does not keep the values."""
    kind = WalkingHolder if walks else RecordHolder
    return kind(columns.place(rows), labels, gradients=gradients, clipping=clipping, initial_score=0.0)


class SummedClients(SummedHolders):
    """Sum of several clients with disjoint rows."""

    def __init__(self, clients: Sequence[ClientHolder]) -> None:
        super().__init__(clients)
        self._clients = clients

    def place(self, columns: PublicGrid) -> None:
        for client in self._clients:
            client.place(columns)

    def totals_later(self, nodes: Nodes) -> Later:
        parts = [client.totals_later(nodes) for client in self._clients]
        return lambda: np.sum([part() for part in parts], axis=0)
