"""S-GBDT as a whole: what depends on data and what must not, the filter, streams, and no noise."""

from __future__ import annotations

import dataclasses
import itertools
import math

import numpy as np
import pytest

from opboost import SGBDTClassifier, SGBDTRegressor
from opboost.errors import AccountError, ParameterError
from opboost.horizontal.noise.leaf_noise import leaf_noise
from opboost.horizontal.rows.public_grid import PublicGrid
from opboost.horizontal.rows.record_holder import Clipping, squared_gradients
from opboost.horizontal.sgbdt.admission import admission
from opboost.horizontal.sgbdt.training import SGBDT, SGBDTSettings
from opboost.privacy.record_guarantee import ADDED_OR_REMOVED, REPLACED
from opboost.rng import seeded

pytestmark = pytest.mark.usefixtures("one_thread")

PUBLIC = {"bounds": (0, 1), "label_bounds": (-1, 1), "delta": 1e-6}
SMALL = PUBLIC | {"n_estimators": 6, "max_depth": 2, "random_state": 0, "max_cells": 16}


def table(n_rows: int = 400, seed: int = 0):
    generator = np.random.default_rng(seed)
    X = generator.random((n_rows, 3))
    return X, np.clip(2 * X[:, 0] - 1 + 0.1 * generator.standard_normal(n_rows), -1, 1)


def shapes(model) -> list[tuple]:
    return [
        (tree.columns.tolist(), tree.thresholds.tolist(), tree.missing_left.tolist()) for tree in model.model_.trees
    ]


@pytest.mark.parametrize("settings", [{}, {"n_extra_estimators": 5}, {"subsample": 0.2, "use_filter": True}])
def test_number_and_shape_of_the_trees_do_not_depend_on_the_data(settings):
    one = SGBDTRegressor(**SMALL, **settings, epsilon=1.0, cells_share=0.0).fit(*table())
    other = SGBDTRegressor(**SMALL, **settings, epsilon=1.0, cells_share=0.0).fit(*table(7, seed=3))
    assert shapes(one) == shapes(other)
    assert len(one.model_.trees) == 6 + settings.get("n_extra_estimators", 0)
    assert any((a.values != b.values).any() for a, b in zip(one.model_.trees, other.model_.trees, strict=True))


@pytest.mark.parametrize("columns_per_tree", [0, 1])
def test_what_is_learnt_of_the_data_moves_cuts_and_columns_and_neither_number_nor_depth(columns_per_tree):
    settings = SMALL | {"n_estimators": 20, "columns_per_tree": columns_per_tree}
    one = SGBDTRegressor(**settings, epsilon=5.0).fit(*table())
    other = SGBDTRegressor(**settings, epsilon=5.0).fit(*table(7, seed=3))
    assert shapes(one) != shapes(other)
    assert [(tree.n_nodes, tree.depth) for tree in one.model_.trees] == [(7, 2)] * 20
    assert [(tree.n_nodes, tree.depth) for tree in other.model_.trees] == [(7, 2)] * 20


def test_nothing_is_learnt_from_exact_sums():
    """Static leaf noise puts the noise on values: the sums are exact, and choosing columns by them would tell them."""
    settings = SMALL | {"columns_per_tree": 1, "leaf_noise": "static", "cells_share": 0.0, "n_estimators": 20}
    one, other = (SGBDTRegressor(**settings, epsilon=5.0).fit(*table(seed=seed)) for seed in (0, 3))
    assert shapes(one) == shapes(other)
    settings["leaf_noise"] = "dynamic"
    one, other = (SGBDTRegressor(**settings, epsilon=5.0).fit(*table(seed=seed)) for seed in (0, 3))
    assert shapes(one) != shapes(other)


def test_paper_mode_has_even_cells_and_draws_columns_evenly():
    settings = SMALL | {"columns_per_tree": 1, "subsample": 0.2, "mode": "paper", "n_estimators": 20}
    one, other = (SGBDTRegressor(**settings, epsilon=5.0).fit(*table(seed=seed)) for seed in (0, 3))
    assert shapes(one) == shapes(other)


