"""Times in words: the day, minute or second that a number of units lies in, and differences with their unit."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opboost.table_format.times import difference_in_words, rough_difference, time_in_words

DAY, HOUR, MINUTE, SECOND = 86400, 3600, 60, 1


@pytest.mark.parametrize(
    ("value", "unit_s", "words"),
    [
        (19_358, DAY, "2023-01-01"),
        (19_358.9, DAY, "2023-01-01"),
        (19_357.9999999, DAY, "2023-01-01"),
        (-1, DAY, "1969-12-31"),
        (19_358 * 24, HOUR, "2023-01-01"),
        (19_358 * 86_400, SECOND, "2023-01-01"),
        (19_358 * 86_400 + 600, SECOND, "2023-01-01 00:10:00"),
        (19_358 * 24 + 14, HOUR, "2023-01-01 14:00"),
        (19_358 * 1440 + 871, MINUTE, "2023-01-01 14:31"),
        (1_674_761_018.18, SECOND, "2023-01-26 19:23:38"),
        (-719_162 - 3, DAY, "0000-12-29"),
        (2_932_897, DAY, "10000-01-01"),
    ],
)
def test_a_time_is_the_unit_that_it_lies_in(value: float, unit_s: int, words: str) -> None:
    assert time_in_words(value, unit_s) == words


@given(st.datetimes(), st.sampled_from([DAY, HOUR, MINUTE, SECOND]))
def test_times_are_those_of_python(time: datetime, unit_s: int) -> None:
    n = (time.replace(tzinfo=UTC) - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(seconds=unit_s)
    found = datetime.fromisoformat(time_in_words(n, unit_s))
    assert found <= time < found + timedelta(seconds=unit_s) or time.year == 9999


@pytest.mark.parametrize(
    ("difference", "unit_s", "words"),
    [
        (1, DAY, "1 day"),
        (50, DAY, "50 days"),
        (5_000_000, SECOND, "5,000,000 seconds (about 57.9 days)"),
        (50, HOUR, "50 hours (about 2.08 days)"),
        (1, SECOND, "1 second"),
        (0.5, DAY, "0.5 days (about 12 hours)"),
    ],
)
def test_a_difference_is_told_exactly_and_in_larger_units(difference: float, unit_s: int, words: str) -> None:
    assert difference_in_words(difference, unit_s) == words


@pytest.mark.parametrize(
    ("difference", "unit_s", "words"),
    [
        (7.3737, DAY, "7.37 days"),
        (36_524.2, DAY, "36,524 days"),
        (86_400, SECOND, "1 day"),
        (0.4, SECOND, "0.4 seconds"),
        (0.0, DAY, "0 seconds"),
        (1e-9, SECOND, "under 0.001 seconds"),
    ],
)
def test_a_rough_difference_has_three_digits(difference: float, unit_s: int, words: str) -> None:
    assert rough_difference(difference, unit_s) == words
