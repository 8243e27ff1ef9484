"""Row holder with a query budget: counts queries, adds Gaussian noise to every answer, refuses what is not paid for."""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.typing import NDArray

from opboost.arrays import HistogramAxes, Mask, Nodes, Sums
from opboost.errors import AccountError
from opboost.horizontal.federated.weight_updates import WeightUpdate
from opboost.horizontal.noise.noisy_holder import gaussian_noise
from opboost.horizontal.rows.client_rows import ClientHolder, Later
from opboost.horizontal.rows.public_grid import PublicGrid
from opboost.rng import BitSource, DrawnAhead
from opboost.trees.holder import ForwardingHolder
from opboost.trees.splitting import Splits

# What one number of a message takes.
_BYTES = 8

# Noise that is drawn at a time.
_AHEAD = 1 << 11


class QueryHolder(ForwardingHolder):
    """Answers queries for sums of (G, H), each with Gaussian noise of one multiplier.

    A query is a partition of the records and the sum of each part: the nodes of a level, or the bins of one column in
    the nodes of a level. A record is in one part, so a query has the sensitivity of one record's vector, however many
    parts there are; and n queries follow each other. `NoisyHolder` answers one such query per tree; this one answers
    several kinds, and charges each before it draws.

    Parameters
    ----------
    holder : ClientHolder
        Whose answers are exact.
    axes : HistogramAxes
        Of columns that all have as many bins.
    update : WeightUpdate
    multiplier : float
        Deviation of the noise over the sensitivity of a query; 0 for no noise.
    n_queries : int
        That the account was made for.
    rng : BitSource

    Attributes
    ----------
    n_asked : int
        Queries that were answered.
    n_rounds : int
        Messages of each client, if the trees of a batch are asked together. The questions of a tree at one depth are
        one message.
    n_numbers : int
        In all messages of one client together.

    Notes
    -----
    Privacy: `n_queries` Gaussian releases of ``mu = 1 / multiplier`` each, between data that differ by one record.
    """

    def __init__(
        self,
        holder: ClientHolder,
        *,
        axes: HistogramAxes,
        update: WeightUpdate,
        multiplier: float,
        n_queries: int,
        rng: BitSource,
    ) -> None:
        super().__init__(holder)
        self._clients = holder
        self._axes = axes
        self._update = update
        self._multiplier = multiplier
        self._n_queries = n_queries
        self._rng = rng
        std = multiplier * update.clipping.sensitivity * (1 + 1e-14)
        stds = std, std * update.clipping.ratio
        self._noises = tuple(
            _drawn_ahead(each, scale, rng.fork(name))
            for each, scale, name in zip(stds, update.scales, ("first", "second"), strict=True)
        )
        self._split: set[int] = set()
        self._depth = 0
        self._depths_asked: set[int] = set()
        self.n_asked = self.n_rounds = self.n_numbers = 0

    @property
    def n_bytes(self) -> int:
        """Bytes of all messages of one client, without the overhead of secure aggregation."""
        return _BYTES * self.n_numbers

    def place(self, columns: PublicGrid) -> None:
        self._clients.place(columns)

    def start_tree(self, output: int) -> None:
        self._split, self._depth = set(), 0
        if output == 0:
            self._depths_asked = set()
        super().start_tree(output)

    def totals(self, nodes: Nodes) -> Sums:
        """Noisy sums per node, shape ``(n_nodes, 2)``: one query."""
        return self.totals_later(nodes)()

    def totals_later(self, nodes: Nodes) -> Later:
        """Deferred `totals`, so that trees of a batch are asked together."""
        self._charge(1, nodes)
        later = self._clients.totals_later(nodes)
        # However often it is called, noise is drawn once.
        return cache(lambda: self._released(later()))

    def histograms(self, nodes: Nodes, columns: NDArray[np.int64]) -> Sums:
        """Noisy sums per bin, shape ``(n_nodes, 2, n_columns, n_value_bins)``: one query per column.

        Missing values count in the lowest bin.
        """
        self._charge(len(columns), nodes)
        cells = self._cells(nodes)[:, :, columns]
        cells[..., 0] += cells[..., -1]
        return self._released(cells[..., :-1])

    def left_sums(self, nodes: Nodes, columns: NDArray[np.int64], cuts: NDArray[np.int64], missing_left: Mask) -> Sums:
        """Noisy sums left of one cut per node and column, shape ``(n_nodes, 2, n_columns)``: one query per column.

        Parameters
        ----------
        nodes : ndarray of int32, shape (n_nodes,)
        columns : ndarray of int64, shape (n_columns,)
        cuts : ndarray of int64, shape (n_nodes, n_columns)
        missing_left : ndarray of bool, shape (n_nodes,)
        """
        self._charge(len(columns), nodes)
        cells = self._cells(nodes)[:, :, columns]
        sums = np.take_along_axis(np.cumsum(cells, axis=-1), cuts[:, None, :, None], axis=-1)[..., 0]
        return self._released(sums + np.where(missing_left[:, None, None], cells[..., -1], 0))

    def weights(self, columns: NDArray[np.int64]) -> NDArray[np.float64]:
        """Noisy sums of H per bin of the root, shape ``(n_columns, n_value_bins)``: one query per column.

        A record adds at most its largest H to one bin, and the noise is scaled by that.
        """
        update, root = self._update, np.zeros(1, np.int32)
        self._charge(len(columns), root, is_round=True)
        cells = self._cells(root)[:, :, columns]
        cells[..., 0] += cells[..., -1]
        codes, scale = update.weights(cells[..., :-1])
        noise = gaussian_noise(self._multiplier * update.hess_sensitivity * (1 + 1e-14), scale)
        self.n_numbers += codes.size
        if noise is not None:
            codes = codes + noise.draw(codes.size, rng=self._rng).reshape(codes.shape)
        return np.asarray(codes[0] / scale)

    def write_histograms(self, nodes: Nodes, out: Sums) -> None:
        raise AccountError("exact histograms are never released; nothing was released")

    def divide(self, splits: Splits) -> None:
        self._split.update(splits.nodes.tolist())
        self._depth += 1
        super().divide(splits)

    def _charge(self, n_queries: int, nodes: Nodes, *, is_round: bool = False) -> None:
        """Charge queries before any noise is drawn; refuse those that the account does not have."""
        asked = set(nodes.tolist())
        if len(asked) < len(nodes) or not asked.isdisjoint(self._split):
            raise AccountError("sums are released of nodes without a common row only; nothing was released")
        if self.n_asked + n_queries > self._n_queries:
            raise AccountError(
                f"the account is for {self._n_queries} queries, of which {self.n_asked} were answered; "
                f"{n_queries} more were asked, and nothing was released"
            )
        self.n_asked += n_queries
        if is_round or self._depth not in self._depths_asked:
            self.n_rounds += 1
        if not is_round:
            self._depths_asked.add(self._depth)

    def _cells(self, nodes: Nodes) -> Sums:
        """Exact histograms, shape ``(n_nodes, 2, n_columns, n_bins)``; the last bin holds the missing values."""
        out = np.empty((len(nodes), 2, self._axes.n_bins), np.int64)
        super().write_histograms(nodes, out)
        return out.reshape(len(nodes), 2, self._axes.n_columns, -1)

    def _released(self, sums: Sums) -> Sums:
        """Add independent noise to every number."""
        self.n_numbers += sums.size
        noisy = np.ascontiguousarray(sums)
        for place, noise in enumerate(self._noises):
            if noise is not None:
                noisy[:, place] += noise.take(noisy[:, place].size).reshape(noisy[:, place].shape)
        return noisy


def _drawn_ahead(std: float, scale: float, rng: BitSource) -> DrawnAhead | None:
    noise = gaussian_noise(std, scale)
    return None if noise is None else DrawnAhead(lambda count: noise.draw(count, rng=rng), rng, n_ahead=_AHEAD)
