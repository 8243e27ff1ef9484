"""Rank receiver: every rank is checked before it is kept, and what a crash left is taken up to the last sound row."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from opboost.desensitize import ColumnMechanism
from opboost.mechanism_settings import MechanismSettings
from opboost.privacy.guarantee import compose
from opboost.schema import ColumnSchema, Kind
from parties.errors import Disagreement
from parties.tables.blocks import Block
from parties.vertical import rank_sender
from parties.vertical.rank_receiver import Receipt
from parties.vertical.release_offer import OfferedRanks, ReleasedTable, make_offer, rank_columns
from protocols.errors import UnexpectedMessage
from protocols.messages.vertical import Done, Offer, RankChunk
from tests.support.released_cells import mechanisms

MECHANISMS = mechanisms()[:2]
BLOCK: Block = {"0.codes": np.array([5, 1, 99, 5, 40]), "1.codes": np.array([3, -1, 3, 20, -1])}
COLUMNS: list[OfferedRanks] = list(rank_columns(ReleasedTable(MECHANISMS, (BLOCK,))))
RANKS = [np.concatenate(list(column.ranks())) for column in COLUMNS]


def offer(columns: list[OfferedRanks] = COLUMNS) -> Offer:
    guarantee = compose(tuple(one.guarantee() for one in MECHANISMS), is_secure=True)
    return make_offer(MECHANISMS, columns, guarantee, opaque_names=True)


def chunk(column: int, start: int, end: int | None = None, **changes: Any) -> RankChunk:
    return RankChunk(**{"column": column, "start": start, "ranks": RANKS[column][start:end], **changes})


MESSAGES = [chunk(0, 0, 2), chunk(0, 2), chunk(1, 0, 4), chunk(1, 4)]


@pytest.mark.parametrize("on_disk", [False, True])
@pytest.mark.parametrize("order", [None, [4, 0, 3, 1, 2]])
def test_columns_are_complete_in_the_order_of_the_records(
    tmp_path: Path, on_disk: bool, order: list[int] | None
) -> None:
    places = None if order is None else np.array(order)
    receipt = Receipt("shop", 5, tmp_path / "shop" if on_disk else None, order=places)
    assert receipt.held() is None
    assert not receipt.take(offer())
    assert [receipt.take(message) for message in MESSAGES] == [False, True, False, True]
    assert receipt.is_complete
    for column, ranks in zip(receipt.columns, RANKS, strict=True):
        expected = ranks if places is None else ranks[np.argsort(places)]
        np.testing.assert_array_equal(column.ranks[:], expected)


def test_rows_that_come_one_by_one_are_refused_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every row could have a message, and every message a line of the log: hundreds of times what it tells."""
    monkeypatch.setattr(rank_sender, "MAX_SHORT", 3)
    monkeypatch.setattr(rank_sender, "CHUNK_ROWS", 2)
    receipt = Receipt("shop", 5)
    # One that is full, one that has all that is left, and three that have less.
    whole = [chunk(0, 0, 2), chunk(0, 2, 3), chunk(0, 3, 4), chunk(0, 4), chunk(1, 0, 1)]
    for message in (offer(), *whole):
        receipt.take(message)
    with pytest.raises(UnexpectedMessage, match="shop sent more than 3 chunks of fewer rows than were due"):
        receipt.take(chunk(1, 1, 2))


@pytest.mark.parametrize("n_taken", range(5))
@pytest.mark.parametrize("n_lost", [0, 1])
def test_after_a_crash_only_what_is_not_there_is_due(tmp_path: Path, n_taken: int, n_lost: int) -> None:
    receipt = Receipt("shop", 5, tmp_path)
    for message in (offer(), *MESSAGES[:n_taken]):
        receipt.take(message)
    last = max(tmp_path.glob("*.ranks"), default=None)
    if n_lost and last is not None:
        last.write_bytes(last.read_bytes()[:-n_lost])
    again = Receipt("shop", 5, tmp_path)
    held = again.held()
    assert held is not None
    n_rows = held.column * 5 + held.row
    assert n_rows == max(0, [0, 2, 5, 9, 10][n_taken] - (n_lost if n_taken else 0))
    again.take(offer())
    for column in range(held.column, 2):
        again.take(chunk(column, held.row if column == held.column else 0))
    assert again.is_complete
    for found, ranks in zip(again.columns, RANKS, strict=True):
        np.testing.assert_array_equal(found.ranks[:], ranks)


