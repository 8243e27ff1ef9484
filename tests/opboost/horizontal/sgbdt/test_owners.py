"""S-GBDT among owners: the same model however rows and noise are divided, and refusals on the owners' side."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest

from opboost.errors import AccountError, ParameterError
from opboost.horizontal.noise.distributed_noise import epsilon_of_shares, owner_laws, shared_leaf_noise
from opboost.horizontal.noise.leaf_noise import leaf_noise
from opboost.horizontal.noise.leaf_sensitivity import leaf_clipping
from opboost.horizontal.public_task import PublicTask
from opboost.horizontal.rows.public_grid import PublicGrid
from opboost.horizontal.sgbdt.as_published import printed_noise
from opboost.horizontal.sgbdt.owners import SGBDTAmongOwners
from opboost.horizontal.sgbdt.training import SGBDTSettings
from opboost.rng import BitSource, seeded
from opboost.trees.holder import ForwardingHolder, SummedHolders

pytestmark = pytest.mark.usefixtures("one_thread")

SETTINGS = SGBDTSettings(max_depth=2, learning_rate=0.5, reg_lambda=1.0, noise_lambda=1.0, max_leaf=2.0)
CLIPPING = leaf_clipping(0.5, 2.0, is_classification=True)
GRID = PublicGrid([(0, 1)] * 3, 16)


def table(n_rows: int = 300, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(seed)
    X = generator.random((n_rows, 3))
    return X, (X[:, 0] + 0.2 * generator.standard_normal(n_rows) > 0.5).astype(float)


def recipe(noise=None, **changes) -> SGBDTAmongOwners:
    noise = noise or leaf_noise(CLIPPING, epsilon=2.0, delta=1e-6, n_trees=5, initial_share=0, has_filter=True)
    task = PublicTask(("a", "b", "c"), GRID, 0.0, 1.0, 2.0, True, True)
    settings = {"task": task, "settings": SETTINGS, "noise": noise, "n_trees": 5, "delta": 1e-6}
    return SGBDTAmongOwners(**{**settings, **changes})


def trained(of: SGBDTAmongOwners, parts: list[np.ndarray]):
    X, y = table()
    holders = [of.rows(X[part], y[part], rng=seeded(100 + i)) for i, part in enumerate(parts)]
    holder = SummedHolders(holders) if len(holders) > 1 else holders[0]
    return of.train(holder, shape_bits=seeded(7), rng=seeded(8)).trees


def values(trees) -> list[list[float]]:
    return [tree.values.tolist() for tree in trees]


WHOLE = [np.arange(300)]
THIRDS = [np.arange(300)[i::3] for i in range(3)]


def test_three_owners_grow_the_very_trees_of_one() -> None:
    assert values(trained(recipe(), WHOLE)) == values(trained(recipe(), THIRDS))


def test_the_filter_at_each_owner_admits_the_records_that_one_filter_for_all_would() -> None:
    many = {"n_trees": 40}
    assert values(trained(recipe(**many), WHOLE)) == values(trained(recipe(**many), THIRDS))
    exhausted = trained(recipe(n_trees=200), THIRDS)
    unfiltered = recipe(
        leaf_noise(CLIPPING, epsilon=math.inf, delta=1e-6, n_trees=5, initial_share=0, has_filter=True), n_trees=200
    )
    assert values(exhausted[-1:]) != values(trained(unfiltered, THIRDS)[-1:])


def test_noise_in_shares_sums_to_the_promised_noise_or_more() -> None:
    noise = shared_leaf_noise(CLIPPING, epsilon=1.0, delta=1e-6, n_trees=5, n_honest=2)
    grad, hess = owner_laws(noise)
    grid = CLIPPING.grid
    for law, std, scale in ((grad, noise.grad_std, grid.grad_scale), (hess, noise.hess_std, grid.hess_scale)):
        assert 2 * law.variance >= (std * scale) ** 2 > 2 * law.variance * (1 - 1e-6)
    trees = trained(recipe(noise), THIRDS)
    assert len(trees) == 5
    assert noise.sum_laws == (None, None)


def test_the_noise_of_the_owners_really_is_in_the_sum() -> None:
    """Of 200 leaves' sums of g without rows, the variance is that of three shares: within 40 %, four deviations."""
    noise = shared_leaf_noise(CLIPPING, epsilon=1.0, delta=1e-6, n_trees=200, n_honest=2)
    of = recipe(noise, n_trees=200)
    empty = np.empty((0, 3)), np.empty(0)
    holders = [of.rows(*empty, rng=seeded(i)) for i in range(3)]
    sums = []
    for _ in range(200):
        for holder in holders:
            holder.start_tree(0)
        sums.append(sum(holder.totals(np.array([0], np.int32))[0, 0] for holder in holders))
    wanted = 3 * owner_laws(noise)[0].variance
    assert 0.6 < np.var(np.array(sums, float)) / wanted < 1.4
    silent = recipe(leaf_noise(CLIPPING, epsilon=1.0, delta=1e-6, n_trees=5, initial_share=0))
    owner = silent.rows(*empty, rng=seeded(0))
    owner.start_tree(0)
    assert (owner.totals(np.array([0], np.int32)) == 0).all()


