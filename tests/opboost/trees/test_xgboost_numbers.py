"""Numbers between doubles here and XGBoost's singles: each parts rows as its counterpart does."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from opboost.trees.xgboost_numbers import PRESENT, conditions_above, margins, probability_of, thresholds_below
from tests.support.special_numbers import F32, around, numbers


@given(numbers)
@example(PRESENT)
@example(-PRESENT)
@example(0.0)
def test_a_condition_parts_the_singles_as_its_threshold_does(threshold: float) -> None:
    rows = around([threshold])
    condition = conditions_above(np.array([threshold]))
    assert condition.dtype == np.float32
    assert ((rows < condition) == (rows.astype(np.float64) <= threshold))[~np.isnan(rows)].all()


@given(st.one_of(st.floats(width=32, allow_nan=False), st.sampled_from([0.0, -0.0, float(F32.max), np.inf])))
@example(-float(F32.max))
def test_a_threshold_parts_the_doubles_as_its_condition_does_and_leads_back_to_it(condition: float) -> None:
    single = np.float32([condition])
    threshold = thresholds_below(single)
    assert np.isfinite(threshold).all()
    with np.errstate(over="ignore"):
        below = np.nextafter(single, np.float32(-np.inf)).astype(np.float64)
    middle = below / 2 + condition / 2
    rows = np.concatenate([below, middle, np.nextafter(middle, np.inf), np.nextafter(middle, -np.inf), single])
    with np.errstate(over="ignore"):
        rounded = rows.astype(np.float32)
    is_held = np.isfinite(rounded)
    np.testing.assert_array_equal((rounded < single)[is_held], (rows <= threshold)[is_held])
    assert conditions_above(threshold) == max(condition, -float(F32.max))


@pytest.mark.parametrize("probability", [0.5, 0.3, 0.999, 0.9999, 0.99999, 1e-3, 1e-6])
def test_a_base_probability_comes_back_as_a_margin_that_leads_to_it(probability: float) -> None:
    single = np.float32([probability])
    assert margins(probability_of(margins(single)[0])) == margins(single)


@given(st.floats(-11, 11))
def test_a_base_probability_is_as_close_as_single_precision_can_say(score: float) -> None:
    """A step of 2^-24 in the probability is one of 2^-24 times the odds in the score, if that is more than its own."""
    reached = margins(probability_of(score))[0]
    assert abs(reached - score) <= 2.0**-22 * max(1.0, abs(score), np.exp(score))
