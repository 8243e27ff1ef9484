"""An owner's own look at the shape of every tree: that it is the one that public random bits give."""

from __future__ import annotations

from dataclasses import fields

import numpy as np

from opboost.arrays import HistogramAxes, Nodes, Sums
from opboost.errors import DataError
from opboost.trees.complete import RandomRule, splits_of_level
from opboost.trees.holder import RowHolder
from opboost.trees.splitting import Splits
from opboost.trees.tree import Tree


class PublicShape:
    """A row holder that follows the random rule itself, and divides its rows by nothing else.

    Parameters
    ----------
    holder : RowHolder
    rule : RandomRule
        On the same bits as that of whoever grows the trees.
    axes : HistogramAxes

    Notes
    -----
    S-GBDT (Kirschte et al., 2023), algorithm 9: splits are drawn from randomness that everybody can verify. Nobody can
    then choose splits with a record in mind.
    """

    def __init__(self, holder: RowHolder, *, rule: RandomRule, axes: HistogramAxes) -> None:
        self._holder = holder
        self._rule = rule
        self._axes = axes
        self._first = 0

    def start_tree(self, output: int) -> None:
        self._first = 0
        self._rule.start_tree()
        self._holder.start_tree(output)

    def add_histograms(self, nodes: Nodes, out: Sums) -> None:
        self._holder.add_histograms(nodes, out)

    def totals(self, nodes: Nodes) -> Sums:
        return self._holder.totals(nodes)

    def divide(self, splits: Splits) -> None:
        """Divide the rows.

        Raises
        ------
        DataError
            If the splits are not those that the bits give for the next level.
        """
        nodes = np.arange(self._first, 2 * self._first + 1, dtype=np.int32)
        drawn = splits_of_level(nodes, self._rule.choose(nodes, self._holder), self._axes)
        if not all(np.array_equal(getattr(drawn, each.name), getattr(splits, each.name)) for each in fields(Splits)):
            raise DataError("a split is not the one that the public random bits give; nothing was released on it")
        self._first = 2 * self._first + 1
        self._holder.divide(drawn)

    def finish_tree(self, tree: Tree) -> None:
        self._holder.finish_tree(tree)
