"""Sentences of a plan: their odds hold for every pair of values, and what is not protected is said."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np
import pandas as pd
import pytest

from opboost.desensitize import ColumnMechanism
from opboost.mechanism_settings import MechanismSettings
from opboost.order_metrics import bayes_attack
from opboost.preprocess import encode
from opboost.schema import ColumnSchema, Kind, Missing
from parties.reports.sentences import (
    LARGEST_ODDS,
    Verdict,
    cell_sentence,
    column_sentence,
    column_warnings,
    everyday_difference,
    odds,
    person_sized_difference,
)


def mechanism(lower: float = 0, upper: float = 5000, **settings: Any) -> ColumnMechanism:
    schema = ColumnSchema(name="income", lower=lower, upper=upper)
    return ColumnMechanism(schema, MechanismSettings(**{"domain_size": 1000, "epsilon": 0.1, **settings}))


@pytest.mark.parametrize(
    "settings",
    [
        {"epsilon": 0.1},
        {"epsilon": 0.01},
        {"epsilon": 2.0},
        {"mechanism": "local"},
        {"mechanism": "adj"},
        {"law": "exponential"},
        {"domain_size": 50},
        {"law": "bounded_laplace"},
        {"epsilon": 0.001},
    ],
)
@pytest.mark.parametrize("bounds", [(0, 5000), (0.5, 1.25), (-3, 60)])
def test_the_odds_of_a_sentence_hold_for_every_pair_so_far_apart(settings: dict[str, Any], bounds: Any) -> None:
    """The worst pair by the exact table never beats the odds, and comes close to them."""
    one = mechanism(*bounds, **settings)
    difference, points = everyday_difference(one)
    values = np.linspace(*bounds, 4001)
    pairs = values[values <= bounds[1] - difference]
    codes = [
        encode(pd.Series(side), one.schema, domain=one.settings.domain).codes - 1
        for side in (pairs, np.minimum(pairs + difference, bounds[1]))
    ]
    table = one.value.log_probabilities()
    with np.errstate(invalid="ignore"):
        ratios = np.abs(table[codes[0]] - table[codes[1]])
    worst = float(np.nanmax(np.where(np.isfinite(ratios), ratios, 0)))
    assert np.abs(codes[0] - codes[1]).max() <= points
    assert worst <= one.loss(points)
    said = re.search(r"at most ([\d.,]+) to 1", column_sentence(one))
    if one.loss(points) <= math.log(LARGEST_ODDS):
        assert said is not None
        assert math.exp(one.loss(points)) <= float(said[1].replace(",", "")) * (1 + 1e-6)


@pytest.mark.parametrize(("theta", "has_border"), [(10, True), (50, False)])
def test_a_sentence_speaks_of_borders_only_where_there_are_several_cells(theta: int, has_border: bool) -> None:
    one = mechanism(domain_size=50, mechanism="adj", theta=theta)
    assert ("border" in column_sentence(one)) == has_border


@pytest.mark.parametrize(
    ("loss", "said"),
    [
        (math.log(1.6), "1.60 to 1"),
        (math.log(1.601), "1.61 to 1"),
        (3.0, "20.1 to 1"),
        (5.0, "149 to 1"),
        (9.0, "8,104 to 1"),
        (99.9, "e^99.9 to 1, which is no protection"),
        (math.inf, "any odds"),
    ],
)
def test_odds_are_rounded_up(loss: float, said: str) -> None:
    assert odds(loss) == said


def test_sentences_say_what_is_not_protected() -> None:
    assert "published exactly" in column_sentence(mechanism(mechanism="local"))
    assert "without noise: nothing" in column_sentence(mechanism(epsilon=math.inf))
    assert "no protection" in column_sentence(mechanism())
    town = ColumnSchema(name="town", kind=Kind.UNORDERED, categories=("a", "b"), missing=Missing.CATEGORY)
    said = column_sentence(ColumnMechanism(town, MechanismSettings(category_epsilon=1.0)))
    assert said.count("2.72 to 1") == 2


@pytest.mark.parametrize("missing", list(Missing))
def test_a_true_category_is_published_as_often_as_is_said(missing: Missing) -> None:
    """Of all records that have one, by the exact tables: some are published as empty."""
    fill = "a" if missing is Missing.IMPUTE else None
    town = ColumnSchema(name="town", kind=Kind.UNORDERED, categories=("a", "b"), missing=missing, fill=fill)
    one = ColumnMechanism(town, MechanismSettings(category_epsilon=1.0))
    is_kept = math.exp(one.value.log_probabilities()[0, 0])
    is_value = 1.0 if one.missingness is None else math.exp(one.missingness.log_probabilities()[0, 0])
    assert f"the true category is published with probability {is_kept * is_value:.2f}." in column_sentence(one)


def test_cells_as_many_as_values_are_no_ranges() -> None:
    grade = ColumnSchema(name="grade", kind=Kind.ORDERED, categories=("low", "mid", "high"))
    one = ColumnMechanism(grade, MechanismSettings(domain_size=3))
    assert "may learn which of 3 values grade has" in cell_sentence(one, 3, "bank")
    assert "in which of at most 2 ranges of the 3 categories" in cell_sentence(one, 2, "bank")
    assert "in which of at most 16 ranges of 0 to 5,000" in cell_sentence(mechanism(), 16, "bank")


@pytest.mark.parametrize(
    ("unit_s", "bounds", "apart", "whole", "people"),
    [
        (86400, (19_358, 20_088), "50 days", "2023-01-01 to 2024-12-31", "20 days"),
        (
            1,
            (1_672_531_200, 1_735_603_200),
            "5,000,000 seconds (about 57.9 days)",
            "2023-01-01 to 2024-12-31",
            "2,000,000 seconds (about 23.1 days)",
        ),
    ],
)
def test_values_of_times_are_dates_and_their_differences_have_a_unit(
    unit_s: int, bounds: tuple[float, float], apart: str, whole: str, people: str
) -> None:
    one = mechanism(*bounds, domain_size=100, epsilon=8 / 99)
    assert f"that differ by {apart} in income are" in column_sentence(one, unit_s)
    assert f"over the whole range {whole}, with" in column_sentence(one, unit_s)
    assert f"at most 16 ranges of {whole} its income" in cell_sentence(one, 16, "bank", unit_s)
    weak = mechanism(*bounds, domain_size=100, epsilon=1.0)
    assert f"two people {people} apart in income are told apart" in " ".join(column_warnings(weak, None, unit_s))


def test_large_numbers_are_told_without_powers_of_ten() -> None:
    one = mechanism(0, 63_072_000, domain_size=100, epsilon=1.0)
    assert "over the whole range 0 to 63,072,000" in column_sentence(one)
    assert "two people 2,000,000 apart in income" in warned(one)


def warned(one: ColumnMechanism, counts: list[int] | None = None) -> str:
    attack = None if counts is None else bayes_attack(one.value.log_probabilities(), np.array(counts))
    return " | ".join(column_warnings(one, attack))


@pytest.mark.parametrize(
    ("lower", "upper", "difference"), [(0, 5000, 200), (0, 120, 5), (1.4, 2.1, 0.02), (0, 10, 1), (0, 1, 0.05)]
)
def test_people_differ_by_a_twentieth_of_the_range_at_most_and_no_less_than_a_step(
    lower: float, upper: float, difference: float
) -> None:
    assert person_sized_difference(mechanism(lower, upper)) == pytest.approx(difference)


def test_a_column_is_warned_of_from_odds_of_ten_to_one_on() -> None:
    """200 of 5,000 on 1,001 points are 40 points."""
    within, above = (mechanism(domain_size=1001, epsilon=math.log(10) / 40 * scale) for scale in (0.999, 1.001))
    assert warned(within) == ""
    assert "two people 200 apart in income are told apart with odds of up to 10.1 to 1" in warned(above)
    assert "in which of 10 cells of income" in warned(mechanism(mechanism="local", epsilon=0.001))


def test_a_guess_that_is_more_than_twice_as_likely_as_without_the_release_is_warned_of() -> None:
    even = [1] * 4
    weak, fair = (mechanism(0, 3, domain_size=4, epsilon=epsilon) for epsilon in (3.0, 0.3))
    success = bayes_attack(weak.value.log_probabilities(), even).success
    assert f"the exact value of income in {100 * success:.0f} of 100 cases; in 25 without it" in warned(weak, even)
    assert "exact value" not in warned(fair, even)
    assert "exact value" not in warned(weak, [97, 1, 1, 1])


@pytest.mark.parametrize(
    ("success", "blind", "cases"),
    [
        (0.574, 0.059, ("58 of 100", "5")),
        (0.57, 0.05, ("57 of 100", "5")),
        (0.0301, 0.0004, ("31 of 1,000", "fewer than 1")),
    ],
)
def test_cases_with_the_release_are_rounded_up_and_those_without_it_down(
    success: float, blind: float, cases: tuple[str, str]
) -> None:
    assert Verdict(success=success, blind=blind).cases == cases


def test_categories_and_empty_cells_are_warned_of_by_their_own_budget() -> None:
    schema = ColumnSchema(name="town", kind=Kind.UNORDERED, categories=("a", "b"), missing=Missing.CATEGORY)
    assert warned(ColumnMechanism(schema, MechanismSettings(category_epsilon=2.3))) == ""
    both = warned(ColumnMechanism(schema, MechanismSettings(category_epsilon=2.31)))
    assert "two categories of town" in both
    assert "the published bit that says whether town is empty" in both


@pytest.mark.parametrize(
    "settings",
    [{"epsilon": 0.008}, {"epsilon": 0.05, "mechanism": "adj", "theta": 10}, {"epsilon": 0.008, "law": "exponential"}],
)
def test_the_odds_that_a_cell_is_empty_hold_for_all_that_is_published_of_it(settings: dict[str, Any]) -> None:
    """By the exact table: the bit alone keeps to its own odds, and a value beside it is beyond them."""
    schema = ColumnSchema(name="income", lower=0, upper=99, missing=Missing.CATEGORY)
    one = ColumnMechanism(schema, MechanismSettings(domain_size=100, category_epsilon=2.3, **settings))
    assert one.missingness is not None
    bits, values = one.missingness.log_probabilities(), one.value.log_probabilities()
    empty = encode(pd.Series([np.nan]), schema, domain=one.settings.domain).codes[0] - 1
    of_bit = math.exp(abs(bits[0, 1] - bits[1, 1]))
    of_both = math.exp(np.abs(bits[0, 0] + values - bits[1, 0] - values[empty]).max())
    found = re.findall(r"tells? it with odds at most ([\d,.]+) to 1", column_sentence(one))
    said_of_bit, said_of_both = (float(each.replace(",", "")) for each in found)
    assert of_bit <= said_of_bit + 1e-9 < of_bit + 0.02
    assert of_both <= said_of_both + 1e-9
    assert of_both > said_of_bit


def test_an_empty_cell_and_a_value_of_another_published_cell_are_told_apart_for_certain() -> None:
    schema = ColumnSchema(name="income", lower=0, upper=99, missing=Missing.CATEGORY)
    one = ColumnMechanism(
        schema, MechanismSettings(domain_size=100, mechanism="local", epsilon=0.1, category_epsilon=1.0)
    )
    assert "both together can tell it for certain" in column_sentence(one)
