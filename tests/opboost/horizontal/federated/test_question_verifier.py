"""A client answers the questions of the recipe alone: so many trees, sums and histograms, of nodes that lie apart."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from opboost.errors import AccountError
from opboost.horizontal.federated.question_verifier import AskedRows
from opboost.horizontal.federated.weight_updates import weight_update
from opboost.trees.complete import Cuts, splits_of
from tests.support.federated_rows import COLUMNS, M, choices, client, data

pytestmark = pytest.mark.usefixtures("one_thread")

ROOT, CHILDREN = np.zeros(1, np.int32), np.array([1, 2], np.int32)


def rows_of(method: str, **settings: Any) -> AskedRows:
    chosen = choices(method, n_trees=1, **settings)
    rows = client(*data(), weight_update("newton", is_classification=True), chosen)
    asked = AskedRows(rows, rows, choices=chosen, n_columns=M)
    asked.start_tree(0)
    return asked


def histogram(asked: AskedRows, nodes: np.ndarray) -> None:
    asked.write_histograms(nodes, np.zeros((len(nodes), 2, COLUMNS.axes.n_bins), np.int64))


def divide(asked: AskedRows) -> None:
    chosen = Cuts(np.zeros(1, np.int32), np.full(1, 3, np.int32), np.zeros(1, np.bool_))
    asked.divide(splits_of(ROOT, chosen, COLUMNS.axes, first_child=1))


def test_no_more_trees_are_begun_than_the_recipe_has() -> None:
    with pytest.raises(AccountError, match="the account is for 1 trees"):
        rows_of("tr").start_tree(0)


@pytest.mark.parametrize(("method", "n_sums", "n_histograms"), [("tr", 1, 0), ("pr", 1, 2), ("hist", 0, 2)])
def test_a_tree_has_so_many_questions(method: str, n_sums: int, n_histograms: int) -> None:
    asked = rows_of(method)
    for _ in range(n_sums):
        asked.totals(ROOT)
    with pytest.raises(AccountError, match="sums that the account does not have"):
        asked.totals(ROOT)
    for _ in range(n_histograms):
        histogram(asked, ROOT)
    with pytest.raises(AccountError, match="histograms that the account does not have"):
        histogram(asked, ROOT)


def test_nodes_with_a_common_row_are_refused_and_the_question_is_not_used_up() -> None:
    asked = rows_of("hist")
    divide(asked)
    for nodes in (np.array([0, 1], np.int32), np.array([1, 1], np.int32)):
        with pytest.raises(AccountError, match="nodes without a common row"):
            histogram(asked, nodes)
    histogram(asked, CHILDREN)
    histogram(asked, CHILDREN)


def test_random_trees_have_histograms_of_the_root_alone_where_candidates_follow_hessians() -> None:
    asked = rows_of("tr", refining="equal_mass")
    histogram(asked, ROOT)
    asked = rows_of("tr", refining="equal_mass")
    divide(asked)
    with pytest.raises(AccountError, match="histograms that the account does not have"):
        histogram(asked, CHILDREN)
