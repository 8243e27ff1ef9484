"""InPrivate: who is in which tree, what the chain costs, and what the owners tell each other."""

from __future__ import annotations

import math

import numpy as np
import pytest

from opboost import InPrivateClassifier, InPrivateRegressor
from opboost.errors import AccountError, DataError, ParameterError
from opboost.horizontal.inprivate import training as inprivate
from opboost.horizontal.inprivate.settings import InPrivateSettings
from opboost.horizontal.inprivate.training import Owner, messages_of_round, run_chain
from opboost.horizontal.rows.public_grid import PublicGrid
from opboost.horizontal.rows.record_holder import squared_gradients
from opboost.privacy.accounting import by_pure
from opboost.rng import seeded

pytestmark = pytest.mark.usefixtures("one_thread")

PUBLIC = {"bounds": (0, 1), "random_state": 0}


def settings(**changes) -> InPrivateSettings:
    plain = {"n_rounds": 3, "max_depth": 2, "learning_rate": 1.0, "reg_lambda": 1.0, "noise_lambda": 2.0}
    return InPrivateSettings(**(plain | changes))


def table(n_rows: int = 400, seed: int = 0):
    generator = np.random.default_rng(seed)
    X = generator.random((n_rows, 2))
    return X, np.where(X[:, 0] > 0.5, 0.6, -0.6)


def owner(chosen: InPrivateSettings, n_rows: int = 400, seed: int = 0) -> Owner:
    return Owner(
        *table(n_rows, seed), PublicGrid([(0, 1)] * 2, 8), chosen, gradients=squared_gradients, rng=seeded(seed)
    )


def test_a_record_is_in_one_tree_at_most_and_rounds_take_halves():
    one, used = owner(settings()), np.zeros(400)
    shares = []
    for _ in range(3):
        one.take_turn(1.0)
        used += one._is_admitted
        shares.append(one._is_admitted.mean())
    assert used.max() == 1
    # Standard deviations of 0.025, 0.022 and 0.017; six of them are exceeded once in half a billion draws.
    np.testing.assert_allclose(shares, [0.5, 0.25, 0.125], atol=0.15)
    with pytest.raises(AccountError, match="must not be used twice"):
        one.take_turn(1.0)


@pytest.mark.parametrize("max_depth", [0, 1, 3])
@pytest.mark.parametrize("n_rounds", [1, 4])
def test_the_whole_chain_costs_epsilon(max_depth, n_rounds):
    spent = by_pure(inprivate.releases(settings(max_depth=max_depth, n_rounds=n_rounds), 2.0))
    assert spent <= 2.0 * (1 + 1e-12)
    assert spent == pytest.approx(2.0, rel=1e-6)


def test_every_owner_has_its_turn_and_all_hear_of_its_tree():
    owners = [owner(settings(), 60, seed) for seed in range(3)]
    trees = run_chain(owners, n_rounds=2, epsilon=math.inf)
    assert len(trees) == 6
    late = owner(settings(), 60, 0)
    for tree in trees:
        late.receive(tree)
    np.testing.assert_allclose(owners[0]._holders._leaves.scores, late._holders._leaves.scores)


def test_messages_are_those_of_the_paper():
    assert messages_of_round(5, broadcast=False) == (4, 10)
    assert messages_of_round(5, broadcast=True) == (10, 4)
    with pytest.raises(ParameterError, match="at least one owner"):
        messages_of_round(0, broadcast=True)


def test_broadcasting_changes_the_messages_and_not_the_model():
    X, y = table()
    slow, fast = (
        InPrivateRegressor(**PUBLIC, label_bounds=(-1, 1), epsilon=1.0, broadcast=b, owners=4).fit(X, y)
        for b in (False, True)
    )
    np.testing.assert_array_equal(slow.predict(X), fast.predict(X))
    assert (slow.communication_, fast.communication_) == ((3, 6), (6, 3))


def test_owners_can_be_named():
    X, y = table()
    settings = PUBLIC | {"label_bounds": (-1, 1), "epsilon": 1.0, "n_rounds": 2}
    names = np.repeat(["a", "b"], 200)
    model = InPrivateRegressor(**settings, owners=["b", "a"]).fit(X, y, owners=names)
    assert len(model.model_.trees) == 4
    numbered = InPrivateRegressor(**settings, owners=2).fit(X, y, owners=(names == "a").astype(int))
    np.testing.assert_array_equal(model.predict(X), numbered.predict(X))
    turned = InPrivateRegressor(**settings, owners=["a", "b"]).fit(X, y, owners=names)
    assert (model.predict(X) != turned.predict(X)).any()
    with pytest.raises(DataError, match="one owner per row"):
        InPrivateRegressor(**settings, owners=["a", "b"]).fit(X, y, owners=names[:3])
    with pytest.raises(DataError, match="number them from 0"):
        InPrivateRegressor(**settings).fit(X, y, owners=names)


