"""Pieces of codes: those of 4,096, as an earlier version stored them, are read as ever, and never as of another size.

The archive holds what that version drew of 4,200 records; their names, which do not compress, are put back here.
"""

from __future__ import annotations

import hashlib
import sqlite3
from contextlib import closing, nullcontext
from dataclasses import replace
from pathlib import Path
from zipfile import ZipFile

import numpy as np
import pandas as pd
import pytest

from opboost import rng
from opboost.desensitize import ColumnMechanism
from opboost.mechanism_settings import MechanismSettings
from opboost.preprocess import EncodedColumn, encode
from opboost.schema import ColumnSchema
from parties.errors import LedgerError, OverBudget
from parties.ledger import cell_store
from parties.ledger.budget import Budget, Limit
from parties.ledger.charged_release import Account
from parties.ledger.name_sets import PIECE
from parties.ledger.release_ledger import Ledger
from parties.tables.blocks import record_names
from parties.tables.key_sets import NAME_BYTES
from tests.support.released_cells import SPRING, kinds

N_ROWS = 4200
IDS = pd.Index([f"k{i:04}" for i in range(N_ROWS)], dtype=object)
MECHANISM = ColumnMechanism(
    ColumnSchema(name="spend", lower=0, upper=100), MechanismSettings(epsilon=0.1, domain_size=101)
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    with ZipFile(Path(__file__).with_name("pieces_of_4096.zip")) as archive:
        archive.extractall(tmp_path)
    found = tmp_path / "ledger.sqlite"
    found.chmod(0o600)
    names = np.sort(record_names(IDS))
    # Records were known by half names, in the order of little-endian numbers.
    keys = np.sort(names.view("<u8")[::2]).tobytes()
    with closing(sqlite3.connect(found)) as database, database:
        pieces = [names[i : i + PIECE].tobytes() for i in range(0, N_ROWS, PIECE)]
        database.executemany("INSERT INTO pieces VALUES (?, ?)", [(hashlib.sha256(p).digest(), p) for p in pieces])
        database.execute("INSERT INTO record_sets VALUES (?, ?)", (hashlib.sha256(keys).hexdigest(), keys))
    return found


def encoded(rows: slice) -> EncodedColumn:
    domain = MECHANISM.settings.domain
    return encode(pd.Series(np.arange(N_ROWS) % 101.0)[rows], MECHANISM.schema, domain=domain)


def asked(path: Path, rows: slice = slice(None)) -> list[int]:
    """The draws of some records, for which the budget allows one charge."""
    with Ledger(path) as ledger:
        ledger.verify()
        account = Account(ledger=ledger, budget=Budget(Limit(0.1)), occasion=SPRING, rng=rng.secure())
        ((column,), _) = account.records([MECHANISM], [encoded(rows)], IDS[rows])
    return column.marked.tolist()


def test_codes_of_an_earlier_version_are_read_and_not_charged_again(path: Path) -> None:
    drawn = np.load(path.with_name("drawn.npz"))["codes"].tolist()
    assert asked(path) == drawn
    for rows in (slice(7, 8), slice(3900, None, 11)):
        assert asked(path, rows) == drawn[rows]
    assert kinds(path)["charge"] == 1


def test_records_that_an_earlier_version_charged_are_the_same_records(path: Path) -> None:
    """Their budget is spent, by whatever half of a name they were known; and nobody is counted twice."""
    changed = replace(encoded(slice(None)), codes=encoded(slice(None)).codes[::-1].copy())
    for budget in (Budget(Limit(0.15)), Budget(Limit(0.2))):
        with Ledger(path) as ledger:
            account = Account(ledger=ledger, budget=budget, occasion=SPRING, rng=rng.secure())
            is_enough = budget.default.epsilon == 0.2
            with nullcontext() if is_enough else pytest.raises(OverBudget):
                account.records([MECHANISM], [changed], IDS)
    for _ in range(2):
        with Ledger(path) as ledger:
            assert ledger.sums.balances.n_records == ledger.sums.balances.n_charged("spend") == N_ROWS
            assert ledger.sums.balances.worst("spend").epsilon == pytest.approx(0.2)


def test_a_version_that_knows_pieces_of_4096_alone_refuses_larger_ones(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Were their size not in the ledger's digest, it would look for a record's code in another record's place."""
    ledger = path.with_name("new.sqlite")
    drawn = asked(ledger)
    assert asked(ledger) == drawn
    with monkeypatch.context() as earlier:
        earlier.setattr(cell_store, "CODES", cell_store.EARLIER_CODES)
        with pytest.raises(LedgerError, match="cells that line 2 charged are not those that were drawn"):
            asked(ledger, slice(0, 1))
    monkeypatch.setattr(cell_store, "_content", lambda digest, places, _: hashlib.sha256(digest + places).hexdigest())
    broken = path.with_name("broken.sqlite")
    asked(broken)
    monkeypatch.setattr(cell_store, "CODES", cell_store.EARLIER_CODES)
    with pytest.raises(ValueError, match="shape"):
        asked(broken)


def test_a_stored_cell_takes_at_most_three_bytes_beside_its_record(tmp_path: Path) -> None:
    n_rows, which = 1 << 15, ColumnMechanism(ColumnSchema(name="x", lower=-4, upper=4), MechanismSettings(epsilon=0.1))
    values = pd.Series(np.random.default_rng(0).standard_normal(n_rows).clip(-4, 4))
    column = encode(values, which.schema, domain=which.settings.domain)
    with Ledger(tmp_path / "ledger.sqlite") as ledger:
        account = Account(ledger=ledger, budget=Budget(), occasion=SPRING, rng=rng.secure())
        account.records([which], [column], pd.Index(map(str, range(n_rows)), dtype=object))
    with closing(sqlite3.connect(tmp_path / "ledger.sqlite")) as database:
        (n_bytes,) = database.execute("SELECT SUM(LENGTH(content)) FROM pieces").fetchone()
    assert 2 < (n_bytes - NAME_BYTES * n_rows) / n_rows < 3
