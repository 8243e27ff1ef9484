"""Split tests at a column's owner: what is resolved, what is refused, and the answers against a row-by-row twin."""

from __future__ import annotations

import math
import tracemalloc
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from opboost import routing
from opboost.desensitize import ColumnMechanism, ReleasedColumn, desensitize
from opboost.errors import RankError
from opboost.mechanism_settings import MechanismSettings
from opboost.preprocess import encode
from opboost.rng import seeded
from opboost.routing import PackedAnswers, Router, SplitTests, answer, resolve
from opboost.schema import ColumnSchema, Kind, Missing
from tests.support.ranked_columns import RankedColumn, rank

AGE = ColumnSchema(name="age", lower=0, upper=9, missing=Missing.CATEGORY)
SIZE = ColumnSchema(name="size", lower=0, upper=9)
CITY = ColumnSchema(name="city", kind=Kind.UNORDERED, categories=("a", "b", "c"), missing=Missing.CATEGORY)


def released(schema: ColumnSchema, codes: list[int], missing: list[bool] | None = None) -> ReleasedColumn:
    is_missing = np.zeros(len(codes), dtype=bool) if missing is None else np.array(missing)
    return ReleasedColumn(schema, np.where(is_missing, 0, np.array(codes, dtype=np.int64)), is_missing)


def ask(columns: list[RankedColumn], *tests: tuple[int, int, bool]) -> SplitTests:
    """Resolve tests given as (column, rank, whether missing goes left)."""
    c, r, left = zip(*tests, strict=True) if tests else ((), (), ())
    return resolve(columns, np.array(c, np.uint32), np.array(r, np.uint32), np.array(left, np.bool_))


def answer_one_by_one(tests: SplitTests, columns: dict[str, ReleasedColumn], n_rows: int) -> list[list[bool]]:
    rows = []
    for row in range(n_rows):
        answers = []
        for i, (source, category) in enumerate(tests.sources):
            column = columns[source]
            code = int(column.codes[row])
            value = code if category is None else int(code == category)
            answers.append(bool(tests.missing_left[i]) if column.is_missing[row] else value <= tests.thresholds[i])
        rows.append(answers)
    return rows


@st.composite
def released_columns(draw: st.DrawFn) -> list[ReleasedColumn]:
    n_rows = draw(st.integers(1, 30))
    flags = st.lists(st.booleans(), min_size=n_rows, max_size=n_rows)
    codes = st.lists(st.integers(1, 10), min_size=n_rows, max_size=n_rows)
    categories = st.lists(st.integers(0, 2), min_size=n_rows, max_size=n_rows)
    return [
        released(AGE, draw(codes), draw(flags)),
        released(SIZE, draw(codes)),
        released(CITY, draw(categories), draw(flags)),
    ]


def ranked(columns: list[ReleasedColumn]) -> list[RankedColumn]:
    return [one for column in columns for one in rank(column)]


def allowed_tests(columns: list[RankedColumn]) -> list[tuple[int, int, bool]]:
    """Every test that separates something: any rank with a right neighbour, and presence where cells are missing."""
    splits = [
        (c, r, left) for c, one in enumerate(columns) for r in range(one.table.n_ranks - 1) for left in (True, False)
    ]
    presence = [
        (c, one.table.n_ranks - 1, False) for c, one in enumerate(columns) if one.has_missing and one.table.n_ranks
    ]
    return splits + presence


@given(released_columns())
@settings(max_examples=150, deadline=None)
def test_on_the_released_rows_an_answer_is_what_the_ranks_say(columns):
    ranks = ranked(columns)
    tests = allowed_tests(ranks)
    goes_left = answer(ask(ranks, *tests), {column.schema.name: column for column in columns}, len(columns[0].codes))
    for i, (c, r, left) in enumerate(tests):
        is_missing = ranks[c].ranks == ranks[c].table.n_ranks
        assert goes_left[:, i].tolist() == np.where(is_missing, left, ranks[c].ranks <= r).tolist()


