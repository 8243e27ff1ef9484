"""Release offer: names travel under numbers or not at all where they are unfit, and what is held fits what is sent."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from opboost.errors import ParameterError
from opboost.privacy.guarantee import compose
from opboost.schema import ColumnSchema
from opboost.split_tests import ListedTests
from parties.errors import Disagreement
from parties.tables.blocks import Block
from parties.vertical.release_offer import (
    ReleasedTable,
    check_held,
    first_row,
    make_offer,
    offer_digest,
    offered_names,
    rank_columns,
    rank_type,
    training_digest,
)
from protocols.errors import UnexpectedMessage
from protocols.messages.fields import MAX_COLUMNS
from protocols.messages.vertical import Held, Offer, SplitRanks
from tests.support.released_cells import mechanisms

MECHANISMS = mechanisms()
CODES = [np.array([5, 1, 99, 5, 40]), np.array([3, -1, 3, 20, -1]), np.array([0, 2, -1, 2, 1])]


def table(*cuts: int, order: list[int] | None = None) -> ReleasedTable:
    blocks: list[Block] = []
    for start, end in zip((0, *cuts), (*cuts, 5), strict=True):
        blocks.append({f"{c}.codes": codes[start:end] for c, codes in enumerate(CODES)})
    return ReleasedTable(MECHANISMS, tuple(blocks), None if order is None else np.array(order))


def offer(*, opaque: bool = True, released: ReleasedTable | None = None) -> Offer:
    guarantee = compose(tuple(one.guarantee() for one in MECHANISMS), is_secure=True)
    return make_offer(MECHANISMS, list(rank_columns(released or table())), guarantee, opaque_names=opaque)


@given(st.integers(0, 2**31))
def test_ranks_have_the_smallest_type_that_holds_them_and_a_missing_row(n_ranks: int) -> None:
    kind = rank_type(n_ranks)
    assert n_ranks <= np.iinfo(kind).max
    assert kind.itemsize == 1 or n_ranks > np.iinfo(f"u{kind.itemsize // 2}").max


@pytest.mark.parametrize("cuts", [(), (2,), (1, 3, 4)])
@pytest.mark.parametrize("order", [None, [4, 0, 3, 1, 2]])
def test_ranks_are_the_same_however_a_table_is_cut_and_travel_in_their_order(
    cuts: tuple[int, ...], order: list[int] | None
) -> None:
    columns = list(rank_columns(table(*cuts, order=order)))
    assert [column.ranking.source for column in columns] == ["spend", "visits", "town", "town", "town"]
    spend = np.concatenate(list(columns[0].ranks()))
    assert spend.tolist() == np.array([1, 0, 3, 1, 2])[order or slice(None)].tolist()
    whole = list(rank_columns(table(order=order)))
    assert [column.digest for column in columns] == [column.digest for column in whole]
    for start, end in ((0, 2), (1, 4), (3, 5), (4, None)):
        found = np.concatenate([np.empty(0, np.uint8), *columns[0].ranks(start, end)])
        assert found.tolist() == spend[start:end].tolist()


@pytest.mark.parametrize("opaque", [False, True])
def test_nothing_names_a_column_that_travels_under_a_number(opaque: bool) -> None:
    found = offer(opaque=opaque)
    assert ("spend" in found.model_dump_json()) is not opaque
    assert offered_names(MECHANISMS, opaque_names=opaque) == tuple(column.name for column in found.columns)


def test_names_that_cannot_travel_and_too_many_columns_are_refused() -> None:
    long = mechanisms(ColumnSchema(name="x" * 201, lower=0, upper=1))
    assert offered_names(long, opaque_names=True) == ("c0",)
    with pytest.raises(ParameterError, match="names of columns cannot travel as they are"):
        offered_names(long, opaque_names=False)
    alike = mechanisms(
        ColumnSchema(name="a=b", lower=0, upper=1), ColumnSchema(name="a", kind="unordered", categories=("b", "c"))
    )
    with pytest.raises(ParameterError, match=r"no two alike.*Nothing was sent"):
        offered_names(alike, opaque_names=False)
    with pytest.raises(ParameterError, match=f"at most {MAX_COLUMNS} can be"):
        offered_names(MECHANISMS[:1] * (MAX_COLUMNS + 1), opaque_names=True)


def test_another_release_has_another_digest() -> None:
    other = ReleasedTable(MECHANISMS, ({f"{c}.codes": codes[::-1] for c, codes in enumerate(CODES)},))
    assert offer_digest(offer()) == offer_digest(offer(released=table(2))) != offer_digest(offer(released=other))


def test_a_training_is_told_by_its_release_and_by_what_its_trees_ask() -> None:
    def wanted(*ranks: int, missing_left: bool = False) -> SplitRanks:
        columns = np.zeros(len(ranks), np.uint32)
        flags = np.full(len(ranks), missing_left)
        return SplitRanks(columns=columns, ranks=np.array(ranks, np.uint32), missing_left=flags)

    other = offer(released=ReleasedTable(MECHANISMS, ({f"{c}.codes": codes[::-1] for c, codes in enumerate(CODES)},)))
    asked = [None, wanted(), wanted(0, 1), wanted(1, 0), wanted(0, 1, missing_left=True)]
    found = [training_digest(one, tests) for one in (offer(), other) for tests in asked]
    # That no tests are asked for is as good as cells, of which the offer tells.
    assert len(set(found)) == 2 * (len(asked) - 1)
    listed = ListedTests(np.zeros(2, np.uint32), np.array([0, 1], np.uint32), np.zeros(2, np.bool_))
    assert training_digest(offer(), listed) == training_digest(offer(released=table(2)), wanted(0, 1))


@pytest.mark.parametrize(
    ("column", "row", "is_taken"),
    [(0, 0, True), (4, 5, True), (5, 0, True), (5, 1, False), (6, 0, False), (0, 6, False)],
)
def test_what_the_peer_holds_must_be_a_beginning_of_this_release(column: int, row: int, is_taken: bool) -> None:
    sound = offer()
    held = Held(offer=offer_digest(sound), column=column, row=row)
    if is_taken:
        check_held(held, sound, "bank", n_rows=5)
    else:
        with pytest.raises(UnexpectedMessage, match="No ranks were sent"):
            check_held(held, sound, "bank", n_rows=5)
    with pytest.raises(Disagreement, match="holds the beginning of another release"):
        check_held(held.model_copy(update={"offer": "0" * 64}), sound, "bank", n_rows=5)
    assert [first_row(held, c, 5) for c in range(5)] == [
        5 if c < column else row if c == column else 0 for c in range(5)
    ]
    assert first_row(None, 3, 5) == 0
