"""Round journal: a new process has what was kept, and a damaged file is refused in a sentence."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from parties.errors import LedgerError, RunFolderError
from parties.horizontal.round_journal import RoundJournal
from protocols.messages.horizontal import Commitments, Reveals

ROWS = np.arange(64, dtype=np.uint8).reshape(2, 32)
ASKED = Commitments(names=("w0", "w1"), rows=ROWS, is_open=True)
DRAWN = ASKED.model_copy(update={"is_open": False}), Reveals(rows=ROWS[::-1].copy())


def test_a_new_process_goes_on_with_what_was_kept(tmp_path: Path) -> None:
    path, begun = tmp_path / "journal" / "rounds.sqlite", list[int]()
    first = RoundJournal(path, begin=lambda: begun.append(1))
    assert first.drawing is None
    assert first.sum(0) is None
    words = first.bits().words(4).tolist()
    first.note_commitments(ASKED)
    assert begun == [1]
    assert (repr(first.commitments), first.drawing) == (repr(ASKED), None)
    first.note_reveals(DRAWN[1])
    first.note_survivors(0, ["w1", "w0"])
    first.note_bound(0, {"w0": frozenset({"w1", "w0"})})
    first.note_sum(0, np.array([-1, 2**62], np.int64))
    first.note_done("w1")
    again = RoundJournal(path)
    assert again.bits().words(4).tolist() == words
    assert [repr(part) for part in again.drawing or ()] == [repr(part) for part in DRAWN]
    assert again.sum(0).tolist() == [-1, 2**62]
    assert again.survivors(0) == {"w0", "w1"}
    assert again.survivors(1) == set()
    assert again.rounds_of(2) == {"w0": 1, "w1": 1}
    assert (again.bound(0), again.bound(1)) == ({"w0": {"w0", "w1"}}, {})
    assert again.done == {"w1"}
    assert path.stat().st_mode & 0o777 == 0o600
    for journal in (first, again):
        journal.close()


def test_bits_of_another_version_are_not_drawn_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Trees would be told anew, with other noise on the same sums."""
    with closing(RoundJournal(tmp_path / "rounds.sqlite")) as first:
        first.bits()
    monkeypatch.setattr("parties.runs.installed_versions.package_version", lambda: "9.9")
    words = r"began under version .*; version 9\.9 may draw .* Nothing was drawn"
    with closing(RoundJournal(tmp_path / "rounds.sqlite")) as again, pytest.raises(RunFolderError, match=words):
        again.bits()


def test_no_two_journals_have_the_same_bits() -> None:
    assert RoundJournal().bits().words(4).tolist() != RoundJournal().bits().words(4).tolist()


def test_commitments_that_are_dropped_serve_no_drawing() -> None:
    journal = RoundJournal()
    journal.note_commitments(ASKED)
    journal.note_commitments(None)
    assert (journal.commitments, journal.drawing) == (None, None)


def filled(path: Path) -> RoundJournal:
    kept = RoundJournal(path)
    kept.note_commitments(ASKED)
    kept.note_reveals(DRAWN[1])
    kept.note_sum(0, np.arange(3))
    return kept


@pytest.mark.parametrize("name", ["rounds.sqlite", "rounds.copy.sqlite"])
@pytest.mark.parametrize("damage", ["no database", "row", "gone"])
def test_a_damaged_file_is_read_from_the_other_and_written_again(tmp_path: Path, name: str, damage: str) -> None:
    kept = filled(tmp_path / "rounds.sqlite")
    words = kept.bits().words(4).tolist()
    kept.close()
    spoil(tmp_path / name, damage)
    for _ in range(2):
        again = RoundJournal(tmp_path / "rounds.sqlite")
        assert again.bits().words(4).tolist() == words
        assert [repr(part) for part in again.drawing or ()] == [repr(part) for part in DRAWN]
        assert again.sum(0).tolist() == [0, 1, 2]
        again.note_sum(0, np.arange(3))
        again.note_sum(1, np.arange(4))
        assert again.sum(1).tolist() == [0, 1, 2, 3]
        again.close()
    if damage == "no database":
        spoil(tmp_path / ({"rounds.sqlite", "rounds.copy.sqlite"} - {name}).pop(), damage)
        last = RoundJournal(tmp_path / "rounds.sqlite")
        assert last.sum(0).tolist() == [0, 1, 2]
        last.close()


def spoil(path: Path, damage: str) -> None:
    if damage == "gone":
        path.unlink()
    elif damage == "no database":
        path.write_bytes(b"no database" * 100)
    else:
        with closing(sqlite3.connect(path)) as database, database:
            database.execute("UPDATE kept SET content = ? WHERE name = 'sum 0'", (b"other678",))


def test_what_is_damaged_in_both_files_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "rounds.sqlite"
    filled(path).close()
    for name in ("rounds.sqlite", "rounds.copy.sqlite"):
        spoil(tmp_path / name, "row")
    broken = RoundJournal(path)
    with pytest.raises(RunFolderError, match=r"rounds\.sqlite is malformed; choose another run_id\. Nothing was sent"):
        broken.sum(0)
    broken.close()


def test_a_file_that_cannot_be_used_is_not_taken_for_a_damaged_one(tmp_path: Path) -> None:
    path = tmp_path / "rounds.sqlite"
    filled(path).close()
    path.chmod(0o644)
    with pytest.raises(LedgerError, match="must be readable by its owner alone"):
        RoundJournal(path)
    assert path.exists()
