"""`opboost status` before, during and after a run."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from parties.cli import main
from parties.jobs.life_cycle import Terminal
from parties.jobs.train_vertical import train_active, train_passive
from parties.reports.run_status import run_status
from parties.runs.run_folder import RunFolder
from tests.support.clinics import NAMES, Clinics

SILENT = Terminal()


def test_the_status_tells_phase_progress_peers_and_what_is_spent(
    sites: Any, outcomes: Callable[..., dict[str, Any]], capsys: pytest.CaptureFixture[str]
) -> None:
    bank, shop = sites.bank.write(), sites.shop.write()
    before = run_status(bank)
    assert (before.state, before.phase, before.peers) == ("not begun", None, {})
    seen = []

    def look(step: str, done: int, total: int) -> None:
        seen.append(run_status(bank))

    calls: dict[str, Callable[[], Any]] = {
        "bank": lambda: train_active(bank, insecure=False, terminal=Terminal(progress=look)),
        "shop": lambda: train_passive(shop, insecure=False, terminal=SILENT),
    }
    found = outcomes(calls)
    assert not [one for one in found.values() if isinstance(one, BaseException)], found
    during = seen[-1]
    assert {one.state for one in seen} == {"running"}
    assert during.phase is not None
    assert during.progress is not None
    assert {"time", "step", "done", "total"} == set(during.progress)
    assert during.peers["shop"].received > 0
    assert during.spent is None

    after = run_status(shop)
    assert (after.state, after.progress) == ("finished", None)
    assert after.phase is not None
    assert after.phase["event"] == "finished"
    assert after.peers["bank"].sent_bytes > 0
    assert after.spent == {"spend": kinds(5, 0), "visits": kinds(10, 3)}
    main_ends(["status", str(shop), "--format", "json"])
    assert json.loads(capsys.readouterr().out) == after.to_dict()
    main_ends(["status", str(shop)])
    shown = capsys.readouterr().out.splitlines()
    assert shown[0] == "run spring of shop (passive): finished"
    assert [line for line in shown if "no limit" in line] == [
        "spend: epsilon 5 spent of no limit",
        "visits: epsilon 10 spent of no limit",
        "visits: category_epsilon 3 spent of no limit",
    ]
    # Programs that rotate logs leave none until the next line; what they rename is read all the same.
    log = shop.parent / "runs" / "spring" / "log.jsonl"
    log.rename(log.with_name("log.jsonl-20260131"))
    rotated = run_status(shop)
    assert (rotated.state, rotated.phase, rotated.spent) == ("finished", after.phase, after.spent)
    assert rotated.peers == after.peers

    (sites.bank.run_folder / "meta.json").write_text(
        json.dumps({**json.loads((sites.bank.run_folder / "meta.json").read_text()), "finished": None})
    )
    assert run_status(bank).state == "interrupted"


def test_a_worker_tells_of_the_coordinator_and_not_of_workers_that_it_never_talks_to(tmp_path: Path) -> None:
    clinics = Clinics(tmp_path)
    for name, role, connected in (("w0", "worker", {"hub"}), ("hub", "coordinator", set(NAMES))):
        path = clinics.write(name)
        RunFolder(clinics.folder(name)).create(path, party=name, role=role)
        assert run_status(path).peers.keys() == connected


def test_the_status_tells_a_budget_without_end(
    sites: Any, outcomes: Callable[..., dict[str, Any]], capsys: pytest.CaptureFixture[str]
) -> None:
    """A seed makes noise worthless: the ledger counts it as infinite."""
    sites.shop.run |= {"seed": 3, "no_privacy": True}
    bank, shop = sites.bank.write(), sites.shop.write()
    found = outcomes(
        {
            "bank": lambda: train_active(bank, insecure=False, terminal=SILENT),
            "shop": lambda: train_passive(shop, insecure=False, terminal=SILENT),
        }
    )
    assert not [one for one in found.values() if isinstance(one, BaseException)], found
    main_ends(["status", str(shop)])
    assert "spend: epsilon inf spent of no limit" in capsys.readouterr().out


def kinds(epsilon: float, category_epsilon: float) -> dict[str, Any]:
    """What was spent of a column, of which no cells were published and nothing is limited."""
    others = {"category_epsilon": category_epsilon, "cell_bits": 0.0}
    spent = {kind: {"spent": amount, "limit": None} for kind, amount in others.items()}
    return {"epsilon": pytest.approx(epsilon), "limit": None, **spent}


def main_ends(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 0
