"""DPBoost as published: draws of fixed sizes hand every record out once, and the real epsilon is larger."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from opboost.errors import ParameterError
from opboost.horizontal.dpboost.as_published import by_fixed_sizes, printed_sensitivity, replacement_epsilon
from opboost.horizontal.dpboost.training import DPBoostSettings, _value_steps
from opboost.horizontal.noise.noisy_holder import laplace_noise
from opboost.rng import seeded


def published(max_depth: int, max_grad: float = 1.0) -> DPBoostSettings:
    return DPBoostSettings(
        n_trees=1,
        trees_per_ensemble=1,
        max_depth=max_depth,
        scheme="seq",
        learning_rate=0.3,
        reg_lambda=1.0,
        max_grad=max_grad,
        leaf="value",
        noise_lambda=0.0,
        filters_gradients=False,
        clips_leaves=False,
    )


@pytest.mark.parametrize("n_records", [7, 100])
@pytest.mark.parametrize("shares", [(0.5, 0.5), (0.5, 0.3, 0.2)])
def test_every_record_is_drawn_once_in_parts_of_fixed_sizes(n_records: int, shares: tuple[float, ...]) -> None:
    settings: Any = SimpleNamespace(coins=SimpleNamespace(probabilities=np.array(shares)))
    next_part = by_fixed_sizes(settings)(n_records, seeded(3))
    parts = [next_part(np.ones(n_records, np.bool_)) for _ in shares]
    assert sorted(np.concatenate(parts).tolist()) == list(range(n_records))
    for part, share in zip(parts, shares, strict=True):
        assert abs(len(part) - share * n_records) < 1
        assert (np.diff(part) > 0).all()


def test_records_that_are_not_eligible_are_left_out_of_their_part() -> None:
    settings: Any = SimpleNamespace(coins=SimpleNamespace(probabilities=np.array([1.0])))
    assert by_fixed_sizes(settings)(6, seeded(3))(np.arange(6) % 2 == 0).tolist() == [0, 2, 4]


def test_the_slides_sensitivity_is_the_smaller_one_and_another_does_not_exist() -> None:
    slides = printed_sensitivity("slides", reg_lambda=0.1, max_grad=0.5)
    assert slides < printed_sensitivity("3", reg_lambda=0.1, max_grad=0.5) == 0.75
    with pytest.raises(ParameterError):
        printed_sensitivity("4", reg_lambda=0.1, max_grad=0.5)  # type: ignore[arg-type]


@pytest.mark.parametrize("max_grad", [0.5, 1.0])
def test_the_real_epsilon_grows_as_the_claimed_sensitivity_shrinks(max_grad: float) -> None:
    settings = published(max_depth=2, max_grad=max_grad)
    right = replacement_epsilon(1.0, 2 * max_grad**2, settings)
    assert right == pytest.approx(2.0)
    slides = printed_sensitivity("slides", reg_lambda=0.1, max_grad=max_grad)
    assert replacement_epsilon(1.0, slides, settings) > right


@pytest.mark.parametrize(("max_depth", "is_kept"), [(0, True), (2, False)])
def test_a_tree_without_splits_loses_twice_what_is_claimed_however_the_gain_is_taken(max_depth: int, is_kept: bool):
    """One record whose gradient turns around moves the only leaf by twice its sensitivity, and all noise is on it.

    The promise of a tree whose splits take half, at the authors' later constant, would be too small.
    """
    of_leaf = published(max_depth=0)
    steps = _value_steps(of_leaf, 0)
    noise = laplace_noise(steps, of_leaf.leaf_epsilon(1.0), 1.0)
    assert noise is not None
    real = 2 * (steps - 1) / noise.scale
    promised = replacement_epsilon(1.0, printed_sensitivity("3", reg_lambda=1.0, max_grad=1.0), published(max_depth))
    assert (real <= promised) is is_kept
