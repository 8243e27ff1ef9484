"""A whole column: which mechanism serves it, what it promises against enumeration, and how missing cells come out."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare

from opboost.desensitize import ColumnMechanism, desensitize, exact
from opboost.errors import ParameterError
from opboost.mechanism_settings import MechanismSettings, StatedBudget
from opboost.preprocess import EncodedColumn, encode
from opboost.privacy.adj_map import AdjMap
from opboost.privacy.domain import IntegerDomain
from opboost.privacy.laws import Law
from opboost.privacy.local import RandomisedResponse
from opboost.privacy.order_preserving import GlobalMap, LocalMap
from opboost.rng import seeded
from opboost.schema import ColumnSchema, Kind, Missing

# A correct sampler fails a chi-square test below this p-value once in a million runs; the seeds are fixed besides.
FALSE_ALARM = 1e-6

# Doubles carry 16 digits; the tables' logs reach 300.
ROUNDING = 1e-9

NUMERIC = ColumnSchema(name="age", lower=0, upper=90)
WITH_STATE = ColumnSchema(name="age", lower=0, upper=90, missing=Missing.CATEGORY)
CITY = ColumnSchema(name="city", kind=Kind.UNORDERED, categories=("a", "b", "c"), missing=Missing.CATEGORY)

GRADES = ColumnSchema(name="grade", kind=Kind.ORDERED, categories=tuple("abcde"))

budgets = st.floats(0.01, 8)
settings_of_maps = st.builds(
    MechanismSettings,
    mechanism=st.sampled_from(["global", "local", "adj"]),
    epsilon=budgets,
    law=st.sampled_from(list(Law)),
    theta=st.integers(2, 5),
    alpha=st.floats(0.2, 5),
    domain_size=st.integers(5, 25),
    category_epsilon=st.one_of(st.none(), budgets),
)


def released_table(mechanism: ColumnMechanism) -> np.ndarray:
    """``log Pr[what is published | true state]``: the codes, then "missing", which is drawn from the lowest code."""
    values = mechanism.value.log_probabilities()
    if mechanism.missingness is None:
        return values
    bit = mechanism.missingness.log_probabilities()
    present = np.column_stack([values + bit[0, 0], np.full(len(values), bit[0, 1])])
    return np.vstack([present, np.append(values[0] + bit[1, 0], bit[1, 1])])


def gap(log_table: np.ndarray, x: int, other: int) -> float:
    """The largest log-ratio of two rows over all outputs; an output that neither can give counts nothing."""
    with np.errstate(invalid="ignore"):
        return float(np.nanmax(np.abs(log_table[x] - log_table[other])))


def neighbours_lose(mechanism: ColumnMechanism) -> float:
    """The largest gap of two codes one unit apart, those on two sides of a Local-Map's border left out."""
    table, n = released_table(mechanism), len(mechanism.value.log_probabilities())
    cell = mechanism.value.cells.cell_of(np.arange(n)) if isinstance(mechanism.value, LocalMap) else np.zeros(n)
    return max(gap(table, x, x + 1) for x in range(n - 1) if cell[x] == cell[x + 1])


def any_two_lose(mechanism: ColumnMechanism) -> float:
    table = released_table(mechanism)
    return max(gap(table, x, other) for x in range(len(table)) for other in range(x))


@given(settings_of_maps, st.sampled_from([NUMERIC, WITH_STATE]))
@settings(max_examples=120, deadline=None)
def test_no_figure_of_the_guarantee_is_exceeded_by_what_is_published(chosen, schema):
    mechanism = ColumnMechanism(schema, chosen)
    guarantee = mechanism.guarantee()
    assert neighbours_lose(mechanism) <= guarantee.epsilon * (1 + ROUNDING)
    assert any_two_lose(mechanism) <= (guarantee.domain_loss + guarantee.missing_epsilon) * (1 + ROUNDING)


