"""Trials of runs whose parties are struck anywhere; a supervisor starts again whoever was killed.

They are killed at a message, a file operation or a SQL statement, stopped for a while, cut off by broken links, find
the disk full once, have their clock set to another day, or lose their run folder.
"""

from __future__ import annotations

import datetime
import errno
import hashlib
import json
import os
import random
import shutil
import signal
import sqlite3
import sys
import tempfile
import threading
import time
import traceback
import weakref
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import pandas as pd
import yaml

from tests.support import chained_clinics, clinics
from tests.support.addresses import free_addresses
from tests.support.broken_link import BrokenLink, broken_link
from tests.support.processes import FORKS
from tests.support.sites import Sites

# By class of fault, what is counted until it strikes; the links of all parties break.
PLACES = {
    "message": "message",
    "file": "file",
    "sql": "sql",
    "pause": "message",
    "link": "",
    "full": "file",
    "clock": "message",
    "folder": "message",
}


@dataclass(frozen=True, slots=True)
class Party:
    """A party of a scene: its command, and about how many messages, file operations and SQL statements it has."""

    command: str
    message: int
    file: int
    sql: int


# In `corrected`, a pair learns through the noise, which takes several times as long.
SCENES: dict[str, dict[str, Party]] = {
    "pair": {"bank": Party("party-a", 20, 157, 0), "shop": Party("party-b", 20, 81, 492)},
    "workers": {
        "hub": Party("coordinator", 177, 50, 73),
        **dict.fromkeys(("w0", "w1", "w2"), Party("worker", 59, 183, 34)),
    },
    "chain": dict.fromkeys(("w0", "w1", "w2"), Party("chain", 16, 144, 44)),
    "predict": {"bank": Party("predict", 5, 25, 0), "shop": Party("serve", 5, 19, 481)},
    "corrected": {"bank": Party("party-a", 20, 167, 0), "shop": Party("party-b", 20, 86, 492)},
}
TURNS, RARE = ("pair", "workers", "chain", "predict"), 4

# Charges of a run: columns that a passive party released, or runs of workers and owners.
CHARGES = {"pair": 2, "workers": 3, "chain": 3, "predict": 4, "corrected": 2}

# Seconds that a party waits for another one, after which it ends by itself: who logs nothing for longer hangs. On
# a busy machine a trial lasts, but something happens; the other limit is for trials that would never end.
WAIT_S = 60
HANG_S, MOST_S = WAIT_S + 30.0, 900.0

# A link lasts so long at first, and longer with every break.
LINK_S = 0.15

# How often somebody who ended since its disk or a peer's was full, or a run folder lost, is started again.
MOST_STARTS = 5


