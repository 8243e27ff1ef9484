"""A folder's lock keeps out other jobs, and nobody who only looks."""

from __future__ import annotations

import fcntl
import os
import threading
from pathlib import Path

from parties.storage.folder_lock import LOOK_S, is_locked, locked, locked_file


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


def test_a_files_lock_is_not_held_by_who_may_only_read_its_folder(tmp_path: Path) -> None:
    """Another user of the machine made every run with held-out records end: the ledger's folder was open to readers."""
    reading = os.open(tmp_path, os.O_RDONLY)
    fcntl.flock(reading, fcntl.LOCK_EX)
    try:
        with locked(tmp_path) as has_folder, locked_file(tmp_path / "key.json", wait_s=0) as is_alone:
            assert (has_folder, is_alone) == (False, True)
            with locked_file(tmp_path / "key.json", wait_s=0) as is_second:
                assert not is_second
    finally:
        os.close(reading)
    (beside,) = tmp_path.iterdir()
    assert (beside.name, beside.stat().st_mode & 0o777) == (".key.json.lock", 0o600)
