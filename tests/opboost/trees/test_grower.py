"""Grown trees against a greedy search that looks at every cut of every column, row by row.

The gradients lie on a grid and there are few rows, so the search's sums of doubles are exact; only its gains are
rounded, relative to the largest score that enters them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from opboost.arrays import Nodes, Sums
from opboost.trees.binning import BinnedTable, bin_values
from opboost.trees.constraints import Constraints
from opboost.trees.grower import HistogramRoom, grow_tree
from opboost.trees.holder import ForwardingHolder, LocalHolder, RowHolder
from opboost.trees.kernels.packing import grad_of, hess_of
from opboost.trees.leaves import NewtonLeaves
from opboost.trees.losses import GradientGrid, Logistic, Loss, SquaredError
from opboost.trees.sampling import ColumnSampler
from opboost.trees.splitting import GreedySplitter, Splits
from opboost.trees.tree import Tree

ROUNDING = 1e-12


pytestmark = pytest.mark.usefixtures("one_thread")


@dataclass(frozen=True)
class Rules:
    reg_lambda: float
    gamma: float
    min_child_weight: float
    max_depth: int


@dataclass(frozen=True)
class Case:
    """A small table with its gradients and the tree that was grown on it, thresholds in bins."""

    table: BinnedTable
    grad: np.ndarray
    hess: np.ndarray
    rules: Rules
    tree: Tree


class CountingHolder(ForwardingHolder):
    """Notes of which nodes a histogram was asked for, and how many rows they held."""

    def __init__(self, *args: object, **settings: object) -> None:
        super().__init__(LocalHolder(*args, **settings))  # type: ignore[arg-type]
        self.asked: list[Nodes] = []
        self.weights: list[Sums] = []
        self.n_divisions = 0

    def write_histograms(self, nodes: Nodes, out: Sums) -> None:
        self.asked.append(nodes)
        self.weights.append(self.totals(nodes)[:, 1])
        super().write_histograms(nodes, out)

    def divide(self, splits: Splits) -> None:
        self.n_divisions += 1
        super().divide(splits)


def _grow_on(
    holder: RowHolder, table: BinnedTable, grid: GradientGrid, rules: Rules, columns: np.ndarray | None = None
) -> Tree:
    holder.start_tree(0)
    none = Constraints.none(table.axes.n_columns)
    return grow_tree(
        holder,
        splitter=GreedySplitter(table.axes, grid, none, rules.reg_lambda, rules.gamma, rules.min_child_weight, 4),
        leaves=NewtonLeaves(grid, rules.reg_lambda, rules.min_child_weight),
        learning_rate=1.0,
        max_depth=rules.max_depth,
        max_leaves=0,
        limits=none.at_root(np.arange(table.axes.n_columns) if columns is None else columns),
        room=HistogramRoom(table.axes.n_bins),
        columns=ColumnSampler(np.arange(table.axes.n_columns), 1.0, 1.0, np.random.default_rng(0)),
    )


def _grow(values: np.ndarray, labels: np.ndarray, weights: np.ndarray, loss: Loss, rules: Rules) -> Case:
    table = BinnedTable.of([bin_values(column, max_bin=256) for column in values.T])
    first = loss.initial_scores(labels, weights)
    grid = loss.grid(labels, weights, first)
    holder = LocalHolder(
        table, labels, weights, loss=loss, grid=grid, initial_scores=first, rng=np.random.default_rng(0)
    )
    tree = _grow_on(holder, table, grid, rules)
    words = np.empty((loss.n_outputs, len(labels)), np.int64)
    loss.gradients(
        np.repeat(first[:, None].astype(loss.score_type), len(labels), axis=1), labels, weights, grid, out=words
    )
    grads, hessians = (np.array([part(word) for word in words[0].tolist()]) for part in (grad_of, hess_of))
    return Case(table, grads / grid.grad_scale, hessians / grid.hess_scale, rules, tree)


def _gain(case: Case, rows: np.ndarray, goes_left: np.ndarray) -> tuple[float, float]:
    """Gain of a division of some rows and the largest score in it; minus infinity if a child is too light."""
    scores = []
    for part in (rows[goes_left], rows[~goes_left], rows):
        grad, hess = case.grad[part].sum(), case.hess[part].sum()
        if hess <= 0 or hess < case.rules.min_child_weight:
            return -np.inf, 0.0
        scores.append(grad * grad / (hess + case.rules.reg_lambda))
    return scores[0] + scores[1] - scores[2], max(scores)


def _divisions(case: Case, rows: np.ndarray) -> list[np.ndarray]:
    """Which of the rows go left, for every cut of every column and both ways for the missing ones."""
    divisions = []
    for column, bins in enumerate(case.table.bins[:, rows]):
        missing = case.table.axes.n_value_bins(column)
        divisions += [bins <= cut for cut in range(missing)]
        divisions += [(bins <= cut) | (bins == missing) for cut in range(missing)]
    return divisions


def _check(case: Case, node: int, rows: np.ndarray, depth: int) -> None:
    """The node does what the search finds best, and so does every node below it."""
    tree, rules = case.tree, case.rules
    gains = [_gain(case, rows, division) for division in _divisions(case, rows)]
    best = max((gain for gain, _ in gains), default=-np.inf)
    rounding = ROUNDING * max((score for _, score in gains), default=0.0)
    if tree.is_leaf[node]:
        assert depth == rules.max_depth or best <= max(1e-6, rules.gamma) + rounding
        grad, hess = case.grad[rows].sum(), case.hess[rows].sum()
        is_heavy = hess >= rules.min_child_weight and hess > 0
        expected = -grad / (hess + rules.reg_lambda) if is_heavy else 0.0
        assert tree.values[node] == pytest.approx(expected, rel=1e-12, abs=0)
        return
    assert depth < rules.max_depth
    bins, missing = case.table.bins[tree.columns[node], rows], case.table.axes.n_value_bins(tree.columns[node])
    goes_left = np.where(bins == missing, tree.missing_left[node], bins <= tree.thresholds[node])
    assert _gain(case, rows, goes_left)[0] >= best - rounding
    assert tree.gains[node] == pytest.approx(best, abs=rounding)
    assert tree.gains[node] >= max(1e-6, rules.gamma)
    assert tree.covers[node] == pytest.approx(case.hess[rows].sum(), rel=1e-12)
    _check(case, tree.lefts[node], rows[goes_left], depth + 1)
    _check(case, tree.rights[node], rows[~goes_left], depth + 1)


CELLS = st.sampled_from([np.nan, -1.5, 0.0, 0.25, 7.0]) | st.floats(allow_nan=True, allow_infinity=False, width=16)
RULES = st.builds(
    Rules,
    reg_lambda=st.sampled_from([0.0, 1.0, 10.0]),
    gamma=st.sampled_from([0.0, 0.5]),
    min_child_weight=st.sampled_from([0.0, 1.0, 2.5]),
    max_depth=st.integers(1, 4),
)


@st.composite
def _problems(draw: st.DrawFn, labels: st.SearchStrategy[float]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A table with constant and empty columns among the others, labels, and weights."""
    n_rows = draw(st.integers(1, 20))
    columns = draw(
        st.lists(
            st.one_of(
                st.lists(CELLS, min_size=n_rows, max_size=n_rows), st.just([3.0] * n_rows), st.just([np.nan] * n_rows)
            ),
            min_size=1,
            max_size=3,
        )
    )
    weights = st.sampled_from([1.0, 0.5, 2.0, 1e6]) | st.floats(0.01, 1e9)
    return (
        np.array(columns).T,
        np.array(draw(st.lists(labels, min_size=n_rows, max_size=n_rows))),
        np.array(draw(st.lists(weights, min_size=n_rows, max_size=n_rows))),
    )