@dataclass(frozen=True, slots=True)
class Fault:
    """Where a party of a scene is struck: at which place of a kind. A broken link strikes all."""

    scene: str
    kind: str
    victim: str
    place: int

    @classmethod
    def drawn(cls, seed: int) -> Fault:
        """The fault of a trial."""
        draw, turn = random.Random(seed), seed // len(TURNS)
        scene, kind = TURNS[seed % len(TURNS)], list(PLACES)[turn % len(PLACES)]
        if scene == "pair" and turn // len(PLACES) % RARE == RARE - 1:
            scene = "corrected"
        n_places = {name: getattr(party, PLACES[kind], 1) for name, party in SCENES[scene].items()}
        victim = draw.choice([name for name, n in n_places.items() if n])
        return cls(scene, kind, victim, draw.randint(1, n_places[victim]))


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a trial ended: exit codes, errors, the models' digests, charges, tracebacks, seconds, and number of blows.

    Of the seconds, `still_s` are the longest time in which nobody logged anything, began or ended.

    Also the exit code with which the one who was struck ended first; None if it was killed.
    """

    codes: tuple[int | None, ...]
    errors: str
    model: str
    charges: int
    tracebacks: str
    seconds: float
    n_blows: int
    first_code: int | None = None
    still_s: float = 0.0


class _Striker:
    """Counts the places of a kind in this process, and strikes at one of them."""

    def __init__(self, fault: Fault, root: str) -> None:
        self._fault, self._root, self._n = fault, root, 0

    def pass_by(self) -> None:
        self._n += 1
        if self._n != self._fault.place:
            return
        Path(self._root, "struck").touch()
        match self._fault.kind:
            case "full":
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            case "clock":
                _set_clock(datetime.timedelta(days=self._fault.place % 2 * 2 - 1))
            case "folder":
                shutil.rmtree(Path(self._root, "runs", "spring"), ignore_errors=True)
            case kind:
                os.kill(os.getpid(), signal.SIGSTOP if kind == "pause" else signal.SIGKILL)

    def watch(self) -> None:
        """Have every place of the kind passed by."""
        if self._fault.kind in ("file", "full"):
            sys.addaudithook(self._note)
        elif self._fault.kind == "sql":
            connect = sqlite3.connect

            def traced(*arguments: Any, **options: Any) -> sqlite3.Connection:
                connection = connect(*arguments, **options)
                connection.set_trace_callback(lambda statement: self.pass_by())
                return connection

            sqlite3.connect = traced
        else:
            from parties.runs.run_log import RunLog

            auditor = RunLog._auditor

            def watched(log: RunLog, event: str, peer: str) -> Any:
                note = auditor(log, event, peer)
                return lambda kind, frames: (note(kind, frames), self.pass_by())

            RunLog._auditor = watched  # type: ignore[method-assign]

    def _note(self, event: str, arguments: Sequence[Any]) -> None:
        if event in ("open", "os.rename", "os.remove", "os.mkdir", "os.truncate"):
            path, writes = (
                str(arguments[0]),
                event != "open" or bool(int(arguments[2] or 0) & (os.O_WRONLY | os.O_RDWR)),
            )
            if writes and path.startswith(self._root) and not path.endswith("struck"):
                self.pass_by()


def _set_clock(step: datetime.timedelta) -> None:
    """Another day, for all that this process asks from here on; clocks that only run forward go on."""
    now = time.time

    class OtherDay(datetime.datetime):
        @classmethod
        def now(cls, tz: Any = None) -> Any:
            return datetime.datetime.now(tz) + step

    time.time = lambda: now() + step.total_seconds()
    for name, module in list(sys.modules.items()):
        if name.startswith("parties.") and getattr(module, "datetime", None) is datetime.datetime:
            module.datetime = OtherDay  # type: ignore[attr-defined]


def take_part(command: str, path: str, fault: Fault | None) -> None:
    """Run one party in this process; a traceback is kept."""
    from numba import set_num_threads

    from parties.commands.exit_codes import exit_code
    from parties.errors import EXPECTED_ERRORS
    from parties.jobs.answer_vertical import serve_until_stopped
    from parties.jobs.life_cycle import Terminal
    from parties.jobs.predict_vertical import predict_active
    from parties.jobs.train_chain import train_owner
    from parties.jobs.train_horizontal import train_coordinator, train_worker
    from parties.jobs.train_vertical import train_active, train_passive
    from parties.vertical.prediction_service import StopSignals

    set_num_threads(1)
    root, news = str(Path(path).parent), Path(path).with_name("new.csv")

    def serve(path: Path, **options: Any) -> None:
        with StopSignals() as signals:
            serve_until_stopped(path, data=news, signals=signals, **options)

    jobs: dict[str, Callable[..., Any]] = {
        "party-a": train_active,
        "party-b": train_passive,
        "coordinator": train_coordinator,
        "worker": train_worker,
        "chain": train_owner,
        "predict": partial(predict_active, data=news, ids=None, mode="desensitized", out=None),
        "serve": serve,
    }
    if fault is not None:
        _Striker(fault, root).watch()
    try:
        jobs[command](Path(path), insecure=False, terminal=Terminal())
    except EXPECTED_ERRORS as error:
        Path(root, "errors.txt").write_text(f"{type(error).__name__}: {error}")
        sys.exit(int(exit_code(error)))
    except Exception:
        Path(root, "traceback.txt").write_text(traceback.format_exc())
        sys.exit(99)


Made = tuple[dict[str, dict[str, Any]], Callable[[str], Path]]
"""The run files of a scene's parties, and what writes one of them."""


def _pair(root: Path, *, corrects: bool = False) -> Made:
    sites = Sites(root)
    both = {"bank": sites.bank, "shop": sites.shop}
    for site in both.values():
        site.run |= {"align": {"method": "psi"}}
    sites.bank.run |= {"model": {"n_estimators": 3, "max_depth": 3, "seed": 1}, "correct_noise": corrects}
    sites.shop.run |= {"seed": 3, "no_privacy": True}
    return {name: site.run for name, site in both.items()}, lambda name: both[name].write()


