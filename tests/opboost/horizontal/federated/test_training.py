"""The framework's recipe: questions are counted, noise is on every answer, clients do not matter, traps are closed."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from opboost import rng
from opboost.errors import ParameterError
from opboost.horizontal.federated.training import train
from opboost.horizontal.federated.weight_updates import weight_update
from opboost.horizontal.rows.client_rows import ClientRows
from opboost.horizontal.splits.column_schedule import uniforms_ahead
from opboost.trees.complete import RandomRule, grow_complete_tree
from tests.support.federated_rows import COLUMNS, LEAF, D, M, choices, client, data, trained

pytestmark = pytest.mark.usefixtures("one_thread")


EVERYTHING = list(
    itertools.product(
        ("hist", "pr", "tr"),
        ("averaging", "gradient", "newton"),
        ("none", "printed", "equal_mass"),
        (("all", 1), ("cyclical", 1), ("cyclical", 2), ("random", 2)),
        (1, 4, 6),
    )
)


def kappa(split, refining, interaction, k) -> int:
    """The paper's table, written out for 6 trees of depth 2 on 3 columns and 2 rounds of Iterative Hessian."""
    k = 3 if interaction == "all" else k
    if split == "hist":
        return 6 if k == 1 else 6 * 2 * k
    refined = 0 if refining == "none" else 2 * (k if interaction == "random" else 3)
    return (6 * (2 * k + 1) if split == "pr" else 6) + refined


@pytest.mark.parametrize("split", ["hist", "pr", "tr"])
@pytest.mark.parametrize("update", ["averaging", "gradient", "newton"])
def test_every_combination_works_and_asks_as_often_as_the_table_says(split, update):
    for each, of_update, refining, (interaction, k), batch in EVERYTHING:
        if (each, of_update) != (split, update):
            continue
        chosen = choices(split, refining=refining, interaction=interaction, columns_per_tree=k, batch_size=batch)
        assert chosen.n_queries(M) == kappa(split, refining, interaction, k)
        result = trained(chosen, update=weight_update(update, is_classification=True))
        assert len(result.trees) == 6
        assert result.n_queries <= chosen.n_queries(M)
        if all(tree.depth == D for tree in result.trees):  # nothing stayed a leaf early
            assert result.n_queries == chosen.n_queries(M)
        if split == "tr" or chosen.n_queries(M) == 6:
            assert result.n_queries == chosen.n_queries(M)  # asked whether or not a split gains


@pytest.mark.parametrize("split", ["hist", "pr"])
def test_rules_that_ask_reach_the_whole_account_where_splits_gain(split):
    result = trained(choices(split), table=data(2000))
    assert result.n_queries == choices(split).n_queries(M)


@pytest.mark.parametrize("split", ["hist", "pr", "tr"])
@pytest.mark.parametrize("refining", ["none", "equal_mass"])
@pytest.mark.parametrize("update", ["newton", "averaging"])
def test_the_division_of_rows_among_clients_does_not_change_a_bit(split, refining, update):
    chosen = choices(split, refining=refining, batch_size=2)
    kind = weight_update(update, is_classification=True)
    one, seven = (trained(chosen, update=kind, multiplier=2.0, n_clients=n) for n in (1, 7))
    for a, b in zip(one.trees, seven.trees, strict=True):
        for name in ("columns", "thresholds", "missing_left", "values"):
            np.testing.assert_array_equal(getattr(a, name), getattr(b, name))
    assert (one.n_queries, one.n_rounds, one.n_bytes) == (seven.n_queries, seven.n_rounds, seven.n_bytes)


class Watched(ClientRows):
    """Counts what is asked."""

    n_histograms = n_totals = 0

    def write_histograms(self, nodes, out):
        self.n_histograms += 1
        super().write_histograms(nodes, out)

    def totals(self, nodes):
        self.n_totals += 1
        return super().totals(nodes)


