"""A crash or a full disk at any SQL statement or file operation of a release: one charge, one draw, always an end."""

from __future__ import annotations

import os
import signal
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from opboost import rng
from opboost.preprocess import EncodedColumn
from parties.errors import LedgerError
from parties.ledger import due_cells
from parties.ledger.budget import Budget, Limit
from parties.ledger.charged_release import Account
from parties.ledger.release_ledger import Ledger
from parties.storage import sqlite
from tests.support.processes import FORKS
from tests.support.released_cells import (
    IDS,
    SPRING,
    Job,
    by_record,
    encoded,
    kinds,
    mechanisms,
    n_keys,
    predict,
    released,
    table,
)

# Every so many operations one fails; all of them with 1.
STEP = int(os.environ.get("OPBOOST_CRASH_STEP", "17"))
ROWS = range(24)
ONCE = Budget(Limit(0.2, 4.0))


class Died(BaseException):
    """The process dies here."""


class Operations:
    """Counts what is done to disk, and fails at one of them."""

    def __init__(self, fails_at: int, fail: Callable[[str], None]) -> None:
        self.n_done, self._fails_at, self._fail = 0, fails_at, fail

    def count(self, what: str) -> None:
        self.n_done += 1
        if self.n_done == self._fails_at:
            self._fail(what)


def die(what: str) -> None:
    raise Died


def be_full(what: str) -> None:
    if what.startswith("SQL"):
        raise sqlite3.OperationalError("database or disk is full")
    raise OSError(28, "No space left on device")


def kill(what: str) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@contextmanager
def watched(operations: Operations) -> Iterator[None]:
    """Every statement, opening, writing through, replacing and removing of files is counted before it is done."""

    class Watched(sqlite3.Connection):
        def execute(self, statement: str, *values: Any) -> Any:
            # What SQLite undoes by itself when a process dies, it undoes here.
            if statement != "ROLLBACK":
                operations.count(f"SQL {statement}")
            return super().execute(statement, *values)

        def executemany(self, statement: str, values: Any) -> Any:
            operations.count(f"SQL {statement}")
            return super().executemany(statement, values)

        def blobopen(self, *place: Any, **how: Any) -> Any:
            operations.count("SQL blob")
            return super().blobopen(*place, **how)

    def counted(name: str, does: Callable[..., Any]) -> Callable[..., Any]:
        def do(*values: Any, **named: Any) -> Any:
            operations.count(name)
            return does(*values, **named)

        return do

    connect = sqlite3.connect
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sqlite.sqlite3, "connect", lambda *a, **k: connect(*a, factory=Watched, **k))
        for place, name in ((os, "fsync"), (os, "open"), (Path, "replace"), (Path, "unlink")):
            patch.setattr(place, name, counted(name, getattr(place, name)))
        yield


def job_of(kind: str) -> Job:
    """A table, or records of which some were released before."""
    if kind == "records":
        return lambda account: by_record(predict(ROWS)(account), ROWS)
    which, data = mechanisms(), table().iloc[list(ROWS)]

    def release(account: Account) -> Any:
        return by_record(released(account, which, encoded(which, data), IDS[list(ROWS)], cuts=(9,)), ROWS)

    return release


def attempt(path: Path, job: Job) -> Any:
    """A process of its own would do so, with fresh secret bits and a budget for one release."""
    with Ledger(path) as ledger:
        return job(Account(ledger=ledger, budget=ONCE, occasion=SPRING, rng=rng.secure()))