def test_trees_are_grown_even_when_nobody_can_pay_any_more():
    """Stopping when no record is active, as the authors' code does, would tell how many there were."""
    model = SGBDTRegressor(**SMALL, n_extra_estimators=300, epsilon=1.0).fit(*table(50))
    assert len(model.model_.trees) == 306
    assert sum((tree.values != 0).any() for tree in model.model_.trees[-20:]) > 10  # of noise alone


def test_without_noise_the_leaves_are_exact():
    X, y = table()
    model = SGBDTRegressor(**SMALL, epsilon=math.inf, initial_share=0.0, reg_lambda=1.5).fit(X, y)
    scores = np.zeros(len(y))
    for tree in model.model_.trees:
        grad = np.clip(scores - y, -model.max_grad, model.max_grad)
        nodes = np.zeros(len(y), np.int64)
        for _ in range(2):
            goes_left = X[np.arange(len(y)), tree.columns[nodes]] <= tree.thresholds[nodes]
            nodes = np.where(goes_left, tree.lefts[nodes], tree.rights[nodes])
        for leaf in range(3, 7):
            is_in = nodes == leaf
            step = -model.learning_rate * grad[is_in].sum() / (is_in.sum() + 1.5) if is_in.any() else 0.0
            assert tree.values[leaf] == pytest.approx(step, abs=1e-6)
        scores += tree.values[nodes]
    assert model.guarantee_.notion == "none"
    plain = SGBDTRegressor(**(SMALL | {"bounds": (0, 1)}), epsilon=math.inf, initial_share=0.0, reg_lambda=1.5)
    np.testing.assert_array_equal(plain.fit(X, y).predict(X), model.predict(X))


def test_a_vast_budget_comes_close_to_no_noise():
    X, y = table()
    # On public cells: a row at the edge of cells that are placed by counts may change sides.
    exact = SGBDTRegressor(**SMALL, cells_share=0.0, epsilon=math.inf).fit(X, y).predict(X)
    noisy = SGBDTRegressor(**SMALL, cells_share=0.0, epsilon=1e5).fit(X, y).predict(X)
    assert np.abs(exact - noisy).max() < 0.05


def training(n_trees: int = 4, **settings) -> SGBDT:
    clipping = Clipping(max_grad=0.5, max_hess=1.0, ratio=2.0)
    noise = leaf_noise(clipping, epsilon=1.0, delta=1e-6, n_trees=n_trees, **settings)
    settings = SGBDTSettings(max_depth=2, learning_rate=0.3, reg_lambda=1.0, noise_lambda=6.0, max_leaf=2.0)
    columns = PublicGrid([(0, 1)] * 3, 16)
    return SGBDT(
        columns, gradients=squared_gradients, settings=settings, noise=noise, initial=lambda y, rng: 0.0, rng=seeded(1)
    )


def test_without_a_filter_records_are_used_for_no_more_trees_than_were_paid_for():
    model = training()
    model.enrol(*table())
    with pytest.raises(AccountError, match="for 4 trees without a filter; got 5"):
        model.grow(5)
    model.grow(4)
    with pytest.raises(AccountError, match="no records to grow trees on; nothing was released"):
        model.grow(1)
    model.enrol(*table(seed=1))
    model.grow(4)
    assert len(model.trees) == 8


def test_records_pay_whether_or_not_a_coin_picks_them():
    """With a rate of one in a thousand hardly anyone is picked; after the four full rounds nobody can pay a fifth."""
    model = training(rate=0.001, has_filter=True)
    X, y = table(50)
    model.enrol(X, np.sign(y))
    admit = admission(model._noise, 2, coins=seeded(0))
    limit = np.array([model._noise.clipping.grid.grad_scale * 0.5] * 2).astype(np.int64)
    count = np.array([int(model._noise.clipping.grid.hess_scale)] * 2)
    for _ in range(4):
        admit(limit, count)
    spent = admit.accounts
    assert spent is not None
    assert not spent.admit(np.full(2, spent.budget / 4)).any()


def test_streams_let_new_records_in_and_old_ones_go_on():
    X, y = table(600)
    early = y < 0
    model = SGBDTRegressor(**(SMALL | {"n_estimators": 40}), use_filter=True, epsilon=8.0)
    model.partial_fit(X[early], y[early])
    before = np.mean((model.predict(X) - y) ** 2)
    promise = model.guarantee_
    model.partial_fit(X[~early], y[~early])
    assert len(model.model_.trees) == 80
    assert np.mean((model.predict(X) - y) ** 2) < 0.5 * before
    assert model.guarantee_ == promise