@pytest.mark.parametrize("owners", [0, True, [], ["a", "a"], "ab", [["a"]], ["a", None], 2.0])
def test_a_list_of_owners_that_says_nothing_is_refused(owners):
    with pytest.raises(ParameterError, match=r"^owners must"):
        InPrivateRegressor(**PUBLIC, label_bounds=(-1, 1), epsilon=1.0, owners=owners).fit(*table())


def test_without_noise_leaves_are_the_mean_residuals_of_the_round():
    chosen = settings(n_rounds=1, max_depth=1, reg_lambda=0.0, noise_lambda=0.0)
    one = owner(chosen)
    tree = one.take_turn(math.inf)
    assert int(tree.columns[0]) == 0
    np.testing.assert_allclose(tree.values[1:], [-0.6, 0.6], atol=1e-6)


def test_residuals_are_clipped_so_that_outliers_cannot_move_a_leaf_far():
    clipped = settings(n_rounds=1, max_depth=0, max_residual=0.25, reg_lambda=0.0, noise_lambda=0.0)
    one = Owner(
        np.zeros((1000, 1)), np.ones(1000), PublicGrid([(0, 1)], 4), clipped, gradients=squared_gradients, rng=seeded(0)
    )
    assert one.take_turn(math.inf).values[0] == pytest.approx(0.25, abs=1e-6)


def test_averages_of_three_tell_values_and_are_never_certified():
    """Spec, V22: a value that moves from .9 to .95 moves a candidate, which no noise on the choice hides."""
    X, y = table(30)
    other = X.copy()
    other[np.argmax(X[:, 0]), 0] = 1.0
    settings = PUBLIC | {"label_bounds": (-1, 1), "epsilon": 1.0, "mode": "paper"}
    one, two = (InPrivateRegressor(**settings).fit(rows, y) for rows in (X, other))
    assert (one._task.grid.cuts[0] != two._task.grid.cuts[0]).any()
    assert one.guarantee_.notion == "none"
    assert not one.guarantee_.certified
    assert one.guarantee_.claimed_epsilon == 1.0
    certified = [InPrivateRegressor(**(settings | {"mode": "certified"})).fit(rows, y) for rows in (X, other)]
    np.testing.assert_array_equal(certified[0]._task.grid.cuts[0], certified[1]._task.grid.cuts[0])


def test_number_and_depth_of_the_trees_do_not_depend_on_the_data():
    for rows in (table(), table(3), (np.zeros((2, 2)), np.zeros(2))):
        model = InPrivateRegressor(**PUBLIC, label_bounds=(-1, 1), epsilon=1.0, n_rounds=2).fit(*rows)
        assert [tree.n_nodes for tree in model.model_.trees] == [15] * 10


def test_classes_are_told_apart_at_a_moderate_budget():
    generator = np.random.default_rng(0)
    X = generator.random((3000, 2))
    y = X[:, 0] > 0.5
    model = InPrivateClassifier(**PUBLIC, epsilon=4.0).fit(X, y)
    assert model.score(X, y) > 0.8
    assert model.guarantee_.epsilon <= 4.0


def test_the_publications_stop_rule_tells_of_private_data_and_is_never_certified():
    generator = np.random.default_rng(0)
    X = generator.random((400, 2))
    settings = {
        "bounds": (0, 1),
        "label_bounds": (-1, 1),
        "epsilon": 50.0,
        "n_rounds": 6,
        "owners": 2,
        "random_state": 0,
    }
    useful, useless = np.where(X[:, 0] > 0.5, 0.8, -0.8), np.zeros(400)
    stopping = settings | {"mode": "paper", "least_advance": 0.02}
    trees = [len(InPrivateRegressor(**stopping).fit(X, y).model_.trees) for y in (useful, useless)]
    assert trees[1] == 2 < trees[0]  # the number of trees is a function of the labels
    model = InPrivateRegressor(**stopping).fit(X, useful)
    assert math.isinf(model.guarantee_.epsilon)
    assert not model.guarantee_.certified
    fixed = [len(InPrivateRegressor(**settings).fit(X, y).model_.trees) for y in (useful, useless)]
    assert fixed == [12, 12]
    with pytest.raises(ParameterError, match="for the mode paper"):
        InPrivateRegressor(**settings, least_advance=0.02).fit(X, useful)
