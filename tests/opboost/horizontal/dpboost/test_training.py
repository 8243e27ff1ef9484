"""DPBoost: who is in which tree, what everything costs, and what it is without noise."""

from __future__ import annotations

import math

import numpy as np
import pytest

from opboost import DPBoostClassifier, DPBoostRegressor
from opboost.errors import ParameterError
from opboost.horizontal.dpboost import training as dpboost
from opboost.horizontal.dpboost.as_published import by_fixed_sizes
from opboost.horizontal.dpboost.training import DPBoostSettings
from opboost.horizontal.rows.public_grid import PublicGrid
from opboost.horizontal.rows.record_holder import squared_gradients
from opboost.privacy.accounting import by_pure
from opboost.privacy.releases import LaplaceRelease, SelectionRelease
from opboost.rng import BitSource, seeded

pytestmark = pytest.mark.usefixtures("one_thread")

PLAIN = {
    "n_trees": 12,
    "trees_per_ensemble": 4,
    "max_depth": 2,
    "scheme": "eoe",
    "learning_rate": 0.3,
    "reg_lambda": 0.1,
    "max_grad": 0.5,
    "leaf": "sums",
    "noise_lambda": 2.0,
    "filters_gradients": False,
    "clips_leaves": False,
}
PUBLIC = {"bounds": (0, 1), "label_bounds": (-1, 1), "random_state": 0}


def settings(**changes) -> DPBoostSettings:
    return DPBoostSettings(**(PLAIN | changes))


def table(n_rows: int = 300, seed: int = 0):
    generator = np.random.default_rng(seed)
    X = generator.random((n_rows, 2))
    return X, np.where(X[:, 0] > 0.5, 0.6, -0.6)


def deals_seen(chosen: DPBoostSettings, epsilon: float = math.inf, n_rows: int = 300) -> list[np.ndarray]:
    """The records of every tree."""
    seen: list[np.ndarray] = []

    def watched(n_records, rng):
        deal = dpboost.by_coins(chosen)(n_records, rng)

        def next_part(is_eligible):
            seen.append(deal(is_eligible))
            return seen[-1]

        return next_part

    dpboost.train(
        *table(n_rows),
        PublicGrid([(0, 1)] * 2, 8),
        chosen,
        gradients=squared_gradients,
        epsilon=epsilon,
        initial=lambda labels, rng: 0.0,
        deals=watched,
        rng=seeded(0),
    )
    return seen


@pytest.mark.parametrize("filters_gradients", [False, True])
def test_a_record_is_in_at_most_one_tree_of_an_ensemble(filters_gradients):
    chosen = settings(filters_gradients=filters_gradients, max_grad=0.7)
    parts = deals_seen(chosen)
    assert len(parts) == 12
    for ensemble in range(3):
        rows = np.concatenate(parts[4 * ensemble : 4 * ensemble + 4])
        assert len(np.unique(rows)) == len(rows)
        if not filters_gradients:
            assert len(rows) == 300
    assert not np.array_equal(parts[0], parts[4])  # drawn anew


def test_filtering_leaves_out_records_by_their_own_gradients_alone():
    parts = deals_seen(settings(filters_gradients=True, n_trees=1))
    assert len(parts[0]) == 0  # all labels are 0.6 away from the first score, the bound is 0.5


class OneCoinEach:
    """Bits whose i-th word of a draw is the same however many are asked for: the coin of record i."""

    def __init__(self, seed: int) -> None:
        self._columns = np.random.default_rng(seed).integers(0, 2**64, (40, 200), dtype=np.uint64)
        self._n_drawn = 0

    def words(self, count: int) -> np.ndarray:
        self._n_drawn += 1
        return self._columns[self._n_drawn - 1, :count]

    uniforms = BitSource.uniforms


def parts_with(draw, n_records: int, is_eligible=lambda part, n: np.ones(n, np.bool_), seed: int = 4) -> list[set[int]]:
    next_part = draw(n_records, OneCoinEach(seed))
    return [set(next_part(is_eligible(part, n_records)).tolist()) for part in range(4)]


def moved(draw) -> int:
    """Records of the first hundred that change their tree when one more record arrives, over many sizes."""
    return sum(
        bool(before ^ (after - {n}))
        for n in range(100, 120)
        for before, after in zip(parts_with(draw, n), parts_with(draw, n + 1), strict=True)
    )


def test_with_coins_of_their_own_nobody_moves_when_a_record_arrives_and_with_fixed_sizes_others_do():
    assert moved(dpboost.by_coins(settings())) == 0
    assert moved(by_fixed_sizes(settings())) > 0


def test_a_record_that_is_filtered_out_moves_nobody_else_and_comes_back_later():
    """GDF: who is eligible is a function of the record. The coins are the real ones, also of those who wait."""
    draw = dpboost.by_coins(settings(filters_gradients=True))

    def all_but_7_at_first(part: int, n: int) -> np.ndarray:
        return np.arange(n) != (7 if part == 0 else -1)

    n_returned = 0
    for seed in range(40):
        free, held = (
            parts_with(draw, 100, who, seed=seed) for who in (lambda part, n: np.ones(n, np.bool_), all_but_7_at_first)
        )
        assert [part - {7} for part in free] == [part - {7} for part in held]
        assert sum(7 in part for part in held) == 1  # the last part takes all who are left
        n_returned += 7 in free[0]
    assert n_returned > 0