@given(settings_of_maps.filter(lambda chosen: chosen.mechanism != "local"))
@settings(max_examples=60, deadline=None)
def test_the_loss_of_neighbours_is_not_overstated_either(chosen):
    mechanism = ColumnMechanism(NUMERIC, chosen)
    assert neighbours_lose(mechanism) == pytest.approx(mechanism.guarantee().epsilon, rel=ROUNDING)


@st.composite
def columns_with_steps(draw: st.DrawFn) -> tuple[ColumnSchema, list[object]]:
    """A column whose own step is known, and all its values."""
    n = draw(st.integers(2, 12))
    if draw(st.booleans()):
        names = tuple(f"g{i}" for i in range(n))
        return ColumnSchema(name="grade", kind=Kind.ORDERED, categories=names), list(names)
    step, lower = draw(st.sampled_from([0.25, 1.0, 3.0])), draw(st.integers(-20, 20))
    schema = ColumnSchema(name="count", lower=lower, upper=lower + (n - 1) * step, step=step)
    return schema, [lower + i * step for i in range(n)]


def own_neighbours_lose(mechanism: ColumnMechanism, values: list[object]) -> float:
    """The largest gap between the releases of two values of the column that are next to each other, over one cell."""
    table = mechanism.value.log_probabilities()
    column = pd.Series(values, dtype=object if mechanism.schema.kind is Kind.ORDERED else float)
    codes = encode(column, mechanism.schema, domain=mechanism.settings.domain).codes - 1
    cell = mechanism.value.cells.cell_of(codes) if isinstance(mechanism.value, LocalMap) else np.zeros(len(codes))
    return max(
        (gap(table, codes[i], codes[i + 1]) for i in range(len(codes) - 1) if cell[i] == cell[i + 1]), default=0.0
    )


