"""What a review of the papers asks of an implementation, where no other file tests it: each with a twin that fails.

Per-record filters, composition of the first score and the trees, integer orders, thresholds and bounds that no data
enter, and where random numbers come from.
"""

from __future__ import annotations

import ast
import math
from pathlib import Path

import numpy as np
import pytest

import opboost
from opboost import DPBoostRegressor, InPrivateRegressor, SGBDTRegressor
from opboost.horizontal.noise.leaf_noise import leaf_noise
from opboost.horizontal.rows.record_holder import Clipping
from opboost.privacy.accounting import by_gaussian, by_pure, by_renyi
from opboost.privacy.releases import GaussianRelease, PureRelease, SharedByCoins
from opboost.privacy.renyi import ORDERS
from opboost.rng import secure

pytestmark = pytest.mark.usefixtures("one_thread")

DELTA = 5e-8


def table(n_rows: int, scale: float = 1.0):
    generator = np.random.default_rng(5)
    X = generator.random((n_rows, 2)) * scale
    return X, np.clip(X[:, 0] - 0.5, -1, 1)


def within(gradients: np.ndarray) -> np.ndarray:
    return np.abs(gradients) <= 0.4


def below_the_median(gradients: np.ndarray) -> np.ndarray:
    return np.abs(gradients) <= np.median(np.abs(gradients))


def moved_by_one_record(rule) -> int:
    """How many of the other records a rule lets in or out when one more record arrives, over many pairs of data."""
    generator = np.random.default_rng(0)
    total = 0
    for _ in range(50):
        gradients = generator.uniform(-1, 1, 21)
        total += int((rule(gradients)[:20] != rule(gradients[:20])).sum())
    return total


def test_a_filter_by_the_records_own_gradient_moves_nobody_else_and_one_by_rank_does():
    assert moved_by_one_record(within) == 0
    assert moved_by_one_record(below_the_median) > 0


def test_filtering_gradients_costs_nothing_and_is_certified():
    settings = {"bounds": (0, 1), "label_bounds": (-1, 1), "epsilon": 2.0}
    plain, filtered = (DPBoostRegressor(**settings, filter_gradients=f).fit(*table(200)) for f in (False, True))
    assert plain.guarantee_.epsilon == filtered.guarantee_.epsilon <= 2.0
    assert filtered.guarantee_.certified


def test_the_first_score_and_the_trees_compose_and_together_cost_less_than_the_sum_of_their_epsilons():
    noise = leaf_noise(Clipping(max_grad=1.0, max_hess=1.0), epsilon=1.0, delta=DELTA, n_trees=20, initial_share=0.3)
    for account in (by_gaussian, by_renyi):
        first, trees = (account([release], DELTA / 2) for release in noise.releases)
        together = account(noise.releases, DELTA)
        assert together <= first + trees
        # Twin: parts that follow each other do not cost as much as the costlier one alone.
        assert together > 1.05 * max(account([release], DELTA) for release in noise.releases)
    pure = [PureRelease(epsilon=0.1), PureRelease(epsilon=0.9)]
    assert by_pure(pure) == pytest.approx(1.0)


def real_order_epsilon(mu: float) -> float:
    """The least epsilon over real orders, for Gaussian noise."""
    orders = 1 + np.geomspace(1e-3, 1e4, 400_000)
    rho = orders * mu**2 / 2
    return float((rho + np.log1p(-1 / orders) - (math.log(DELTA) + np.log(orders)) / (orders - 1)).min())


@pytest.mark.parametrize(("epsilon", "loss"), [(0.1, 3e-4), (0.5, 3e-4), (2.0, 3e-4), (8.0, 3e-4), (20.0, 6e-3)])
def test_integer_orders_are_valid_and_lose_next_to_nothing(epsilon, loss):
    mu = epsilon / 6
    exact, ours = real_order_epsilon(mu), by_renyi([GaussianRelease(mu=mu)], DELTA)
    assert all(isinstance(order, int) and order >= 2 for order in ORDERS)
    assert exact * (1 - 1e-9) <= ours <= exact * (1 + 2 * loss)


def test_few_orders_lose_more_than_that():
    """The twin: powers of four alone."""
    mu = 1 / 3
    coarse = np.array([4.0**k for k in range(1, 7)])
    rho = coarse * mu**2 / 2
    epsilon = float((rho + np.log1p(-1 / coarse) - (math.log(DELTA) + np.log(coarse)) / (coarse - 1)).min())
    assert epsilon > real_order_epsilon(mu) * (1 + 6e-4)