def test_shares_of_the_coins_are_the_geometric_ones():
    chosen = settings()
    sizes = np.array([[len(part) for part in parts_with(dpboost.by_coins(chosen), 200, seed=s)] for s in range(60)])
    expected = np.array(chosen.coins.probabilities)
    spread = np.sqrt(expected * (1 - expected) / (200 * 60))
    assert (np.abs(sizes.mean(axis=0) / 200 - expected) < 5 * spread).all()
    # Twin: without the hazard's quotient, the later trees would have fewer records than their share.
    left = np.cumprod(np.concatenate([[1.0], 1 - expected[:-1]]))
    assert (np.abs(sizes.mean(axis=0) / 200 - expected * left) > 5 * spread)[1:].all()


@pytest.mark.parametrize("leaf", ["sums", "value"])
@pytest.mark.parametrize(("scheme", "n_ensembles", "n_parts"), [("eoe", 3, 4), ("seq", 12, 1), ("para", 1, 12)])
def test_all_trees_of_an_ensemble_cost_as_much_as_one(scheme, n_ensembles, n_parts, leaf):
    chosen = settings(scheme=scheme, leaf=leaf)
    assert (chosen.n_ensembles, chosen.coins.n_parts) == (n_ensembles, n_parts)
    assert by_pure(dpboost.releases(chosen, 0.5)) == pytest.approx(0.5 * n_ensembles, rel=1e-6)
    assert by_pure(dpboost.releases(chosen, 0.5)) <= 0.5 * n_ensembles * (1 + 1e-12)


def test_half_of_a_tree_s_budget_is_for_its_leaves():
    """Spec, V1: the slides print the share of one level for the leaves' noise."""
    (ensembles,) = dpboost.releases(settings(leaf="value", max_depth=3), 1.2)
    chosen, leaf = ensembles.parts[0]
    assert isinstance(chosen, SelectionRelease)
    assert (chosen.epsilon, chosen.count) == (pytest.approx(0.2), 3)
    assert isinstance(leaf, LaplaceRelease)
    assert leaf.epsilon == pytest.approx(0.6)


def test_shares_of_the_records_fall_from_tree_to_tree_and_leaf_bounds_within_an_ensemble():
    chosen = settings(clips_leaves=True)
    shares = chosen.coins.probabilities
    assert sum(shares) == pytest.approx(1)
    assert shares[1] / shares[0] == pytest.approx(0.7)
    assert [chosen.leaf_bound(t) for t in (0, 1)] == pytest.approx([0.5, 0.35])


def test_without_noise_and_with_all_records_it_is_plain_greedy_boosting():
    X, y = table()
    model = DPBoostRegressor(
        **PUBLIC,
        epsilon=math.inf,
        scheme="seq",
        n_estimators=2,
        max_depth=1,
        initial_share=0.0,
        max_cells=4,
        max_grad=1.0,
        reg_lambda=0.0,
        noise_lambda=0.0,
        learning_rate=0.5,
    ).fit(X, y)
    first, second = model.model_.trees
    assert (int(first.columns[0]), first.thresholds[0]) == (0, 0.5)
    np.testing.assert_allclose(first.values[1:], [-0.3, 0.3], atol=1e-6)
    np.testing.assert_allclose(second.values[1:], [-0.15, 0.15], atol=1e-6)


@pytest.mark.parametrize("leaf", ["sums", "value"])
def test_a_vast_budget_comes_close_to_no_noise(leaf):
    X, y = table()
    few = PUBLIC | {"n_estimators": 4, "leaf": leaf, "noise_lambda": 0.0, "initial_share": 0.0}
    exact = DPBoostRegressor(**few, epsilon=math.inf).fit(X, y).predict(X)
    noisy = DPBoostRegressor(**few, epsilon=1e6).fit(X, y).predict(X)
    assert np.abs(exact - noisy).max() < 0.02


def test_number_and_depth_of_the_trees_do_not_depend_on_the_data():
    for rows in (table(), table(3), (np.zeros((2, 2)), np.zeros(2))):
        model = DPBoostRegressor(**PUBLIC, epsilon=1.0, n_estimators=5).fit(*rows)
        assert [tree.n_nodes for tree in model.model_.trees] == [7] * 5


@pytest.mark.parametrize(("constant", "factor"), [("3", 1 + 2 / 3), ("slides", 3.0)])
def test_paper_mode_states_what_its_constants_are_worth(constant, factor):
    """The slides' constant at lambda 0.1 is 0.996 g^2 where the choice needs a range of 4 g^2."""
    model = DPBoostRegressor(**PUBLIC, epsilon=1.0, mode="paper", gain_sensitivity=constant, reg_lambda=0.1)
    promise = model.fit(*table()).guarantee_
    assert promise.epsilon == pytest.approx(factor, abs=0.01)
    assert promise.claimed_epsilon == 1.0
    assert not promise.certified
    assert "public, size" in promise.neighbours


def test_what_cannot_be_is_refused():
    for wrong, words in (
        ({"learning_rate": 1.0}, "learning_rate must lie between 0 and 1"),
        ({"delta": 1e-6}, "needs no delta"),
        ({"scheme": "all"}, "scheme must be eoe, seq or para"),
        ({"n_estimators": 2.5}, "n_estimators must be an integer"),
        ({"mode": "paper", "gain_sensitivity": "2"}, "gain_sensitivity must be"),
    ):
        with pytest.raises(ParameterError, match=words):
            DPBoostRegressor(**PUBLIC, epsilon=1.0, **wrong).fit(*table())


def test_classes_are_told_apart_at_a_moderate_budget():
    generator = np.random.default_rng(0)
    X = generator.random((3000, 2))
    y = X[:, 0] > 0.5
    model = DPBoostClassifier(bounds=(0, 1), epsilon=4.0, random_state=0).fit(X, y)
    assert model.score(X, y) > 0.8