@given(released_columns(), st.data())
@settings(max_examples=150, deadline=None)
def test_answers_about_new_rows_are_those_of_a_row_by_row_twin(columns, data):
    tests = ask(ranked(columns), *allowed_tests(ranked(columns)))
    new = data.draw(released_columns())
    by_name, n_rows = {column.schema.name: column for column in new}, len(new[0].codes)
    goes_left = answer(tests, by_name, n_rows)
    assert goes_left.dtype == np.bool_
    assert goes_left.shape == (n_rows, tests.n_tests)
    assert goes_left.tolist() == answer_one_by_one(tests, by_name, n_rows)


def packed_router(tests: SplitTests) -> Router:
    chosen = MechanismSettings(epsilon=1.0, domain_size=10)
    return Router(tuple(ColumnMechanism(schema, chosen) for schema in (AGE, SIZE, CITY)), tests)


@pytest.mark.parametrize("most_bytes", [0, 12, routing.MOST_TABLE_BYTES])
@given(columns=released_columns(), data=st.data())
@settings(max_examples=100, deadline=None)
def test_packed_answers_are_the_same_bits_with_tables_and_without(columns, data, most_bytes):
    allowed = allowed_tests(ranked(columns))
    tests = ask(ranked(columns), *data.draw(st.permutations(allowed)))
    new = data.draw(released_columns())
    by_name, n_rows = {column.schema.name: column for column in new}, len(new[0].codes)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(routing, "MOST_TABLE_BYTES", most_bytes)
        patch.setattr(routing, "_PIECE_ANSWERS", 7)
        packed = PackedAnswers(packed_router(tests)).of(by_name, n_rows)
    assert packed.tolist() == np.packbits(answer(tests, by_name, n_rows), axis=1).tolist()


def test_packed_answers_with_a_cut_one_code_off_are_caught():
    tests = ask(ranked([released(SIZE, [3, 8, 9])]), (0, 0, False), (0, 1, False))
    all_codes = {"size": released(SIZE, list(range(1, 11)))}
    expected = np.packbits(answer(tests, all_codes, 10), axis=1).tolist()
    packed = PackedAnswers(packed_router(tests))
    assert packed.of(all_codes, 10).tolist() == expected
    ((name, answers),) = packed._columns.items()
    packed._columns[name] = replace(answers, cuts=answers.cuts + 1)
    assert packed.of(all_codes, 10).tolist() != expected


