"""Clipped contributions: nobody's is longer than promised, whichever way the rows are held."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from opboost.arrays import Values
from opboost.errors import AccountError, DataError, ParameterError
from opboost.horizontal.noise.leaf_sensitivity import joint_norm
from opboost.horizontal.noise.noisy_holder import NoisyHolder, laplace_noise, laplace_release
from opboost.horizontal.rows import record_holder
from opboost.horizontal.rows.public_grid import PublicGrid
from opboost.horizontal.rows.record_holder import (
    Clipping,
    RecordHolder,
    WalkingHolder,
    contributions,
    logistic_gradients,
    squared_gradients,
)
from opboost.rng import seeded
from opboost.trees.complete import Cuts, RandomRule, grow_complete_tree, splits_of
from opboost.trees.kernels.packing import grad_of, hess_of, packed

pytestmark = pytest.mark.usefixtures("one_thread")

COLUMNS = PublicGrid([(0, 1)] * 3, 8)


def everyone(grad, hess):
    return np.ones(len(grad), np.bool_)


def table(n_rows: int = 300, seed: int = 0):
    generator = np.random.default_rng(seed)
    rows = generator.random((n_rows, 3))
    rows[generator.random((n_rows, 3)) < 0.05] = np.nan
    return COLUMNS.place(rows), generator.uniform(-1, 1, n_rows)


def holder(kind=RecordHolder, admit=everyone, clipping=None, data=None):
    binned, labels = data or table()
    return kind(
        binned,
        labels,
        gradients=squared_gradients,
        clipping=clipping or Clipping(max_grad=0.5, max_hess=1.0),
        initial_score=0.1,
        admit=admit,
    )


def uniforms(seed: int = 0):
    generator = np.random.default_rng(seed)
    return generator.random


@given(
    st.lists(st.tuples(st.floats(-1e6, 1e6), st.floats(0, 1e6)), min_size=1, max_size=30),
    st.floats(0.01, 5),
    st.floats(0.01, 5),
    st.floats(0.1, 10),
    st.floats(1.0, 2.0),
)
@settings(max_examples=200, deadline=None)
def test_nobody_contributes_more_than_promised(pairs, max_grad, max_hess, ratio, room):
    clipping = Clipping(max_grad=max_grad, max_hess=max_hess, ratio=ratio, max_norm=max_grad * room)
    grad, hess = clipping.encode(*np.array(pairs).T)
    g, h = grad / clipping.grid.grad_scale, hess / clipping.grid.hess_scale
    assert (np.abs(g) <= max_grad).all()
    assert ((h >= 0) & (h <= max_hess)).all()
    norms = np.sqrt(g**2 + (h / ratio) ** 2)
    assert (norms <= clipping.sensitivity).all()
    assert (clipping.norms_squared(grad, hess) >= norms**2 * (1 - 1e-12)).all()


def test_contributions_move_towards_zero_and_what_is_no_number_is_refused():
    clipping = Clipping(max_grad=0.3, max_hess=1.0)
    raw = np.array([0.1234567, -0.1234567, 7.0])
    grad, _ = clipping.encode(raw, np.ones(3))
    assert (np.abs(grad / clipping.grid.grad_scale) <= np.minimum(np.abs(raw), 0.3)).all()
    with pytest.raises(DataError, match="not a finite number; nothing was released"):
        clipping.encode(np.array([np.nan]), np.ones(1))


@pytest.mark.parametrize(("max_grad", "ratio"), [(1.0, 1.0), (1.0, 2.0), (0.5, 2.0), (0.3, 0.5)])
def test_the_joint_bound_of_the_cross_entropy_is_that_of_all_scores(max_grad, ratio):
    grad, hess = logistic_gradients(np.linspace(-20, 20, 20001), np.zeros(20001))
    norms = np.hypot(np.minimum(grad, max_grad), hess / ratio)
    bound = joint_norm(max_grad, 0.25, ratio, is_logistic=True)
    assert norms.max() <= bound < norms.max() * 1.001


def test_with_half_the_noise_on_hessians_they_would_cost_four_times_as_much():
    """The authors' code multiplies that noise by 0.5 without charging for it."""
    clipping = Clipping(max_grad=0.8, max_hess=0.1, ratio=0.4)
    grad, hess = clipping.encode(np.zeros(1), np.array([0.25]))
    halved = Clipping(max_grad=0.8, max_hess=0.1, ratio=0.2)
    assert halved.norms_squared(grad, hess)[0] == pytest.approx(4 * clipping.norms_squared(grad, hess)[0])


