"""Due cells: what is to be drawn under which charge, and that it is drawn alike wherever and whenever."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from opboost.arrays import KeptCodes
from parties.ledger.cell_store import NOT_DRAWN, Found
from parties.ledger.due_cells import DRAWN, NEW, ORDER, draw_due, due_of, note_due, rows_due, rows_key, run_in_process
from parties.tables.blocks import Block, exact_codes, named_records
from tests.support.released_cells import encoded, mechanisms, table

IDS = pd.Index([f"k{i}" for i in range(8)], dtype=object)
(SPEND,) = mechanisms()[:1]


def block_of(*, key: bytes = bytes(32), dues: tuple[int, ...] = (NEW,), of_all: bool = False) -> Block:
    """A block of eight records whose column has orders for these charges, all under one key."""
    block: Block = {}
    block.update(named_records(IDS))
    (column,) = encoded([SPEND], table().iloc[: len(IDS)])
    block["0.exact"] = exact_codes(column)
    block["0.orders"] = np.array([(due, 7 if due == NEW else due, key, True, of_all) for due in dues], ORDER)
    return block


def drawn(block: Block) -> KeptCodes:
    draw_due([SPEND], block)
    return block["0.codes"]


def test_what_is_due_is_drawn_alike_again_and_otherwise_under_another_key() -> None:
    codes = drawn(block_of())
    np.testing.assert_array_equal(codes, drawn(block_of()))
    assert (codes != drawn(block_of(key=bytes(31) + b"\1"))).any()
    assert codes.min() >= 0


def test_a_draw_depends_on_the_records_and_their_exact_codes() -> None:
    block = block_of()
    before = drawn(block_of())
    block.update(named_records(IDS[::-1]))
    assert (drawn(block) != before).any()
    block = block_of()
    block["0.exact"] = block["0.exact"] ^ 1
    assert (drawn(block) != before).any()


def test_found_cells_are_kept_and_only_due_ones_are_drawn() -> None:
    due = np.array([DRAWN, NEW, 5, DRAWN, NEW, 5, 5, NEW])
    known = np.where(due == DRAWN, np.arange(8) + 40, NOT_DRAWN).astype(np.int8)
    block = block_of(dues=(NEW, 5))
    orders = block["0.orders"]
    note_due(block, 0, known, due)
    block["0.orders"] = orders
    codes = drawn(block)[block["order"]]
    assert codes[due == DRAWN].tolist() == [40, 43]
    assert (codes != NOT_DRAWN).all()


@pytest.mark.parametrize("n_due", [0, 3, 8])
def test_what_is_drawn_of_all_is_kept_of_due_cells_alone(n_due: int) -> None:
    whole = drawn(block_of())
    due = np.where(np.arange(8) < n_due, NEW, DRAWN)
    block = block_of(of_all=True)
    orders = block["0.orders"]
    note_due(block, 0, np.where(due == DRAWN, 40, NOT_DRAWN).astype(np.int8), due)
    block["0.orders"] = orders
    codes = drawn(block)
    is_due = due[np.argsort(block["order"])] == NEW
    np.testing.assert_array_equal(codes, np.where(is_due, whole, 40))


def test_a_column_without_orders_is_left_alone() -> None:
    block = block_of()
    del block["0.orders"]
    draw_due([SPEND], block)
    assert "0.codes" not in block


def test_a_cell_is_due_to_an_earlier_charge_of_its_record_unless_drawn_under_it() -> None:
    block = block_of()
    keys = block["names"]
    codes = np.full(8, NOT_DRAWN)
    codes[0] = 3
    known = Found(codes, (), {4: [np.array([1])]})
    assert due_of(known, block, []).tolist() == [DRAWN] + [NEW] * 7
    assert due_of(known, block, [(4, b"", keys), (6, b"", keys[:0])]).tolist() == [DRAWN, NEW] + [4] * 6
    assert due_of(known, block, [(4, b"", keys), (6, b"", keys)]).tolist() == [DRAWN, 6] + [4] * 6


@pytest.mark.parametrize(
    ("due", "entries"),
    [([NEW] * 8, set()), ([DRAWN] * 8, {"0.due", "0.codes"}), ([DRAWN, *[NEW] * 7], {"0.found", "0.due"})],
)
def test_a_block_is_told_no_more_than_it_needs(due: list[int], entries: set[str]) -> None:
    block = block_of()
    note_due(block, 0, np.arange(8), np.array(due))
    assert {name for name in block if name.startswith("0.")} == {"0.exact"} | entries
    if "0.found" in block:
        np.testing.assert_array_equal(block["0.found"][block["order"]], np.arange(8))


def test_rows_of_a_charge_are_a_slice_where_they_are_all_or_none() -> None:
    block = block_of()
    assert (rows_due(block, 0, NEW), rows_due(block, 0, 4)) == (slice(None), slice(0))
    note_due(block, 0, np.arange(8), np.array([DRAWN, *[4] * 7]))
    some = rows_due(block, 0, 4)
    assert not isinstance(some, slice)
    assert some.tolist() == list(range(1, 8))
    note_due(block, 0, np.arange(8), np.full(8, 4))
    assert rows_due(block, 0, 4) == slice(None)
    assert len({rows_key(rows) for rows in (slice(None), slice(0), some, some[1:])}) == 4


def test_here_calls_every_block_in_order() -> None:
    seen: list[Block] = []
    blocks: list[Block] = [{}, {"a": np.ones(1)}]
    run_in_process(seen.append, blocks)
    assert [id(one) for one in seen] == [id(one) for one in blocks]