@pytest.mark.parametrize(
    ("message", "words"),
    [
        (Done(), "where 'rank chunk' was due"),
        (chunk(0, 1), "where rows 0.. of column 0 were due"),
        (chunk(1, 0), "where rows 0.. of column 0 were due"),
        (chunk(0, 0, ranks=np.zeros(6, np.uint8)), "5 rows were due"),
        (chunk(0, 0, ranks=RANKS[0].astype("<u2")), "in another type than its number of ranks needs"),
        (chunk(0, 0, ranks=np.full(5, 200, np.uint8)), "sent a rank above"),
        (chunk(0, 0, ranks=RANKS[0][::-1].copy()), "are not those that were offered"),
        (offer(), "where 'rank chunk' was due"),
    ],
)
@pytest.mark.parametrize("on_disk", [False, True])
def test_ranks_that_were_not_offered_are_refused_and_not_kept(
    tmp_path: Path, message: Any, words: str, on_disk: bool
) -> None:
    receipt = Receipt("shop", 5, tmp_path if on_disk else None)
    receipt.take(offer())
    with pytest.raises(UnexpectedMessage, match=words):
        receipt.take(message)
    assert receipt.columns == []
    assert not list(tmp_path.glob("*.ranks"))


def test_offers_that_do_not_fit_are_refused() -> None:
    with pytest.raises(UnexpectedMessage, match="where 'offer' was due"):
        Receipt("shop", 5).take(Done())
    with pytest.raises(UnexpectedMessage, match="more than the 2 records"):
        Receipt("shop", 2).take(offer())
    other = Receipt("shop", 5)
    other.names = ("c0",)
    with pytest.raises(UnexpectedMessage, match="that are not the 1 of its greeting"):
        other.take(offer())


@pytest.mark.parametrize(("column", "changed"), [(0, {"domain_size": 3.0}), (0, {}), (1, {"domain_size": 1.5})])
@pytest.mark.parametrize("share_codes", [False, True])
def test_ranks_beyond_what_the_guarantee_says_are_refused(column: int, changed: Any, share_codes: bool) -> None:
    """What split tests tell of labels is reported by the guarantee's numbers of points."""
    promised = [one.guarantee() for one in MECHANISMS]
    parameters = {name: value for name, value in promised[column].parameters.items() if name != "domain_size"}
    promised[column] = replace(promised[column], parameters=parameters | changed)
    said = compose(tuple(promised), is_secure=True)
    found = make_offer(MECHANISMS, COLUMNS, said, opaque_names=True, share_codes=share_codes)
    with pytest.raises(
        UnexpectedMessage, match=rf"offers {COLUMNS[column].ranking.table.n_ranks} ranks in column {column}, "
    ):
        Receipt("shop", 5).take(found)


def test_a_category_has_two_ranks_at_most() -> None:
    colour = ColumnMechanism(
        ColumnSchema(name="colour", kind=Kind.UNORDERED, categories=("red", "blue")), MechanismSettings()
    )
    columns = list(rank_columns(ReleasedTable((colour,), ({"0.codes": np.array([0, 1, -1, 0, 1])},))))
    said = compose((colour.guarantee(),), is_secure=True)
    honest = make_offer((colour,), columns, said, opaque_names=True)
    assert not Receipt("shop", 5).take(honest)
    wide = honest.columns[0].model_copy(update={"n_ranks": 4}), honest.columns[1]
    with pytest.raises(UnexpectedMessage, match="offers 4 ranks in column 0, and its guarantee is for 2 values"):
        Receipt("shop", 5).take(honest.model_copy(update={"columns": wide}))


def test_another_release_is_never_mixed_with_the_beginning_of_the_first(tmp_path: Path) -> None:
    Receipt("shop", 5, tmp_path).take(offer())
    with pytest.raises(Disagreement, match="offers another release than the one of which this run holds the beginning"):
        Receipt("shop", 5, tmp_path).take(offer([COLUMNS[0], COLUMNS[0]]))


def test_an_offer_that_cannot_be_read_comes_again_with_all_its_ranks(tmp_path: Path) -> None:
    receipt = Receipt("shop", 5, tmp_path / "shop")
    for message in (offer(), *MESSAGES):
        receipt.take(message)
    (tmp_path / "shop" / "offer").write_bytes(b"\0")
    assert Receipt("shop", 5, tmp_path / "shop").held() is None
    assert not (tmp_path / "shop").exists()
