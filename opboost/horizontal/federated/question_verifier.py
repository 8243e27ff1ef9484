"""Verification by a client that the questions are those of the recipe, and no more than the recipe has."""

from __future__ import annotations

import numpy as np

from opboost.arrays import Nodes, Sums
from opboost.errors import AccountError
from opboost.horizontal.federated.training import Choices
from opboost.horizontal.rows.client_rows import PlacedHolder
from opboost.horizontal.rows.public_grid import PublicGrid
from opboost.trees.holder import ForwardingHolder, RowHolder
from opboost.trees.splitting import Splits


class AskedRows(ForwardingHolder):
    """Row holder that answers only the questions of a recipe of the federated framework.

    Parameters
    ----------
    rows : PlacedHolder
    answers : RowHolder
        What of these rows is answered: themselves, or themselves under noise.
    choices : Choices
    n_columns : int

    Notes
    -----
    Privacy: at most ``choices.n_queries(n_columns)`` queries, each of nodes without a common row. A histogram is of all
    columns, those included that a tree does not use, so that its exact sums are for somebody who is trusted with them.
    """

    def __init__(self, rows: PlacedHolder, answers: RowHolder, *, choices: Choices, n_columns: int) -> None:
        super().__init__(answers)
        self._rows = rows
        self._choices = choices
        self._n_columns = n_columns
        self._n_started = 0
        self._totals_left = self._histograms_left = 0
        self._split: list[Nodes] = []

    def start_tree(self, output: int) -> None:
        choices, number = self._choices, self._n_started
        if number == choices.n_trees:
            raise AccountError(f"the account is for {choices.n_trees} trees; nothing more was released")
        self._n_started += 1
        self._split = []
        self._totals_left = int(choices.split_method != "hist")
        self._histograms_left = self._n_histograms(number)
        super().start_tree(output)

    def write_histograms(self, nodes: Nodes, out: Sums) -> None:
        is_of_root = self._choices.split_method == "tr"
        if self._histograms_left == 0 or (is_of_root and (self._split or nodes.tolist() != [0])):
            raise AccountError("histograms that the account does not have were asked for; nothing was released")
        self._check_apart(nodes)
        self._histograms_left -= 1
        super().write_histograms(nodes, out)

    def totals(self, nodes: Nodes) -> Sums:
        if self._totals_left == 0 or (self._choices.split_method == "pr" and nodes.tolist() != [0]):
            raise AccountError("sums that the account does not have were asked for; nothing was released")
        self._check_apart(nodes)
        self._totals_left -= 1
        return super().totals(nodes)

    def place(self, columns: PublicGrid) -> None:
        self._rows.place(columns)

    def divide(self, splits: Splits) -> None:
        super().divide(splits)
        self._split.append(splits.nodes)

    def _n_histograms(self, number: int) -> int:
        """Number of histogram questions of the tree with this number."""
        choices = self._choices
        is_refined = choices.refining != "none" and number < choices.hessian_rounds
        match choices.split_method:
            case "hist":
                return 1 if choices.n_columns_of_a_tree(self._n_columns) == 1 else choices.max_depth
            case "pr":
                return choices.max_depth + is_refined
            case "tr":
                return int(is_refined)

    def _check_apart(self, nodes: Nodes) -> None:
        is_split = bool(self._split) and bool(np.isin(nodes, np.concatenate(self._split)).any())
        if is_split or len(np.unique(nodes)) < len(nodes):
            raise AccountError("sums are released of nodes without a common row only; nothing was released")
