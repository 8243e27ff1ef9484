"""Cell store: codes come back as they were drawn, the first draw counts, and keys go when they are removed."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from parties.errors import LedgerError
from parties.ledger import cell_store
from parties.ledger.budget import Budget
from parties.ledger.cell_store import NOT_DRAWN, CellStore
from parties.ledger.ledger_lines import ChargedColumn
from parties.ledger.pricing import unpriced
from parties.ledger.release_ledger import Ledger
from parties.tables.blocks import Block
from parties.tables.key_sets import NAME
from tests.support.released_cells import SPRING, mechanisms

(RELEASE,) = (unpriced(one, is_secure=True) for one in mechanisms()[:1])
NAMES = np.sort(np.array([bytes([i + 1]) * 16 for i in range(6)], NAME))
EXACT = np.array([5, 1, 2, -1, 90, 7], np.int16)


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with Ledger(tmp_path / "ledger.sqlite") as found:
        yield found


def draw(ledger: Ledger, rows: slice, codes: list[int], release: ChargedColumn = RELEASE) -> int:
    """Charge a release, and keep codes for some of the names as drawn at it."""
    (charge,) = ledger.charge([release], {}, SPRING, Budget())
    with ledger.changing():
        names = ledger.cells.names.put(NAMES[rows])
        ledger.cells.put(charge, release.family, names, np.array(codes), EXACT[rows])
    return charge


def block_of(exact: np.ndarray) -> Block:
    return {"0.exact": exact, "order": np.arange(len(exact))}


@given(st.integers(1, 40).flatmap(lambda n: st.tuples(*(arrays(kind, n) for kind in (np.int16, np.int32)))))
def test_codes_are_unpacked_as_they_were_packed(both: tuple[np.ndarray, np.ndarray]) -> None:
    np.testing.assert_array_equal(cell_store._unpacked(cell_store._packed(*both)), np.stack(both))


@pytest.mark.parametrize("keeps", [False, True])
def test_the_first_draw_counts_and_another_value_is_served_only_where_first_draws_are_kept(
    ledger: Ledger, keeps: bool
) -> None:
    first, second = draw(ledger, slice(0, 4), [10, 20, 30, -1]), draw(ledger, slice(2, 6), [31, 41, 51, 61])
    now = EXACT.copy()
    now[1] += 1
    found = ledger.cells.find(RELEASE.family, ledger.cells.names.locate(NAMES), block_of(now), 0, keeps=keeps)
    assert found.codes.tolist() == [10, 20 if keeps else NOT_DRAWN, 30, -1, 51, 61]
    assert found.charges == (first, second)
    assert {charge: np.concatenate(rows).tolist() for charge, rows in found.drawn_under.items()} == {
        first: [0, 1, 2, 3],
        second: [2, 3, 4, 5],
    }
    assert (ledger.cells.n_drawn(first), ledger.cells.n_drawn(second + 1)) == (4, 0)


def test_another_column_has_no_draws(ledger: Ledger) -> None:
    draw(ledger, slice(0, 6), [1] * 6)
    family = unpriced(mechanisms()[1], is_secure=True).family
    found = ledger.cells.find(family, ledger.cells.names.locate(NAMES), block_of(EXACT), 0, keeps=True)
    assert found.codes.tolist() == [NOT_DRAWN] * 6
    assert (found.charges, found.drawn_under) == ((), {})


def test_keys_are_there_until_they_are_removed(ledger: Ledger) -> None:
    cells, family = ledger.cells, RELEASE.family
    for charge in (3, 2):
        cells.put_key(charge, family, bytes([charge]) * 32)
    assert cells.keys(family) == [(2, bytes([2]) * 32), (3, bytes([3]) * 32)]
    cells.remove_keys([2])
    assert cells.keys(family) == [(3, bytes([3]) * 32)]
    assert cells.keys("00" * 32) == []


@pytest.mark.parametrize("table", ["draws", "members", "name_sets"])
def test_lost_cells_are_found_when_a_ledger_is_opened(ledger: Ledger, table: str) -> None:
    draw(ledger, slice(0, 6), [1] * 6)
    ledger.cells.check()
    ledger.cells.verify()
    database = sqlite3.connect(ledger.path, isolation_level=None)
    database.execute(f"DELETE FROM {table}")
    with pytest.raises(LedgerError, match="lacks cells that its lines say were drawn"):
        CellStore(ledger, database).check()
    database.close()


def test_a_draw_that_a_damaged_index_hides_is_found_when_all_are_verified(ledger: Ledger) -> None:
    draw(ledger, slice(0, 6), [1] * 6)
    ledger.checkpoint()
    content, family = ledger.path.read_bytes(), bytes.fromhex(RELEASE.family)[:16]
    places = [place.start() for place in re.finditer(re.escape(family), content)]
    assert len(places) == 2, "in the table and in its index"
    for place in places:
        copy = ledger.path.with_name("copy.sqlite")
        copy.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
        database = sqlite3.connect(copy, isolation_level=None)
        with pytest.raises(LedgerError, match="are not those that were drawn"):
            CellStore(ledger, database).verify()
        database.close()


def test_a_draw_under_another_charge_is_not_what_the_ledger_says(ledger: Ledger) -> None:
    first = draw(ledger, slice(0, 6), [1] * 6)
    second = draw(ledger, slice(0, 2), [2] * 2)
    database = sqlite3.connect(ledger.path, isolation_level=None)
    database.execute("UPDATE draws SET charge = ? WHERE charge = ?", (first + 100, first))
    database.execute("UPDATE draws SET charge = ? WHERE charge = ?", (first, second))
    store = CellStore(ledger, database)
    with pytest.raises(LedgerError, match=f"cells that line {first} charged are not those that were drawn"):
        store.find(RELEASE.family, store.names.locate(NAMES), block_of(EXACT), 0, keeps=True)
    database.close()