def test_contributions_are_packed_as_the_kernels_take_them_apart():
    clipping = Clipping(max_grad=1.0, max_hess=1.0)
    grad, hess = np.array([-1.0, 0.5, 0.25]), np.array([1.0, 0.0, 0.5])
    words = contributions((grad, hess), clipping, everyone)
    grid = clipping.grid
    for word, g, h in zip(words, grad, hess, strict=True):
        assert word == packed(g * grid.grad_scale, h * grid.hess_scale)
        assert grad_of(word) == g * grid.grad_scale
        assert hess_of(word) == h * grid.hess_scale


def test_who_is_not_admitted_contributes_nothing():
    is_in = np.arange(300) % 3 == 0
    some = holder(admit=lambda grad, hess: is_in)
    some.start_tree(0)
    root = some.totals(np.zeros(1, np.int32))[0]
    assert root[1] == is_in.sum() * Clipping(max_grad=0.5, max_hess=1.0).grid.hess_scale


def test_rows_that_walk_have_the_sums_and_scores_of_rows_that_are_sorted():
    sorted_rows, walking = holder(RecordHolder), holder(WalkingHolder)
    trees = []
    for each in (sorted_rows, walking):
        rule = RandomRule(COLUMNS.axes, uniforms=uniforms())
        grown = []
        for _ in range(5):
            each.start_tree(0)
            tree = grow_complete_tree(
                each,
                rule=rule,
                leaf_values=lambda totals: -totals[:, 0] / (totals[:, 1] + 1.0) / 64,
                axes=COLUMNS.axes,
                depth=3,
            )
            each.finish_tree(tree)
            grown.append(tree)
        trees.append(grown)
    for one, other in zip(*trees, strict=True):
        np.testing.assert_array_equal(one.values, other.values)
    np.testing.assert_allclose(walking.scores, sorted_rows.scores)
    late = holder(WalkingHolder)
    late.catch_up(trees[0])
    np.testing.assert_allclose(late.scores, sorted_rows.scores)


def test_rows_that_walk_take_the_scores_of_a_tree_of_which_they_were_not_asked():
    asked, silent = holder(WalkingHolder), holder(WalkingHolder)
    rule = RandomRule(COLUMNS.axes, uniforms=uniforms())
    for _ in range(3):
        asked.start_tree(0)
        tree = grow_complete_tree(
            asked, rule=rule, leaf_values=lambda totals: np.arange(len(totals)) / 8.0, axes=COLUMNS.axes, depth=2
        )
        asked.finish_tree(tree)
        silent.start_tree(0)
        for level in (range(1), range(1, 3)):
            nodes = np.array(level, np.int32)
            cuts = Cuts(tree.columns[nodes], tree.thresholds[nodes].astype(np.int32), tree.missing_left[nodes])
            silent.divide(splits_of(nodes, cuts, COLUMNS.axes, first_child=2 * level[0] + 1))
        silent.finish_tree(tree)
    np.testing.assert_array_equal(silent.scores, asked.scores)


def test_rows_that_walk_refuse_what_they_cannot_answer():
    walking = holder(WalkingHolder)
    walking.start_tree(0)
    rule = RandomRule(COLUMNS.axes, uniforms=uniforms())
    grow_complete_tree(walking, rule=rule, leaf_values=lambda t: t[:, 0] * 0.0, axes=COLUMNS.axes, depth=2)
    with pytest.raises(DataError, match="histograms at the root only"):
        walking.write_histograms(np.zeros(1, np.int32), np.zeros((1, 2, 27), np.int64))
    with pytest.raises(DataError, match="only the leaves' sums"):
        walking.totals(np.array([1], np.int32))