NUMBERS = st.sampled_from([0.0, 1.0, -1.0, 1e100, -3e-100]) | st.floats(1e-100, 1e100) | st.floats(-1e100, -1e-100)


@settings(max_examples=250, deadline=None)
@given(_problems(NUMBERS), RULES)
def test_trees_for_numbers_are_what_an_exhaustive_search_finds(
    problem: tuple[np.ndarray, np.ndarray, np.ndarray], rules: Rules
) -> None:
    case = _grow(*problem, SquaredError(), rules)
    _check(case, 0, np.arange(len(problem[1])), 0)


@settings(max_examples=200, deadline=None)
@given(_problems(st.sampled_from([0.0, 1.0])), RULES)
def test_trees_for_classes_are_what_an_exhaustive_search_finds(
    problem: tuple[np.ndarray, np.ndarray, np.ndarray], rules: Rules
) -> None:
    case = _grow(*problem, Logistic(), rules)
    _check(case, 0, np.arange(len(problem[1])), 0)


@pytest.mark.parametrize("change", [{"reg_lambda": 1.1}, {"gamma": 100.0}, {"max_depth": 2}], ids=str)
def test_the_search_catches_a_tree_grown_by_other_rules(change: dict[str, float]) -> None:
    rng = np.random.default_rng(0)
    rules = Rules(reg_lambda=1.0, gamma=0.0, min_child_weight=1.0, max_depth=3)
    case = _grow(rng.normal(size=(20, 2)), rng.normal(size=20), np.ones(20), SquaredError(), rules)
    other = Case(case.table, case.grad, case.hess, Rules(**{**vars(rules), **change}), case.tree)
    with pytest.raises(AssertionError):
        _check(other, 0, np.arange(20), 0)