@given(settings_of_maps, columns_with_steps(), st.integers(12, 60))
@settings(max_examples=150, deadline=None)
def test_the_guarantee_speaks_of_the_columns_own_steps(chosen, column, domain_size):
    (schema, values), chosen = column, replace(chosen, domain_size=domain_size)
    assume(chosen.mechanism != "local" or chosen.theta > (domain_size - 1) // (len(values) - 1))
    mechanism = ColumnMechanism(schema, chosen)
    promise = mechanism.guarantee()
    assert own_neighbours_lose(mechanism, values) <= promise.epsilon * (1 + ROUNDING)
    if (domain_size - 1) % (len(values) - 1) == 0 and chosen.mechanism == "global" and chosen.law is Law.CLAMPED:
        assert own_neighbours_lose(mechanism, values) == pytest.approx(promise.epsilon, rel=ROUNDING)


@given(
    st.floats(-1e4, 1e4),
    st.floats(1e-2, 1e4),
    st.integers(2, 2000),
    st.integers(1, 500),
    st.sampled_from([0.0, 1e-13, -1e-13, 1e-10]),
    st.lists(st.floats(0, 1), min_size=1, max_size=20),
)
@settings(max_examples=200, deadline=None)
def test_values_a_step_apart_are_never_encoded_further_apart_than_the_points_of_a_step(
    lower, width, size, points, excess, places
):
    """Steps of a whole number of points, or hardly more or less, are where rounding could hide one."""
    assume(points < size - 1)
    step = width * points / (size - 1) * (1 + excess)
    schema = ColumnSchema(name="x", lower=lower, upper=lower + width, step=step)
    mechanism = ColumnMechanism(schema, MechanismSettings(domain_size=size))
    point = width / (size - 1)
    lows = np.array([*(place * (width - step) for place in places), *(point * np.arange(min(size - points - 1, 30)))])
    low, high = (
        encode(pd.Series(lower + values), schema, domain=mechanism.settings.domain).codes
        for values in (lows, lows + step)
    )
    assert (high - low).max() <= mechanism.points(step)


def test_one_of_four_categories_is_333_of_1000_points_and_loses_so_many_times_the_budget():
    tier = ColumnSchema(name="tier", kind=Kind.ORDERED, categories=("basic", "bronze", "silver", "gold"))
    mechanism = ColumnMechanism(tier, MechanismSettings(epsilon=0.1))
    promise = mechanism.guarantee()
    assert promise.epsilon == pytest.approx(33.3)
    assert (promise.points, promise.unit) == (333, "one category, 333 points of the mapped domain")
    assert own_neighbours_lose(mechanism, list(tier.categories)) == pytest.approx(33.3)
    # What a point loses is no promise for a category.
    assert own_neighbours_lose(mechanism, list(tier.categories)) > 300 * mechanism.loss(1)


@pytest.mark.parametrize(
    ("schema", "points", "unit"),
    [
        (NUMERIC, 12, "1 original unit, 12 points of the mapped domain"),
        (replace(NUMERIC, upper=90_000), 1, "1 original unit"),
        (replace(NUMERIC, upper=1), 1, "0.001001 original units, one point of the mapped domain"),
        (replace(NUMERIC, upper=90.5), 1, "0.0905906 original units, one point of the mapped domain"),
        (replace(NUMERIC, upper=1, step=0.25), 250, "0.25 original units, 250 points of the mapped domain"),
        (replace(NUMERIC, step=0.01), 1, "0.01 original units"),
    ],
)
def test_a_number_has_the_step_that_its_schema_knows_or_is_promised_by_the_point(schema, points, unit):
    promise = ColumnMechanism(schema, MechanismSettings(epsilon=0.1)).guarantee()
    assert (promise.points, promise.unit) == (points, unit)
    assert promise.epsilon == pytest.approx(0.1 * points)


def test_the_cells_of_a_local_map_are_told_with_the_bits_that_they_publish():
    promise = ColumnMechanism(NUMERIC, MechanismSettings(mechanism="local", theta=300)).guarantee()
    assert (promise.n_cells, promise.narrowest_cell, promise.cell_bits) == (4, 100, 2.0)
    assert ColumnMechanism(NUMERIC, MechanismSettings()).guarantee().cell_bits == 0


@pytest.mark.parametrize("broken", [math.nan, math.inf, -1.0])
@pytest.mark.parametrize("kind", [GlobalMap, LocalMap, AdjMap])
def test_a_loss_that_is_no_number_is_no_promise(monkeypatch, kind, broken):
    mechanism = ColumnMechanism(NUMERIC, MechanismSettings(mechanism=kind.name))
    monkeypatch.setattr(kind, "loss_within" if kind is LocalMap else "loss", lambda *_: broken)
    with pytest.raises(ParameterError, match=r"column 'age': the loss .* is no promise\. Nothing was drawn"):
        mechanism.guarantee()


def test_a_budget_whose_loss_no_double_holds_is_no_promise():
    mechanism = ColumnMechanism(NUMERIC, MechanismSettings(epsilon=1e308))
    with pytest.raises(ParameterError, match="comes out as inf"):
        mechanism.guarantee()


@given(budgets, budgets, st.integers(2, 25))
@settings(max_examples=60, deadline=None)
def test_a_missing_and_a_present_cell_lose_exactly_the_bit_and_the_distance_from_the_public_code(epsilon, bit, n):
    chosen = MechanismSettings(epsilon=epsilon, domain_size=n, category_epsilon=bit)
    guarantee = ColumnMechanism(WITH_STATE, chosen).guarantee()
    assert guarantee.missing_epsilon == bit
    expected = guarantee.domain_loss + guarantee.missing_epsilon
    assert any_two_lose(ColumnMechanism(WITH_STATE, chosen)) == pytest.approx(expected, rel=ROUNDING)


@given(budgets)
@settings(max_examples=30, deadline=None)
def test_any_two_categories_lose_exactly_the_budget_of_randomised_response(epsilon):
    chosen = MechanismSettings(category_epsilon=epsilon)
    guarantee = ColumnMechanism(replace(CITY, missing=Missing.REFUSE), chosen).guarantee()
    assert guarantee.epsilon == guarantee.domain_loss == epsilon
    assert any_two_lose(ColumnMechanism(replace(CITY, missing=Missing.REFUSE), chosen)) == pytest.approx(epsilon)
    assert any_two_lose(ColumnMechanism(CITY, chosen)) == pytest.approx(2 * epsilon)
    assert ColumnMechanism(CITY, chosen).guarantee().missing_epsilon == epsilon


@pytest.mark.parametrize("mechanism", ["global", "local", "adj"])
def test_a_column_with_ten_percent_more_loss_is_caught_by_the_same_enumeration(mechanism):
    chosen = MechanismSettings(mechanism=mechanism, epsilon=0.5, domain_size=20, theta=4)
    broken = replace(chosen, epsilon=0.55)
    guarantee = ColumnMechanism(WITH_STATE, chosen).guarantee()
    assert neighbours_lose(ColumnMechanism(WITH_STATE, broken)) > guarantee.epsilon * 1.05


def test_an_adj_map_on_a_large_domain_reports_no_less_than_it_loses():
    chosen = MechanismSettings(mechanism="adj", domain_size=5000, theta=64)
    mechanism = ColumnMechanism(NUMERIC, chosen)
    assert mechanism.value.loss(1) <= mechanism.guarantee().epsilon <= mechanism.value.partition_bound(1)


def published(mechanism: ColumnMechanism, code: int, *, is_missing: bool) -> np.ndarray:
    """Counts of what 100,000 cells in the same state are published as: every code, then "missing"."""
    n, lowest = 100_000, int(mechanism.schema.kind is Kind.NUMERIC)
    released = desensitize(mechanism, EncodedColumn(np.full(n, code), np.full(n, is_missing), 0), rng=seeded(code))
    size = len(mechanism.value.log_probabilities())
    return np.bincount(np.where(released.is_missing, size, released.codes - lowest), minlength=size + 1)


@pytest.mark.parametrize(("schema", "code"), [(WITH_STATE, 1), (CITY, 0)], ids=["numeric", "unordered"])
@pytest.mark.parametrize("is_missing", [True, False])
def test_what_is_published_follows_the_enumerated_table_and_the_true_missingness_does_not(schema, code, is_missing):
    """Chi-square of 100,000 cells; see `FALSE_ALARM`. The twin spends an infinite budget on missingness."""
    chosen = MechanismSettings(epsilon=0.5, domain_size=6, category_epsilon=1.0)
    mechanism = ColumnMechanism(schema, chosen)
    broken = ColumnMechanism(schema, replace(chosen, category_epsilon=math.inf))
    expected = np.exp(released_table(mechanism)[-1 if is_missing else 0]) * 100_000
    assert chisquare(published(mechanism, code, is_missing=is_missing), expected).pvalue > FALSE_ALARM
    assert chisquare(published(broken, code, is_missing=is_missing), expected).pvalue < FALSE_ALARM


def test_a_row_published_as_missing_carries_no_code():
    mechanism = ColumnMechanism(WITH_STATE, MechanismSettings(category_epsilon=0.5))
    encoded = EncodedColumn(np.full(1000, 500), np.arange(1000) % 2 == 0, 0)
    released = desensitize(mechanism, encoded, rng=seeded(1))
    assert 0 < released.is_missing.sum() < 1000
    assert (released.codes[released.is_missing] == 0).all()
    assert (released.codes[~released.is_missing] >= 1).all()


def test_a_column_without_missing_cells_publishes_none_and_draws_no_bit_for_them():
    mechanism = ColumnMechanism(NUMERIC, MechanismSettings())
    rng = seeded(1)
    released = desensitize(mechanism, EncodedColumn(np.full(10, 5), np.zeros(10, dtype=bool), 0), rng=rng)
    assert not released.is_missing.any()
    assert (rng.words(3) == seeded(1).words(13)[10:]).all()


def test_the_exact_column_is_what_was_encoded():
    encoded = EncodedColumn(np.array([3, 1, 7]), np.array([False, True, False]), 0)
    column = exact(ColumnMechanism(WITH_STATE, MechanismSettings()), encoded)
    assert column.codes.tolist() == [3, 0, 7]
    assert column.is_missing.tolist() == [False, True, False]


@pytest.mark.parametrize("schema", [WITH_STATE, CITY])
def test_an_infinite_budget_publishes_the_exact_column(schema):
    encoded = EncodedColumn(np.array([2, 1, 1]), np.array([False, True, False]), 0)
    mechanism = ColumnMechanism(schema, MechanismSettings(epsilon=math.inf))
    released = desensitize(mechanism, encoded, rng=seeded(1))
    assert released.codes.tolist() == exact(mechanism, encoded).codes.tolist()
    assert released.is_missing.tolist() == encoded.is_missing.tolist()


def test_settings_become_the_map_that_they_name_over_a_domain_that_starts_at_one():
    common = {"epsilon": 0.2, "law": "calibrated", "domain_size": 50}
    domain = IntegerDomain(1, 50)
    rest = {"epsilon": 0.2, "law": Law.CALIBRATED, "domain": domain}
    assert MechanismSettings(**common).build() == GlobalMap(**rest)
    assert MechanismSettings(mechanism="local", theta=7, **common).build() == LocalMap(theta=7, **rest)
    assert MechanismSettings(mechanism="adj", alpha=2.0, **common).build() == AdjMap(theta=5, alpha=2.0, **rest)


def test_the_default_is_the_clamped_global_map_on_a_thousand_points():
    assert MechanismSettings().build() == GlobalMap(epsilon=0.1, domain=IntegerDomain(1, 1000), law=Law.CLAMPED)


@pytest.mark.parametrize(
    ("epsilon", "category_epsilon", "expected"), [(0.1, None, 3.0), (5.0, None, 5.0), (5.0, 1, 1.0)]
)
def test_categories_get_their_own_budget_or_three_or_the_columns_if_that_is_more(epsilon, category_epsilon, expected):
    chosen = MechanismSettings(epsilon=epsilon, category_epsilon=category_epsilon)
    assert chosen.for_categories(4) == RandomisedResponse(epsilon=expected, n_categories=4)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"mechanism": "globe"}, "mechanism must be one of global, local, adj; got 'globe'"),
        ({"epsilon": 0}, "epsilon must be positive"),
        ({"epsilon": math.nan}, "epsilon must be positive"),
        ({"law": "normal"}, "law must be one of"),
        ({"mechanism": "local", "theta": 0}, "theta must be an integer"),
        ({"mechanism": "adj", "theta": 1001}, "theta must be an integer"),
        ({"mechanism": "adj", "alpha": 0}, "alpha must be positive"),
        ({"category_epsilon": 0}, "category_epsilon must be positive"),
        ({"category_epsilon": math.nan}, "category_epsilon must be positive"),
        ({"domain_size": 1}, "domain_size must be"),
        ({"domain_size": 2**24 + 1}, "domain_size must be"),
        ({"domain_size": 2**24, "mechanism": "local", "theta": 2}, "into 8388608 cells; at most 1048576 can be held"),
        ({"domain_size": 2**24, "mechanism": "adj", "theta": 3}, "cells; at most 1048576 can be held"),
        ({"domain_size": 10.0}, "domain_size must be an integer"),
        ({"domain_size": True}, "domain_size must be an integer"),
    ],
)
def test_settings_out_of_range_are_refused_by_name(change, words):
    with pytest.raises(ParameterError, match=words):
        MechanismSettings(**change)


