"""Whole trees of every shape against a search that looks at every division of every node's rows, one by one.

The search's sums are exact integers, so only its gains are rounded, relative to the largest score that enters them.
Trees are checked rather than grown anew: of divisions with equal gains, rounding decides.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from opboost.trees.binning import BinnedTable, bin_categories, bin_values
from opboost.trees.boosting import BoostingParameters, boost_table
from opboost.trees.constraints import ColumnConstraints
from opboost.trees.kernels.packing import grad_of, hess_of
from opboost.trees.losses import GradientGrid, Logistic, Loss, Poisson, Softmax, SquaredError
from opboost.trees.tree import Tree

ROUNDING = 1e-11
LEAST_GAIN = 1e-6

pytestmark = pytest.mark.usefixtures("one_thread")


@dataclass
class Table:
    """Columns of numbers or categories, labels and weights."""

    values: np.ndarray
    labels: np.ndarray
    weights: np.ndarray
    kinds: str
    loss: Loss = field(default_factory=SquaredError)

    @property
    def binned(self) -> BinnedTable:
        binned = {"q": bin_values, "c": bin_categories}
        return BinnedTable.of(
            [binned[kind](column, max_bin=65535) for kind, column in zip(self.kinds, self.values.T, strict=True)]
        )


@dataclass(frozen=True)
class Way:
    """What is known of a node on the way to it."""

    rows: np.ndarray
    depth: int = 0
    lower: float = -np.inf
    upper: float = np.inf
    path: frozenset[int] = frozenset()


class Search:
    """Grows the first tree of each output, and looks for something better than each of its decisions."""

    def __init__(self, table: Table, parameters: BoostingParameters, constraints: ColumnConstraints) -> None:
        self.table, self.parameters = table.binned, parameters
        self.constraints = constraints
        names = [f"c{i}" for i in range(len(table.kinds))]
        loss, labels, weights = table.loss, table.labels, table.weights
        step = loss.max_delta_step if parameters.max_delta_step is None else parameters.max_delta_step
        self.bound = step or np.inf
        first = loss.initial_scores(labels, weights)
        self.grid: GradientGrid = loss.grid(labels, weights, first)
        words = np.empty((loss.n_outputs, len(labels)), np.int64)
        loss.gradients(
            np.repeat(first[:, None].astype(loss.score_type), len(labels), axis=1),
            labels,
            weights,
            self.grid,
            out=words,
        )
        parts = [
            np.array([part(word) for word in words.ravel().tolist()]).reshape(words.shape)
            for part in (grad_of, hess_of)
        ]
        self.grads, self.hessians = parts
        self.is_monotone = [constraints.monotone.get(name, 0) for name in names]
        self.groups = [{names.index(name) for name in group} for group in constraints.interactions]
        self.trees, _ = boost_table(
            self.table,
            labels,
            weights,
            parameters,
            loss=loss,
            base_scores=first,
            constraints=constraints.on(
                names, are_categorical=[kind == "c" for kind in table.kinds], max_delta_step=step
            ),
        )

    def check(self) -> None:
        for output, tree in enumerate(self.trees[: len(self.grads)]):
            self._check_tree(tree, output)

    def _sums(self, rows: np.ndarray, output: int) -> tuple[float, float]:
        return (
            int(self.grads[output, rows].sum()) / self.grid.grad_scale,
            int(self.hessians[output, rows].sum()) / self.grid.hess_scale,
        )

    def _value(self, sums: tuple[float, float], way: Way) -> float:
        """What a leaf is worth, before the learning rate."""
        grad, hess = sums
        is_heavy = hess > 0 and hess >= self.parameters.min_child_weight
        newton = -grad / (hess + self.parameters.reg_lambda) if is_heavy else 0.0
        return min(max(newton, way.lower), way.upper)

    def _score(self, sums: tuple[float, float], way: Way) -> float:
        """Twice the drop of the loss's quadratic approximation, at the best value within the bounds."""
        grad, hess = sums
        weight = hess + self.parameters.reg_lambda
        if weight <= 0:
            return 0.0
        value = min(max(-grad / weight, way.lower), way.upper)
        return -(2 * grad * value + weight * value * value)

    def _gain(self, way: Way, goes_left: np.ndarray, output: int) -> tuple[float, float]:
        """Gain of a division and the largest score in it; minus infinity if a child is too light."""
        scores = []
        for rows in (way.rows[goes_left], way.rows[~goes_left]):
            sums = self._sums(rows, output)
            if sums[1] <= 0 or sums[1] < self.parameters.min_child_weight:
                return -np.inf, 0.0
            scores.append(self._score(sums, way))
        before = self._score(self._sums(way.rows, output), way)
        return scores[0] + scores[1] - before, max(map(abs, (*scores, before)))

    def _columns(self, way: Way) -> list[int]:
        columns = range(self.table.axes.n_columns)
        if not self.groups or not way.path:
            return list(columns)
        together = [group for group in self.groups if way.path <= group]
        return [c for c in columns if c in way.path or any(c in group for group in together)]

    def _divisions(self, way: Way, column: int, output: int) -> Iterator[np.ndarray]:
        """Which of the rows go left, for every cut and both ways of the missing ones."""
        bins, missing = self.table.bins[column, way.rows], self.table.axes.n_value_bins(column)
        for is_left in (bins == missing, np.zeros(len(bins), np.bool_)):
            if not self.table.axes.is_categorical[column]:
                for cut in np.unique(bins[bins < missing]):
                    yield (bins <= cut) | is_left
                continue
            found = [b for b in range(missing) if self._sums(way.rows[bins == b], output)[1] > 0]
            if missing <= self.parameters.max_cat_to_onehot:
                yield from ((bins == b) | is_left for b in found)
                continue
            sums = [self._sums(way.rows[bins == b], output) for b in range(missing)]
            means = [self._mean(grad, hess + self.parameters.reg_lambda) for grad, hess in sums]
            order = sorted(range(missing), key=lambda b: -means[b])
            yield from (np.isin(bins, order[:n]) | is_left for n in range(1, missing + 1))

    @staticmethod
    def _mean(grad: float, weight: float) -> float:
        """Of no rows it is zero; of rows that weigh nothing, beyond all others."""
        if grad == 0 or weight > 0:
            return grad / (weight or 1.0)
        return float(np.copysign(np.inf, grad))

    def _keeps_direction(self, way: Way, column: int, goes_left: np.ndarray, output: int) -> bool:
        left, right = (
            self._value(self._sums(rows, output), way) for rows in (way.rows[goes_left], way.rows[~goes_left])
        )
        return self.is_monotone[column] * (right - left) >= 0

    def _best(self, way: Way, output: int) -> tuple[float, float]:
        """The best gain that the node may have, and how much rounding may change it."""
        if way.depth >= (self.parameters.max_depth or np.inf):
            return -np.inf, 0.0
        gains = [
            self._gain(way, goes_left, output)
            for column in self._columns(way)
            for goes_left in self._divisions(way, column, output)
            if self._keeps_direction(way, column, goes_left, output)
        ]
        best = max((gain for gain, _ in gains), default=-np.inf)
        return best, ROUNDING * max((score for _, score in gains), default=0.0)

    def _goes_left(self, tree: Tree, node: int, way: Way) -> np.ndarray:
        column = int(tree.columns[node])
        bins, missing = self.table.bins[column, way.rows], self.table.axes.n_value_bins(column)
        if self.table.axes.is_categorical[column]:
            goes_left = np.isin(bins, tree.left_categories[node])
        else:
            goes_left = bins <= tree.thresholds[node]
        return np.where(bins == missing, tree.missing_left[node], goes_left).astype(np.bool_)

    def _children(self, tree: Tree, node: int, way: Way, output: int) -> tuple[Way, Way]:
        column, goes_left = int(tree.columns[node]), self._goes_left(tree, node, way)
        parts = way.rows[goes_left], way.rows[~goes_left]
        middle = sum(self._value(self._sums(rows, output), way) for rows in parts) / 2
        lows, ups = [way.lower] * 2, [way.upper] * 2
        if self.is_monotone[column] > 0:
            ups[0] = lows[1] = middle
        elif self.is_monotone[column] < 0:
            lows[0] = ups[1] = middle
        path = way.path | {column}
        left, right = (Way(parts[k], way.depth + 1, lows[k], ups[k], path) for k in (0, 1))
        return left, right

    def _check_tree(self, tree: Tree, output: int) -> None:
        """Follow the splits in the order in which they were made: children are numbered as they arise."""
        rules, least = self.parameters, max(LEAST_GAIN, self.parameters.gamma)
        everything = Way(np.arange(self.grads.shape[1]), lower=-self.bound, upper=self.bound)
        open_nodes = {0: everything}
        best = {0: self._best(everything, output)}
        for node in np.argsort(np.where(tree.is_leaf, tree.n_nodes, tree.lefts), kind="stable").tolist():
            if tree.is_leaf[node]:
                continue
            way = open_nodes.pop(node)
            (wanted, rounding), goes_left = best.pop(node), self._goes_left(tree, node, way)
            gain, _ = self._gain(way, goes_left, output)
            assert way.depth < (rules.max_depth or np.inf)
            assert gain >= wanted - rounding
            assert tree.gains[node] == pytest.approx(gain, rel=0, abs=rounding)
            assert tree.gains[node] >= least
            assert tree.columns[node] in self._columns(way)
            assert self._keeps_direction(way, int(tree.columns[node]), goes_left, output)
            if rules.max_leaves:
                others = max((other - slack for other, slack in best.values()), default=-np.inf)
                assert gain >= others - rounding
            children = self._children(tree, node, way, output)
            for child, child_way in zip((int(tree.lefts[node]), int(tree.rights[node])), children, strict=True):
                open_nodes[child], best[child] = child_way, self._best(child_way, output)
        is_full = rules.max_leaves and len(open_nodes) == rules.max_leaves
        assert not rules.max_leaves or len(open_nodes) <= rules.max_leaves
        for node, way in open_nodes.items():
            assert tree.is_leaf[node]
            assert is_full or best[node][0] <= least + best[node][1]
            value = rules.learning_rate * self._value(self._sums(way.rows, output), way)
            assert tree.values[node] == pytest.approx(value, rel=1e-12, abs=0)
            assert tree.covers[node] == pytest.approx(self._sums(way.rows, output)[1], rel=1e-12)