def _workers(root: Path) -> Made:
    made = clinics.Clinics(root)
    made.runs["hub"]["patience"] = 25
    made.training["sgbdt"] = {"n_estimators": 5, "max_depth": 2}
    return made.runs, made.write


def _chain(root: Path) -> Made:
    made = chained_clinics.Clinics(root)
    return made.runs, made.write


def _predict(root: Path) -> Made:
    """A pair with a model, and records that are new to it."""
    (address,) = free_addresses(1)
    shutil.copytree(_trained(), root, dirs_exist_ok=True)
    runs = {name: yaml.safe_load((root / name / "run.yaml").read_text()) for name in SCENES["predict"]}
    runs["bank"]["listen"] = runs["shop"]["connect"] = address

    def write(name: str) -> Path:
        (root / name / "run.yaml").write_text(yaml.safe_dump(runs[name]))
        return root / name / "run.yaml"

    return runs, write


@cache
def _trained() -> Path:
    """The folders of a pair after a run, made once."""
    root = Path(tempfile.mkdtemp())
    weakref.finalize(run_trial, shutil.rmtree, root)
    assert run_trial(root, "pair", None).codes == (0, 0)
    for name in SCENES["pair"]:
        frame = pd.read_csv(root / name / "data.csv")
        frame.assign(id="new" + frame["id"]).to_csv(root / name / "new.csv", index=False)
    return root


MAKERS: dict[str, Callable[[Path], Made]] = {
    "pair": _pair,
    "workers": _workers,
    "chain": _chain,
    "predict": _predict,
    "corrected": partial(_pair, corrects=True),
}


def _break_links(runs: dict[str, dict[str, Any]], stack: ExitStack) -> list[BrokenLink]:
    """Have every party connect over links that break, one for each address."""
    links: dict[str, BrokenLink] = {}
    for caller in (one for run in runs.values() for one in (run, *run.get("owners", ())) if "connect" in one):
        address = caller["connect"]
        if address not in links:
            port = int(address.rpartition(":")[2])
            links[address] = stack.enter_context(broken_link(port, LINK_S, growth=1.3))
        caller["connect"] = f"tcp://127.0.0.1:{links[address].port}"
    return list(links.values())


def run_trial(root: Path, scene: str, fault: Fault | None) -> Outcome:
    """Run a scene with a fault, or without one."""
    began = time.monotonic()
    runs, write = MAKERS[scene](root)
    for run in runs.values():
        run |= {"wait": WAIT_S, "timeout": 2}
    with ExitStack() as stack:
        links = _break_links(runs, stack) if fault is not None and fault.kind == "link" else []
        trial = _Trial(root, scene, {name: str(write(name)) for name in runs}, None if links else fault)
        n_blows = trial.supervise(began) + sum(link.n_breaks for link in links)
    kept = [root / name / "runs" / "spring" / file for name in runs for file in ("model.json", "predictions.csv")]
    return Outcome(
        codes=trial.codes,
        errors="; ".join(path.read_text() for path in sorted(root.glob("*/errors.txt"))),
        model=" ".join(hashlib.sha256(path.read_bytes()).hexdigest() for path in kept if path.exists()),
        charges=sum(_charges(path) for path in root.glob("*/runs/*ledger.sqlite")),
        tracebacks="".join(path.read_text() for path in root.glob("*/traceback.txt")),
        seconds=time.monotonic() - began,
        n_blows=n_blows,
        first_code=trial.first_code,
        still_s=trial.still_s,
    )


# An exit code can be read once. Starting a process looks for those of all others, of other threads' trials too.
_EXIT_CODES = threading.Lock()


def _exit_code(process: Any) -> int | None:
    """The exit code of a process that has ended."""
    with _EXIT_CODES:
        code: int | None = process.exitcode
        return code


