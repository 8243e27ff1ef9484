"""Parties over links that break, and parties that are killed and started again while the others wait in one process."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import sys
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from numba import set_num_threads

from parties.errors import Disagreement
from parties.jobs.answer_vertical import serve_passive
from parties.jobs.predict_vertical import predict_active
from parties.jobs.train_vertical import Terminal, train_active, train_passive
from parties.runs.run_log import RunLog
from parties.session import reconnection
from parties.session.reconnection import MAX_RESTARTS, Restarts, with_restarts
from protocols.errors import PeerLost, PeerRestarted, UnexpectedMessage
from protocols.transport.channel import Traffic
from tests.support.broken_link import broken_link
from tests.support.processes import FORKS

SILENT = Terminal()


def run(role: str, path: str, blow: str) -> None:
    """Run one party in this process, which kills itself behind a message, such as ``sent offer``."""
    auditor = RunLog._auditor

    def watched(log: RunLog, event: str, peer: str) -> Any:
        note = auditor(log, event, peer)

        def noted(kind: str, frames: Any) -> None:
            note(kind, frames)
            if f"{event} {kind}" == blow:
                os.kill(os.getpid(), signal.SIGKILL)

        return noted

    RunLog._auditor = watched  # type: ignore[method-assign]
    set_num_threads(1)
    calls: dict[str, Callable[[], Any]] = {
        "bank": lambda: train_active(Path(path), insecure=False, terminal=SILENT),
        "shop": lambda: train_passive(Path(path), insecure=False, terminal=SILENT),
        "asks": lambda: predict_active(
            Path(path), data=None, ids=None, mode="routed", out=None, insecure=False, terminal=SILENT
        ),
        "answers": lambda: serve_passive(Path(path), data=None, insecure=False, terminal=SILENT),
    }
    try:
        calls[role]()
    except Exception as error:
        sys.exit(f"{type(error).__name__}: {error}")


def ends(sites: Any, roles: dict[str, str], victim: str = "", blow: str = "") -> dict[str, int | None]:
    """How processes of both parties end, when one is killed behind a message and started again."""
    paths = {name: str(getattr(sites, name).write()) for name in ("bank", "shop")}

    def start(name: str, behind: str) -> Any:
        process = FORKS.Process(target=run, args=(roles[name], paths[name], behind), daemon=True)
        process.start()
        return process

    processes = {name: start(name, blow if name == victim else "") for name in roles}
    try:
        if victim:
            processes[victim].join(30)
            assert processes[victim].exitcode == -signal.SIGKILL
            processes[victim] = start(victim, "")
        for process in processes.values():
            process.join(40)
        return {name: process.exitcode for name, process in processes.items()}
    finally:
        for process in processes.values():
            process.kill()
            process.join(10)


def charges(sites: Any) -> Counter[str]:
    database = sqlite3.connect(sites.shop.path / "runs" / "ledger.sqlite")
    rows = database.execute("SELECT fields FROM lines").fetchall()
    database.close()
    return Counter(json.loads(fields)["kind"] for (fields,) in rows)


TRAINING = {"bank": "bank", "shop": "shop"}


@pytest.mark.parametrize(
    ("victim", "blow"),
    [
        ("shop", "sent transfer points"),
        ("shop", "sent reblinded ids"),
        ("shop", "sent offer"),
        ("shop", "received done"),
        ("bank", "sent common ids"),
        ("bank", "received rank chunk"),
        ("bank", "sent done"),
    ],
)
def test_a_party_waits_within_its_process_for_one_that_is_killed_and_started_again(
    sites: Any, victim: str, blow: str
) -> None:
    for site in (sites.bank, sites.shop):
        site.run["align"] = {"method": "psi-dh" if blow == "sent reblinded ids" else "psi"}
    sites.bank.run["model"]["seed"] = 1
    if blow == "sent done":
        # The shop is finished and gone, and the bank waits for it in vain before it finishes alone.
        sites.bank.run["wait"] = 5
    assert ends(sites, TRAINING, victim, blow) == {"bank": 0, "shop": 0}
    found = charges(sites)
    assert (found["charge"], found["tests"]) == (2, 1)


def test_a_run_over_a_link_that_breaks_gives_the_same_model(sites: Any, tmp_path: Path) -> None:
    port = int(sites.bank.run["listen"].rpartition(":")[2])
    sites.shop.run["seed"] = 3
    sites.shop.run["no_privacy"] = True
    models = []
    for lasts_s in (60.0, 0.4):
        for site in (sites.bank, sites.shop):
            site.run |= {"align": {"method": "psi"}, "folder": f"runs/{lasts_s}", "run_id": "spring"}
        sites.shop.run["ledger"] = {"path": f"{lasts_s}.sqlite"}
        sites.bank.run["model"] = {"n_estimators": 5, "max_depth": 3, "seed": 1}
        with broken_link(port, lasts_s) as link:
            sites.shop.run["connect"] = f"tcp://127.0.0.1:{link.port}"
            assert ends(sites, TRAINING) == {"bank": 0, "shop": 0}
        models.append((sites.bank.path / f"runs/{lasts_s}" / "model.json").read_bytes())
    assert models[0] == models[1]


class Counting:
    """A channel that counts how often it began again."""

    peer = "b"
    n_begun = 0

    def __init__(self) -> None:
        self.traffic = Traffic()

    def reset(self, *, renews_deadline: bool = False) -> None:
        assert renews_deadline
        self.n_begun += 1


class Note:
    """A log that drops its lines."""

    def step(self, event: str, sentence: str) -> None:
        assert event == "begins again"


def test_a_peer_cannot_begin_again_without_end() -> None:
    """Each beginning is another look at the ids."""
    channel, n_tries = Counting(), []

    def work(n_compared: int = 0) -> None:
        n_tries.append(1)
        channel.traffic.n_compared += n_compared
        raise PeerRestarted("b was started again")

    with pytest.raises(PeerRestarted):
        with_restarts([channel], work, Note())  # type: ignore[arg-type,list-item]
    assert (len(n_tries), channel.n_begun) == (MAX_RESTARTS + 1, MAX_RESTARTS)
    restarts = Restarts(n=3)
    with pytest.raises(UnexpectedMessage, match="the 9th time in this process"):
        with_restarts([channel], partial(work, 1), Note(), restarts)  # type: ignore[arg-type,list-item]
    assert channel.n_begun == MAX_RESTARTS + MAX_RESTARTS - 3


@pytest.mark.parametrize("error", [PeerLost("b is gone"), Disagreement("other ids")])
def test_what_is_no_restart_ends_the_job(error: Exception) -> None:
    def work() -> None:
        raise error

    with pytest.raises(type(error)):
        with_restarts([Counting()], work, Note())  # type: ignore[arg-type,list-item]
    assert reconnection.MAX_RESTARTS > 0


@pytest.mark.parametrize("kind", [PeerLost, PeerRestarted])
def test_a_peer_that_compares_no_ids_may_be_away_as_often_as_it_likes(kind: type[PeerLost]) -> None:
    """Nor is a job over for good with `--retry` where its first connections are broken on the way again and again."""

    def work() -> None:
        raise kind("b could not be reached")

    restarts, channel = Restarts(), Counting()
    channel.traffic.n_compared = 1  # In an earlier beginning, which was counted.
    for _ in range(3 * MAX_RESTARTS):
        with pytest.raises(kind):
            with_restarts([channel], work, Note(), restarts)  # type: ignore[arg-type,list-item]
    assert restarts.n == 0


def test_checks_of_agreement_count_over_all_attempts_of_a_job() -> None:
    """Each compares a set of ids with this party's."""
    restarts = Restarts()
    for attempt in range(1, 4):
        channel = Counting()

        def work(channel: Counting = channel) -> int:
            channel.traffic.n_checks += 2
            return channel.traffic.n_checks

        assert with_restarts([channel], work, Note(), restarts) == 2 * attempt  # type: ignore[arg-type,list-item]
