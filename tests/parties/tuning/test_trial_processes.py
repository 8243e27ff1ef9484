"""Processes of a tuning: each is told its number, and one that is killed is told in a sentence."""

from __future__ import annotations

import os
import signal
from functools import partial
from pathlib import Path

import pytest

from parties.errors import WorkersLost
from parties.tuning.trial_processes import in_processes


def note(folder: Path, number: int) -> None:
    (folder / str(number)).touch()


def be_killed(folder: Path, number: int) -> None:
    note(folder, number)
    os.kill(os.getpid(), signal.SIGKILL)


def test_every_process_has_a_number(tmp_path: Path) -> None:
    in_processes(2, partial(note, tmp_path), kept=tmp_path)
    assert sorted(one.name for one in tmp_path.iterdir()) == ["0", "1"]


def test_a_process_that_is_killed_is_one_sentence(tmp_path: Path) -> None:
    """A system that is short of memory kills one; the call ended in a traceback."""
    with pytest.raises(WorkersLost, match=r"one of 2 processes was killed; .* The trials in .* are kept"):
        in_processes(2, partial(be_killed, tmp_path), kept=tmp_path / "trials.jsonl")
