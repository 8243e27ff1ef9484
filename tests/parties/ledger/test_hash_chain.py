"""Sums that are kept beside many lines change nothing: every line is still read, and every change found."""

from __future__ import annotations

import hashlib
import json
import math
import os
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from parties.errors import LedgerError, OverBudget
from parties.ledger import hash_chain
from parties.ledger.budget import Budget, Limit
from parties.ledger.costs import Cells, Cost, Unit
from parties.ledger.hash_chain import HashChain
from parties.ledger.ledger_lines import ChargedColumn, Occasion, Reuse
from parties.ledger.release_ledger import Ledger
from parties.tables.key_sets import NAME
from tests.support.numbered_names import names

SPRING = Occasion(run_id="spring", task="train", peer="bank")
N_TIMES = 12

# The first one, and every time two charges, cells, two digests and a reuse.
N_LINES = 1 + 6 * N_TIMES


def release(column: str, mechanism: str, *, epsilon: float = 0.1, n: int = 3) -> ChargedColumn:
    cost = Cost(
        column=column,
        loss=lambda points: points * epsilon,
        category_epsilon=0.5,
        cells=Cells(3, 40) if column == "age" else None,
        point=2.0,
        unit=Unit(2.0, "2 original units"),
        records=names(range(n)),
    )
    return ChargedColumn(schema="s", mechanism=mechanism, terms={"mechanism": "global"}, cost=cost)


def spend(path: Path, n_times: int, *, first: int = 0) -> None:
    with Ledger(path) as ledger:
        for time in range(first, first + n_times):
            charged = [release("age", f"{time}", n=2 + time % 3), release("tówn", f"{time}")]
            numbers = ledger.charge(charged, {"age": Reuse((2,), 3)}, SPRING, Budget())
            names = np.array([f"{time}".encode()], NAME)
            with ledger.changing():
                for number, one in zip(numbers, charged, strict=True):
                    ledger.cells.put(
                        number, one.family, ledger.cells.names.put(names), np.ones(1, int), np.ones(1, int)
                    )


def state(ledger: Ledger) -> tuple[Any, ...]:
    balances = ledger.sums.balances
    worst = [balances.worst(column) for column in sorted(balances.columns)]
    return (
        ledger.name,
        ledger.n_lines,
        worst,
        balances.worst_record(),
        balances.n_records,
        balances.units,
        dict(ledger.sums.n_releases),
        dict(ledger.sums.n_reuses),
        ledger.sums.peers,
        ledger.sums.contents,
        ledger.sums.families,
        ledger.sums.n_answered,
    )


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hash_chain, "LINES_PER_SUMS", 20)
    monkeypatch.setattr(hash_chain, "_LINES_AT_ONCE", 7)


@pytest.fixture
def kept(tmp_path: Path, short: None) -> Path:
    """A ledger whose lines are in kept sums but for the last few."""
    path = tmp_path / "ledger.sqlite"
    spend(path, N_TIMES - 1)
    spend(path, 1, first=N_TIMES - 1)
    return path


def counted(monkeypatch: pytest.MonkeyPatch, path: Path) -> tuple[int, tuple[Any, ...]]:
    """How many lines are verified one by one when the ledger is opened, and what it then knows."""
    n_counted, before = 0, HashChain._count_line

    def count(self: HashChain, text: str) -> None:
        nonlocal n_counted
        n_counted += 1
        before(self, text)

    with monkeypatch.context() as patch:
        patch.setattr(HashChain, "_count_line", count)
        with Ledger(path) as ledger:
            return n_counted, state(ledger)