def test_only_the_lighter_of_two_siblings_is_asked_for_its_histogram() -> None:
    rng = np.random.default_rng(0)
    table = BinnedTable.of([bin_values(rng.normal(size=200), max_bin=256) for _ in range(2)])
    labels, grid = rng.normal(size=200), SquaredError().grid(np.array([3.0]), np.ones(1), np.zeros(1))
    holder = CountingHolder(
        table, labels, np.ones(200), loss=SquaredError(), grid=grid, initial_scores=np.zeros(1), rng=rng
    )
    tree = _grow_on(holder, table, grid, Rules(reg_lambda=1.0, gamma=0.0, min_child_weight=1.0, max_depth=4))
    assert [len(nodes) for nodes in holder.asked] == [1, 1, 2, 4]
    assert holder.n_divisions == 4
    parents = {
        int(child): node for node in np.flatnonzero(~tree.is_leaf) for child in (tree.lefts[node], tree.rights[node])
    }
    for nodes, weights in zip(holder.asked[1:], holder.weights[1:], strict=True):
        for node, weight in zip(nodes, weights, strict=True):
            assert weight / grid.hess_scale <= tree.covers[parents[int(node)]] / 2


def test_a_table_of_one_row_grows_a_single_leaf() -> None:
    rules = Rules(reg_lambda=1.0, gamma=0.0, min_child_weight=0.0, max_depth=6)
    case = _grow(np.array([[1.0, np.nan]]), np.array([5.0]), np.ones(1), SquaredError(), rules)
    assert case.tree.n_nodes == 1
    assert case.tree.values.tolist() == [0.0]


def test_a_tree_without_columns_is_a_single_leaf() -> None:
    table = BinnedTable.of([bin_values(np.arange(4.0), max_bin=256)])
    labels, grid = np.arange(4.0), SquaredError().grid(np.arange(4.0), np.ones(4), np.zeros(1))
    holder = LocalHolder(
        table,
        labels,
        np.ones(4),
        loss=SquaredError(),
        grid=grid,
        initial_scores=np.zeros(1),
        rng=np.random.default_rng(0),
    )
    rules = Rules(reg_lambda=1.0, gamma=0.0, min_child_weight=1.0, max_depth=3)
    tree = _grow_on(holder, table, grid, rules, np.empty(0, np.int64))
    assert tree.values.tolist() == [6 / 5]