RULES = st.fixed_dictionaries(
    {
        "reg_lambda": st.sampled_from([0.0, 1.0, 10.0]),
        "gamma": st.sampled_from([0.0, 0.5]),
        "min_child_weight": st.sampled_from([1e-9, 1.0, 2.5]),
        "max_delta_step": st.sampled_from([0.0, 0.0, 0.25, 100.0]),
        "learning_rate": st.sampled_from([0.3, 1.0]),
        "max_cat_to_onehot": st.sampled_from([0, 4, 40]),
    }
)
SIZES = st.sampled_from(
    [{"max_depth": d} for d in (1, 2, 4)]
    + [
        {"max_leaves": 2, "max_depth": 0},
        {"max_leaves": 5, "max_depth": 0},
        {"max_leaves": 6, "max_depth": 2},
        {"max_leaves": 1000, "max_depth": 0},
    ]
)
LABELS: dict[str, st.SearchStrategy[float]] = {
    "reg:squarederror": st.sampled_from([0.0, 1.0, -1.0, 1e100, -3e-100]) | st.floats(-1e3, 1e3),
    "binary:logistic": st.sampled_from([0.0, 1.0]),
    "multi:softprob": st.sampled_from([0.0, 1.0, 2.0]),
    "count:poisson": st.sampled_from([0.0, 1.0, 7.0, 1e9]) | st.integers(0, 50).map(float),
}
LOSSES: list[Loss] = [SquaredError(), Logistic(), Softmax(3), Poisson()]