def fail_at(path: Path, job: Job, number: int, fail: Callable[[str], None]) -> tuple[int, Any]:
    """Fail at one operation; tells how many there were, and what was drawn under keys that are kept."""
    operations, drawn = Operations(number, fail), []
    desensitize, connect = due_cells.desensitize, sqlite3.connect

    def noting(mechanism: Any, column: EncodedColumn, **bits: Any) -> Any:
        found = desensitize(mechanism, column, **bits)
        # Where no key is kept, all cells are stored, and what is drawn is thrown away.
        with closing(connect(path)) as database:
            if database.execute("SELECT COUNT(*) FROM draw_keys").fetchone() != (0,):
                drawn.append((mechanism.schema.name, found.marked.tolist()))
        return found

    with pytest.MonkeyPatch.context() as patch, suppress(Died, LedgerError), watched(operations):
        patch.setattr(due_cells, "desensitize", noting)
        attempt(path, job)
    return operations.n_done, drawn


def assert_one_draw(path: Path, job: Job, before: list[Any]) -> None:
    """The next attempt finishes within the budget, with what was drawn before, and leaves nothing behind."""
    _, after = fail_at(path, job, 0, die)
    assert not before or not after or after == before
    final = attempt(path, job)
    assert attempt(path, job) == final
    codes = {name: [] for name in ("spend", "visits", "town")}  # type: ignore[var-annotated]
    for name, column in before or after:
        codes[name] += column
    for found, drawn in zip(final, codes.values(), strict=True) if before or after else ():
        assert sorted(-1 if missing else code for code, missing in found.values()) == sorted(drawn)
    counts = kinds(path)
    assert counts["charge"] == 3
    assert n_keys(path) == 0
    assert [file.name for file in path.parent.iterdir() if "partial" in file.name] == []
    with Ledger(path) as ledger:
        ledger.verify()


@pytest.mark.parametrize("fail", [die, be_full], ids=["killed", "full disk"])
@pytest.mark.parametrize("kind", ["table", "records"])
def test_a_failure_at_any_operation_costs_nothing_and_changes_no_draw(tmp_path: Path, kind: str, fail: Any) -> None:
    n_operations, _ = fail_at(tmp_path / "whole" / "ledger.sqlite", job_of(kind), 0, fail)
    assert n_operations > 100
    for number in range(1, n_operations + 1, STEP):
        path = tmp_path / str(number) / "ledger.sqlite"
        _, drawn = fail_at(path, job_of(kind), number, fail)
        assert_one_draw(path, job_of(kind), drawn)


def test_two_failures_after_each_other_change_nothing_either(tmp_path: Path) -> None:
    n_operations, _ = fail_at(tmp_path / "whole" / "ledger.sqlite", job_of("table"), 0, die)
    draw = np.random.default_rng(7)
    for number in draw.permutation(n_operations)[: 100 // STEP].tolist():
        path = tmp_path / str(number) / "ledger.sqlite"
        _, first = fail_at(path, job_of("table"), number, die)
        _, second = fail_at(path, job_of("table"), int(draw.integers(1, n_operations)), be_full)
        assert not first or not second or first[: len(second)] == second[: len(first)]
        assert_one_draw(path, job_of("table"), max(first, second, key=len))


def attempt_until(path: Path, number: int) -> None:
    """The job in a process that is killed at an operation."""
    with watched(Operations(number, kill)):
        attempt(path, job_of("table"))


def test_processes_that_are_killed_at_an_operation_have_paid_once(tmp_path: Path) -> None:
    n_operations, _ = fail_at(tmp_path / "whole" / "ledger.sqlite", job_of("table"), 0, die)
    for number in np.linspace(2, n_operations - 1, 3).astype(int).tolist():
        path = tmp_path / str(number) / "ledger.sqlite"
        process = FORKS.Process(target=attempt_until, args=(path, number))
        process.start()
        process.join(60)
        assert process.exitcode == -signal.SIGKILL
        assert_one_draw(path, job_of("table"), [])


def test_the_harness_finds_a_release_that_forgets_its_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("parties.ledger.cell_store.CellStore.put_key", lambda *_: None)
    with pytest.raises(BaseException) as found:  # noqa: PT011 - of any kind
        test_a_failure_at_any_operation_costs_nothing_and_changes_no_draw(tmp_path, "table", die)
    assert not isinstance(found.value, KeyboardInterrupt)
