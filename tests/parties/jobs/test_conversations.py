"""Conversations of a service that a passive party breaks off, one after the other."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import pytest

from parties.config.reading import read_run
from parties.config.vertical import ActiveRun
from parties.jobs.conversations import Conversations
from parties.runs import run_log
from parties.runs.run_folder import RunFolder
from protocols.errors import PeerAborted
from protocols.transport.channel import Channel
from tests.support.score_services import Trained, trained

__all__ = ["trained"]


def breaks_off(channels: Sequence[Channel]) -> bool:
    raise PeerAborted(f"{channels[0].peer} broke off")


def events(folder: Path) -> Counter[str]:
    return Counter(json.loads(line)["event"] for line in (folder / "log.jsonl").read_text().splitlines())


@pytest.mark.parametrize("is_one_service", [True, False])
def test_what_a_peer_breaks_off_again_and_again_fills_no_disk(
    trained: Trained, is_one_service: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Services that are started one after the other log all of it, as often as a person starts them."""
    monkeypatch.setattr(run_log, "LOGGED_IN_FULL", 3)
    run = read_run(trained.bank.path / "spring.yaml", ActiveRun)
    model, before = RunFolder(run.run_folder).load_joint_model(), events(run.run_folder)
    conversations = Conversations(run, model, False)
    for _ in range(20):
        conversations = conversations if is_one_service else Conversations(run, model, False)
        with suppress(PeerAborted), conversations(breaks_off):
            pass
    found = events(run.run_folder) - before
    n_logged = 6 if is_one_service else 20  # The 1st, 2nd, 3rd, 4th, 8th and 16th.
    assert (found["listening"], found["failed"]) == (n_logged, n_logged)
