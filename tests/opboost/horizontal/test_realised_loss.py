"""What a training really loses between neighbours, number by number, against what its guarantee says.

A training runs on a table, and again on a neighbour whose every noisy number and every chosen split is forced to be
what it was on the first. The shift of each number over its noise, and the ratio of each choice's probabilities, add up
to what this outcome really tells. And whatever else the model holds must then be the same: it would not be paid for.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from opboost import (
    DPBoostClassifier,
    DPBoostingClassifier,
    DPBoostingRegressor,
    DPBoostRegressor,
    FederatedGBDTClassifier,
    FederatedGBDTRegressor,
    InPrivateClassifier,
    InPrivateRegressor,
    SGBDTClassifier,
    SGBDTRegressor,
)
from opboost.horizontal.federated import query_holder
from opboost.horizontal.recommended import training as recommended
from opboost.horizontal.recommended import tree_training
from opboost.horizontal.recommended.tree_sizes import TreeSizes
from opboost.privacy.additive import DiscreteLaplace, RoundedGaussian
from opboost.privacy.coins import RecordCoins
from opboost.privacy.gaussian import gaussian_delta
from opboost.privacy.selection import ExponentialMechanism
from opboost.sklearn import sgbdt_fitting

pytestmark = pytest.mark.usefixtures("one_thread")

SMALL = {"n_estimators": 3, "max_depth": 2}
BOUNDS = {"bounds": {0: (0.0, 1.0), 1: (-1.0, 1.0), 2: (0, 2)}}
PURE = {"epsilon": 1.0, "random_state": 0, **BOUNDS}
GAUSSIAN = {**PURE, "delta": 1e-5}
CATEGORIES = {"categorical_features": [2]}
NUMBERS = {"label_bounds": (-1, 1)}
THREE = {"classes": (0, 1, 2)}

ESTIMATORS = [
    DPBoostingClassifier(**GAUSSIAN, **CATEGORIES, **SMALL),
    DPBoostingClassifier(**GAUSSIAN, **CATEGORIES, **THREE, n_estimators=3),
    DPBoostingClassifier(**GAUSSIAN, **CATEGORIES),
    DPBoostingRegressor(**GAUSSIAN, **CATEGORIES, **NUMBERS, **SMALL),
    DPBoostingRegressor(**GAUSSIAN, **NUMBERS, max_depth=1),
    SGBDTClassifier(**GAUSSIAN, **CATEGORIES, **SMALL),
    SGBDTClassifier(**GAUSSIAN, **CATEGORIES, **THREE, n_estimators=3),
    SGBDTClassifier(**GAUSSIAN, **SMALL, max_grad=0.9001, denominator_noise=0.1),
    SGBDTClassifier(**GAUSSIAN, **SMALL, n_extra_estimators=20),
    SGBDTRegressor(**GAUSSIAN, **CATEGORIES, **NUMBERS, **SMALL),
    SGBDTRegressor(**GAUSSIAN, **NUMBERS, **SMALL, use_filter=True, n_extra_estimators=20),
    SGBDTRegressor(**GAUSSIAN, **NUMBERS, **SMALL, leaf_noise="static"),
    FederatedGBDTClassifier(**GAUSSIAN, **SMALL),
    FederatedGBDTClassifier(**GAUSSIAN, **SMALL, split_method="hist", split_candidates="ih"),
    FederatedGBDTClassifier(**GAUSSIAN, **SMALL, split_method="pr", split_candidates="ih", weight_update="gradient"),
    FederatedGBDTClassifier(**GAUSSIAN, **SMALL, **THREE, interaction="cyclical", batch_size=2, split_candidates="ih"),
    FederatedGBDTClassifier(**GAUSSIAN, **SMALL, weight_update="averaging", n_clients=3),
    FederatedGBDTRegressor(**GAUSSIAN, **NUMBERS, **SMALL),
    FederatedGBDTRegressor(**GAUSSIAN, **NUMBERS, **SMALL, split_method="hist", weight_update="averaging"),
    DPBoostClassifier(**PURE, **CATEGORIES, **SMALL),
    DPBoostClassifier(**PURE, **SMALL, scheme="seq", leaf="value", filter_gradients=True, max_grad=0.7),
    DPBoostClassifier(**PURE, **THREE, n_estimators=2),
    DPBoostRegressor(**PURE, **NUMBERS, **CATEGORIES, **SMALL, clip_leaves=True),
    InPrivateClassifier(**PURE, **CATEGORIES, max_depth=2, n_rounds=2, owners=2),
    InPrivateRegressor(**PURE, **NUMBERS, max_depth=2, owners=2),
]
PAPER = {**SMALL, "mode": "paper"}
OF_ONE_SIZE = [
    SGBDTRegressor(**GAUSSIAN, **NUMBERS, **PAPER),
    SGBDTClassifier(**GAUSSIAN, **THREE, **PAPER),
    FederatedGBDTClassifier(**PURE, **PAPER),
    FederatedGBDTRegressor(**PURE, **NUMBERS, **PAPER, split_method="hist"),
    DPBoostClassifier(**PURE, **PAPER),
    DPBoostClassifier(**PURE, **PAPER, gain_sensitivity="slides", leaf="value"),
    DPBoostRegressor(**PURE, **NUMBERS, **PAPER, max_grad=0.5, filter_gradients=True, clip_leaves=True),
]
OF_ONE_LABEL = [
    FederatedGBDTClassifier(**GAUSSIAN, **SMALL, local_noise=True),
    FederatedGBDTClassifier(**GAUSSIAN, **SMALL, local_noise=True, weight_update="averaging", n_clients=2),
    FederatedGBDTRegressor(**GAUSSIAN, **NUMBERS, **SMALL, local_noise=True, split_method="pr", batch_size=2),
]


@dataclass
class Outcome:
    """Every noisy number and every choice of a training, and what another one had to be moved by to have them too."""

    numbers: list[np.ndarray] = field(default_factory=list)
    exact: list[np.ndarray] = field(default_factory=list)
    choices: list[tuple[np.ndarray, np.ndarray]] = field(default_factory=list)
    n_numbers: int = 0
    n_choices: int = 0
    is_forced: bool = False
    mu_squared: float = 0.0
    epsilon: float = 0.0

    def release(self, exact: np.ndarray, noise: np.ndarray, law: Any) -> np.ndarray:
        if not self.is_forced:
            self.exact.append(exact)
            self.numbers.append(exact + noise)
            return self.numbers[-1]
        shift = exact - self.exact[self.n_numbers]
        if isinstance(law, RoundedGaussian):
            self.mu_squared += float((shift.astype(float) ** 2).sum()) / law.std**2
        else:
            self.epsilon += float(np.abs(shift).sum()) / law.scale
        self.n_numbers += 1
        return self.numbers[self.n_numbers - 1]

    def choose(self, mechanism: ExponentialMechanism, utilities: np.ndarray, draw: Callable[[], Any]) -> Any:
        odds, chosen = mechanism.log_probabilities(utilities), draw()
        if not self.is_forced:
            self.choices.append((chosen, odds))
            return chosen
        chosen, before = self.choices[self.n_choices]
        rows = np.arange(len(chosen))
        self.epsilon += float(np.abs(odds[rows, chosen] - before[rows, chosen]).sum())
        self.n_choices += 1
        return chosen


class ToBeAdded(np.ndarray):
    """Noise that knows its distribution, and is told what it is added to."""

    outcome: Outcome
    law: Any
    steps: float

    def __array_finalize__(self, other: Any) -> None:
        for name in ("outcome", "law", "steps"):
            setattr(self, name, getattr(other, name, None))

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, out: Any = (), **others: Any) -> Any:
        plain = [np.asarray(one) for one in inputs]
        if ufunc is np.true_divide:
            made = np.asarray(self).view(ToBeAdded)
            made.outcome, made.law, made.steps = self.outcome, self.law, self.steps * float(plain[1])
            return made
        assert ufunc is np.add
        assert method == "__call__"
        exact, noise = (plain[1], plain[0]) if inputs[0] is self else plain
        in_steps = np.rint(exact * self.steps).astype(np.int64)
        assert (in_steps == exact * self.steps).all()
        found = self.outcome.release(in_steps, noise, self.law) / self.steps
        if not out:
            return found.astype(exact.dtype)
        out[0][...] = found
        return out[0]


@pytest.fixture
def outcome(monkeypatch: pytest.MonkeyPatch) -> Callable[[Outcome], None]:
    """Sets whose numbers and choices all trainings have from now on."""
    current: list[Outcome] = [Outcome()]
    for law in (RoundedGaussian, DiscreteLaplace):

        def drawn(self: Any, count: int, *, rng: Any, draw: Any = law.draw) -> ToBeAdded:
            noise = draw(self, count, rng=rng).view(ToBeAdded)
            noise.outcome, noise.law, noise.steps = current[0], self, 1.0
            return noise

        monkeypatch.setattr(law, "draw", drawn)
    choose = ExponentialMechanism.choose

    def chosen(self: ExponentialMechanism, utilities: np.ndarray, *, rng: Any) -> Any:
        return current[0].choose(self, utilities, lambda: choose(self, utilities, rng=rng))

    monkeypatch.setattr(ExponentialMechanism, "choose", chosen)
    monkeypatch.setattr(query_holder, "_drawn_ahead", one_by_one)
    deal = RecordCoins.deal

    def dealt(self: RecordCoins, n_records: int, *, rng: Any) -> Any:
        return deal(self, n_records, rng=Coins(int(rng.words(1)[0])))

    monkeypatch.setattr(RecordCoins, "deal", dealt)
    return lambda one: current.__setitem__(0, one)


@dataclass
class Coins:
    """Coins of which a record has the same whoever comes after it."""

    seed: int
    turn: int = 0

    def uniforms(self, count: int) -> np.ndarray:
        self.turn += 1
        return np.random.default_rng((self.seed, self.turn)).random(count)


def one_by_one(std: float, scale: float, rng: Any) -> Any:
    """Noise that is not drawn ahead."""
    noise = query_holder.gaussian_noise(std, scale)
    return None if noise is None else type("", (), {"take": lambda _, count: noise.draw(count, rng=rng)})()


def records(rng: np.random.Generator, count: int, labels: Any) -> tuple[np.ndarray, np.ndarray]:
    """Records in the corners, beyond them, between them and with nothing."""
    return (
        np.column_stack(
            [
                rng.choice([0.0, 0.3, 0.999, 7.0, np.nan], count),
                rng.choice([-9.0, -0.1, 0.2, 1.0, np.nan], count),
                rng.choice([0.0, 1.0, 2.0, np.nan], count),
            ]
        ),
        rng.choice(labels, count),
    )


def model_of(estimator: Any) -> list[bytes]:
    """All numbers of a model."""
    return [
        part.tobytes()
        for model in estimator.models_
        for part in (
            model.base_scores,
            *(
                array
                for tree in model.trees
                for array in (tree.columns, tree.thresholds, tree.missing_left, tree.values)
            ),
        )
    ]


def losses(
    estimator: Any, outcome: Callable[[Outcome], None], *, n_removed: int = 0, is_label: bool = False
) -> Iterator[Outcome]:
    """Fit neighbours to the same outcome, and compare what no noise covers."""
    labels = getattr(estimator, "classes", None) or (
        (0, 1) if hasattr(estimator, "predict_proba") else (-1.0, 0.1, 1.0)
    )
    for seed in range(6):
        rng = np.random.default_rng(seed)
        X, y = records(rng, int(rng.integers(2, 30)), labels)
        if seed % 2:
            y[:] = y[0]
        outcome(found := Outcome())
        model = model_of(estimator.set_params(random_state=seed).fit(X, y))
        guarantee = estimator.guarantee_
        for _ in range(3):
            more, label = records(rng, 1, labels)
            more = X[-1:] if is_label else more
            kept = slice(len(X) - n_removed)
            found.is_forced, found.n_numbers, found.n_choices, found.mu_squared, found.epsilon = True, 0, 0, 0.0, 0.0
            assert model_of(estimator.fit(np.vstack([X[kept], more]), np.append(y[kept], label))) == model
            assert (found.n_numbers, found.n_choices) == (len(found.numbers), len(found.choices))
            assert estimator.guarantee_ == guarantee
            yield found


def is_covered(found: Outcome, guarantee: Any) -> bool:
    """Whether an outcome loses no more than the guarantee allows: pure parts are added to the Gaussian ones."""
    left = guarantee.epsilon * (1 + 1e-9) - found.epsilon
    if left < 0 or not found.mu_squared:
        return left >= 0
    return gaussian_delta(math.sqrt(found.mu_squared), left) <= guarantee.delta * (1 + 1e-6)


def name(value: Any) -> str:
    return type(value).__name__


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=name)
def test_what_neighbours_lose_is_covered_and_nothing_else_of_a_model_differs(estimator, outcome):
    found = [(is_covered(one, estimator.guarantee_), one.mu_squared, one.epsilon) for one in losses(estimator, outcome)]
    assert all(covered for covered, *_ in found)
    assert max(mu_squared + epsilon for _, mu_squared, epsilon in found) > 0.0


@pytest.mark.parametrize("estimator", OF_ONE_SIZE, ids=name)
def test_what_replaced_records_lose_is_covered(estimator, outcome):
    assert all(is_covered(one, estimator.guarantee_) for one in losses(estimator, outcome, n_removed=1))


@pytest.mark.parametrize("estimator", OF_ONE_LABEL, ids=name)
def test_what_other_labels_lose_is_covered(estimator, outcome):
    assert all(is_covered(one, estimator.guarantee_) for one in losses(estimator, outcome, n_removed=1, is_label=True))


@pytest.mark.parametrize(
    ("module", "name", "too_small"),
    [(recommended, "counts_sensitivity", lambda n_columns: 0.5), (tree_training, "SOFTMAX_NORM", 0.7)],
)
def test_a_sensitivity_that_is_too_small_would_not_cover_it(module, name, too_small, outcome, monkeypatch):
    """A broken twin for each of two kinds of release."""
    monkeypatch.setattr(module, name, too_small)
    estimator = ESTIMATORS[1]
    assert not all(is_covered(one, estimator.guarantee_) for one in losses(estimator, outcome))


def test_sizes_from_the_true_count_would_differ_between_neighbours(outcome, monkeypatch):
    """The broken twin of what is read without a budget."""
    real = recommended.first_scores_of_classes
    monkeypatch.setattr(
        recommended, "first_scores_of_classes", lambda labels, **others: (real(labels, **others)[0], labels.shape[1])
    )
    monkeypatch.setattr(
        recommended, "usual_sizes", lambda n_records, mu, n_classes: TreeSizes(2 + int(n_records) % 2, 2)
    )
    with pytest.raises(AssertionError):
        list(losses(ESTIMATORS[2], outcome))


def test_a_mean_in_doubles_tells_itself_by_its_last_bits(outcome, monkeypatch):
    """The broken twin: noise on a grid under a mean that is not."""

    def mean(labels: np.ndarray, rng: Any, *, epsilon: float) -> float:
        return float(labels.mean() + DiscreteLaplace(2.0**31 / (len(labels) * epsilon)).draw(1, rng=rng)[0] * 2.0**-30)

    monkeypatch.setattr(sgbdt_fitting, "printed_mean", mean)
    with pytest.raises(AssertionError):
        list(losses(OF_ONE_SIZE[0], outcome, n_removed=1))


@pytest.mark.parametrize("kind", [DPBoostingClassifier, DPBoostingRegressor])
def test_the_recommended_guarantee_names_its_delta(kind):
    """Gaussian noise has no pure epsilon; the exact delta of its releases at this epsilon is the one that is named."""
    bounds = NUMBERS if kind is DPBoostingRegressor else {}
    X, y = records(np.random.default_rng(0), 40, (0, 1))
    guarantee = kind(**GAUSSIAN, **bounds, **SMALL).fit(X, y).guarantee_
    assert guarantee.delta == 1e-5
    assert guarantee.notion == "(epsilon, delta)-DP"
    assert "at delta 1e-05" in str(guarantee)
    assert kind(**GAUSSIAN | {"epsilon": math.inf}, **bounds, **SMALL).fit(X, y).guarantee_.delta == 0.0
