"""Counts of answers that were made after a copy of the ledger do not begin anew when it is put back."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest

from parties.config.serve_section import ServeSection
from parties.ledger.backup import back_up, restore
from parties.ledger.counts_name import RESTORED
from parties.storage.atomic_files import partial_of
from parties.vertical.rate_limits import DAY_S, Allowance, allowance_path, counts_state
from tests.support.released_cells import on_account, train

LIMITS = ServeSection(records_per_minute=9, routed_bits_per_day=20)


def take(path: Path, peer: str, *, later_s: float = 0) -> tuple[bool, int]:
    """Whether counts are lost, and how many of two records are answered."""
    with Allowance(path, LIMITS, peer, clock=lambda: time.time() + later_s) as allowance:
        return allowance.is_lost, allowance.take_bits(allowance.take_records(2), bits_each=10)


def test_pages_of_a_copy_that_was_put_back_when_its_process_was_killed_are_none_of_the_next_ones(
    tmp_path: Path,
) -> None:
    path = tmp_path / "runs" / "ledger.sqlite"
    on_account(path, train())
    back_up(path, tmp_path / "copy")
    path.unlink()
    killed = """
import os, sqlite3, sys
database = sqlite3.connect(sys.argv[1])
database.execute("PRAGMA journal_mode = WAL")
database.execute("CREATE TABLE IF NOT EXISTS served (peer TEXT PRIMARY KEY, name TEXT NOT NULL) WITHOUT ROWID")
database.execute("INSERT INTO served VALUES ('bank', 'another one')")
database.commit()
os._exit(0)
"""
    unfinished = partial_of(path)
    unfinished.write_bytes((tmp_path / "copy" / path.name).read_bytes())
    subprocess.run([sys.executable, "-c", killed, str(unfinished)], check=True)
    assert unfinished.with_name(f"{unfinished.name}-wal").stat().st_size > 0
    restore(tmp_path / "copy", path)
    with closing(sqlite3.connect(path)) as database:
        assert [peer for (peer,) in database.execute("SELECT peer FROM served")] == [RESTORED]


@pytest.mark.parametrize("is_answered", [True, False], ids=["answered before the copy", "answered since"])
def test_a_copy_that_is_put_back_renews_no_counts(tmp_path: Path, is_answered: bool) -> None:
    path = tmp_path / "runs" / "ledger.sqlite"
    on_account(path, train())
    if is_answered:
        assert take(path, "bank") == (False, 2)
    back_up(path, tmp_path / "copy")
    if not is_answered:
        assert take(path, "bank") == (False, 2)
    path.unlink()
    restore(tmp_path / "copy", path)
    # The counts were not lost.
    assert counts_state(path, "bank") == (False, 0)
    assert take(path, "bank") == (False, 0)
    for file in path.parent.iterdir():
        file.unlink()
    restore(tmp_path / "copy", path, older=True)
    assert counts_state(path, "bank") == (True, 0)
    assert take(path, "bank") == (True, 0)
    assert take(path, "bank") == (False, 0)
    # Whoever is new may have been answered, too, since the copy was made.
    assert counts_state(path, "insurer") == (True, 0)
    assert counts_state(path, "insurer", clock=lambda: time.time() + DAY_S) == (False, 0)
    assert take(path, "insurer", later_s=DAY_S) == (False, 2)
    assert take(path, "bank", later_s=DAY_S) == (False, 2)
    assert allowance_path(path).exists()