def test_as_printed_a_leaf_is_the_mean_of_the_owners_own_noisy_values() -> None:
    exact = leaf_noise(CLIPPING, epsilon=math.inf, delta=1e-6, n_trees=5, initial_share=0)
    of = recipe(exact, n_trees=1, is_mean_of_values=True)
    together = trained(of, THIRDS)[0]
    alone = [trained(of, [part])[0] for part in THIRDS]
    assert values([together])[0] == pytest.approx(np.mean([tree.values for tree in alone], axis=0).tolist(), abs=1e-7)
    assert values([together]) != values(trained(dataclasses.replace(of, is_mean_of_values=False), THIRDS))


@pytest.mark.parametrize("wrong", [np.iinfo(np.int64).min, np.iinfo(np.int64).max])
def test_one_owner_that_adds_anything_to_the_sums_makes_no_leaf_that_the_others_refuse(wrong: int) -> None:
    class WrongSums(ForwardingHolder):
        def totals(self, nodes: np.ndarray) -> np.ndarray:
            return super().totals(nodes) + np.array([wrong, 0])

    exact = leaf_noise(CLIPPING, epsilon=math.inf, delta=1e-6, n_trees=5, initial_share=0)
    of = recipe(exact, n_trees=1, is_mean_of_values=True)
    tree = of.train(WrongSums(of.rows(*table(), rng=seeded(1))), shape_bits=seeded(7), rng=seeded(8)).trees[0]
    assert np.abs(tree.values).max() <= of.tree_rules.max_value


def test_as_printed_every_owner_draws_all_of_the_noise_and_the_guarantee_says_what_it_is_worth() -> None:
    noise = printed_noise(
        max_grad=0.5,
        epsilon=1.0,
        delta=1e-6,
        n_trees=5,
        rate=0.5,
        initial_share=0.0,
        has_filter=False,
        is_classification=True,
    )
    of = recipe(noise, is_mean_of_values=True, claimed=1.0)
    assert values(trained(of, THIRDS)) == values(trained(of, THIRDS))
    promise = of.guarantee(is_secure=True)
    assert (promise.mode, promise.certified, promise.claimed_epsilon) == ("paper", False, 1.0)
    assert promise.epsilon > 1.0


def test_the_guarantee_says_who_is_trusted() -> None:
    assert "not against the coordinator" in str(recipe().guarantee(is_secure=True))
    shared = recipe(shared_leaf_noise(CLIPPING, epsilon=2.0, delta=1e-6, n_trees=5, n_honest=2))
    promise = shared.guarantee(is_secure=True)
    assert "the coordinator too, as long as 2 of the workers in every sum add their share" in str(promise)
    assert promise.certified
    assert promise.epsilon <= 2.0
    assert [one.epsilon for one in promise.weaker] == [epsilon_of_shares(shared.noise, 1, delta=1e-6)]
    assert f"knows its own share of the noise, epsilon is {promise.weaker[0].epsilon:.4g}." in str(promise)
    assert "makes up" not in str(promise)
    assert "makes up" in str(dataclasses.replace(shared, are_owners_known=False).guarantee(is_secure=True))
    assert promise.to_dict()["weaker"] == [dataclasses.asdict(one) for one in promise.weaker]
    assert recipe().guarantee(is_secure=True).weaker == ()
    assert not shared.guarantee(is_secure=False).certified


def test_an_owner_answers_once_per_tree_and_for_no_more_trees_than_agreed() -> None:
    of = recipe(n_trees=1)
    owner = of.rows(*table(), rng=seeded(0))
    root = np.array([0], np.int32)
    owner.start_tree(0)
    owner.totals(root)
    with pytest.raises(AccountError, match="were released before"):
        owner.totals(root)
    with pytest.raises(AccountError, match="histograms are not in the account"):
        owner.write_histograms(root, np.zeros((1, 2, 51), np.int64))
    with pytest.raises(AccountError, match="made for the trees before this one"):
        owner.start_tree(0)


def test_owners_answer_for_no_more_trees_than_the_noise_in_shares_is_for() -> None:
    noise = shared_leaf_noise(
        CLIPPING, epsilon=1.0, delta=1e-6, n_trees=5, n_honest=2, has_filter=True, n_extra_trees=3
    )
    assert recipe(noise, n_trees=8).n_trees == 8
    with pytest.raises(ParameterError, match="the noise is for 8 trees; found 9"):
        recipe(noise, n_trees=9)


def test_noise_is_shared_among_at_least_one_honest_owner() -> None:
    with pytest.raises(ParameterError, match="honest owners"):
        shared_leaf_noise(CLIPPING, epsilon=1.0, delta=1e-6, n_trees=5, n_honest=0)


def test_shapes_come_from_public_bits_alone() -> None:
    """On one key they are the same whatever the records; leaves differ."""
    of = recipe()

    def trees(key: bytes, seed: int) -> list[tuple[list[int], list[float]]]:
        model = of.train(
            of.rows(*table(seed=seed), rng=seeded(0)), shape_bits=BitSource(key, is_secure=False), rng=seeded(1)
        )
        return [(tree.columns.tolist(), tree.thresholds.tolist()) for tree in model.trees]

    assert trees(bytes(32), 0) == trees(bytes(32), 1) != trees(b"k" * 32, 0)