def test_scores_of_late_records_are_those_of_the_model():
    X, y = table()
    model = SGBDTRegressor(**SMALL, use_filter=True, epsilon=4.0).partial_fit(X[:200], y[:200])
    model.partial_fit(X[200:], y[200:])
    held = np.concatenate([holder.scores for holder in model._trainings[0]._holders])
    np.testing.assert_allclose(held, model.model_.scores(X)[:, 0], atol=1e-9)


def test_a_copy_has_no_records_and_cannot_go_on():
    import copy

    model = SGBDTRegressor(**SMALL, use_filter=True, epsilon=4.0).partial_fit(*table())
    other = copy.deepcopy(model)
    assert not hasattr(other, "_trainings")
    np.testing.assert_array_equal(other.predict(table()[0]), model.predict(table()[0]))
    with pytest.raises(AccountError, match="nothing was released"):
        other.partial_fit(*table(seed=1))


def test_paper_mode_states_what_its_noise_is_worth():
    settings = SMALL | {"n_estimators": 150, "delta": 5e-8, "max_grad": 1.0}
    model = SGBDTRegressor(**settings, epsilon=0.15, mode="paper", subsample=0.1, initial_share=0.0).fit(*table())
    promise = model.guarantee_
    assert promise.claimed_epsilon == 0.15
    assert promise.epsilon == pytest.approx(1.06, abs=0.006)
    assert not promise.certified
    assert "The publication claims epsilon 0.15" in str(promise)


@pytest.mark.parametrize("use_filter", [False, True])
def test_a_printed_first_score_is_for_records_that_are_replaced(use_filter):
    """The scale of its noise tells the number of records, so that nobody is hidden who is added or removed."""
    settings = SMALL | {"mode": "paper", "subsample": 0.1, "use_filter": use_filter}
    promise, trees = (
        SGBDTRegressor(**settings, epsilon=0.5 + share, initial_share=share / (0.5 + share)).fit(*table()).guarantee_
        for share in (0.1, 0.0)
    )
    assert trees.neighbours == ADDED_OR_REMOVED
    assert promise.neighbours == REPLACED
    assert "same, public, size" in str(promise)
    assert promise.epsilon > 0.1 + 2 * trees.epsilon
    assert promise.claimed_epsilon == pytest.approx(0.6)


def printed_loss(one: tuple[float, ...], other: tuple[float, ...], *, epsilon: float) -> float:
    """The largest log odds of two tables of labels at a noised mean, its noise taken as continuous."""
    outputs = np.linspace(-300, 300, 2001)

    def logs(labels: tuple[float, ...]) -> np.ndarray:
        scale = 2 / (len(labels) * epsilon)
        return -np.abs(outputs - np.mean(labels)) / scale - math.log(scale)

    return float(np.max(logs(one) - logs(other)))


def test_a_printed_first_score_loses_epsilon_between_tables_of_one_size_and_any_amount_between_others():
    few = (-1.0, 0.0, 0.7, 1.0)
    for labels in itertools.product(few, repeat=3):
        for label in few:
            assert printed_loss(labels, (*labels[:2], label), epsilon=0.1) <= 0.1 * (1 + 1e-9)
    # Twin: one record less.
    assert printed_loss((0.0,) * 2, (0.0,) * 3, epsilon=0.1) > 10


def test_paper_mode_with_a_filter_is_worth_more_too():
    settings = SMALL | {"n_estimators": 20, "delta": 5e-8}
    model = SGBDTRegressor(**settings, epsilon=0.5, mode="paper", subsample=0.1, n_extra_estimators=5)
    assert model.fit(*table()).guarantee_.epsilon > 0.5
    with pytest.raises(ParameterError, match="for sampled records"):
        SGBDTRegressor(**settings, epsilon=0.5, mode="paper", n_extra_estimators=5).fit(*table())