class _Trial:
    """The processes of a trial."""

    def __init__(self, root: Path, scene: str, paths: dict[str, str], fault: Fault | None) -> None:
        self._root, self._paths, self._fault = root, paths, fault
        self._commands = {name: party.command for name, party in SCENES[scene].items()}
        self._told: set[int] = set()
        self._n_starts = dict.fromkeys(paths, 0)
        self._processes: dict[str, Any] = {}
        self.first_code: int | None = None
        self.still_s = 0.0
        self._seen: tuple[object, float] = (None, time.monotonic())

    @property
    def codes(self) -> tuple[int | None, ...]:
        """Exit codes; a service that was told to stop before it listened to that has done so, too."""
        found = {name: _exit_code(process) for name, process in self._processes.items()}
        return tuple(0 if code == -signal.SIGTERM else code for code in found.values())

    def _stop_services(self) -> None:
        """Tell services to stop when the others have ended."""
        services = [name for name, command in self._commands.items() if command == "serve"]
        others = [_exit_code(process) for name, process in self._processes.items() if name not in services]
        are_over = not {None, -signal.SIGKILL} & set(others)
        comes_again = self._may_start_again and any(others) and max(self._n_starts.values()) < MOST_STARTS
        if services and are_over and not comes_again:
            for process in (self._processes[name] for name in services):
                if _exit_code(process) is None and process.pid not in self._told:
                    self._told.add(process.pid)
                    process.terminate()

    def _start(self, name: str) -> None:
        is_struck = self._fault is not None and self._fault.victim == name and not self._n_starts[name]
        self._n_starts[name] += 1
        (self._root / name / "errors.txt").unlink(missing_ok=True)
        blow = self._fault if is_struck else None
        arguments = self._commands[name], self._paths[name], blow
        self._processes[name] = FORKS.Process(target=take_part, args=arguments, daemon=True)
        with _EXIT_CODES:
            self._processes[name].start()

    def supervise(self, began: float) -> int:
        """Start all, again who was killed, and let go on who stands still; returns how often somebody was struck."""
        for name in self._paths:
            self._start(name)
        try:
            stood = self._watch(began)
        finally:
            for process in self._processes.values():
                process.kill()
                process.join(10)
        return stood + len(list(self._root.glob("*/struck")))

    def _is_missed_by(self, name: str) -> bool:
        """Whether a party that has finished said that somebody may still need it."""
        meta = self._root / name / "runs" / "spring" / "meta.json"
        return bool(meta.exists() and json.loads(meta.read_text()).get("unconfirmed"))

    def _look_for_life(self) -> None:
        """Note for how long nothing has happened."""
        logs = list[int]()
        for name in self._paths:
            # A run folder may be away, or go now.
            with suppress(FileNotFoundError):
                logs.append((self._root / name / "runs" / "spring" / "log.jsonl").stat().st_size)
        now = logs, dict(self._n_starts), self.codes
        if now != self._seen[0]:
            self._seen = now, time.monotonic()
        self.still_s = max(self.still_s, time.monotonic() - self._seen[1])

    @property
    def _may_start_again(self) -> bool:
        """Whether somebody starts again whoever ended with an error."""
        kind = "" if self._fault is None else self._fault.kind
        return kind == "full" or (kind == "folder" and self._commands.get("bank") == "party-a")

    def _watch(self, began: float) -> int:
        since, n_stood = 0.0, 0
        while time.monotonic() - began < MOST_S and self.still_s < HANG_S:
            self._look_for_life()
            for name, process in list(self._processes.items()):
                code, struck = _exit_code(process), self._root / name / "struck"
                may_start = self._may_start_again and self._n_starts[name] < MOST_STARTS
                if self._fault is not None and name == self._fault.victim and self._n_starts[name] == 1 and code:
                    self.first_code = code if code > 0 else None
                is_away = code is not None and (code != 0 or self._is_missed_by(name))
                if code == -signal.SIGKILL or (is_away and may_start):
                    self._start(name)
                elif code is None and struck.exists() and self._fault is not None and self._fault.kind == "pause":
                    since = since or time.monotonic()
                    # Longer than the timeout: the other side takes the connection for broken.
                    if time.monotonic() - since > 3:
                        struck.unlink()
                        os.kill(process.pid, signal.SIGCONT)
                        n_stood += 1
            self._stop_services()
            if all(code not in (None, -signal.SIGKILL) for code in self.codes):
                break
            time.sleep(0.02)
        return n_stood


def _charges(ledger: Path) -> int:
    with closing(sqlite3.connect(ledger)) as database:
        try:
            found = database.execute(
                "SELECT COUNT(*) FROM lines WHERE json_extract(fields, '$.kind') IN ('charge', 'run')"
            )
            return int(found.fetchone()[0])
        except sqlite3.OperationalError:
            # The party ended before it had a ledger.
            return 0