def test_more_ordered_categories_than_points_are_refused():
    grades = ColumnSchema(name="grade", kind=Kind.ORDERED, categories=tuple("abcdef"))
    ColumnMechanism(grades, MechanismSettings(domain_size=6))
    with pytest.raises(ParameterError, match="'grade' has 6 ordered categories, more than the 5 points"):
        ColumnMechanism(grades, MechanismSettings(domain_size=5))


@given(
    st.sampled_from(list(Law)),
    st.sampled_from([33, 65, 257, 1025]),
    st.integers(1, 1024),
    st.integers(0, 1024),
    budgets,
)
@settings(max_examples=100, deadline=None)
def test_a_budget_in_original_units_is_not_exceeded_by_values_so_far_apart(law, n, sixteenths, start, cost):
    """Bounds, sizes and values are binary fractions, so that no step of the mapping rounds."""
    schema = ColumnSchema(name="income", lower=0, upper=64)
    per = sixteenths / 16
    chosen = MechanismSettings(domain_size=n, law=law)
    mechanism = StatedBudget(cost=cost, per=per).resolve(schema, chosen, own_points=True).build()
    codes = [math.ceil(1 + min(value, 64) / 64 * (n - 1)) for value in (start / 16, start / 16 + per)]
    assert mechanism.loss(codes[1] - codes[0]) <= cost * (1 + ROUNDING)


