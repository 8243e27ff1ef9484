"""Raw columns to codes: the published formula against a slow twin, missing cells, and what is refused unseen."""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from opboost.errors import DataError
from opboost.preprocess import encode, own_features, points_within, read_numbers
from opboost.privacy.domain import IntegerDomain
from opboost.schema import ColumnSchema, Kind, Missing, Outside

DOMAIN = IntegerDomain(1, 10)
AGE = ColumnSchema(name="age", lower=0.0, upper=90.0)
SIZES = ("small", "medium", "large")

# Of a domain's size, how far above a whole number a place may be and be meant to be it; with what doubles add to it.
ROUNDING = Fraction(101, 100) / 10**12

finite = st.floats(-1e6, 1e6)


def numeric(**options: object) -> ColumnSchema:
    return ColumnSchema(name="age", lower=0.0, upper=90.0, **options)


def categorical(kind: Kind, **options: object) -> ColumnSchema:
    return ColumnSchema(name="size", kind=kind, categories=SIZES, **options)


def exact_place(value: float, schema: ColumnSchema, domain: IntegerDomain) -> Fraction:
    """The place of one value in the domain by the formula of the specification, before it is rounded up."""
    lower, upper = (Fraction(bound) for bound in schema.bounds)
    inside = min(max(Fraction(value), lower), upper)
    return domain.lo + (inside - lower) / (upper - lower) * (domain.hi - domain.lo)


@st.composite
def tables(draw: st.DrawFn) -> tuple[ColumnSchema, IntegerDomain, list[float]]:
    lower = draw(st.floats(-1000, 1000))
    upper = lower + draw(st.floats(0.001, 1000))
    lo = draw(st.integers(-100, 100))
    domain = IntegerDomain(lo, lo + draw(st.integers(1, 2000)))
    inside = st.floats(lower, upper)
    values = draw(st.lists(st.one_of(inside, finite, st.sampled_from([lower, upper])), min_size=1, max_size=30))
    return ColumnSchema(name="age", lower=lower, upper=upper), domain, values


@given(tables())
@settings(max_examples=200, deadline=None)
def test_every_code_is_the_published_formula_rounded_up(table):
    """A place that is an integer to within the rounding of doubles, that of the values included, may go either way."""
    schema, domain, values = table
    encoded = encode(pd.Series(values), schema, domain=domain)
    lower, upper = schema.bounds
    of_values = 4 * float(np.spacing(max(abs(lower), abs(upper)))) * (domain.size - 1) / (upper - lower)
    rounding = ROUNDING * domain.size + of_values
    for code, place in zip(encoded.codes, (exact_place(value, schema, domain) for value in values), strict=True):
        assert math.ceil(place - rounding) <= code <= math.ceil(place + rounding)
    assert encoded.codes.dtype == np.int64
    assert not encoded.is_missing.any()


@given(tables())
@settings(max_examples=100, deadline=None)
def test_order_is_kept_and_the_bounds_are_the_ends_of_the_domain(table):
    schema, domain, values = table
    codes = encode(pd.Series([*sorted(values), schema.lower, schema.upper]), schema, domain=domain).codes
    assert (np.diff(codes[:-2]) >= 0).all()
    assert codes[-2:].tolist() == [domain.lo, domain.hi]


@given(tables())
@settings(max_examples=100, deadline=None)
def test_numbers_outside_the_public_bounds_are_clipped_and_counted(table):
    schema, domain, values = table
    encoded = encode(pd.Series(values), schema, domain=domain)
    assert encoded.n_clipped == sum(not schema.lower <= value <= schema.upper for value in values)


def test_numbers_are_rounded_up_to_the_next_code():
    codes = encode(pd.Series([0, 0.001, 10, 10.001, 45, 89.9, 90]), AGE, domain=DOMAIN).codes
    assert codes.tolist() == [1, 2, 2, 3, 6, 10, 10]


@pytest.mark.parametrize(
    ("lower", "upper", "step"), [(0, 100, 1), (1, 1000, 1), (17, 90, 1), (0, 10, 0.1), (-5, 5, 0.01)]
)
def test_numbers_that_lie_on_the_points_of_the_domain_get_consecutive_codes(lower, upper, step):
    n = round((upper - lower) / step) + 1
    schema = ColumnSchema(name="age", lower=lower, upper=upper)
    values = pd.Series([lower + i * step for i in range(n)])
    assert encode(values, schema, domain=IntegerDomain(1, n)).codes.tolist() == list(range(1, n + 1))


def farthest(codes: np.ndarray, apart: int) -> int:
    """The largest distance of the codes of two values so many places apart."""
    return int((codes[apart:] - codes[:-apart]).max())


