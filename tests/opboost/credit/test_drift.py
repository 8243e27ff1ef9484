"""Stability indices."""

from __future__ import annotations

import numpy as np
import pytest

from opboost.credit.drift import drift, stability_index, words_of
from opboost.errors import DataError


def test_the_index_is_that_of_the_definition() -> None:
    before, after = np.array([60.0, 40.0]) * 1e6, np.array([50.0, 50.0]) * 1e6
    expected = (0.5 - 0.6) * np.log(0.5 / 0.6) + (0.5 - 0.4) * np.log(0.5 / 0.4)
    assert stability_index(before, after) == pytest.approx(expected, rel=1e-6)


def test_the_same_population_is_stable_and_a_shift_is_seen() -> None:
    rng = np.random.default_rng(0)
    before, same = rng.normal(size=(2, 5000))
    assert words_of(drift(before, same)) == "stable"
    assert words_of(drift(before, same + 0.4)) == "some shift"
    assert words_of(drift(before, same + 1)) == "shifted"
    emptied = np.where(np.arange(5000) < 2000, np.nan, same)
    assert words_of(drift(before, emptied)) == "shifted"


def test_an_empty_sample_is_refused() -> None:
    with pytest.raises(DataError, match="one is empty"):
        drift(np.empty(0), np.zeros(3))


@pytest.mark.parametrize("share", [0.95, 1.0])
def test_a_value_that_most_records_have_is_told_from_lower_ones(share: float) -> None:
    before = (np.arange(1000) < share * 1000).astype(np.float64)
    assert words_of(drift(before, np.zeros(1000))) == "shifted"
    assert words_of(drift(before, np.full(1000, 2.0))) == "shifted"
    assert drift(before, before) == 0


def test_categories_are_counted_one_by_one() -> None:
    before = np.repeat(np.arange(20.0), 50)
    after = np.where(before % 2 == 1, before - 1, before)
    assert words_of(drift(before, after, is_categorical=True)) == "shifted"
    assert drift(before, before[::-1], is_categorical=True) == 0
    assert words_of(drift(before, np.full(1000, 21.0), is_categorical=True)) == "shifted"
