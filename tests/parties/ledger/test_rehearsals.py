"""Rehearsals: how long single records take tells nothing of earlier releases, since the same is done in any case."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partialmethod
from pathlib import Path
from typing import Any

import pytest

from opboost import rng
from parties.ledger import due_cells, hash_chain
from parties.ledger.budget import Budget, Limit
from parties.ledger.charged_release import Account
from parties.ledger.ledger_lines import Occasion
from parties.ledger.release_ledger import Ledger
from tests.support.released_cells import IDS, SPRING, Job, encoded, kinds, mechanisms, order_of, predict, table

OTHER = Occasion(run_id="summer", task="predict", peer="post")
N_ASKED = 8

# Of 200 records, those before 100 were released to another active party for training.
CASES: dict[str, Sequence[int]] = {
    "new": range(100, 100 + N_ASKED),
    "known": range(N_ASKED),
    "mixed": [*range(N_ASKED - 1), 100],
    "mixed otherwise": [0, *range(100, 100 + N_ASKED - 1)],
    "asked before": range(190, 190 + N_ASKED),
}


class Work:
    """What one release does that takes noticeable time, counted.

    Attributes
    ----------
    statements : Counter of str
        Of SQL that begin, end, or write; by their first word.
    n_synced, n_heads : int
        Files that were written through, and heads of the ledger.
    n_drawn : list of int
        Records of every draw.
    n_log_bytes : int
        Of SQLite's write-ahead log before it was moved into the file.
    """

    def __init__(self, account: Account, job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
        self.statements: Counter[str] = Counter()
        self.n_synced = self.n_heads = self.n_log_bytes = 0
        self.n_drawn: list[int] = []
        database = account.ledger._lines.database
        log = account.ledger.path.with_name(f"{account.ledger.path.name}-wal")

        def note(statement: str) -> None:
            word = statement.split()[0]
            if word == "PRAGMA":
                self.n_log_bytes += log.stat().st_size
            if word not in ("SELECT", "--"):
                self.statements[word] += 1

        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", self._counted(os.fsync, "n_synced"))
            patch.setattr(hash_chain, "write_private", self._counted(hash_chain.write_private, "n_heads"))
            patch.setattr(due_cells, "desensitize", self._noting_draws(due_cells.desensitize))
            database.set_trace_callback(note)
            job(account)
            database.set_trace_callback(None)

    def _counted(self, does: Callable[..., Any], name: str) -> Callable[..., Any]:
        def do(*values: Any) -> Any:
            setattr(self, name, getattr(self, name) + 1)
            return does(*values)

        return do

    def _noting_draws(self, does: Callable[..., Any]) -> Callable[..., Any]:
        def do(mechanism: Any, column: Any, **bits: Any) -> Any:
            self.n_drawn.append(len(column.codes))
            return does(mechanism, column, **bits)

        return do

    def counts(self) -> tuple[Any, ...]:
        return self.statements, self.n_synced, self.n_heads, self.n_drawn


def works(folder: Path, monkeypatch: pytest.MonkeyPatch, **changes: Any) -> dict[str, Work]:
    """What each case does, on a ledger of its own."""
    found = {}
    for name, rows in CASES.items():
        (folder / name).mkdir(parents=True)
        with Ledger(folder / name / "ledger.sqlite") as ledger:
            account = Account(ledger=ledger, budget=Budget(), occasion=SPRING, rng=rng.secure())
            order_of(range(100))(account)
            asking = replace(account, occasion=OTHER, _reused={}, **changes)
            predict(CASES["asked before"])(asking)
            found[name] = Work(asking, predict(rows), monkeypatch)
    return found


@pytest.mark.parametrize("keeps", [False, True])
@pytest.mark.parametrize("limit", [Limit(), Limit(1.0, 20.0)])
def test_as_much_is_written_synced_and_drawn_whatever_was_released_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keeps: bool, limit: Limit
) -> None:
    found = works(tmp_path, monkeypatch, keeps=keeps, budget=Budget(limit))
    (new, *others) = found.values()
    assert new.statements["COMMIT"] == 4
    assert new.statements["PRAGMA"] == 1
    assert new.n_heads == 2
    assert new.n_drawn == [N_ASKED] * 3
    for other in others:
        assert other.counts() == new.counts()
        # Pages that SQLite adds and takes away again are not written.
        assert 0.5 < other.n_log_bytes / new.n_log_bytes < 2


def test_were_nothing_rehearsed_what_was_released_before_would_show(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Account, "release", partialmethod(_without_rehearsals, Account.release))
    found = works(tmp_path, monkeypatch)
    assert found["known"].counts() != found["new"].counts()
    assert found["mixed"].counts() != found["new"].counts()
    assert found["known"].statements["PRAGMA"] == 0


def _without_rehearsals(account: Account, release: Callable[..., Any], *cells: Any, **how: Any) -> Any:
    return release(account, *cells, **(how | {"hides_reuse": False}))


def test_a_rehearsal_leaves_nothing_behind(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    with Ledger(path) as ledger:
        account = Account(ledger=ledger, budget=Budget(Limit(0.2, 4.0)), occasion=SPRING, rng=rng.secure())
        order_of(range(100))(account)
        database = ledger._lines.database
        tables = ("lines", "record_sets", "draw_keys", "draws", "name_sets", "members", "pieces")

        def rows() -> list[Any]:
            return [database.execute(f"SELECT * FROM {table}").fetchall() for table in tables]

        asking = replace(account, occasion=OTHER)
        first = predict(range(N_ASKED))(asking)
        before, head = rows(), path.with_suffix(".head.json").read_bytes()
        again = predict(range(N_ASKED - 1))(asking)
        assert rows() == before
        assert path.with_suffix(".head.json").read_bytes() == head
        assert [one.codes.tolist()[:-1] for one in first] == [one.codes.tolist() for one in again]
        ledger.verify()
    assert kinds(path) == {"opened": 1, "charge": 3, "stored": 3, "reuse": 3}


def test_tables_are_drawn_and_written_only_where_something_is_new(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A table of millions is not drawn for nothing."""
    with Ledger(tmp_path / "ledger.sqlite") as ledger:
        account = Account(ledger=ledger, budget=Budget(), occasion=SPRING, rng=rng.secure())
        order_of(range(100))(account)
        again = Work(account, order_of(range(100)), monkeypatch)
        assert (again.n_drawn, again.statements["SAVEPOINT"]) == ([], 0)


def test_a_column_that_was_never_drawn_is_new_though_others_are_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Then there is no cell that could be read in place of one that is not stored."""
    found = []
    for known in (1, 3):
        path = tmp_path / str(known) / "ledger.sqlite"
        path.parent.mkdir()
        with Ledger(path) as ledger:
            account = Account(ledger=ledger, budget=Budget(), occasion=OTHER, rng=rng.secure())
            which, rows = mechanisms()[:known], list(range(N_ASKED))
            account.records(which, encoded(which, table().iloc[rows]), IDS[rows])
            account = replace(account, _reused={})
            found.append(Work(account, predict(rows), monkeypatch))
    assert found[0].counts() == found[1].counts()