@pytest.mark.parametrize(("lower", "width", "n_points", "step"), [(2.0**52, 100, 51, 2), (1e12, 7, 1_000_000, 1)])
def test_values_a_step_apart_are_no_farther_apart_than_the_guarantee_says_where_bounds_are_far_from_zero(
    lower, width, n_points, step
):
    """All values that doubles can tell apart there, or every half: each lies between two points for its rounding."""
    schema = ColumnSchema(name="time", lower=lower, upper=lower + width, step=step)
    grain = max(float(np.spacing(lower)), 0.5)
    values = lower + np.arange(0, width + grain, grain)
    codes = encode(pd.Series(values), schema, domain=IntegerDomain(1, n_points)).codes
    point = width / (n_points - 1)
    assert farthest(codes, round(step / grain)) <= points_within(step, point)
    # The broken twin: halves to the even neighbour.
    assert farthest(np.rint((values - lower) / point).astype(int), round(step / grain)) > points_within(step, point)


def test_numbers_outside_are_refused_where_the_schema_says_so_and_never_shown():
    schema = numeric(outside=Outside.REFUSE)
    assert encode(pd.Series([0.0, 90.0]), schema, domain=DOMAIN).n_clipped == 0
    with pytest.raises(DataError, match=r"'age' has 2 values outside its public bounds \[0.0, 90.0\]") as caught:
        encode(pd.Series([5.0, 777.0, -888.0]), schema, domain=DOMAIN)
    assert "777" not in str(caught.value)
    assert "888" not in str(caught.value)


@pytest.mark.parametrize("kind", [Kind.ORDERED, Kind.UNORDERED])
@pytest.mark.parametrize("dtype", ["object", "string", "category"])
def test_categories_are_read_from_every_kind_of_text_column(kind, dtype):
    codes = encode(pd.Series(["large", "small", "medium"], dtype=dtype), categorical(kind), domain=DOMAIN).codes
    assert codes.tolist() == ([10, 1, 6] if kind is Kind.ORDERED else [2, 0, 1])


def test_ordered_categories_are_consecutive_integers_in_the_given_order():
    schema = ColumnSchema(name="grade", kind=Kind.ORDERED, categories=tuple("edcba"))
    codes = encode(pd.Series(list("abcde")), schema, domain=IntegerDomain(1, 5)).codes
    assert codes.tolist() == [5, 4, 3, 2, 1]


def test_categories_that_are_numbers_are_matched_as_text():
    schema = ColumnSchema(name="code", kind=Kind.UNORDERED, categories=("10", "20"))
    assert encode(pd.Series([20, 10, 20]), schema, domain=DOMAIN).codes.tolist() == [1, 0, 1]


@pytest.mark.parametrize("dtype", ["float64", "Int64", "category"])
def test_categories_that_are_numbers_stay_what_they_are_beside_a_missing_cell(dtype):
    """Whole numbers became doubles there, so that 20 was no category any more."""
    described = {"kind": Kind.UNORDERED, "categories": ("10", "20"), "missing": Missing.CATEGORY}
    schema = ColumnSchema(name="code", **described)
    cells = pd.Series(pd.Categorical([20, None, 10])) if dtype == "category" else pd.Series([20, None, 10], dtype=dtype)
    found = encode(cells, schema, domain=DOMAIN)
    assert found.codes[[0, 2]].tolist() == [1, 0]
    assert found.is_missing.tolist() == [False, True, False]


def test_categories_that_are_numbers_are_told_apart_from_texts_in_one_column():
    schema = ColumnSchema(name="code", kind=Kind.UNORDERED, categories=("10", "20", "x"), missing=Missing.CATEGORY)
    cells = pd.Series([10, 20.0, "x", None, np.float32(10), "10"], dtype=object)
    assert encode(cells, schema, domain=DOMAIN).codes[[0, 1, 2, 4, 5]].tolist() == [0, 1, 2, 0, 0]
    with pytest.raises(DataError, match="1 cell whose category is not among"):
        encode(pd.Series([10.0, "10.0"], dtype=object), schema, domain=DOMAIN)


@pytest.mark.parametrize("dtype", ["datetime64[us]", "category", "object"])
def test_days_are_the_same_categories_beside_times_of_day(dtype):
    """A day was written with its midnight as soon as one cell of its column had a time of day."""
    described = {"kind": Kind.UNORDERED, "missing": Missing.CATEGORY}
    schema = ColumnSchema(name="day", categories=("2024-05-31", "2024-06-01 07:30:00"), **described)
    cells = pd.Series(pd.to_datetime(["2024-05-31 00:00", "2024-06-01 07:30", None])).astype(dtype)
    for part in (cells, cells[:1]):
        assert encode(part, schema, domain=DOMAIN).codes[:2].tolist() == [0, 1][: len(part)]


def test_dates_of_numpy_are_the_categories_that_those_of_pandas_are():
    schema = ColumnSchema(name="day", kind=Kind.UNORDERED, categories=("2024-05-31", "2024-06-01 07:30:00"))
    cells = pd.Series([np.datetime64("2024-05-31"), np.datetime64("2024-06-01T07:30")], dtype=object)
    assert encode(cells, schema, domain=DOMAIN).codes.tolist() == [0, 1]


def test_decimals_are_the_categories_that_other_numbers_are():
    schema = ColumnSchema(name="code", kind=Kind.UNORDERED, categories=("1", "20", "1.5", "2.50"))
    cells = pd.Series([Decimal("1.00"), Decimal("2E+1"), Decimal("1.50"), Decimal("2.50")])
    assert encode(cells, schema, domain=DOMAIN).codes.tolist() == [0, 1, 2, 3]


