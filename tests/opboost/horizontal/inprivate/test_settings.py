"""Settings of InPrivate: levels and leaves spend no more than the budget, and rounds take ever fewer records."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opboost.horizontal.inprivate.settings import InPrivateSettings


def settings(**changes: float) -> InPrivateSettings:
    return InPrivateSettings(
        **{"n_rounds": 2, "max_depth": 3, "learning_rate": 1.0, "reg_lambda": 1.0, "noise_lambda": 0.0, **changes}  # type: ignore[arg-type]
    )


@given(st.integers(0, 12), st.floats(0.01, 30))
def test_splits_and_leaves_together_spend_the_budget(max_depth: int, epsilon: float) -> None:
    chosen = settings(max_depth=max_depth)
    splits = max_depth * chosen.split_epsilon(epsilon) if max_depth else 0.0
    assert splits + 2 * chosen.leaf_epsilon(epsilon) == pytest.approx(epsilon)


def test_without_splits_none_are_noised() -> None:
    assert settings(max_depth=0).split_epsilon(1.0) == math.inf


def test_a_record_is_in_half_a_quarter_and_so_on_of_the_rounds() -> None:
    shares = settings(n_rounds=4).coins
    assert shares == type(shares)((0.5, 0.25, 0.125, 0.0625))


def test_a_record_counts_once_and_its_residual_is_bounded() -> None:
    clipping = settings(max_residual=0.3).clipping
    assert (clipping.max_grad, clipping.max_hess) == (0.3, 1.0)
