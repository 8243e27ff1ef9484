"""A folder's lock keeps out other jobs, and nobody who only looks."""

from __future__ import annotations

import fcntl
import os
import threading
from pathlib import Path

from parties.storage.folder_lock import LOOK_S, is_locked, locked


def test_who_looks_whether_a_folder_is_locked_keeps_no_job_away_and_sees_no_other_who_looks(tmp_path: Path) -> None:
    """A status that was asked for at that moment made a job end: another process was said to work on the run."""
    looking = os.open(tmp_path, os.O_RDONLY)
    fcntl.flock(looking, fcntl.LOCK_SH)
    assert not is_locked(tmp_path)
    threading.Timer(LOOK_S / 3, os.close, [looking]).start()
    with locked(tmp_path) as is_alone, locked(tmp_path) as is_second:
        assert (is_alone, is_second) == (True, False)
        assert is_locked(tmp_path)
    assert not is_locked(tmp_path)
