"""Real processes, killed or frozen behind a message: the other one ends in time and says who, where and why."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from numba import set_num_threads

from opboost.desensitize import ColumnMechanism
from opboost.mechanism_settings import MechanismSettings
from opboost.schema import ColumnSchema
from opboost.trees.losses import Logistic
from tests.support.clinics import NAMES, Clinics
from tests.support.processes import FORKS

TIMEOUT_S = 1.0

# How long a party waits for one that is gone to come back.
WAIT_S = 2.5

# Where each party is struck: behind which message, in which phase the other one is then, by that one's words.
PHASES = [
    ("shop", "received hello", "greeting"),
    ("shop", "received id confirmation", "collecting ranks"),
    ("shop", "sent offer", "collecting ranks"),
    ("shop", "received split ranks", "having split ranks resolved"),
    ("shop", "received done", "telling the others that the model is saved"),
    ("bank", "received hello", "greeting"),
    ("bank", "received offer", "sending ranks|waiting for the trees"),
    ("bank", "received rank chunk", "waiting for the trees"),
    ("bank", "sent split ranks", "waiting for the (trees|model to be saved)"),
    ("bank", "received thresholds", "waiting for the model to be saved"),
]
KILLED = [phase for phase in PHASES if phase[1] in ("sent offer", "received rank chunk", "received thresholds")]
FROZEN = [phase for phase in PHASES if phase[1] in ("received hello", "received split ranks", "sent split ranks")]


# A main thread that does nothing any more, while ZeroMQ's own thread answers heartbeats.
HANG = 0
STALL_S = 2.0


def hang(errors: str) -> None:
    Path(errors).with_suffix(".hung").touch()
    threading.Event().wait()


def slow_down() -> None:
    """Every round of training takes a fifth of a second longer."""
    from parties.vertical import party_a

    watch = party_a._watch

    def slowly(*arguments: Any) -> Any:
        report = watch(*arguments)
        return lambda found: (time.sleep(0.2), report(found))[1]

    party_a._watch = slowly  # type: ignore[assignment]


def take_part(role: str, path: str, victim: bool, behind: str, blow: int, errors: str, all_started: Any) -> None:
    """Run one party in this process, which strikes itself behind a message if it is the victim."""
    from parties.jobs.train_horizontal import train_coordinator, train_worker
    from parties.jobs.train_vertical import Terminal, train_active, train_passive
    from parties.jobs.warm_up import warm_drawing, warm_training
    from parties.runs.run_log import RunLog

    auditor = RunLog._auditor

    def watched(log: RunLog, event: str, peer: str) -> Any:
        note = auditor(log, event, peer)

        def noted(kind: str, frames: Sequence[Any]) -> None:
            note(kind, frames)
            if victim and f"{event} {kind}" == behind:
                os.kill(os.getpid(), blow) if blow else hang(errors)

        return noted

    RunLog._auditor = watched  # type: ignore[method-assign]
    if victim and behind == "a round":
        slow_down()
    set_num_threads(1)
    calls = {"active": train_active, "passive": train_passive, "coordinator": train_coordinator, "worker": train_worker}
    # Loops that were not compiled before take longer than the patience of these tests.
    warm_drawing([ColumnMechanism(ColumnSchema(name="any", lower=0, upper=1), MechanismSettings())])
    warm_training(Logistic())
    all_started.wait(60)
    try:
        calls[role](Path(path), insecure=False, terminal=Terminal())
    except Exception as error:
        Path(errors).write_text(f"{type(error).__name__}: {error}")
        sys.exit(1)


def start(sites: Any, victim: str = "", behind: str = "", blow: int = 0) -> dict[str, Any]:
    processes, all_started = {}, FORKS.Barrier(3)
    for site, role in ((sites.bank, "active"), (sites.shop, "passive")):
        arguments = (role, str(site.write()), site.party == victim, behind, blow)
        ends = (str(site.path / "errors.txt"), all_started)
        processes[site.party] = FORKS.Process(target=take_part, args=(*arguments, *ends), daemon=True)
    for process in processes.values():
        process.start()
    all_started.wait(60)
    return processes


def strike(sites: Any, victim: str, behind: str, blow: int) -> tuple[float, int, str]:
    """How long the survivor took to notice the blow, its exit code, and its last words."""
    for site in (sites.bank, sites.shop):
        site.run["timeout"] = TIMEOUT_S
    survivor = "bank" if victim == "shop" else "shop"
    getattr(sites, survivor).run["wait"] = WAIT_S
    processes = start(sites, victim, behind, blow)
    getattr(sites, survivor).run["wait"] = 20
    try:
        deadline = time.monotonic() + 30
        hung = getattr(sites, victim).path / "errors.hung"
        while not (hung.exists() if blow == HANG else is_struck(processes[victim])):
            assert time.monotonic() < deadline, "the victim was never struck"
            time.sleep(0.005)
        struck = time.time()
        processes[survivor].join(20)
    finally:
        for process in processes.values():
            process.kill()
            process.join(10)
    errors = getattr(sites, survivor).path / "errors.txt"
    said = errors.read_text() if errors.exists() else ""
    took = noticed_at(getattr(sites, survivor)) - struck
    return took, processes[survivor].exitcode, said


def noticed_at(site: Any) -> float:
    """When the survivor noted that it failed; on a busy machine it may take a while until its process is gone."""
    lines = [json.loads(line) for line in (site.run_folder / "log.jsonl").read_text().splitlines()]
    return datetime.fromisoformat(lines[-1]["time"]).timestamp()


def is_struck(process: Any) -> bool:
    """Whether it is dead or stands still."""
    if process.exitcode is not None:
        return True
    try:
        state = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state in "TZ"


def assert_ended_well(sites: Any, victim: str, code: int, said: str, where: str) -> None:
    assert code == 1, said
    kind, _, sentence = said.partition(": ")
    assert kind == "PeerLost"
    assert sentence.startswith(f"{victim} ")
    assert any(f"while this party was {phase}" in sentence for phase in expanded(where)), sentence
    survivor = sites.bank if victim == "shop" else sites.shop
    lines = [json.loads(line) for line in (survivor.run_folder / "log.jsonl").read_text().splitlines()]
    assert (lines[-1]["event"], lines[-1]["message"]) == ("failed", sentence)
    assert [path.name for path in survivor.run_folder.rglob(".*")] == []


def assert_goes_on(sites: Any) -> None:
    """Started again, both sides finish, with one release in all."""
    processes = start(sites)
    for process in processes.values():
        process.join(30)
    assert {party: process.exitcode for party, process in processes.items()} == {"bank": 0, "shop": 0}
    for site in (sites.bank, sites.shop):
        assert json.loads((site.run_folder / "meta.json").read_text())["finished"] is not None
        assert not (site.run_folder / "journal").exists()
    lines = [json.loads(line) for line in (sites.shop.run_folder / "log.jsonl").read_text().splitlines()]
    assert sum(line["n_drawn"] for line in lines if line["event"] == "released") == 2


def expanded(where: str) -> list[str]:
    if "(" not in where:
        return where.split("|")
    before, _, rest = where.partition("(")
    return [before + choice for choice in rest.rstrip(")").split("|")]


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
@pytest.mark.parametrize(
    ("victim", "behind", "where"), KILLED, ids=[f"{v} {b}".replace(" ", "-") for v, b, _ in KILLED]
)
def test_a_killed_party_is_waited_for_and_not_longer_and_the_run_goes_on_when_both_are_started_again(
    sites: Any, victim: str, behind: str, where: str
) -> None:
    took, code, said = strike(sites, victim, behind, signal.SIGKILL)
    # Up to 1 s of it may have passed between two looks before.
    assert WAIT_S - 1 < took < WAIT_S + 2.5
    assert_ended_well(sites, victim, code, said, where)
    assert_goes_on(sites)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
@pytest.mark.parametrize(
    ("victim", "behind", "where"), FROZEN, ids=[f"{v} {b}".replace(" ", "-") for v, b, _ in FROZEN]
)
def test_a_frozen_party_is_noticed_after_the_timeout(sites: Any, victim: str, behind: str, where: str) -> None:
    took, code, said = strike(sites, victim, behind, signal.SIGSTOP)
    # Silence counts from the last heartbeat, of which there is one every quarter of the timeout.
    assert took < 1.5 * TIMEOUT_S + WAIT_S + 1.5
    assert_ended_well(sites, victim, code, said, where)
    assert "or was silent for 1 s" in said


@pytest.mark.parametrize(
    ("victim", "behind", "where"), FROZEN, ids=[f"{v} {b}".replace(" ", "-") for v, b, _ in FROZEN]
)
def test_a_party_whose_program_hangs_is_given_up_though_its_sockets_answer(
    sites: Any, victim: str, behind: str, where: str
) -> None:
    # The victim's own tells how often it says that it goes on, until it hangs.
    for site in (sites.bank, sites.shop):
        site.run["stall"] = STALL_S
    took, code, said = strike(sites, victim, behind, HANG)
    assert took < 2 * STALL_S + 1
    assert_ended_well(sites, victim, code, said, where)
    assert "is connected, but its program has said nothing for 2 s" in said


def test_a_party_that_works_for_long_in_steps_is_waited_for(sites: Any) -> None:
    """Trees grow for some times the patience of the one that waits; what it waits for is the next step."""
    for site in (sites.bank, sites.shop):
        site.run["stall"] = STALL_S
    sites.bank.run["model"] = {"n_estimators": 30, "max_depth": 2}
    processes = start(sites, "bank", "a round", 0)
    for process in processes.values():
        process.join(60)
    assert {party: process.exitcode for party, process in processes.items()} == {"bank": 0, "shop": 0}
    lines = [json.loads(line) for line in (sites.bank.run_folder / "log.jsonl").read_text().splitlines()]
    sent = [(line["kind"], line["seconds"]) for line in lines if line["event"] == "sent"]
    assert max(seconds for _, seconds in sent) > 2.5 * STALL_S
    assert [kind for kind, _ in sent].count("heartbeat") >= 3


@pytest.mark.parametrize("victim", ["hub", "w1"])
def test_of_those_who_add_up_whoever_hangs_is_left(tmp_path: Path, victim: str) -> None:
    """The workers leave a coordinator, and a coordinator goes on without a worker."""
    clinics = Clinics(tmp_path)
    clinics.runs["hub"]["patience"] = 3
    for name in ("hub", *NAMES):
        clinics.runs[name]["stall"] = STALL_S
    processes, all_started = {}, FORKS.Barrier(4)
    for name in ("hub", *NAMES):
        role, behind = ("coordinator", "received masked") if name == "hub" else ("worker", "received add up")
        errors = str(tmp_path / name / "errors.txt")
        arguments = (role, str(clinics.write(name)), name == victim, behind, HANG, errors, all_started)
        processes[name] = FORKS.Process(target=take_part, args=arguments, daemon=True)
        processes[name].start()
    survivors = [name for name in processes if name != victim]
    try:
        for name in survivors:
            processes[name].join(60)
        codes = {name: processes[name].exitcode for name in survivors}
    finally:
        for process in processes.values():
            process.kill()
            process.join(10)
    assert set(codes.values()) == ({1} if victim == "hub" else {0}), codes
    if victim == "hub":
        for name in survivors:
            assert (
                "hub is connected, but its program has said nothing for 2 s"
                in (tmp_path / name / "errors.txt").read_text()
            )
    else:
        assert "the run goes on without w1" in (clinics.folder("hub") / "log.txt").read_text()