@st.composite
def columns_of(draw: st.DrawFn, n_rows: int, *, kind: str) -> list[float]:
    """Constant, missing, tied, distinct, or categories."""
    if kind == "c":
        cells = st.sampled_from([0.0, 1.0, 2.0, 5.0, 9.0, np.nan])
    else:
        cells = draw(
            st.sampled_from(
                [
                    st.just(3.0),
                    st.just(np.nan),
                    st.sampled_from([np.nan, -1.5, 0.0, 7.0]),
                    st.sampled_from([0.0, 1.0]),
                    st.floats(allow_nan=False, allow_infinity=False),
                    st.floats(allow_nan=True, allow_infinity=False, width=16),
                ]
            )
        )
    return draw(st.lists(cells, min_size=n_rows, max_size=n_rows))


@st.composite
def tables(draw: st.DrawFn) -> Table:
    """One to five columns, one to 24 rows, weights from all alike to 1e9 times each other."""
    loss = draw(st.sampled_from(LOSSES))
    n_rows, kinds = draw(st.integers(1, 24)), draw(st.text("qqc", min_size=1, max_size=5))
    weights = draw(st.sampled_from([st.just(1.0), st.sampled_from([1.0, 0.5, 2.0, 1e6]), st.floats(0.01, 1e9)]))
    columns = [draw(columns_of(n_rows, kind=kind)) for kind in kinds]
    return Table(
        np.array(columns).T,
        np.array(draw(st.lists(LABELS[loss.name], min_size=n_rows, max_size=n_rows))),
        np.array(draw(st.lists(weights, min_size=n_rows, max_size=n_rows))),
        kinds,
        loss,
    )


