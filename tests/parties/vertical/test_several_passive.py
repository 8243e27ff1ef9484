"""A bank and three passive parties as processes: one is late, one dies, one never comes; their columns stay apart."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from opboost.routing import Router
from opboost.trees.model_file import load_model
from parties.runs.run_folder import RunFolder
from tests.support.processes import FORKS

PASSIVE = ("shop", "post", "club")

# Every one of them calls its column so, in another unit: ranks or thresholds that went astray would be seen.
COLUMN = "spend"
UPPER = {"shop": 10, "post": 1_000, "club": 100_000}


class Quartet:
    """The bank and the shop of the other tests, and two more that know the same customers."""

    def __init__(self, sites: Any, root: Path) -> None:
        make = type(sites.shop)
        self.bank = sites.bank
        for site in (sites.bank, sites.shop):
            site.run["held_out"] = 0.2
        self.sites = {"shop": sites.shop}
        draw = np.random.default_rng(3)
        for party in PASSIVE:
            if party != "shop":
                self.sites[party] = make(root, party, "bank", {}, {})
                self.sites[party].run = {**sites.shop.run, "party": party, "secret_key": f"keys/{party}.secret"}
                keys = self.sites[party].path / "keys"
                (keys / "bank.public").write_text((self.bank.path / "keys/bank.public").read_text())
                (self.bank.path / f"keys/{party}.public").write_text((keys / f"{party}.public").read_text())
            site = self.sites[party]
            site.run["desensitize"] = {"epsilon": 5.0, "domain_size": 65}
            site.schema = {"id": "id", "columns": {COLUMN: {"lower": 0, "upper": UPPER[party]}}}
            spent = draw.uniform(0, UPPER[party], len(self.bank.table))
            site.table = pd.DataFrame({"id": self.bank.table["id"], COLUMN: spent})
        shares = sum(self.sites[party].table[COLUMN] / UPPER[party] for party in PASSIVE)
        self.bank.table["y"] = (self.bank.table["age"] / 90 + shares > 2.1).astype(int)
        self.bank.run["passive"] = [{"name": party, "public_key": f"keys/{party}.public"} for party in PASSIVE]
        self.processes: dict[str, Any] = {}

    def start(self, *parties: str, behind: str = "") -> None:
        """Start parties; each kills itself when it has noted the message `behind`."""
        for party in parties:
            site = self.bank if party == "bank" else self.sites[party]
            role = "active" if party == "bank" else "passive"
            arguments = (role, str(site.write()), str(site.path / "errors.txt"), behind)
            self.processes[party] = FORKS.Process(target=take_part, args=arguments, daemon=True)
            self.processes[party].start()

    def ends(self, *parties: str, seconds: float = 30) -> dict[str, int | None]:
        """Exit codes, all of which must be there in time."""
        deadline = time.monotonic() + seconds
        for party in parties:
            self.processes[party].join(max(0, deadline - time.monotonic()))
        return {party: self.processes[party].exitcode for party in parties}

    def log_text(self, party: str) -> str:
        path = self.sites[party].run_folder / "log.jsonl"
        return path.read_text() if path.exists() else ""

    def last_words(self, party: str) -> str:
        site = self.bank if party == "bank" else self.sites[party]
        path = site.path / "errors.txt"
        return path.read_text() if path.exists() else ""

    def router(self, party: str) -> Router:
        return RunFolder(self.sites[party].run_folder).load_router()

    def n_charges(self, party: str) -> int:
        path = self.sites[party].path / "runs" / "ledger.sqlite"
        if not path.exists():
            return 0
        with sqlite3.connect(path) as database:
            lines = [json.loads(fields) for (fields,) in database.execute("SELECT fields FROM lines")]
        return sum(line["kind"] == "charge" for line in lines)


def take_part(role: str, path: str, errors: str, behind: str) -> None:
    """Run one party in this process."""
    from parties.errors import EXPECTED_ERRORS
    from parties.jobs.train_vertical import Terminal, train_active, train_passive
    from parties.runs.run_log import RunLog

    auditor = RunLog._auditor

    def watched(log: RunLog, event: str, peer: str) -> Any:
        note = auditor(log, event, peer)

        def noted(kind: str, frames: Sequence[Any]) -> None:
            note(kind, frames)
            if f"{event} {kind}" == behind:
                os.kill(os.getpid(), signal.SIGKILL)

        return noted

    RunLog._auditor = watched  # type: ignore[method-assign]
    Path(errors).unlink(missing_ok=True)
    try:
        (train_active if role == "active" else train_passive)(Path(path), insecure=False, terminal=Terminal())
    except EXPECTED_ERRORS as error:
        Path(errors).write_text(f"{type(error).__name__}: {error}")
        sys.exit(1)


@pytest.fixture
def quartet(sites: Any, tmp_path: Path) -> Any:
    four = Quartet(sites, tmp_path)
    yield four
    for process in four.processes.values():
        process.kill()
        process.join(10)


def test_one_of_three_is_late_and_each_ones_ranks_and_thresholds_stay_apart(quartet: Any) -> None:
    quartet.sites["post"].run["share_thresholds"] = True
    quartet.start("bank", "shop", "post")
    time.sleep(1)
    quartet.start("club")
    assert quartet.ends("bank", *PASSIVE) == dict.fromkeys(("bank", *PASSIVE), 0)

    model = load_model(quartet.bank.run_folder / "model.json")
    n_tests = {party: sum(feature.owner == party for feature in model.features) for party in PASSIVE}
    assert all(n_tests.values())
    uplift = json.loads((quartet.bank.run_folder / "held_out.json").read_text())
    # A fifth of 400, within 5 standard deviations.
    assert (abs(uplift["n_rows"] - 80) < 40, uplift["reason"]) == (True, "")
    # What the bank's trees ask of a party is what this party resolved: in its own unit, between its own codes.
    for party in PASSIVE:
        tests = quartet.router(party).tests
        assert tests.n_tests == n_tests[party]
        (column,) = {m.schema.upper for m in quartet.router(party).mechanisms}
        assert column == UPPER[party]
    assert set(json.loads((quartet.bank.run_folder / "partners.json").read_text())) == {"post"}
    # No passive party heard or kept a word of another one.
    for party in PASSIVE:
        folder = quartet.sites[party].run_folder
        lines = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
        assert {line["peer"] for line in lines if "peer" in line} == {"bank"}
        kept = "".join(path.read_text() for path in folder.iterdir() if path.suffix != ".share")
        assert not [other for other in PASSIVE if other != party and other in kept]
    received = [json.loads(line) for line in (quartet.bank.run_folder / "log.jsonl").read_text().splitlines()]
    chunks = [line["sha256"] for line in received if line.get("kind") == "rank chunk"]
    assert len(set(chunks)) == len(chunks) == 3


def test_one_of_three_dies_and_all_go_on_where_they_stopped(quartet: Any) -> None:
    # So long the others wait for it to come back.
    quartet.bank.run["wait"] = 8
    quartet.start("bank", "shop", "club")
    quartet.start("post", behind="sent rank chunk")
    assert quartet.ends("post") == {"post": -signal.SIGKILL}
    struck = time.monotonic()
    assert quartet.ends("bank", "shop", "club") == {"bank": 1, "shop": 1, "club": 1}
    assert time.monotonic() - struck < 15
    assert "post closed the connection" in quartet.last_words("bank")
    # The others learn that somebody left, not who else takes part.
    for survivor in ("shop", "club"):
        assert "bank ended the run while" in quartet.last_words(survivor)
        assert "another party left" in quartet.last_words(survivor)
        assert "post" not in quartet.last_words(survivor)
    first = {party: quartet.n_charges(party) for party in PASSIVE}
    assert first == dict.fromkeys(PASSIVE, 1)

    quartet.start("bank", *PASSIVE)
    assert quartet.ends("bank", *PASSIVE) == dict.fromkeys(("bank", *PASSIVE), 0)
    assert {party: quartet.n_charges(party) for party in PASSIVE} == first
    assert all(quartet.router(party).tests.n_tests for party in PASSIVE)


def test_one_of_three_never_comes_and_nobody_draws(quartet: Any) -> None:
    quartet.bank.run["wait"] = 2
    quartet.start("shop", "club")
    deadline = time.monotonic() + 30
    for party in ("shop", "club"):
        while "connecting" not in quartet.log_text(party):
            assert time.monotonic() < deadline
            time.sleep(0.02)
    quartet.start("bank")
    assert quartet.ends("bank", "shop", "club") == {"bank": 1, "shop": 1, "club": 1}
    assert "post did not connect" in quartet.last_words("bank")
    for party in ("shop", "club"):
        assert quartet.last_words(party).startswith("PeerAborted: bank ended the run while greeting")
        assert "post" not in quartet.last_words(party)
        assert quartet.n_charges(party) == 0