def test_thresholds_and_noise_are_constants_whatever_the_data():
    settings = {"bounds": (0, 1), "label_bounds": (-1, 1), "epsilon": 1.0, "delta": DELTA, "n_estimators": 3}
    one, other = (SGBDTRegressor(**settings).fit(*table(n, scale)) for n, scale in ((200, 1.0), (37, 0.01)))
    mine, yours = one._trainings[0]._noise, other._trainings[0]._noise
    assert mine.clipping == yours.clipping
    assert (mine.grad_std, mine.hess_std, mine.cells_std) == (yours.grad_std, yours.hess_std, yours.cells_std)
    # Twin: a quantile of the gradients, which some clip at, is another one for other data.
    assert np.quantile(np.abs(table(200)[1]), 0.9) != np.quantile(np.abs(table(37, 0.01)[1]), 0.9)


def thresholds(model) -> set[tuple[int, float]]:
    trees = model.model_.trees
    return {(int(c), float(t)) for tree in trees for c, t in zip(tree.columns, tree.thresholds, strict=True) if c >= 0}


@pytest.mark.parametrize("kind", [DPBoostRegressor, InPrivateRegressor])
def test_certified_cuts_are_points_of_the_public_grid_and_averages_of_three_are_not(kind):
    settings = {"bounds": (0, 1), "label_bounds": (-1, 1), "epsilon": 1.0, "max_cells": 8}
    public = {(column, k / 8) for column in range(2) for k in range(1, 8)}
    assert thresholds(kind(**settings).fit(*table(100))) <= public
    printed = InPrivateRegressor(**settings, mode="paper").fit(*table(100))
    assert not thresholds(printed) <= public
    assert not printed.guarantee_.certified


def test_labels_are_scaled_by_public_bounds_alone():
    settings = {"bounds": (0, 1), "label_bounds": (-1, 1), "epsilon": 1.0}
    tasks = [DPBoostRegressor(**settings).fit(*table(100, scale))._task for scale in (1.0, 0.01)]
    assert tasks[0] == tasks[1]
    # Twin: the data's extremes differ, and a fit that takes them is not certified.
    leaky = [DPBoostRegressor(epsilon=1.0, bounds="from_data").fit(*table(100, scale)) for scale in (1.0, 0.01)]
    assert leaky[0]._task.spread != leaky[1]._task.spread
    assert not any(model.guarantee_.certified for model in leaky)


def foreign_randomness(code: str) -> list[str]:
    """Uses of random numbers that are not `opboost.rng`'s: numpy's, Python's, scipy's."""
    found = []
    for node in ast.walk(ast.parse(code)):
        match node:
            case ast.Import(names=names):
                found += [name.name for name in names if name.name.split(".")[0] in ("random", "secrets")]
            case ast.ImportFrom(module=str(module)):
                found += [module] if module.split(".")[0] == "random" or module == "numpy.random" else []
            case ast.Call(func=ast.Attribute(value=ast.Attribute(value=ast.Name(id="np"), attr="random"), attr=name)):
                found.append(f"np.random.{name}")
            case ast.Attribute(attr="rvs"):
                found.append("rvs")
    return found


def test_noise_coins_and_shapes_are_drawn_from_secure_bits_and_nothing_else():
    home = Path(opboost.__file__).parent
    files = [*(home / "horizontal").rglob("*.py"), *(home / "privacy").rglob("*.py"), home / "trees" / "complete.py"]
    for path in files:
        assert foreign_randomness(path.read_text()) == [], path.name
    assert foreign_randomness("import numpy as np\nx = np.random.default_rng(0).laplace()\n") == [
        "np.random.default_rng"
    ]
    assert foreign_randomness("import random\n") == ["random"]
    assert secure().is_secure


def test_one_ensemble_costs_as_much_as_a_tree_only_by_coins():
    """The twin of fixed draws: the account has no name for parts that were not dealt by coins."""
    with pytest.raises(opboost.errors.AccountError, match="coins of the records' own"):
        SharedByCoins(coins=(0.5, 0.5), parts=((PureRelease(epsilon=1.0),),) * 2)  # type: ignore[arg-type]