@pytest.mark.parametrize(("n_columns", "size"), [(100, 300), (1, 20_000)])
def test_every_split_of_many_codes_takes_no_memory_to_speak_of(n_columns: int, size: int) -> None:
    """Whoever had all of them resolved filled the memory: every column's table had the bytes of all tests."""
    columns = [ColumnSchema(name=f"x{c}", lower=1, upper=size) for c in range(n_columns)]
    chosen = MechanismSettings(epsilon=1.0, domain_size=size)
    sources = tuple((column.name, None) for column in columns for _ in range(2 * (size - 1)))
    thresholds = np.tile(np.repeat(np.arange(1, size) + 0.5, 2), n_columns)
    missing_left = np.tile([False, True], len(sources) // 2)
    router = Router(
        tuple(ColumnMechanism(column, chosen) for column in columns), SplitTests(sources, thresholds, missing_left)
    )
    new = {column.name: ReleasedColumn(column, np.array([5, 0]), np.array([False, True])) for column in columns}
    tracemalloc.start()
    packed = PackedAnswers(router).of(new, 2)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert packed.tolist() == np.packbits(answer(router.tests, new, 2), axis=1).tolist()
    assert peak < 64 << 20


def test_packed_answers_of_no_test_or_no_row_are_empty():
    none = packed_router(ask(ranked([released(SIZE, [1, 2])])))
    assert PackedAnswers(none).of({}, 3).shape == (3, 0)
    one = packed_router(ask(ranked([released(SIZE, [1, 2])]), (0, 0, False)))
    assert PackedAnswers(one).of({"size": released(SIZE, [])}, 0).shape == (0, 1)


def test_tests_are_resolved_in_the_order_in_which_they_were_asked():
    columns = ranked([released(SIZE, [3, 8, 9]), released(CITY, [0, 1, 2])])
    tests = ask(columns, (0, 1, True), (2, 0, False), (0, 0, False))
    assert tests.sources == (("size", None), ("city", 1), ("size", None))
    assert tests.thresholds.tolist() == [8.5, 0.5, 5.5]
    assert tests.missing_left.tolist() == [True, False, False]


def test_no_test_is_no_answer_per_row():
    assert answer(ask(ranked([released(SIZE, [1, 2])])), {}, 5).shape == (5, 0)


def test_the_highest_rank_asks_for_presence_where_cells_are_missing_and_missing_goes_right():
    column = released(AGE, [3, 8, 0], [False, False, True])
    tests = ask(ranked([column]), (0, 1, False))
    assert tests.thresholds.tolist() == [math.inf]
    assert answer(tests, {"age": column}, 3).ravel().tolist() == [True, True, False]


@pytest.mark.parametrize(
    ("column", "test"),
    [
        (released(SIZE, [3, 8]), (0, 1, False)),
        (released(SIZE, [3, 8]), (0, 2, False)),
        (released(SIZE, [3, 3]), (0, 0, False)),
        (released(AGE, [3, 8]), (0, 1, False)),
        (released(AGE, [3, 8, 0], [False, False, True]), (0, 1, True)),
        (released(AGE, [3, 8, 0], [False, False, True]), (0, 2, False)),
        (released(AGE, [0, 0], [True, True]), (0, 0, False)),
    ],
    ids=["last", "beyond", "only one", "nothing missing", "missing left", "the missing rank", "all missing"],
)
def test_a_rank_without_right_neighbour_is_refused_unless_it_asks_for_presence(column, test):
    with pytest.raises(RankError, match=r"no right neighbour.*No threshold was revealed"):
        ask(ranked([column]), test)


def test_one_bad_rank_refuses_all_tests():
    with pytest.raises(RankError):
        ask(ranked([released(SIZE, [3, 8])]), (0, 0, False), (0, 1, False))


@pytest.mark.parametrize("column", [2, 2**32 - 1])
def test_a_split_on_a_column_that_was_not_released_is_refused(column):
    with pytest.raises(RankError, match=rf"split on column {column}, but only columns 0\.\.1 were released"):
        ask(ranked([released(SIZE, [3, 8]), released(AGE, [3, 8])]), (column, 0, False))


NEW = pd.DataFrame({"age": [0.0, None, 9.0, 4.0], "size": [9.0, 1.0, 5.0, 2.0], "city": ["a", "c", None, "b"]})
TESTS = SplitTests(
    sources=(("age", None), ("city", 1), ("age", None)),
    thresholds=np.array([3.5, 0.5, math.inf]),
    missing_left=np.array([True, True, False]),
)


def router(epsilon: float) -> Router:
    chosen = MechanismSettings(epsilon=epsilon, domain_size=10, category_epsilon=epsilon)
    return Router(tuple(ColumnMechanism(schema, chosen) for schema in (AGE, SIZE, CITY)), TESTS)


def test_without_bits_a_router_answers_from_exact_codes():
    expected = [[True, True, True], [True, True, False], [False, True, True], [False, False, True]]
    assert router(0.1).answer(NEW, rng=None).tolist() == expected


def test_with_an_infinite_budget_both_ways_of_answering_are_the_same():
    assert (router(math.inf).answer(NEW, rng=seeded(1)) == router(math.inf).answer(NEW, rng=None)).all()


def test_with_bits_a_router_answers_from_codes_released_by_the_training_mechanism():
    rows = pd.concat([NEW] * 50, ignore_index=True)
    rng, chosen = seeded(3), router(0.3)
    columns = {}
    for mechanism in (chosen.mechanisms[0], chosen.mechanisms[2]):
        name = mechanism.schema.name
        encoded = encode(rows[name], mechanism.schema, domain=mechanism.settings.domain)
        columns[name] = desensitize(mechanism, encoded, rng=rng)
    expected = answer_one_by_one(TESTS, columns, len(rows))
    assert chosen.answer(rows, rng=seeded(3)).tolist() == expected
    assert expected != chosen.answer(rows, rng=None).tolist()


def test_a_column_that_no_test_needs_is_neither_read_nor_released():
    rng, other = seeded(3), seeded(3)
    mechanisms = router(0.3).mechanisms
    only_age = Router(mechanisms, SplitTests((("age", None),), np.array([3.5]), np.array([True])))
    only_age.answer(NEW[["age"]], rng=rng)
    desensitize(mechanisms[0], encode(NEW["age"], AGE, domain=mechanisms[0].settings.domain), rng=other)
    assert rng.words(1) == other.words(1)