@pytest.mark.parametrize(
    ("cost", "per", "words"),
    [
        (0, 1, "cost must be positive"),
        (math.nan, 1, "cost must be positive"),
        (1, 0, "must lie in"),
        (1, -1, "must lie in"),
        (1, 91, "must lie in"),
        (1, math.nan, "must lie in"),
        (1, math.inf, "must lie in"),
    ],
)
def test_a_budget_in_original_units_that_makes_no_sense_is_refused(cost, per, words):
    with pytest.raises(ParameterError, match=words):
        StatedBudget(cost=cost, per=per).resolve(NUMERIC, MechanismSettings(domain_size=10), own_points=True)


def test_a_local_map_that_would_publish_every_value_is_refused():
    with pytest.raises(ParameterError, match="theta must be at least 2"):
        ColumnMechanism(NUMERIC, MechanismSettings(mechanism="local", theta=1))


@pytest.mark.parametrize(
    ("schema", "theta"), [(GRADES, 249), (replace(NUMERIC, step=5), 55), (replace(NUMERIC, upper=10), 99)]
)
def test_a_local_map_whose_cells_hold_one_value_of_the_column_each_has_no_guarantee(schema, theta):
    """A grade spans 249.75 points, 5 of 90 years 55.5 points and 1 of 10 years 99.9."""
    words = f"neighbouring values are {theta} points apart.*publishes every value exactly; theta must be at least"
    with pytest.raises(ParameterError, match=words):
        ColumnMechanism(schema, MechanismSettings(mechanism="local", theta=theta)).guarantee()
    assert ColumnMechanism(schema, MechanismSettings(mechanism="local", theta=theta + 1)).guarantee().n_cells > 1


@pytest.mark.parametrize("schema", [NUMERIC, WITH_STATE, CITY], ids=["numbers", "with a state", "categories"])
@pytest.mark.parametrize("domain_size", [25, 300])
def test_codes_in_a_small_type_are_drawn_as_others_and_come_out_in_one_that_holds_them(
    schema: ColumnSchema, domain_size: int
) -> None:
    mechanism = ColumnMechanism(schema, MechanismSettings(domain_size=domain_size))
    codes, is_missing = np.arange(1, 61) % 3, np.arange(60) % 7 == 0 if schema.missing is Missing.CATEGORY else None
    mask = np.zeros(60, np.bool_) if is_missing is None else is_missing
    codes = codes if schema.kind is Kind.UNORDERED else codes + 1
    wide, small = (
        desensitize(mechanism, EncodedColumn(codes.astype(kind), mask, 0), rng=seeded(4)) for kind in ("i8", "i1")
    )
    assert wide.codes.dtype == np.int64
    assert small.codes.dtype == (np.int16 if domain_size == 300 and schema.kind is not Kind.UNORDERED else np.int8)
    np.testing.assert_array_equal(small.codes, wide.codes)
    np.testing.assert_array_equal(small.is_missing, wide.is_missing)
