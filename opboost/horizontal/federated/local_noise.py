"""Local noise: every record releases its own (G, H) with noise, and sums are made of the released numbers.

Maddock et al., section 5.3.2: a baseline. Whoever adds up must know which records are in a node, so the features are in
the clear, and what is protected is the label alone.
"""

from __future__ import annotations

from collections import deque

import numpy as np
from numpy.typing import NDArray

from opboost.arrays import Nodes, Sums, Values
from opboost.errors import AccountError
from opboost.horizontal.federated.weight_updates import WeightUpdate
from opboost.horizontal.noise.noisy_holder import gaussian_noise
from opboost.horizontal.rows.client_rows import Later
from opboost.horizontal.rows.public_grid import PublicGrid
from opboost.rng import BitSource
from opboost.trees.splitting import Splits
from opboost.trees.tree import Tree


class LocallyNoisedRows:
    """Client holder whose records release their contributions one by one with local noise.

    Parameters
    ----------
    rows : ndarray of float64, shape (n_rows, n_columns)
        In the clear.
    labels : ndarray of float64, shape (n_rows,)
    columns : PublicGrid
    update : WeightUpdate
    multiplier : float
        Deviation of the noise over the distance of a record's vectors under two labels.
    n_releases : int
        That the account was made for.
    rng : BitSource

    Notes
    -----
    Privacy: `n_releases` Gaussian releases of ``mu = 1 / multiplier`` each, between two values of one record's label.
    Nothing is promised for its features.
    """

    def __init__(
        self,
        rows: Values,
        labels: Values,
        *,
        columns: PublicGrid,
        update: WeightUpdate,
        multiplier: float,
        n_releases: int,
        rng: BitSource,
    ) -> None:
        self._values = rows
        self._labels = labels
        self._update = update
        self._n_left = n_releases
        std = multiplier * label_distance(update) * (1 + 1e-9)
        self._noises = [gaussian_noise(std, scale) for scale in update.scales]
        self._rng = rng
        self._scores = np.zeros(len(labels))
        self._released = np.zeros((2, len(labels)), np.int64)
        self._trees: deque[NDArray[np.int64]] = deque()
        self.place(columns)

    def place(self, columns: PublicGrid) -> None:
        self._table = columns.place(self._values)

    def start_tree(self, output: int) -> None:
        # Trees wait for their values in the order in which they were started.
        self._trees.append(np.zeros(len(self._labels), np.int64))
        if output > 0:
            return
        if self._n_left == 0:
            raise AccountError("every record has made the releases it can pay for; nothing was released")
        self._n_left -= 1
        codes = self._update.clipping.encode(*self._update.gradients(self._scores, self._labels))
        for place, (exact, noise) in enumerate(zip(codes, self._noises, strict=True)):
            self._released[place] = exact if noise is None else exact + noise.draw(len(exact), rng=self._rng)

    def write_histograms(self, nodes: Nodes, out: Sums) -> None:
        is_asked = np.isin(self._nodes, nodes)
        at = np.argsort(nodes)[np.searchsorted(np.sort(nodes), self._nodes[is_asked])]
        axes = self._table.axes
        for column in range(axes.n_columns):
            size, begin = int(axes.sizes[column]), int(axes.offsets[column])
            cells = at * size + self._table.bins[column, is_asked]
            for place in range(2):
                sums = _sums(cells, self._released[place, is_asked], len(nodes) * size)
                out[:, place, begin : begin + size] = sums.reshape(len(nodes), size)

    def totals(self, nodes: Nodes) -> Sums:
        of_node = [_sums(self._nodes, released, int(nodes.max()) + 1) for released in self._released]
        return np.stack(of_node, axis=1)[nodes]

    def totals_later(self, nodes: Nodes) -> Later:
        totals = self.totals(nodes)
        return lambda: totals

    @property
    def _nodes(self) -> NDArray[np.int64]:
        """Node of each row in the tree that was started last."""
        return self._trees[-1]

    def divide(self, splits: Splits) -> None:
        for k, node in enumerate(splits.nodes):
            here = np.flatnonzero(self._nodes == node)
            goes_left = splits.goes_left[k, self._table.bins[splits.columns[k], here]]
            self._nodes[here] = np.where(goes_left, splits.lefts[k], splits.rights[k])

    def finish_tree(self, tree: Tree) -> None:
        self._scores += tree.values[self._trees.popleft()]


def label_distance(update: WeightUpdate) -> float:
    """Sensitivity to the label: the largest distance between a record's contributions under two labels.

    Averages add the label itself or two shares of it. Of gradients of classes, p and p - 1 are 1 apart and the Hessian
    is the same; those of numbers lie between their bounds.
    """
    if update.name == "averaging":
        return (1.0 - update.lowest) if not update.has_class_counts else float(np.sqrt(2))
    return 1.0 if update.is_classification else 2 * update.clipping.max_grad


def _sums(cells: NDArray[np.int64], codes: NDArray[np.int64], n_cells: int) -> NDArray[np.int64]:
    out = np.zeros(n_cells, np.int64)
    np.add.at(out, cells, codes)
    return out