def test_classes_are_told_apart_at_a_moderate_budget():
    """Signal far above noise: 2,000 records at epsilon 2; a broken sign would score below one half."""
    generator = np.random.default_rng(0)
    X = generator.random((2000, 3))
    y = np.where(X[:, 0] + X[:, 1] > 1, "yes", "no")
    settings = {"bounds": (0, 1), "classes": ("no", "yes"), "epsilon": 2.0, "delta": 1e-6, "n_estimators": 60}
    model = SGBDTClassifier(**settings, random_state=0).fit(X, y)
    assert model.score(X, y) > 0.85


def test_static_leaf_noise_is_for_the_worst_case_of_a_value():
    clipping = Clipping(max_grad=0.5, max_hess=1.0, ratio=2.0)
    noise = leaf_noise(clipping, epsilon=1.0, delta=1e-6, n_trees=4, static_lambda=4.0)
    assert noise.value_std == pytest.approx(0.5 / 5.0 * noise.multiplier, rel=1e-5)
    with pytest.raises(ParameterError, match="the filter is for dynamic leaf noise"):
        leaf_noise(clipping, epsilon=1.0, delta=1e-6, n_trees=4, static_lambda=4.0, has_filter=True)


def test_static_leaf_noise_is_far_worse_and_costs_the_same():
    """The ablation: at the same account the error of 400 records' labels in [-1, 1] is several times as large."""
    X, y = table()
    settings = SMALL | {"n_estimators": 20, "epsilon": 2.0}
    dynamic = SGBDTRegressor(**settings).fit(X, y)
    static = SGBDTRegressor(**settings, leaf_noise="static").fit(X, y)
    assert static.guarantee_.epsilon == pytest.approx(dynamic.guarantee_.epsilon, rel=1e-6)
    assert np.mean((static.predict(X) - y) ** 2) > 1.5 * np.mean((dynamic.predict(X) - y) ** 2)


def released_sums(model: SGBDT) -> np.ndarray:
    """The noisy sums of 4 trees with 256 leaves each, of one record without a gradient; in real units."""
    seen: list[np.ndarray] = []

    class Watching:
        later_rate = 1.0

        max_depth = 8

        def leaf_values(self, totals, noise):
            seen.append(totals / [noise.clipping.grid.grad_scale, noise.clipping.grid.hess_scale])
            return np.zeros(len(totals))

    model._settings = Watching()  # type: ignore[assignment]
    model.enrol(np.full((1, 3), 0.5), np.zeros(1))
    model.grow(4)
    return np.concatenate(seen)


def test_the_noise_on_both_sums_is_that_of_the_account():
    """1,024 draws: their deviation is off by 2.2 per cent, so that 15 are exceeded once in ten thousand millions."""
    model = training()
    sums, noise = released_sums(model), model._noise
    assert noise.hess_std == 2 * noise.grad_std
    np.testing.assert_allclose(sums.std(axis=0), [noise.grad_std, noise.hess_std], rtol=0.15)
    assert abs(np.corrcoef(sums.T)[0, 1]) < 0.2


def test_half_the_noise_would_be_noticed():
    model = training()
    noise = model._noise
    model._noise = dataclasses.replace(noise, hess_std=noise.hess_std / 2)
    with pytest.raises(AssertionError):
        np.testing.assert_allclose(released_sums(model).std(axis=0), [noise.grad_std, noise.hess_std], rtol=0.15)


def test_trees_on_later_records_alone_count_less_and_those_on_all_records_as_much():
    def first_later_tree(**settings):
        model = SGBDTRegressor(**SMALL | {"random_state": 0} | settings, epsilon=4.0)
        model.partial_fit(*table()).partial_fit(*table(seed=1))
        return model.model_.trees[len(model.model_.trees) // 2].values

    whole, half = (first_later_tree(use_filter=False, later_rate=rate) for rate in (1.0, 0.5))
    assert whole.any()
    np.testing.assert_array_equal(half, whole / 2)
    with_filter = [first_later_tree(use_filter=True, later_rate=rate) for rate in (1.0, 0.5)]
    np.testing.assert_array_equal(*with_filter)
    printed = {"mode": "paper", "use_filter": False}
    np.testing.assert_array_equal(*(first_later_tree(**printed, later_rate=rate) for rate in (1.0, 0.5)))
