"""Name sets: records are found in every set that holds them, small or large, and damage is never overlooked."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parties.errors import LedgerError
from parties.ledger import name_sets
from parties.ledger.name_sets import NAME_TABLES, NameSets
from parties.tables.key_sets import NAME, Names


@pytest.fixture(params=[4, 1000], ids=["large", "small"], scope="module")
def _piece(request: pytest.FixtureRequest) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(name_sets, "PIECE", request.param)
        patch.setattr(name_sets, "_BATCH", 3)
        yield


def stored() -> tuple[NameSets, sqlite3.Connection]:
    database = sqlite3.connect(":memory:", isolation_level=None)
    for table in NAME_TABLES:
        database.execute(table)
    return NameSets(Path("ledger.sqlite"), database), database


def names_of(numbers: set[int]) -> Names:
    return np.array([number.to_bytes(16, "big") for number in sorted(numbers)], NAME)


NUMBERS = st.sets(st.integers(1, 30), min_size=1)


@settings(deadline=None)
@given(sets=st.lists(NUMBERS, min_size=1, max_size=4), asked=st.sets(st.integers(1, 40)))
@pytest.mark.usefixtures("_piece")
def test_located_names_are_the_intersections_with_all_sets(sets: list[set[int]], asked: set[int]) -> None:
    kept, database = stored()
    members = {kept.put(names_of(one)).number: sorted(one) for one in sets}
    wanted = sorted(asked)
    found = {
        hit.names: [(wanted[row], place) for row, place in zip(hit.rows, hit.places, strict=True)]
        for hit in kept.locate(names_of(asked))
    }
    assert found == {
        number: [(one, place) for place, one in enumerate(ordered) if one in asked]
        for number, ordered in members.items()
        if asked & set(ordered)
    }
    database.close()


@pytest.mark.usefixtures("_piece")
def test_a_set_is_stored_once() -> None:
    kept, database = stored()
    assert kept.put(names_of({1, 2, 9, 11, 12})) == kept.put(names_of({12, 11, 9, 2, 1}))
    assert kept.put(names_of({1, 2})).number == 2
    database.close()


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE pieces SET content = zeroblob(length(content))",
        "DELETE FROM pieces",
        "UPDATE name_sets SET places = zeroblob(length(places))",
    ],
)
@pytest.mark.usefixtures("_piece")
def test_damaged_names_are_refused(damage: str) -> None:
    kept, database = stored()
    kept.put(names_of(set(range(1, 10))))
    database.execute(damage)
    with pytest.raises(LedgerError, match=r"are not those that were drawn\. Restore the file .* Nothing was released"):
        kept.locate(names_of({3}))
    database.close()


@pytest.mark.parametrize("damage", ["DELETE FROM members WHERE place = 2", "UPDATE members SET place = place + 1"])
def test_an_index_that_differs_from_its_names_is_found(damage: str) -> None:
    kept, database = stored()
    number, _ = kept.put(names_of(set(range(1, 10))))
    kept.check_index(number)
    database.execute(damage)
    with pytest.raises(LedgerError, match="names of records are not those that were drawn"):
        kept.check_index(number)
    database.close()