def watched(chosen, **settings):
    X, y = data()
    update = weight_update("newton", is_classification=True)
    holder = Watched(
        X, y, columns=COLUMNS, gradients=update.gradients, clipping=update.clipping, walks=chosen.split_method == "tr"
    )
    train(holder, COLUMNS, chosen, update=update, leaf=LEAF, multiplier=1.0, rng=rng.seeded(0), **settings)
    return holder


def test_random_trees_ask_for_leaves_alone():
    holder = watched(choices("tr"))
    assert (holder.n_histograms, holder.n_totals) == (0, 6)


def test_a_histogram_of_one_column_is_asked_for_once_per_tree():
    """Trap 1: below the root, raw data must not be read again."""
    holder = watched(choices("hist", interaction="cyclical", max_depth=4))
    assert (holder.n_histograms, holder.n_totals) == (6, 0)


def test_the_root_of_a_partially_random_tree_is_asked_for_and_charged():
    """Trap 2."""
    assert watched(choices("pr")).n_totals == 6
    assert choices("pr").n_queries(M) - 6 * D * M == 6


def test_trees_of_a_batch_share_gradients_and_are_averaged():
    X, y = data()
    X = np.nan_to_num(X, nan=0.5)
    result = trained(choices("tr", n_trees=7, batch_size=3), table=(X, y))
    scores = np.zeros(len(y))
    for begin in range(0, 7, 3):
        batch = result.trees[begin : begin + 3]
        p = 1 / (1 + np.exp(-scores))
        for tree in batch:
            nodes = np.zeros(len(y), np.int64)
            for _ in range(D):
                is_left = X[np.arange(len(y)), tree.columns[nodes]] <= tree.thresholds[nodes]
                nodes = np.where(is_left, tree.lefts[nodes], tree.rights[nodes])
            for leaf in range(2**D - 1, 2 ** (D + 1) - 1):
                inside = nodes == leaf
                step = (p - y)[inside].sum() / ((p * (1 - p))[inside].sum() + 1) if inside.any() else 0.0
                assert tree.values[leaf] == pytest.approx(-0.3 * np.clip(step, -2, 2) / len(batch), abs=1e-5)
            scores += tree.values[nodes]


@pytest.mark.parametrize("batch", [1, 2, 6])
def test_rounds_and_bytes_are_those_of_appendix_b(batch):
    def cost(split, **settings):
        result = trained(choices(split, batch_size=batch, **settings), table=data(2000))
        return result.n_rounds, result.n_bytes // 8

    n_batches = math.ceil(6 / batch)
    assert cost("tr") == (n_batches, 6 * 2 * 2**D)
    assert cost("tr", refining="printed") == (n_batches + 2, 6 * 2 * 2**D + 2 * M * 9)
    assert cost("hist") == (n_batches * D, 6 * (1 + 2) * M * 9 * 2)
    assert cost("hist", interaction="cyclical") == (n_batches, 6 * 9 * 2)
    assert cost("pr") == (n_batches * D, 6 * (2 + (1 + 2) * M * 2))


def test_trees_use_the_columns_of_their_turn():
    for split in ("hist", "pr", "tr"):
        result = trained(choices(split, interaction="cyclical"), table=data(2000))
        for number, tree in enumerate(result.trees):
            assert set(tree.columns[~tree.is_leaf].tolist()) <= {number % M}


@pytest.mark.parametrize(
    ("name", "value"), [("split_method", "best"), ("n_trees", -1), ("max_depth", 0), ("batch_size", 0)]
)
def test_choices_out_of_range_are_refused(name, value):
    with pytest.raises(ParameterError, match=f"^{name} must be"):
        choices(**{name: value})


def test_a_random_tree_of_one_turn_is_complete():
    update = weight_update("newton", is_classification=True)
    holder = client(*data(), update, choices("tr"))
    holder.start_tree(0)
    rule = RandomRule(COLUMNS.axes, columns=lambda: np.array([1]), uniforms=uniforms_ahead(rng.seeded(0)))
    tree = grow_complete_tree(holder, rule=rule, leaf_values=lambda sums: sums[:, 0] * 0.0, axes=COLUMNS.axes, depth=3)
    assert set(tree.columns[:7].tolist()) == {1}
