"""The attacker who knows the other columns: as good as theory allows where they are known to help, and no better."""

from __future__ import annotations

import numpy as np
import pytest

from opboost.denoise.informed_attack import Beliefs, JointLaw
from opboost.order_metrics import bayes_attack
from opboost.privacy.domain import IntegerDomain
from opboost.privacy.order_preserving import GlobalMap

N_ROWS, N_CODES = 3_000, 12


def table(epsilon: float) -> np.ndarray:
    return GlobalMap(epsilon=epsilon, domain=IntegerDomain(1, N_CODES)).log_probabilities()


@pytest.fixture(scope="module")
def columns() -> list[np.ndarray]:
    """A column, the same with some noise, and one of its own; some cells of the second are missing."""
    draw = np.random.default_rng(5)
    first = draw.integers(0, N_CODES, N_ROWS)
    near = np.clip(first + draw.integers(-1, 2, N_ROWS), 0, N_CODES - 1)
    return [first, np.where(draw.random(N_ROWS) < 0.1, -1, near), draw.integers(0, N_CODES, N_ROWS)]


@pytest.fixture(scope="module")
def law(columns: list[np.ndarray]) -> JointLaw:
    return JointLaw.fit(columns)


@pytest.mark.parametrize("epsilon", [0.1, 0.5, 2.0])
def test_exact_beliefs_give_the_success_of_the_bayes_optimal_attack(epsilon: float) -> None:
    counts = np.arange(1, N_CODES + 1) ** 2
    codes = np.repeat(np.arange(N_CODES), counts * 8)
    codes = np.random.default_rng(1).permutation(codes)
    beliefs = Beliefs(codes, np.tile(counts / counts.sum(), (len(codes), 1)).astype(np.float32))
    best = bayes_attack(table(epsilon), counts)
    assert beliefs.blind_success == pytest.approx(best.blind_success)
    # Releases are spread evenly over 5,200 records: 0.02 is three standard deviations even of independent draws.
    assert beliefs.success(np.exp(table(epsilon))) == pytest.approx(best.success, abs=0.02)


def test_a_column_that_others_tell_of_is_guessed_from_them_and_better_with_its_release(
    columns: list[np.ndarray], law: JointLaw
) -> None:
    alone = bayes_attack(table(0.1), np.bincount(columns[0], minlength=N_CODES))
    beliefs = law.beliefs(0, columns[0], N_CODES)
    # Knowing a neighbour within one step, one of three is right; the mixture comes near.
    assert 0.25 < beliefs.blind_success < 0.45
    assert alone.success < 0.2 < beliefs.blind_success
    assert beliefs.blind_success < beliefs.success(np.exp(table(1.0))) < beliefs.success(np.exp(table(4.0)))


def test_a_column_of_its_own_is_guessed_no_better_than_by_its_distribution(
    columns: list[np.ndarray], law: JointLaw
) -> None:
    for epsilon in (0.1, 1.0):
        best = bayes_attack(table(epsilon), np.bincount(columns[2], minlength=N_CODES))
        beliefs = law.beliefs(2, columns[2], N_CODES)
        assert beliefs.blind_success < best.blind_success + 0.03
        assert beliefs.success(np.exp(table(epsilon))) < best.success + 0.03


def test_records_are_attacked_that_were_not_learned_from(columns: list[np.ndarray], law: JointLaw) -> None:
    """The twin of the test above: on records that it learned by heart an attacker would seem to know everything."""
    own = np.random.default_rng(2).permutation(N_ROWS)[:N_ROWS]
    beliefs = law.beliefs(2, own, N_ROWS)
    assert beliefs.blind_success == 0
    learned = Beliefs(own, np.eye(N_ROWS, dtype=np.float32)[own])
    assert learned.blind_success == 1


def test_missing_cells_are_neither_learned_nor_attacked(columns: list[np.ndarray], law: JointLaw) -> None:
    beliefs = law.beliefs(1, columns[1], N_CODES)
    assert len(beliefs.codes) == int((columns[1][1::2] >= 0).sum())
    np.testing.assert_allclose(beliefs.laws.sum(axis=1), 1, rtol=1e-4)
    nobody = law.beliefs(1, np.full(N_ROWS, -1), N_CODES)
    assert (nobody.blind_success, nobody.success(np.exp(table(1.0)))) == (0.0, 0.0)