def noisy(n_trees: int = 2, **noise):
    return NoisyHolder(holder(), noises=(noise.get("grad"), noise.get("hess")), n_trees=n_trees, rng=seeded(0))


def test_a_tree_is_released_once_and_trees_are_counted():
    each = noisy(n_trees=1)
    each.start_tree(0)
    each.totals(np.zeros(1, np.int32))
    with pytest.raises(AccountError, match="released before"):
        each.totals(np.zeros(1, np.int32))
    with pytest.raises(AccountError, match="made for the trees before this one"):
        each.start_tree(0)


def test_only_sums_of_nodes_without_a_common_row_are_released():
    each = noisy()
    each.start_tree(0)
    with pytest.raises(AccountError, match="histograms are not in the account"):
        each.write_histograms(np.zeros(1, np.int32), np.zeros((1, 2, 27), np.int64))

    def parent_and_children(totals):
        return each.totals(np.array([0, 1, 2], np.int32))

    with pytest.raises(AccountError, match="without a common row"):
        each.totals(np.array([0, 0], np.int32))
    rule = RandomRule(COLUMNS.axes, uniforms=uniforms())
    with pytest.raises(AccountError, match="released before"):
        grow_complete_tree(each, rule=rule, leaf_values=parent_and_children, axes=COLUMNS.axes, depth=1)
    each.start_tree(0)
    chosen = RandomRule(COLUMNS.axes, uniforms=uniforms())
    chosen.start_tree()
    each_splits: list[object] = []
    each._holder.divide = each_splits.append  # type: ignore[method-assign]

    root = np.zeros(1, np.int32)
    each.divide(splits_of(root, chosen.choose(root, each), COLUMNS.axes, first_child=1))
    with pytest.raises(AccountError, match="without a common row"):
        each.totals(np.array([0, 1], np.int32))


@given(st.floats(0.01, 10), st.floats(0.01, 20))
@settings(max_examples=100, deadline=None)
def test_laplace_noise_costs_no_more_than_it_was_asked_for(bound, epsilon):
    scale = Clipping(max_grad=bound, max_hess=1.0).grid.grad_scale
    noise = laplace_noise(bound, epsilon, scale)
    assert noise is not None
    release = laplace_release(bound, epsilon, scale)
    assert release.scale == noise.scale
    spent = release.epsilon
    assert spent <= epsilon
    assert spent == pytest.approx(epsilon, rel=1e-9)
    assert laplace_noise(bound, math.inf, scale) is None


@pytest.mark.parametrize("name", ["max_grad", "max_hess", "ratio"])
@pytest.mark.parametrize("bound", [5e-324, 2.2e-162, 1e-61, 1e61, 1e153, 1e300])
def test_bounds_whose_squares_doubles_do_not_hold_are_refused(name, bound):
    with pytest.raises(ParameterError, match=f"{name} must lie between 1e-60 and 1e\\+60; .* Nothing was released"):
        Clipping(**{"max_grad": 1.0, "max_hess": 1.0, name: bound})


@pytest.mark.parametrize("bound", [1e-60, 1.0, 1e60])
def test_a_record_is_charged_for_what_it_contributes_however_small_or_large_bounds_are(bound):
    norms = _share_of_the_largest(Clipping(max_grad=bound, max_hess=bound))
    np.testing.assert_allclose(norms, 0.68**2, rtol=1e-6)


def test_below_these_bounds_two_thirds_of_a_contribution_would_be_free(monkeypatch):
    monkeypatch.setattr(record_holder, "_LEAST_BOUND", 0.0)
    assert (_share_of_the_largest(Clipping(max_grad=2.2e-162, max_hess=1e-161)) == 0).all()


def _share_of_the_largest(clipping: Clipping) -> Values:
    """What the filter charges for a gradient of 68 % of the bound, as a share of what it charges for the bound."""
    grad, hess = clipping.encode(np.array([0.68, 1.0]) * clipping.max_grad, np.zeros(2))
    norms = clipping.norms_squared(grad, hess)
    return norms[:1] / norms[1:]
