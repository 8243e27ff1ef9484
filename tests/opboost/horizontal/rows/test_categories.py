"""Splits on categories: one against all others, in every rule, in every holder, in the model that is kept."""

from __future__ import annotations

import math

import numpy as np
import pytest

from opboost import DPBoostRegressor, InPrivateRegressor, SGBDTRegressor, load_model
from opboost.errors import DataError, ParameterError
from opboost.horizontal.inprivate.settings import InPrivateSettings
from opboost.horizontal.inprivate.training import Owner, run_chain
from opboost.horizontal.rows.public_grid import PublicGrid
from opboost.horizontal.rows.record_holder import Clipping, RecordHolder, WalkingHolder, squared_gradients
from opboost.horizontal.splits.exponential_splits import candidate_gains, gain_range, grid_candidates
from opboost.horizontal.splits.gridless import GridlessColumns, GridlessRule
from opboost.horizontal.splits.noisy_cells import placed_cells
from opboost.privacy.selection import ExponentialMechanism
from opboost.rng import seeded
from opboost.trees.complete import RandomRule, grow_complete_tree
from opboost.trees.model_file import save_model
from opboost.trees.tree import Tree

pytestmark = pytest.mark.usefixtures("one_thread")

# Three categories, a number, 300 categories.
BOUNDS = [(0.0, 2.0), (0.0, 1.0), (0.0, 299.0)]
GRID = PublicGrid(BOUNDS, 4, categorical=(0, 2))
CLIPPING = Clipping(max_grad=1.0, max_hess=1.0)
REGRESSORS = (SGBDTRegressor, DPBoostRegressor, InPrivateRegressor)


