"""Rows with several outputs that go through the same trees: one record is in one leaf, for all outputs at once."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
from scipy.special import softmax

from opboost.arrays import HistogramAxes, Nodes, Sums, Values
from opboost.errors import AccountError
from opboost.horizontal.rows.client_rows import ClientHolder
from opboost.horizontal.rows.record_holder import Clipping, WalkingHolder
from opboost.trees.binning import BinnedTable
from opboost.trees.complete import tree_of
from opboost.trees.splitting import Splits
from opboost.trees.tree import Tree

# From scores and labels, shape ``(n_outputs, n_rows)`` each, to g and h of the same shape.
JointGradients = Callable[[Values, Values], tuple[Values, Values]]

# Largest ``sqrt(sum of g^2 + h^2)`` of a record over all classes; see `softmax_gradients`.
SOFTMAX_NORM = math.sqrt(2.0)


def softmax_gradients(scores: Values, labels: Values) -> tuple[Values, Values]:
    """Cross-entropy of several classes: ``p - y`` and ``p (1 - p)``, of a joint norm of at most `SOFTMAX_NORM`.

    Notes
    -----
    With ``q = 1 - p`` of the record's own class, the others' p sum to q. The function ``f(p) = p^2 + p^2 (1 - p)^2``
    rises faster than p, so that over the others ``sum f(p) <= f(q)``, and the own class adds ``f(q)``: at most
    ``2 f(1) = 2``. The Hessians add nothing to the sensitivity of the gradients. Rounding is clipped.
    """
    shares = softmax(scores, axis=0)
    grad, hess = shares - labels, shares * (1 - shares)
    scale = np.minimum(1.0, SOFTMAX_NORM / np.sqrt((grad**2 + hess**2).sum(axis=0) + 1e-300))
    return grad * scale, hess * scale


class JointRows:
    """A `RowHolder` of complete trees that answers for all outputs: sums of shape ``(n_outputs * n_nodes, 2)``.

    Parameters
    ----------
    table : BinnedTable
    labels : ndarray of float64, shape (n_outputs, n_rows)
    gradients : callable
    clipping : Clipping
        Of each output's pair.
    initial_scores : ndarray of float64, shape (n_outputs,) or (n_outputs, n_rows)
    n_counted : int
        Number of first trees whose sums are of the labels themselves: counts of classes, if these are indicators.

    Attributes
    ----------
    outputs : list of WalkingHolder
        The rows of each output. `start_tree` begins the trees of all.
    """

    def __init__(
        self,
        table: BinnedTable,
        labels: Values,
        *,
        gradients: JointGradients,
        clipping: Clipping,
        initial_scores: Values,
        n_counted: int = 0,
    ) -> None:
        self._labels = labels
        self._gradients = gradients
        self._n_counted = n_counted
        self._pairs = np.empty(0), np.empty(0)
        self.outputs = [
            WalkingHolder(table, target, gradients=partial(self._pair, number), clipping=clipping, initial_score=score)
            for number, (target, score) in enumerate(zip(labels, initial_scores, strict=True))
        ]
        self._share_walks()

    def _share_walks(self) -> None:
        for holder in self.outputs[1:]:
            holder.share_walks(self.outputs[0])

    def _pair(self, number: int, scores: Values, labels: Values) -> tuple[Values, Values]:
        return self._pairs[0][number], self._pairs[1][number]

    def copied(self) -> JointRows:
        """Independent copy of the records; immutable parts are shared."""
        twin = copy.copy(self)
        twin.outputs = [
            holder.copied(gradients=partial(twin._pair, number)) for number, holder in enumerate(self.outputs)
        ]
        twin._share_walks()
        return twin

    def start_tree(self, output: int) -> None:
        """Begin the round's tree, common to all outputs, and compute the gradients of all of them."""
        if self._n_counted:
            self._n_counted, self._pairs = self._n_counted - 1, (self._labels, np.zeros_like(self._labels))
        else:
            self._pairs = self._gradients(np.stack([holder.scores for holder in self.outputs]), self._labels)
        for holder in self.outputs:
            holder.start_tree(0)

    def write_histograms(self, nodes: Nodes, out: Sums) -> None:
        raise AccountError("joint rows have no histograms; nothing was released")

    def totals(self, nodes: Nodes) -> Sums:
        """Sums of (g, h) of the leaves, output after output."""
        return np.concatenate([holder.totals(nodes) for holder in self.outputs])

    def divide(self, splits: Splits) -> None:
        for holder in self.outputs:
            holder.divide(splits)

    def finish_trees(self, trees: Sequence[Tree]) -> None:
        """Add the leaves' values, one tree per output, of one structure."""
        for holder, tree in zip(self.outputs, trees, strict=True):
            holder.finish_tree(tree)

    def tighten(self, factor: float) -> None:
        """Convert labels and scores to a unit that is `factor` times as large."""
        self._labels = self._labels / factor
        for holder in self.outputs:
            holder.rescale(factor)

    def finish_tree(self, tree: Tree) -> None:
        raise AccountError("joint rows finish the trees of all outputs together")


class JointClients:
    """Joint row holder over clients that take the trees of one structure one output after the other.

    Parameters
    ----------
    holder : ClientHolder
    n_outputs : int
    axes : HistogramAxes
        Of any of their cells.
    """

    def __init__(self, holder: ClientHolder, n_outputs: int, axes: HistogramAxes) -> None:
        self._holder, self._n_outputs, self._axes = holder, n_outputs, axes
        self._levels: list[Splits] = []

    def start_tree(self, output: int) -> None:
        self._levels = []

    def divide(self, splits: Splits) -> None:
        self._levels.append(splits)

    def totals(self, nodes: Nodes) -> Sums:
        """Sums of (g, h) of the leaves, output after output, asked for together."""
        later = []
        for output in range(self._n_outputs):
            self._holder.start_tree(output)
            for splits in self._levels:
                self._holder.divide(splits)
            later.append(self._holder.totals_later(nodes))
        return np.concatenate([totals() for totals in later])

    def finish_trees(self, trees: Sequence[Tree]) -> None:
        """Add the leaves' values, one tree per output."""
        for tree in trees:
            self._holder.finish_tree(tree)

    def tighten(self, factor: float) -> None:
        """Announce the factor to the clients, as the value of a tree of a single leaf."""
        self._holder.start_tree(0)
        self._holder.finish_tree(tree_of([], np.array([factor]), self._axes))

    def write_histograms(self, nodes: Nodes, out: Sums) -> None:
        raise AccountError("trees of several outputs have no histograms; nothing was asked")

    def finish_tree(self, tree: Tree) -> None:
        raise AccountError("the trees of all outputs are finished together")
