"""S-GBDT's noise as published: it follows the claimed budget, and its filter is for sampled records."""

from __future__ import annotations

from typing import Any

import pytest

from opboost.errors import ParameterError
from opboost.horizontal.sgbdt.as_published import printed_noise

GIVEN: dict[str, Any] = {
    "max_grad": 0.5,
    "epsilon": 1.0,
    "delta": 1e-5,
    "n_trees": 20,
    "rate": 0.1,
    "initial_share": 0.1,
    "has_filter": False,
    "is_classification": True,
}


def test_noise_shrinks_with_the_claimed_budget_and_grows_with_trees_and_models() -> None:
    std = printed_noise(**GIVEN).grad_std
    assert printed_noise(**{**GIVEN, "epsilon": 2.0}).grad_std < std
    assert printed_noise(**{**GIVEN, "n_trees": 40}).grad_std > std
    assert printed_noise(**GIVEN, n_models=2).grad_std > std
    assert printed_noise(**GIVEN).hess_std == std


def test_numbers_pay_for_their_initial_score_and_classes_do_not() -> None:
    assert printed_noise(**GIVEN).initial_epsilon == 0.0
    numbers = printed_noise(**{**GIVEN, "is_classification": False})
    assert numbers.initial_epsilon == pytest.approx(0.1)
    assert numbers.grad_std > printed_noise(**GIVEN).grad_std


def test_a_filter_has_one_order_and_needs_sampled_records() -> None:
    assert printed_noise(**{**GIVEN, "has_filter": True}).order is not None
    assert printed_noise(**GIVEN).order is None
    with pytest.raises(ParameterError, match="say a subsample below 1"):
        printed_noise(**{**GIVEN, "has_filter": True, "rate": 1.0})