def table(n_rows: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(seed)
    rows = np.column_stack(
        [generator.integers(0, 3, n_rows), generator.random(n_rows), generator.integers(0, 300, n_rows)]
    ).astype(float)
    rows[generator.random(rows.shape) < 0.1] = math.nan
    return rows, np.round(generator.uniform(-1, 1, n_rows) * 64) / 64


def went_left(tree: Tree, node: int, rows: np.ndarray) -> np.ndarray:
    """By the model's own rule, on values."""
    values = rows[:, tree.columns[node]]
    if node in tree.left_categories:
        return np.isin(values, tree.left_categories[node])
    return np.where(np.isnan(values), tree.missing_left[node], values <= tree.thresholds[node])


def values_of(tree: Tree, rows: np.ndarray) -> np.ndarray:
    nodes = np.zeros(len(rows), np.int64)
    for _ in range(tree.depth):
        for node in np.unique(nodes[~tree.is_leaf[nodes]]):
            here = nodes == node
            nodes[here] = np.where(went_left(tree, node, rows), tree.lefts[node], tree.rights[node])[here]
    return tree.values[nodes]


@pytest.mark.parametrize("n_most", [3, 254, 255, 300])
def test_holders_divide_rows_as_the_model_does(n_most):
    """With 255 categories and a missing bin, all numbers of 8 bits are in use."""
    grid = PublicGrid([BOUNDS[0], BOUNDS[1], (0.0, n_most - 1.0)], 4, categorical=(0, 2))
    rows, labels = table(500)
    rows[:, 2] %= n_most
    rows[:2, 2] = 0, n_most - 1
    settings = {"gradients": squared_gradients, "clipping": CLIPPING, "initial_score": 0.0}
    walking, sorting, late = (
        kind(grid.place(rows), labels, **settings) for kind in (WalkingHolder, RecordHolder, RecordHolder)
    )
    for holder in (walking, sorting):
        rule, trees = RandomRule(grid.axes, uniforms=np.random.default_rng(n_most).random), []
        for _ in range(12):
            holder.start_tree(0)
            tree = grow_complete_tree(
                holder, rule=rule, leaf_values=lambda sums: np.arange(1.0, len(sums) + 1), axes=grid.axes, depth=3
            )
            holder.finish_tree(tree)
            trees.append(tree)
    late.catch_up(trees)
    assert sum(len(tree.left_categories) for tree in trees) > 20
    expected = sum(values_of(grid.in_values(tree), rows) for tree in trees)
    np.testing.assert_array_equal(walking.scores, expected)
    np.testing.assert_array_equal(sorting.scores, expected)
    np.testing.assert_array_equal(late.scores, expected)


def test_a_random_split_takes_every_category_as_often_and_sends_the_missing_to_the_others():
    axes = PublicGrid([(0.0, 4.0)], 2, categorical=(0,)).axes
    rule = RandomRule(axes, uniforms=np.random.default_rng(0).random)
    drawn = []
    for _ in range(2000):
        rule.start_tree()
        first = rule.choose(np.zeros(1, np.int32), None)
        drawn.append(int(first.cuts[0]))
        below = rule.choose(np.array([1, 2], np.int32), None)
        assert not first.missing_left.any()
        assert not below.missing_left.any()
        if drawn[-1] in (0, 4):
            assert below.cuts[1] != drawn[-1]
    # Deviations of 18; six of them are exceeded once in half a billion draws.
    np.testing.assert_allclose(np.bincount(drawn, minlength=5), 400, atol=108)


def holder_of(rows: np.ndarray, labels: np.ndarray, columns: PublicGrid | GridlessColumns):
    placed = columns.place(rows)
    holder = RecordHolder(
        getattr(placed, "table", placed), labels, gradients=squared_gradients, clipping=CLIPPING, initial_score=0.0
    )
    holder.start_tree(0)
    return placed, holder


def grid_gains(rows: np.ndarray, labels: np.ndarray, missing_left: bool) -> np.ndarray:
    _, holder = holder_of(rows, labels, GRID)
    out = np.zeros((1, 2, GRID.axes.n_bins), np.int64)
    holder.write_histograms(np.zeros(1, np.int32), out)
    return candidate_gains(out, np.array([missing_left]), GRID.axes, CLIPPING.grid, 0.5)[0]


def real_gain(left: np.ndarray, labels: np.ndarray) -> float:
    return float(sum(labels[side].sum() ** 2 / (side.sum() + 0.5) for side in (left, ~left)))


@pytest.mark.parametrize("missing_left", [True, False])
def test_gains_are_those_of_the_real_splits(missing_left):
    rows, labels = table(60)
    found = grid_gains(rows, labels, missing_left)
    columns, cuts = grid_candidates(GRID.axes)
    assert np.bincount(columns).tolist() == [3, 3, 300]
    for gain, column, cut in zip(found, columns, cuts, strict=True):
        values = rows[:, column]
        left = values == cut
        if column == 1:
            left = np.where(np.isnan(values), missing_left, values <= GRID.cuts[1][cut])
        assert gain == pytest.approx(real_gain(left, labels))


def point_gains(rows: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Gains of all points of all columns, and their measure."""
    columns = GridlessColumns(BOUNDS, n_bits=4, categorical=(0, 2))
    placed, holder = holder_of(rows, labels, columns)
    mechanism = ExponentialMechanism(epsilon=1.0, utility_range=gain_range(1.0))
    rule = GridlessRule(
        placed=placed, grid=CLIPPING.grid, reg_lambda=0.5, mechanism=mechanism, holder=holder, rng=seeded(0)
    )
    buckets = rule.buckets(0, np.array([True]))
    gains = [np.repeat(each.utilities, each.widths) for each in buckets]
    weights = [np.full(int(each.widths.sum()), each.weight_per_point) for each in buckets]
    return np.concatenate(gains), np.concatenate(weights)


def test_without_a_grid_a_category_weighs_as_much_as_all_thresholds_of_a_number():
    rows, labels = table(60)
    gains, weights = point_gains(rows, labels)
    assert len(gains) == 3 + 16 + 300
    assert weights[3:19].sum() == 1.0
    assert (np.delete(weights, np.s_[3:19]) == 1.0).all()
    for category in range(3):
        assert gains[category] == pytest.approx(real_gain(rows[:, 0] == category, labels))
    for category in range(300):
        assert gains[19 + category] == pytest.approx(real_gain(rows[:, 2] == category, labels))


@pytest.mark.parametrize("is_gridless", [False, True])
def test_one_record_changes_the_probability_of_no_category_by_more_than_epsilon(is_gridless):
    def worst(utility_range: float) -> float:
        mechanism, found = ExponentialMechanism(epsilon=1.0, utility_range=utility_range), 0.0
        for n in (0, 1, 3, 40, 300):
            rows, labels = np.tile([1.0, 0.9, 7.0], (n + 1, 1)), np.ones(n + 1)
            rows[: n // 2, 0] = 2.0
            for new in ([2.0, 0.9, 7.0], [0.0, 0.1, 8.0], [math.nan, 0.1, math.nan]):
                rows[-1], labels[-1] = new, -1.0
                laws = []
                for m in (n, n + 1):
                    gains, weights = (
                        point_gains(rows[:m], labels[:m])
                        if is_gridless
                        else (grid_gains(rows[:m], labels[:m], True), np.ones(306))
                    )
                    laws.append(mechanism.log_probabilities(gains[None], weights[None])[0])
                assert len(laws[0]) == len(laws[1])
                found = max(found, float(np.abs(laws[0] - laws[1]).max()))
        return found

    assert 0.1 < worst(gain_range(1.0)) <= 1.0
    # Twin: a range that forgets how far gains fall.
    assert worst(1.0) > 1.0


@pytest.mark.parametrize("columns", [GRID, GridlessColumns(BOUNDS, categorical=(0, 2))], ids=["grid", "gridless"])
def test_owners_pass_on_categories(columns):
    rows, labels = table(90)
    whose = np.arange(90) % 3
    settings = InPrivateSettings(n_rounds=2, max_depth=2, learning_rate=0.5, reg_lambda=1.0, noise_lambda=2.0)
    owners = [
        Owner(rows[whose == i], labels[whose == i], columns, settings, gradients=squared_gradients, rng=seeded(i))
        for i in range(3)
    ]
    trees = [columns.in_values(tree) for tree in run_chain(owners, n_rounds=2, epsilon=3.0)]
    assert any(tree.left_categories for tree in trees)
    for i, owner in enumerate(owners):
        expected = sum(values_of(tree, rows[whose == i]) for tree in trees)
        np.testing.assert_allclose(owner._holders.scores, expected)


@pytest.mark.parametrize("kind", REGRESSORS)
@pytest.mark.parametrize("is_private", [True, False])
def test_what_only_one_category_says_is_learnt_and_kept_in_the_model(kind, is_private, tmp_path):
    generator = np.random.default_rng(0)
    rows = np.column_stack([generator.integers(0, 9, 3000), generator.random(3000)]).astype(float)
    labels = np.where(rows[:, 0] == 4, 1.0, -0.5)
    private = {"epsilon": 20.0, "bounds": ([0, 0], [8, 1]), "label_bounds": (-1, 1)} if is_private else {}
    model = kind(categorical_features=[0], **private, random_state=0).fit(rows, labels)
    # Two cuts would be needed to tell a middle category apart.
    assert model.score(rows, labels) > 0.5
    assert any((4,) in tree.left_categories.values() for tree in model.model_.trees)
    save_model(model.model_, tmp_path / "model.json")
    np.testing.assert_array_equal(load_model(tmp_path / "model.json").predict(rows), model.model_.predict(rows))
    unknown, missing = (model.model_.predict(np.array([[value, 0.5]])) for value in (77.0, math.nan))
    assert unknown == missing


def test_cells_are_counted_for_numbers_alone():
    rows, _ = table(200)
    placed = placed_cells(GRID, rows, std=0.0, rng=seeded(0))
    np.testing.assert_array_equal(placed.cuts[2], GRID.cuts[2])
    assert not np.array_equal(placed.cuts[1], GRID.cuts[1])
    only = PublicGrid(BOUNDS[:1], 4, categorical=(0,))
    assert placed_cells(only, rows[:, :1], std=1.0, rng=seeded(0)) is only


@pytest.mark.parametrize("columns", [GRID, GridlessColumns(BOUNDS, categorical=(0, 2))], ids=["grid", "gridless"])
@pytest.mark.parametrize("value", [-1.0, 3.0, 0.5, math.inf])
def test_rows_with_other_categories_are_refused(columns, value):
    rows, _ = table(5)
    rows[2, 0] = value
    with pytest.raises(DataError, match=r"column 0 holds values .* 0, 1, ..., 2. Nothing was released"):
        columns.place(rows)


@pytest.mark.parametrize("bounds", [(1.0, 3.0), (0.0, 1.5), (0.0, 65_535.0), (0.0, 0.5)])
def test_bounds_that_count_no_categories_are_refused(bounds):
    refusal = r"needs the bounds \(0, K - 1\).*Nothing was released"
    with pytest.raises(ParameterError, match=refusal):
        PublicGrid([bounds], 4, categorical=(0,))
    with pytest.raises(ParameterError, match=refusal):
        GridlessColumns([bounds], categorical=(0,))
