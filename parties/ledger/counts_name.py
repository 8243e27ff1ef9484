"""Names of the counts of answers that a ledger knows, one per active party (`parties.vertical.rate_limits`).

Counts do not go with a copy of a ledger, and one that was made before the first answer does not know that there were
any. So a copy that is put back holds the second of that: counts that it does not know and that are not there are lost.
"""

from __future__ import annotations

import sqlite3
import time
from contextlib import closing
from pathlib import Path

NAMES_TABLE = "CREATE TABLE IF NOT EXISTS served (peer TEXT PRIMARY KEY, name TEXT NOT NULL) WITHOUT ROWID"
NAME_OF_COUNTS = "SELECT name FROM served WHERE peer = ?"

# No active party is called so.
RESTORED = ""


def note_restored(ledger: Path) -> None:
    """Note in a copy of a ledger that it is put back now."""
    with closing(sqlite3.connect(ledger)) as database, database:
        database.execute(NAMES_TABLE)
        database.execute("INSERT OR REPLACE INTO served VALUES (?, ?)", (RESTORED, str(int(time.time()))))
