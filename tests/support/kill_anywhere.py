"""Trials of runs whose parties are struck anywhere; a supervisor starts again whoever was killed.

They are killed at a message, a file operation or a SQL statement, stopped for a while, or cut off by a broken link.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import signal
import sqlite3
import sys
import time
import traceback
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.broken_link import broken_link
from tests.support.processes import FORKS
from tests.support.sites import Sites

# By class of fault, about how many places there are in a run.
PLACES = {"message": 24, "file": 60, "sql": 40, "pause": 24, "link": 1}

# Seconds that a trial may take: two starts, and twice what a party waits.
MOST_S = 90.0


@dataclass(frozen=True, slots=True)
class Fault:
    """Where a party is struck: at which place of a kind. A broken link strikes both."""

    kind: str
    victim: str
    place: int

    @classmethod
    def drawn(cls, seed: int) -> Fault:
        """The fault of a trial."""
        draw = random.Random(seed)
        kind = list(PLACES)[seed % len(PLACES)]
        return cls(kind, draw.choice(["bank", "shop"]), draw.randint(1, PLACES[kind]))


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a trial ended: exit codes, errors, the model's digest, charges, tracebacks, seconds, and number of blows."""

    codes: tuple[int | None, ...]
    errors: str
    model: str
    charges: int
    tracebacks: str
    seconds: float
    n_blows: int


class _Striker:
    """Counts the places of a kind in this process, and strikes at one of them."""

    def __init__(self, fault: Fault, root: str) -> None:
        self._fault, self._root, self._n = fault, root, 0

    def pass_by(self) -> None:
        self._n += 1
        if self._n == self._fault.place:
            Path(self._root, "struck").touch()
            os.kill(os.getpid(), signal.SIGSTOP if self._fault.kind == "pause" else signal.SIGKILL)

    def watch(self) -> None:
        """Have every place of the kind passed by."""
        if self._fault.kind in ("message", "pause"):
            from parties.runs.run_log import RunLog

            auditor = RunLog._auditor

            def watched(log: RunLog, event: str, peer: str) -> Any:
                note = auditor(log, event, peer)
                return lambda kind, frames: (note(kind, frames), self.pass_by())

            RunLog._auditor = watched  # type: ignore[method-assign]
        elif self._fault.kind == "sql":
            connect = sqlite3.connect

            def traced(*arguments: Any, **options: Any) -> sqlite3.Connection:
                connection = connect(*arguments, **options)
                connection.set_trace_callback(lambda statement: self.pass_by())
                return connection

            sqlite3.connect = traced
        else:
            sys.addaudithook(self._note)

    def _note(self, event: str, arguments: Sequence[Any]) -> None:
        if event in ("open", "os.rename", "os.remove", "os.mkdir", "os.truncate"):
            path, writes = (
                str(arguments[0]),
                event != "open" or bool(int(arguments[2] or 0) & (os.O_WRONLY | os.O_RDWR)),
            )
            if writes and path.startswith(self._root):
                self.pass_by()


def take_part(role: str, path: str, fault: Fault | None) -> None:
    """Run one party in this process; a traceback is kept."""
    from parties.errors import EXPECTED_ERRORS
    from parties.jobs.train_vertical import Terminal, train_active, train_passive

    os.environ["NUMBA_NUM_THREADS"] = "1"
    root = str(Path(path).parent)
    if fault is not None:
        _Striker(fault, root).watch()
    try:
        (train_active if role == "bank" else train_passive)(Path(path), insecure=False, terminal=Terminal())
    except EXPECTED_ERRORS as error:
        Path(root, "errors.txt").write_text(str(error))
        sys.exit(1)
    except Exception:
        Path(root, "traceback.txt").write_text(traceback.format_exc())
        sys.exit(99)


def run_trial(root: Path, fault: Fault | None) -> Outcome:
    """Train with a fault, or without one."""
    sites, began = Sites(root), time.monotonic()
    both = {"bank": sites.bank, "shop": sites.shop}
    for site in both.values():
        site.run |= {"align": {"method": "psi"}, "wait": 20, "timeout": 2}
    sites.bank.run["model"] = {"n_estimators": 3, "max_depth": 3, "seed": 1}
    sites.shop.run |= {"seed": 3, "no_privacy": True}
    with ExitStack() as stack:
        link = None
        if fault is not None and fault.kind == "link":
            link = stack.enter_context(broken_link(int(sites.bank.run["listen"].rpartition(":")[2]), 0.4))
            sites.shop.run["connect"] = f"tcp://127.0.0.1:{link.port}"
        paths = {name: str(site.write()) for name, site in both.items()}
        processes: dict[str, Any] = {}

        def start(name: str, blow: Fault | None) -> None:
            processes[name] = FORKS.Process(target=take_part, args=(name, paths[name], blow), daemon=True)
            processes[name].start()

        for name in both:
            start(name, fault if fault is not None and fault.victim == name and link is None else None)
        try:
            n_blows = _supervise(processes, both, start, began)
        finally:
            for process in processes.values():
                process.kill()
                process.join(10)
        n_blows += 0 if link is None else link.n_breaks
    model = sites.bank.run_folder / "model.json"
    return Outcome(
        codes=tuple(process.exitcode for process in processes.values()),
        errors="; ".join(path.read_text() for path in sorted(root.glob("*/errors.txt"))),
        model=hashlib.sha256(model.read_bytes()).hexdigest() if model.exists() else "",
        charges=_kinds(sites.shop.path / "runs" / "ledger.sqlite")["charge"],
        tracebacks="".join(path.read_text() for path in root.glob("*/traceback.txt")),
        seconds=time.monotonic() - began,
        n_blows=n_blows,
    )


def _supervise(processes: dict[str, Any], sites: dict[str, Any], start: Any, began: float) -> int:
    """Start again who was killed, and let go on who stands still; returns how often that was."""
    n_blows, paused = 0, dict[str, float]()
    while time.monotonic() - began < MOST_S:
        for name, process in list(processes.items()):
            if process.exitcode == -signal.SIGKILL:
                n_blows += 1
                start(name, None)
            elif process.exitcode is None and (sites[name].path / "struck").exists():
                since = paused.setdefault(name, time.monotonic())
                # Longer than the timeout: the other side takes the connection for broken.
                if time.monotonic() - since > 3:
                    (sites[name].path / "struck").unlink()
                    os.kill(process.pid, signal.SIGCONT)
                    n_blows += 1
        if all(process.exitcode not in (None, -signal.SIGKILL) for process in processes.values()):
            break
        time.sleep(0.02)
    return n_blows


def _kinds(ledger: Path) -> Counter[str]:
    database = sqlite3.connect(ledger)
    try:
        rows = database.execute("SELECT fields FROM lines").fetchall()
    except sqlite3.OperationalError:
        # The party ended before it had a ledger.
        rows = []
    finally:
        database.close()
    return Counter(json.loads(fields)["kind"] for (fields,) in rows)