@st.composite
def constraints_on(draw: st.DrawFn, table: Table) -> ColumnConstraints:
    """Directions of columns of numbers without gaps, and groups that may overlap and leave columns out."""
    directions = {
        f"c{i}": draw(st.sampled_from([-1, 0, 1]))
        for i, kind in enumerate(table.kinds)
        if kind == "q" and not np.isnan(table.values[:, i]).any()
    }
    names = st.sampled_from([f"c{i}" for i in range(len(table.kinds))])
    groups = st.lists(st.lists(names, min_size=1, max_size=3, unique=True), max_size=3)
    return ColumnConstraints(directions, draw(groups))


@settings(max_examples=200, deadline=None)
@given(tables(), RULES, SIZES)
def test_trees_of_any_shape_are_what_an_exhaustive_search_finds(
    table: Table, rules: dict[str, float], sizes: dict[str, int]
) -> None:
    Search(table, BoostingParameters(n_estimators=1, **rules, **sizes), ColumnConstraints()).check()


@settings(max_examples=200, deadline=None)
@given(st.data(), tables(), RULES, SIZES)
def test_trees_under_constraints_are_what_an_exhaustive_search_finds(
    data: st.DataObject, table: Table, rules: dict[str, float], sizes: dict[str, int]
) -> None:
    constraints = data.draw(constraints_on(table))
    Search(table, BoostingParameters(n_estimators=1, **rules, **sizes), constraints).check()


def _random_table(n_rows: int, n_columns: int, kinds: str, seed: int = 0) -> Table:
    rng = np.random.default_rng(seed)
    values = rng.integers(0, [4, 9, 3, 6, 5, 7][:n_columns], (n_rows, n_columns)) * 1.0
    labels = values.sum(axis=1) + rng.normal(size=n_rows)
    values[rng.random(values.shape) < 0.1] = np.nan
    return Table(values, labels, rng.uniform(0.5, 2, n_rows), kinds)


@pytest.mark.parametrize("n_rows", [size + extra for size in (2**11, 2**13) for extra in (-1, 0, 1)])
@pytest.mark.parametrize("kinds", ["q", "qc", "qqc"])
def test_rows_around_the_sizes_of_blocks_are_all_divided_and_summed(n_rows: int, kinds: str) -> None:
    table = _random_table(n_rows, len(kinds), kinds)
    Search(table, BoostingParameters(n_estimators=1, max_depth=3), ColumnConstraints()).check()


@pytest.mark.parametrize("n_columns", range(1, 7))
def test_any_number_of_columns_is_searched(n_columns: int) -> None:
    """The loop over columns takes four at a time."""
    table = _random_table(200, n_columns, "qcqqcq"[:n_columns])
    Search(table, BoostingParameters(n_estimators=1, max_depth=4), ColumnConstraints()).check()


CHANGES = {
    "regularisation": {"reg_lambda": 1.1},
    "least gain": {"gamma": 50.0},
    "least weight": {"min_child_weight": 30.0},
    "depth": {"max_depth": 2},
    "learning rate": {"learning_rate": 0.31},
    "leaves": {"max_leaves": 4},
    "bound": {"max_delta_step": 0.5},
    "sets of categories": {"max_cat_to_onehot": 0},
}


@pytest.mark.parametrize("change", CHANGES)
def test_the_search_catches_a_tree_grown_by_other_rules(change: str) -> None:
    table = _random_table(200, 3, "qcq")
    search = Search(table, BoostingParameters(n_estimators=1, max_depth=3, max_cat_to_onehot=40), ColumnConstraints())
    search.check()
    search.parameters = BoostingParameters(
        **{"n_estimators": 1, "max_depth": 3, "max_cat_to_onehot": 40} | CHANGES[change]
    )
    search.bound = search.parameters.max_delta_step or np.inf
    with pytest.raises(AssertionError):
        search.check()


