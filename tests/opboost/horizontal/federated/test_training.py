"""The framework's recipe: questions are counted, noise is on every answer, clients do not matter, traps are closed."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from opboost import rng
from opboost.errors import AccountError, ParameterError
from opboost.horizontal.federated.query_holder import QueryHolder
from opboost.horizontal.federated.training import Choices, train
from opboost.horizontal.federated.weight_updates import LeafRule, weight_update
from opboost.horizontal.rows.client_rows import ClientRows, SummedClients
from opboost.horizontal.splits.column_schedule import uniforms_ahead
from opboost.horizontal.splits.split_candidates import uniform_candidates
from opboost.trees.complete import RandomRule, grow_complete_tree

pytestmark = pytest.mark.usefixtures("one_thread")

M, D = 3, 2
LEAF = LeafRule(learning_rate=0.3, reg_lambda=1.0, max_leaf=2.0)
COLUMNS = uniform_candidates([(0.0, 1.0)] * M, 8)


def data(n_rows: int = 240, seed: int = 0):
    """Labels on which every level of a tree gains: two columns count, and a cut of either one leaves the other."""
    generator = np.random.default_rng(seed)
    X = generator.random((n_rows, M))
    noisy = X @ np.array([1.0, 0.8, 0.6]) + 0.6 * generator.standard_normal(n_rows)
    X[generator.random((n_rows, M)) < 0.03] = np.nan
    return X, (noisy > np.median(noisy)).astype(float)


def client(X, y, update, choices, columns=COLUMNS):
    return ClientRows(
        X, y, columns=columns, gradients=update.gradients, clipping=update.clipping, walks=choices.split_method == "tr"
    )


def trained(choices, *, update=None, multiplier=0.0, n_clients=1, seed=0, table=None):
    update = update or weight_update("newton", is_classification=True)
    X, y = table or data()
    parts = np.array_split(np.random.default_rng(5).permutation(len(y)), n_clients) if n_clients > 1 else [slice(None)]
    clients = [client(X[rows], y[rows], update, choices) for rows in parts]
    holder = clients[0] if n_clients == 1 else SummedClients(clients)
    return train(holder, COLUMNS, choices, update=update, leaf=LEAF, multiplier=multiplier, rng=rng.seeded(seed))


def choices(split_method="tr", **settings):
    return Choices(**{"split_method": split_method, "n_trees": 6, "max_depth": D, "hessian_rounds": 2, **settings})


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

    def add_histograms(self, nodes, out):
        self.n_histograms += 1
        super().add_histograms(nodes, out)

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


def holder_of(n_queries: int, multiplier: float = 0.0, update=None, table=None) -> QueryHolder:
    update = update or weight_update("newton", is_classification=True)
    holder = QueryHolder(
        client(*(table or data()), update, choices("hist")),
        axes=COLUMNS.axes,
        update=update,
        multiplier=multiplier,
        n_queries=n_queries,
        rng=rng.seeded(1),
    )
    holder.start_tree(0)
    return holder


ROOT, ALL = np.zeros(1, np.int32), np.arange(M)


@pytest.mark.parametrize(
    ("ask", "price"),
    [
        (lambda holder: holder.totals(ROOT), 1),
        (lambda holder: holder.histograms(ROOT, ALL), M),
        (lambda holder: holder.histograms(ROOT, ALL[:1]), 1),
        (lambda holder: holder.left_sums(ROOT, ALL, np.ones((1, M), int), np.ones(1, bool)), M),
        (lambda holder: holder.weights(ALL), M),
    ],
)
def test_a_question_is_charged_before_it_is_answered(ask, price):
    """Trap 7 as well: G and H together are one query."""
    enough, short = holder_of(price), holder_of(price - 1)
    ask(enough)
    assert enough.n_asked == price
    with pytest.raises(AccountError, match="nothing was released"):
        ask(short)
    assert short.n_asked == 0
    with pytest.raises(AccountError, match="were answered"):
        ask(enough)


def test_exact_histograms_and_nodes_with_a_common_row_are_refused():
    holder = holder_of(100)
    with pytest.raises(AccountError, match="exact histograms are never released"):
        holder.add_histograms(ROOT, np.zeros((1, 2, COLUMNS.axes.n_bins), np.int64))
    with pytest.raises(AccountError, match="without a common row"):
        holder.totals(np.array([0, 0], np.int32))


@pytest.mark.parametrize("name", ["newton", "gradient", "averaging"])
def test_noise_on_every_answer_has_its_deviation(name):
    """4,000 numbers each: a deviation off by 6 per cent has odds of one in ten million."""
    update = weight_update(name, is_classification=True)
    exact, noisy = holder_of(10**6, update=update), holder_of(10**6, 50.0, update=update)
    std = 50.0 * update.clipping.sensitivity

    def released(holder, ask):
        return np.stack([ask(holder) for _ in range(80)])

    for ask in (
        lambda holder: np.stack(update.scales)[:, None, None] ** -1 * holder.histograms(ROOT, ALL)[0],
        lambda holder: (
            np.stack(update.scales)[:, None] ** -1
            * np.repeat(holder.left_sums(ROOT, ALL, np.ones((1, M), int), np.ones(1, bool))[0], 1, axis=1)
        ),
    ):
        difference = released(noisy, ask) - released(exact, ask)
        tolerance = 6 / math.sqrt(difference.size)
        assert difference.std() == pytest.approx(std, rel=max(tolerance, 0.06))
    weights = released(noisy, lambda holder: holder.weights(ALL)) - released(exact, lambda holder: holder.weights(ALL))
    assert weights.std() == pytest.approx(50.0 * update.hess_sensitivity, rel=0.08)


@pytest.mark.parametrize("name", ["newton", "gradient", "averaging"])
def test_one_record_more_moves_an_answer_by_no_more_than_the_sensitivity(name):
    """Exhaustive over the records of a table and all kinds of questions."""
    X, y = data(40)
    update = weight_update(name, is_classification=True)
    scales = np.array(update.scales)[:, None]
    largest = 0.0
    whole = holder_of(100, update=update, table=(X, y))
    answers = [whole.histograms(ROOT, ALL[:1])[0, :, 0] / scales, whole.totals(ROOT).T / scales]
    weights = whole.weights(ALL[:1])
    for left_out in range(40):
        rest = np.delete(np.arange(40), left_out)
        fewer = holder_of(100, update=update, table=(X[rest], y[rest]))
        others = [fewer.histograms(ROOT, ALL[:1])[0, :, 0] / scales, fewer.totals(ROOT).T / scales]
        moves = [float(np.sqrt(((a - b) ** 2).sum())) for a, b in zip(answers, others, strict=True)]
        largest = max(largest, *moves)
        assert max(moves) <= update.true_sensitivity * (1 + 1e-9)
        assert np.abs(weights - fewer.weights(ALL[:1])).max() <= update.hess_sensitivity * (1 + 1e-9)
    if name != "newton":  # at score 0 gradients of classes are a half
        assert largest > 0.75 * update.true_sensitivity


def test_a_left_child_keeps_the_bin_of_its_parents_cut():
    """Trap 8: without noise, children's sums add up to what the rows say, for every depth of cuts on one column."""
    X, y = data(400)
    X = np.nan_to_num(X[:, :1], nan=0.5)
    columns = uniform_candidates([(0.0, 1.0)], 8)
    update, chosen = weight_update("newton", is_classification=True), choices("hist", n_trees=1, max_depth=3)
    trained_ = train(
        client(X, y, update, chosen, columns),
        columns,
        chosen,
        update=update,
        leaf=LEAF,
        multiplier=0.0,
        rng=rng.seeded(0),
    )
    tree = trained_.trees[0]
    assert tree.depth == 3
    nodes = np.zeros(len(y), np.int64)
    for _ in range(3):
        is_left = X[:, 0] <= tree.thresholds[nodes]
        nodes = np.where(tree.is_leaf[nodes], nodes, np.where(is_left, tree.lefts[nodes], tree.rights[nodes]))
    for leaf in np.flatnonzero(tree.is_leaf):
        inside = nodes == leaf
        grad, hess = (0.5 - y[inside]).sum(), 0.25 * inside.sum()
        expected = -0.3 * np.clip(grad / (hess + 1), -2, 2) if inside.any() else 0.0
        assert tree.values[leaf] == pytest.approx(expected, abs=1e-5)


def test_a_column_is_cut_only_where_its_ancestors_left_something():
    for split in ("hist", "pr", "tr"):
        for tree in trained(choices(split, max_depth=4), multiplier=3.0).trees:
            seen = {0: {}}
            for node in np.flatnonzero(~tree.is_leaf):
                limits = seen[int(node)]
                column, cut = int(tree.columns[node]), float(tree.thresholds[node])
                low, high = limits.get(column, (-1.0, 2.0))
                assert low < cut < high
                seen[int(tree.lefts[node])] = limits | {column: (low, cut)}
                seen[int(tree.rights[node])] = limits | {column: (cut, high)}


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
