"""Rank columns to states and back, against enumeration; hostile columns are refused."""

from __future__ import annotations

import math

import numpy as np
import pytest

from opboost.denoise.channel import ColumnRelease
from opboost.denoise.sources import RankSource, sources_of
from opboost.errors import DataError
from opboost.privacy.domain import IntegerDomain
from opboost.privacy.local import RandomisedResponse
from opboost.privacy.order_preserving import GlobalMap

TEN = GlobalMap(epsilon=0.5, domain=IntegerDomain(1, 10))
BIT = RandomisedResponse(epsilon=2.0, n_categories=2)
THREE = RandomisedResponse(epsilon=1.0, n_categories=3)


def ranks(*given: int) -> np.ndarray:
    return np.array(given, np.uint32)


def test_a_true_code_counts_as_the_rank_between_whose_thresholds_it_lies() -> None:
    """Codes 1, 4 and 9 of 0..9 were released: thresholds at 2.5 and 6.5."""
    column = RankSource(ranks(0, 1, 2, 3, 1), 3, ColumnRelease(TEN, BIT, np.array([1, 4, 9])))
    (source,) = sources_of([column])
    assert source.states.tolist() == [0, 1, 2, 3, 1]
    assert source.rank_of_state[0].tolist() == [0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 3]


def test_indicators_of_a_column_are_one_source() -> None:
    released = np.array([2, 0, 3, 1, 2])
    columns = [
        RankSource(
            np.where(released == 3, 2, released == c).astype(np.uint32),
            2,
            ColumnRelease(THREE, BIT, np.array([0, 1]), c),
        )
        for c in range(3)
    ]
    plain = RankSource(ranks(0, 0, 1, 1, 0), 2, ColumnRelease(TEN, None, np.array([3, 7])))
    first, second = sources_of([plain, *columns])
    assert (first.members, second.members, second.number) == ((0,), (1, 2, 3), 1)
    assert second.states.tolist() == released.tolist()
    assert [table.tolist() for table in second.rank_of_state] == [[1, 0, 0, 2], [0, 1, 0, 2], [0, 0, 1, 2]]


def test_a_category_that_was_never_released_counts_as_the_only_rank() -> None:
    released = np.array([0, 1, 0])
    columns = [
        RankSource((released == c).astype(np.uint32), len(codes), ColumnRelease(THREE, None, codes, c))
        for c, codes in enumerate((np.array([0, 1]), np.array([0, 1]), np.array([0])))
    ]
    assert sources_of(columns)[0].rank_of_state[2].tolist() == [0, 0, 0]


def test_exact_columns_are_no_sources() -> None:
    exact = GlobalMap(epsilon=math.inf, domain=IntegerDomain(1, 10))
    assert sources_of([RankSource(ranks(0, 1), 2, ColumnRelease(exact, None, np.array([2, 3])))]) == []


@pytest.mark.parametrize(
    "positions", [[0, 1], [0, 2, 1], [0, 1, 10], [-1, 0, 1], [0, 1, 1], []], ids=lambda positions: str(positions)
)
def test_codes_that_do_not_fit_the_ranks_are_refused(positions: list[int]) -> None:
    with pytest.raises(DataError, match="Nothing was trained"):
        RankSource(ranks(0, 1, 2), 3, ColumnRelease(TEN, None, np.array(positions, np.int64)))


def test_rows_that_no_release_can_hold_are_refused() -> None:
    two = np.array([0, 1])
    with pytest.raises(DataError, match="no missing cells"):
        sources_of([RankSource(ranks(0, 2), 2, ColumnRelease(TEN, None, two))])
    indicators = [RankSource(ranks(1, 0), 2, ColumnRelease(THREE, None, two, c)) for c in range(3)]
    with pytest.raises(DataError, match="no or several categories"):
        sources_of(indicators)
    with pytest.raises(DataError, match="must follow one another"):
        sources_of([indicators[1], indicators[0], indicators[2]])
    with pytest.raises(DataError, match="must follow one another"):
        sources_of(indicators[:2])


def test_other_rows_have_the_states_of_their_ranks() -> None:
    """A column through a map, and one of three categories, of which a row may have none."""
    released = np.array([2, 0, 3, 1])
    columns = [RankSource(ranks(0, 1, 2, 3), 3, ColumnRelease(TEN, BIT, np.array([1, 4, 9])))]
    for c in range(3):
        indicator = np.where(released == 3, 2, released == c).astype(np.uint32)
        columns.append(RankSource(indicator, 2, ColumnRelease(THREE, BIT, np.array([0, 1]), c)))
    others = np.array([3, 0, 2])
    for source in sources_of(columns):
        again = source.with_ranks([column.ranks[:][others] for column in columns])
        assert again.states.tolist() == source.states[others].tolist()