@pytest.mark.parametrize(
    "constraints",
    [ColumnConstraints({"c0": -1}), ColumnConstraints(interactions=[["c0"], ["c1"], ["c2"]])],
    ids=["monotone", "groups"],
)
def test_the_search_catches_a_tree_grown_under_other_constraints(constraints: ColumnConstraints) -> None:
    table = _random_table(200, 3, "qqq")
    table.values = np.nan_to_num(table.values)
    parameters = BoostingParameters(n_estimators=1, max_depth=3)
    wanted, other = Search(table, parameters, constraints), Search(table, parameters, ColumnConstraints())
    wanted.check()
    wanted.trees = other.trees
    with pytest.raises(AssertionError):
        wanted.check()


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(2, 6))
def test_without_regularisation_sorted_categories_find_the_best_of_all_sets(seed: int, n_categories: int) -> None:
    """The theorem behind the order (Fisher 1958; Breiman et al. 1984, 4.2.2), by trying all sets."""
    rng = np.random.default_rng(seed)
    categories = rng.integers(0, n_categories, 40) * 1.0
    table = Table(categories[:, None], rng.normal(size=40), rng.uniform(0.5, 2, 40), "c")
    parameters = BoostingParameters(
        n_estimators=1, max_depth=1, reg_lambda=0.0, min_child_weight=0.0, max_cat_to_onehot=0
    )
    search, way = Search(table, parameters, ColumnConstraints()), Way(np.arange(40))
    found = range(len(np.unique(categories)))
    gains = [
        search._gain(way, np.isin(search.table.bins[0], left), 0)[0]
        for size in range(1, len(found))
        for left in itertools.combinations(found, size)
    ]
    assert search.trees[0].gains[0] == pytest.approx(max(gains, default=0.0), rel=1e-9)


@pytest.mark.parametrize("has_missing", [False, True])
@pytest.mark.parametrize("at", [0, 1, 255, 256, 40_000, 65_532])
def test_a_step_between_two_of_65535_values_is_found(at: int, has_missing: bool) -> None:
    """As many bins as 16 bits hold, the missing one included."""
    n = 65_534 if has_missing else 65_535
    values = np.random.default_rng(0).permutation(n) * 2.0
    labels = np.where(values <= 2 * at, 0.0, 1.0)
    if has_missing:
        values, labels = np.append(values, np.nan), np.append(labels, 0.0)
    table = Table(values[:, None], labels, np.ones(len(values)), "q").binned
    assert table.bins.dtype == np.uint16
    loss, parameters = SquaredError(), BoostingParameters(n_estimators=1, max_depth=1, max_bin=65535)
    first = loss.initial_scores(labels, np.ones(len(labels)))
    trees, _ = boost_table(
        table,
        labels,
        np.ones(len(labels)),
        parameters,
        loss=loss,
        base_scores=first,
        constraints=ColumnConstraints().on(["c0"], are_categorical=[False], max_delta_step=0.0),
    )
    assert (trees[0].thresholds[0], table.cuts[0][at]) == (at, 2 * at + 1)
    assert trees[0].missing_left[0] == has_missing


@settings(max_examples=100, deadline=None)
@given(
    st.sampled_from([SquaredError(), Logistic(), Poisson(), Softmax(3)]),
    st.lists(st.tuples(st.floats(-1e6, 1e6) | st.just(np.nan), st.floats(1e-9, 1e40)), min_size=1, max_size=12),
    st.sampled_from([1.0, 50.0, 1e4]),
    st.integers(0, 9),
)
@example(Poisson(), [(0.0, 1.0), (1.0, 1.0)], 1e4, 0)
def test_extreme_gradients_and_weights_give_finite_trees(
    loss: Loss, rows: list[tuple[float, float]], learning_rate: float, seed: int
) -> None:
    """Steps that overshoot by thousands: gradients saturate, means and shares overflow, nothing becomes NaN."""
    values, weights = np.array(rows).T
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 2, len(values)) * 1.0
    if isinstance(loss, SquaredError):
        labels *= 1e100
    table = Table(values[:, None].copy(), labels, weights, "q", loss)
    first = loss.initial_scores(labels, weights)
    trees, _ = boost_table(
        table.binned,
        labels,
        weights,
        BoostingParameters(n_estimators=6, max_depth=3, learning_rate=learning_rate, min_child_weight=0.0),
        loss=loss,
        base_scores=first,
        constraints=ColumnConstraints().on(["c0"], are_categorical=[False], max_delta_step=loss.max_delta_step),
    )
    assert all(np.isfinite([tree.values, tree.gains, tree.covers]).all() for tree in trees)
