"""An owner's own look at the shape of every tree: that it is the one that public random bits give."""

from __future__ import annotations

import numpy as np

from opboost.arrays import Nodes, Sums
from opboost.errors import DataError
from opboost.trees.complete import RandomRule
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

    Notes
    -----
    S-GBDT (Kirschte et al., 2023), algorithm 9: splits are drawn from randomness that everybody can verify. Nobody can
    then choose splits with a record in mind.
    """

    def __init__(self, holder: RowHolder, *, rule: RandomRule) -> None:
        self._holder = holder
        self._rule = rule

    def start_tree(self, output: int) -> None:
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
            If the splits are not those that the bits give.
        """
        drawn = self._rule.choose(splits.nodes, self._holder)
        pairs = (
            (drawn.columns, splits.columns),
            (drawn.cuts, splits.cuts),
            (drawn.missing_left, splits.missing_left),
        )
        if not all(np.array_equal(mine, theirs) for mine, theirs in pairs):
            raise DataError("a split is not the one that the public random bits give; nothing was released on it")
        self._holder.divide(splits)

    def finish_tree(self, tree: Tree) -> None:
        self._holder.finish_tree(tree)