def test_categories_listed_with_fractions_are_told_apart():
    schema = ColumnSchema(name="code", kind=Kind.UNORDERED, categories=("1", "1.0", "1.5"))
    assert encode(pd.Series([1.0, 1.5]), schema, domain=DOMAIN).codes.tolist() == [1, 2]


SCHEMAS = [
    numeric,
    lambda **rest: categorical(Kind.ORDERED, **rest),
    lambda **rest: categorical(Kind.UNORDERED, **rest),
]
WITH_GAPS = [pd.Series([90.0, None, 0.0]), *[pd.Series(["large", None, "small"])] * 2]


of_every_kind = pytest.mark.parametrize(("schema", "column"), list(zip(SCHEMAS, WITH_GAPS, strict=True)))


@of_every_kind
def test_missing_cells_are_refused_by_default_with_their_number(schema, column):
    with pytest.raises(DataError, match=r"has 1 missing cell .*`missing: refuse`.*Nothing was released"):
        encode(column, schema(), domain=DOMAIN)


@of_every_kind
def test_missing_cells_become_a_state_beside_a_public_code_where_the_schema_says_so(schema, column):
    encoded = encode(column, schema(missing=Missing.CATEGORY), domain=DOMAIN)
    public = encode(column[[2]], schema(), domain=DOMAIN).codes[0]
    assert encoded.is_missing.tolist() == [False, True, False]
    assert encoded.codes[1] == public
    assert encoded.n_clipped == 0


@of_every_kind
def test_missing_cells_are_read_as_the_public_fill_where_the_schema_says_so(schema, column):
    fill = 90.0 if schema is numeric else "large"
    encoded = encode(column, schema(missing=Missing.IMPUTE, fill=fill), domain=DOMAIN)
    assert not encoded.is_missing.any()
    assert encoded.codes[1] == encoded.codes[0]


@pytest.mark.parametrize("empty", [None, np.nan, pd.NA])
def test_every_way_to_write_an_empty_cell_is_missing_and_zero_is_not(empty):
    column = pd.Series([0, empty, 90], dtype=object)
    assert encode(column, numeric(missing=Missing.CATEGORY), domain=DOMAIN).is_missing.tolist() == [False, True, False]


@pytest.mark.parametrize(
    ("cells", "schema", "words"),
    [
        (["12", "s3cret"], AGE, "numeric by the schema but 1 cell is not a number"),
        (["12", "nan"], AGE, "1 cell is not a number"),
        ([12.0, math.inf], AGE, "1 infinite cell"),
        ([-math.inf, math.inf], AGE, "2 infinite cells"),
        (["s3cret", "small"], categorical(Kind.ORDERED), "1 cell whose category is not among the 3 listed"),
        (["s3cret", "Small"], categorical(Kind.UNORDERED), "2 cells whose category is not among the 3 listed"),
    ],
)
def test_cells_that_do_not_fit_the_schema_are_counted_and_never_shown(cells, schema, words):
    with pytest.raises(DataError, match=words) as caught:
        encode(pd.Series(cells), schema, domain=DOMAIN)
    assert "s3cret" not in str(caught.value)


def test_numbers_written_as_text_are_numbers():
    assert read_numbers(pd.Series(["1.5", " 2 ", "3e1"]), AGE)[0].tolist() == [1.5, 2.0, 30.0]


def test_an_empty_column_has_no_codes():
    assert encode(pd.Series([], dtype=float), AGE, domain=DOMAIN).codes.tolist() == []


def test_encoding_leaves_the_column_alone():
    column = pd.Series([100.0, np.nan, 3.0])
    encode(column, numeric(missing=Missing.IMPUTE, fill=1), domain=DOMAIN)
    pd.testing.assert_series_equal(column, pd.Series([100.0, np.nan, 3.0]))


def test_own_features_are_numbers_and_positions_by_name_with_nan_for_missing():
    table = pd.DataFrame({"age": [200.0, None], "size": ["large", "small"], "city": [None, "b"]})
    city = ColumnSchema(name="city", kind=Kind.UNORDERED, categories=("a", "b"), missing=Missing.CATEGORY)
    schemas = (numeric(missing=Missing.CATEGORY), categorical(Kind.ORDERED), city)
    own = own_features(table, schemas)
    assert list(own) == ["age", "size", "city"]
    np.testing.assert_array_equal(list(own.values()), [[200, np.nan], [2, 0], [np.nan, 1]])
    assert {values.dtype for values in own.values()} == {np.dtype(np.float64)}


def test_own_features_of_no_column_are_none():
    assert own_features(pd.DataFrame({"age": [1, 2, 3]}), ()) == {}


@pytest.mark.parametrize(
    "column", [pd.Series(pd.to_datetime(["2020-01-01"])), pd.Series([10**400, 1], dtype=object), pd.Series([1 + 2j])]
)
def test_cells_that_are_no_real_numbers_are_refused(column):
    with pytest.raises(DataError, match="column 'age'"):
        encode(column, ColumnSchema(name="age", lower=0, upper=100), domain=IntegerDomain(1, 10))