def test_kept_sums_say_what_the_lines_say(kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    n_few, fast = counted(monkeypatch, kept)
    kept.with_suffix(".sums.json").unlink()
    n_all, slow = counted(monkeypatch, kept)
    assert fast == slow
    assert n_few < 20 < n_all == N_LINES
    assert counted(monkeypatch, kept) == (0, slow)


def test_infinite_costs_survive_in_kept_sums(tmp_path: Path, short: None) -> None:
    path = tmp_path / "ledger.sqlite"
    with Ledger(path) as ledger:
        ledger.charge([release("age", "x", epsilon=math.inf)] * 30, {}, SPRING, Budget())
    Ledger(path).__exit__()
    assert json.loads(path.with_suffix(".head.json").read_text())["verified"]["lines"] == 61
    with Ledger(path) as ledger, pytest.raises(OverBudget):
        ledger.charge([release("age", "y")], {}, SPRING, Budget(Limit(5.0)))


def meddle(statements: str) -> Callable[[Path], None]:
    def change(path: Path) -> None:
        database = sqlite3.connect(path)
        triggers = (
            f"DROP TRIGGER no_{verb}_{table};" for table in ("lines", "record_sets") for verb in ("UPDATE", "DELETE")
        )
        database.executescript("".join(triggers) + statements)
        database.close()

    return change


MEDDLINGS: dict[str, Callable[[Path], None]] = {
    "a cheaper charge": meddle(
        "UPDATE lines SET fields = replace(fields, '\"epsilon\":0.1', '\"epsilon\":0.0') WHERE number = 3"
    ),
    "one letter": meddle("UPDATE lines SET fields = replace(fields, 'bank', 'tank') WHERE number = 9"),
    "a line removed": meddle("DELETE FROM lines WHERE number = 4"),
    "a line moved": meddle("UPDATE lines SET number = -1 WHERE number = 4"),
    "a digest": meddle("UPDATE lines SET digest = 'x' || substr(digest, 2) WHERE number = 5"),
    "two lines in one": meddle(
        "UPDATE lines SET fields = (SELECT fields || char(10) || digest FROM lines WHERE number = 4) || char(10) "
        "|| fields WHERE number = 5; DELETE FROM lines WHERE number = 4"
    ),
    "a line of the newest": meddle(
        "UPDATE lines SET fields = fields || ' ' WHERE number = (SELECT MAX(number) FROM lines)"
    ),
    "the last line": meddle("DELETE FROM lines WHERE number = (SELECT MAX(number) FROM lines)"),
    "records": meddle("UPDATE record_sets SET records = substr(records, 9)"),
    "no records": meddle("DELETE FROM record_sets"),
}


@pytest.mark.parametrize("change", MEDDLINGS.values(), ids=MEDDLINGS)
def test_meddling_with_lines_whose_sums_are_kept_is_found(kept: Path, change: Callable[[Path], None]) -> None:
    change(kept)
    with pytest.raises(LedgerError, match=r"ledger\.sqlite cannot be trusted: .*Nothing was released$"):
        Ledger(kept)


def test_the_meddling_above_is_what_is_found(kept: Path) -> None:
    meddle("")(kept)
    Ledger(kept).__exit__()


def test_every_line_that_is_changed_is_found(kept: Path, tmp_path: Path) -> None:
    for number in range(1, 1 + N_LINES, 4):
        for file in tmp_path.glob("ledger.*"):
            (tmp_path / "copy").mkdir(exist_ok=True)
            shutil.copy(file, tmp_path / "copy" / file.name)
        copy = tmp_path / "copy" / "ledger.sqlite"
        meddle(f"UPDATE lines SET fields = replace(fields, '\"kind\"', '\"kInd\"') WHERE number = {number}")(copy)
        with pytest.raises(LedgerError, match=f"line {number} was changed or removed"):
            Ledger(copy)


def richer(path: Path) -> None:
    """Sums that say that nothing was spent."""
    sums = path.with_suffix(".sums.json")
    document = json.loads(sums.read_text())
    document["sums"]["balances"]["sets"] = []
    sums.write_text(json.dumps(document))


def older(path: Path) -> None:
    """Sums and head of an earlier day, beside a ledger that went on."""
    saved = {suffix: path.with_suffix(suffix).read_bytes() for suffix in (".sums.json", ".head.json")}
    spend(path, 6, first=N_TIMES)
    for suffix, content in saved.items():
        path.with_suffix(suffix).write_bytes(content)


def of_another_format(path: Path) -> None:
    """Sums as a version before kept them, and a head that knows them."""
    sums, head = path.with_suffix(".sums.json"), path.with_suffix(".head.json")
    sums.write_text(json.dumps({**json.loads(sums.read_text()), "format": 1}))
    document = json.loads(head.read_text())
    document["verified"]["sums"] = hashlib.sha256(sums.read_bytes()).hexdigest()
    head.write_text(json.dumps(document))


def garbled(path: Path) -> None:
    path.with_suffix(".sums.json").write_bytes(b"\xff")


def gone(path: Path) -> None:
    path.with_suffix(".sums.json").unlink()


def a_pipe(path: Path) -> None:
    gone(path)
    os.mkfifo(path.with_suffix(".sums.json"))


@pytest.mark.parametrize("change", [richer, older, of_another_format, garbled, gone, a_pipe])
def test_sums_that_are_not_those_of_the_head_count_nothing(
    kept: Path, monkeypatch: pytest.MonkeyPatch, change: Callable[[Path], None]
) -> None:
    change(kept)
    found = counted(monkeypatch, kept)[1]
    head = kept.with_suffix(".head.json")
    head.write_text(json.dumps({key: json.loads(head.read_text())[key] for key in ("lines", "digest")}))
    assert counted(monkeypatch, kept) == (found[1], found)


def test_a_head_of_an_earlier_version_is_read(tmp_path: Path, short: None, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "ledger.sqlite"
    spend(path, 2)
    head = path.with_suffix(".head.json")
    head.write_text(json.dumps({key: json.loads(head.read_text())[key] for key in ("lines", "digest")}))
    assert counted(monkeypatch, path)[0] == 13


def test_sums_that_find_no_room_are_left_out(kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_room(path: Path, content: bytes) -> None:
        if path.name == "ledger.sums.json":
            raise OSError(28, "No space left on device")
        write(path, content)

    write = hash_chain.write_private
    gone(kept)
    monkeypatch.setattr(hash_chain, "write_private", no_room)
    assert [counted(monkeypatch, kept)[0] for _ in range(2)] == [N_LINES] * 2


def test_a_link_to_itself_is_one_sentence(tmp_path: Path) -> None:
    """It was a bare OSError."""
    (path := tmp_path / "ledger.sqlite").symlink_to(path)
    with pytest.raises(LedgerError, match=r"ledger\.sqlite cannot be used: .*symbolic links\. Nothing was released"):
        Ledger(path)


@pytest.mark.parametrize("create", [True, False])
def test_no_ledger_is_begun_through_a_link(tmp_path: Path, create: bool) -> None:
    """Where a disk was not mounted, another ledger was begun on its empty folder, and all was drawn a second time."""
    (place := tmp_path / "disk").mkdir()
    (link := tmp_path / "ledger.sqlite").symlink_to(place / "people.sqlite")
    spend(place / "people.sqlite", 1)
    with Ledger(link) as ledger:
        n_lines = ledger.n_lines
    place.rename(tmp_path / "away")
    place.mkdir()
    with pytest.raises(LedgerError, match=r"is a link to .*people\.sqlite, which is not there: bring that file back;"):
        Ledger(link, create=create)
    assert not list(place.iterdir())
    place.rmdir()
    (tmp_path / "away").rename(place)
    (place / "people.sqlite").rename(tmp_path / "elsewhere")
    with pytest.raises(LedgerError, match=r"is not there although its head is\. Restore it from a backup"):
        Ledger(link, create=create)
    (tmp_path / "elsewhere").rename(place / "people.sqlite")
    with Ledger(link) as ledger:
        assert ledger.n_lines == n_lines


def test_a_pipe_in_the_place_of_the_head_is_refused_at_once(kept: Path) -> None:
    """Whoever opened the ledger waited for a writer."""
    (head := kept.with_suffix(".head.json")).unlink()
    os.mkfifo(head)
    with pytest.raises(LedgerError, match=r"head\.json is a named pipe\. Nothing was released"):
        Ledger(kept)
