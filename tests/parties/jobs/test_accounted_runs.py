"""Whole runs on one ledger: repeated, killed, over budget, scored; and what `opboost ledger` tells of them."""

from __future__ import annotations

import json
import shutil
import signal
import sqlite3
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from opboost.privacy.guarantee import CHANGED_VALUES
from parties.doctor.vertical import examine
from parties.jobs.train_vertical import Terminal, train_active, train_passive
from tests.support.processes import finish

Outcomes = Callable[..., dict[str, Any]]

SILENT = Terminal()


def train_both(sites: Any, outcomes: Outcomes) -> dict[str, Any]:
    """What both sides' training jobs return or raise, in threads of this process."""
    bank, shop = sites.bank.write(), sites.shop.write()
    return outcomes(
        {
            "bank": lambda: train_active(bank, insecure=False, terminal=SILENT),
            "shop": lambda: train_passive(shop, insecure=False, terminal=SILENT),
        }
    )


def ledger_of(site: Any) -> Path:
    return site.path / "runs" / "ledger.sqlite"


def entries(site: Any) -> list[dict[str, Any]]:
    database = sqlite3.connect(ledger_of(site))
    rows = database.execute("SELECT fields FROM lines ORDER BY number").fetchall()
    database.close()
    return [json.loads(fields) for (fields,) in rows]


def kinds(site: Any) -> Counter[str]:
    """How many lines of each kind charge, store and reuse; tests and cells that were answered are counted elsewhere."""
    return Counter(line["kind"] for line in entries(site) if line["kind"] not in ("tests", "cells"))


def sent(site: Any, kind: str) -> list[str]:
    """Digests of the messages of a kind that left, over all attempts of the run."""
    lines = [json.loads(line) for line in (site.run_folder / "log.jsonl").read_text().splitlines()]
    return [line["sha256"] for line in lines if line["event"] == "sent" and line["kind"] == kind]


def tamper(path: Path) -> None:
    """Lower the price of everything, as somebody would who knows SQLite."""
    database = sqlite3.connect(path)
    database.execute("DROP TRIGGER no_UPDATE_lines")
    database.execute(
        "UPDATE lines SET fields = replace(fields, '\"category_epsilon\":3.0', '\"category_epsilon\":1.0')"
    )
    database.commit()
    database.close()


def test_a_repeated_run_sends_the_same_bytes_and_costs_nothing(sites: Any, outcomes: Outcomes) -> None:
    sites.bank.run["correct_noise"] = False
    first = train_both(sites, outcomes)
    model = (sites.bank.run_folder / "model.json").read_bytes()
    digests, offers = sent(sites.shop, "rank chunk"), sent(sites.shop, "offer")
    for site in (sites.bank, sites.shop):
        shutil.rmtree(site.run_folder)
    second = train_both(sites, outcomes)
    assert not [error for error in (*first.values(), *second.values()) if isinstance(error, BaseException)]
    assert (sites.bank.run_folder / "model.json").read_bytes() == model
    assert len(digests) == 2
    assert (sent(sites.shop, "rank chunk"), sent(sites.shop, "offer")) == (digests, offers)
    assert kinds(sites.shop) == {"opened": 1, "charge": 2, "stored": 2, "reuse": 2}


def test_another_run_on_the_same_records_uses_the_release_again(sites: Any, outcomes: Outcomes) -> None:
    train_both(sites, outcomes)
    before = sent(sites.shop, "rank chunk")
    for site in (sites.bank, sites.shop):
        site.run["folder"] = "runs/summer"
        site.run["run_id"] = "summer"
    sites.shop.run["ledger"] = {"budget": {"epsilon": 0.3, "per_record": 1}}
    found = train_both(sites, outcomes)
    assert not [error for error in found.values() if isinstance(error, BaseException)]
    log = [json.loads(line) for line in (sites.shop.path / "runs/summer/log.jsonl").read_text().splitlines()]
    assert [line["sha256"] for line in log if line.get("kind") == "rank chunk"] == before
    assert [(line["n_drawn"], line["n_reused"]) for line in log if line["event"] == "released"] == [(0, 2)]
    assert [line["run_id"] for line in entries(sites.shop) if line["kind"] == "reuse"] == ["summer"] * 2


def unfinished(site: Any) -> None:
    """Let a finished run count as interrupted."""
    path = site.run_folder / "meta.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "finished": None}))


@pytest.mark.parametrize("changed_values", ["keep", "redraw"])
def test_a_change_of_values_shows_in_the_next_run_unless_first_draws_are_kept(
    sites: Any, outcomes: Outcomes, changed_values: str
) -> None:
    """Every value changes between two runs; with `redraw`, the twin, the peer sees that something did."""
    sites.shop.run["changed_values"] = changed_values
    train_both(sites, outcomes)
    before = sent(sites.shop, "offer") + sent(sites.shop, "rank chunk")
    sites.shop.table["spend"], sites.shop.table["visits"] = 100 - sites.shop.table["spend"], 3.0
    sites.shop.table.loc[sites.shop.table.index[:9], "visits"] = 4.0
    for site in (sites.bank, sites.shop):
        site.run |= {"run_id": "summer", "folder": "runs/summer"}
    told = {finding.check: finding.sentence for finding in examine(sites.shop.write(), wait_s=0.1)}
    found = train_both(sites, outcomes)
    assert not [error for error in found.values() if isinstance(error, BaseException)]
    log = [json.loads(line) for line in (sites.shop.path / "runs/summer/log.jsonl").read_text().splitlines()]
    after = [line["sha256"] for kind in ("offer", "rank chunk") for line in log if line.get("kind") == kind]
    promised = json.loads((sites.shop.path / "runs/summer/guarantee.json").read_text())["not_protected"]
    if changed_values == "keep":
        assert "0 columns to draw, 2 stored already" in told["ledger"]
        assert after == before
        assert kinds(sites.shop) == {"opened": 1, "charge": 2, "stored": 2, "reuse": 2}
        assert CHANGED_VALUES not in promised
    else:
        assert "2 columns to draw, 0 stored already" in told["ledger"]
        assert [one in before for one in after] == [False] * 3
        # The cells that did not change keep their draws.
        assert kinds(sites.shop) == {"opened": 1, "charge": 4, "stored": 4, "reuse": 2}
        assert CHANGED_VALUES in promised


def test_a_run_goes_on_with_its_own_records_and_another_one_with_fewer_draws_nothing_anew(
    sites: Any, outcomes: Outcomes
) -> None:
    for site in (sites.bank, sites.shop):
        site.run["align"] = {"method": "psi"}
    train_both(sites, outcomes)
    shutil.rmtree(sites.bank.run_folder)
    unfinished(sites.shop)
    sites.bank.table = sites.bank.table.iloc[1:]
    found = train_both(sites, outcomes)
    assert all(
        "other records are common now than were when this run released them" in str(one) for one in found.values()
    )
    assert kinds(sites.shop) == {"opened": 1, "charge": 2, "stored": 2}
    for site in (sites.bank, sites.shop):
        site.run |= {"run_id": "summer", "folder": "runs/summer"}
    found = train_both(sites, outcomes)
    assert not [error for error in found.values() if isinstance(error, BaseException)]
    # The smaller set of records is noted, as one that the bank knows too.
    assert kinds(sites.shop) == {"opened": 1, "charge": 2, "stored": 2, "reuse": 2, "released": 1}


def wait_for(condition: Callable[[], bool], seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"nothing happened for {seconds} s"
        time.sleep(0.02)


def holds_ranks(bank: Any) -> bool:
    files = [bank.run_folder / "journal/from/shop" / f"{column}.ranks" for column in range(2)]
    return all(file.exists() and file.stat().st_size >= 400 for file in files)


@pytest.mark.parametrize("victim", ["bank", "shop"])
def test_after_a_kill_the_same_run_finishes_with_the_release_that_was_paid_for(sites: Any, victim: str) -> None:
    """The other side waits in vain for the one that was killed."""
    for site in (sites.bank, sites.shop):
        site.run["wait"] = 4
    # Trees for longer than it takes to see the ranks arrive.
    sites.bank.run |= {"model": {"n_estimators": 1000, "max_depth": 6}, "correct_noise": False}
    processes = {"bank": sites.bank.start("party-a"), "shop": sites.shop.start("party-b")}
    try:
        wait_for(lambda: holds_ranks(sites.bank))
        processes[victim].send_signal(signal.SIGKILL)
    finally:
        ended = finish(*processes.values(), seconds=20)
    assert {code for code, _, _ in ended} == {3, -signal.SIGKILL}
    again = finish(sites.bank.start("party-a"), sites.shop.start("party-b"))
    assert [code for code, _, _ in again] == [0, 0]
    assert len(sent(sites.shop, "rank chunk")) == 2
    assert kinds(sites.shop) == {"opened": 1, "charge": 2, "stored": 2, "reuse": 2}


def statement(site: Any, *options: str) -> Any:
    ((code, out, error),) = finish(site.start("ledger", "--format", "json", *options))
    assert (code, error) == (0, "")
    return json.loads(out)


def predict(sites: Any, mode: str, name: str, *ids: str) -> None:
    (sites.bank.path / "ids.txt").write_text("\n".join(ids))
    options = ["--mode", mode, "--out", str(sites.bank.path / name), "--ids", str(sites.bank.path / "ids.txt")]
    ended = finish(sites.bank.start("predict", *options), sites.shop.start("predict"))
    assert [(code, error) for code, _, error in ended if code] == []


def test_the_command_tells_what_training_and_prediction_have_spent_and_what_remains(sites: Any) -> None:
    # Many trees, so that some test is on `visits` too, which does not matter to the labels, whatever the noise.
    sites.bank.run["model"] = {"n_estimators": 40, "max_depth": 4}
    sites.shop.run["ledger"] = {"budget": {"epsilon": 10.0, "columns": {"visits": {"epsilon": 20}}, "per_record": 40}}
    # Trees enough that they ask for both columns, whatever the noise.
    sites.bank.run["model"] = {"n_estimators": 40, "max_depth": 5}
    assert [code for code, _, _ in finish(sites.bank.start("party-a"), sites.shop.start("party-b"))] == [0, 0]
    trained = statement(sites.shop)
    spend, visits = trained["columns"]
    unit = {"size": 1.0, "words": "1 original unit"}
    assert (spend["column"], spend["unit"], spend["n_releases"]) == ("spend", unit, 1)
    # One unit of 100 is 10 of 1000 points, and one visit of 50 is 20.
    assert spend["epsilon"] == {"spent": pytest.approx(5.0), "limit": 10.0, "remaining": pytest.approx(5.0)}
    assert spend["cell_bits"] == {"spent": 0.0, "limit": 0.0, "remaining": 0.0}
    assert spend["category_epsilon"] == {"spent": 0.0, "limit": None, "remaining": None}
    assert visits["category_epsilon"] == {"spent": 3.0, "limit": None, "remaining": None}
    assert (visits["epsilon"]["spent"], visits["epsilon"]["limit"]) == (pytest.approx(10.0), 20)
    assert (trained["record"]["spent"], trained["record"]["remaining"]) == (pytest.approx(18.0), pytest.approx(22.0))
    assert (trained["n_records"], trained["peers"]) == (400, ["bank"])

    predict(sites, "routed", "routed.csv", "k0001", "k0002")
    assert statement(sites.shop)["n_lines"] == trained["n_lines"]
    for _ in range(2):
        predict(sites, "desensitized", f"d{_}.csv", "k0001", "k0002")
    asked = statement(sites.shop)
    # Both records were released for training, and keep their draws.
    assert asked["record"]["spent"] == pytest.approx(18.0)
    assert [(c["n_releases"], c["n_reuses"]) for c in asked["columns"]] == [(1, 2), (1, 2)]
    assert (sites.bank.path / "d0.csv").read_text() == (sites.bank.path / "d1.csv").read_text()

    ((code, out, error),) = finish(sites.shop.start("ledger"))
    assert (code, error) == (0, "")
    assert f"{ledger_of(sites.shop)}: {asked['n_lines']} lines, verified; released to bank" in out
    assert "400 records, the one that spent most has spent 18 over all columns; remaining: 22." in out
    assert [word for word in ("spend", "visits", "no limit") if word not in out] == []


def test_desensitized_answers_over_budget_are_refused_and_the_exact_ones_are_not_given_instead(sites: Any) -> None:
    sites.shop.run |= {"ledger": {"budget": {"columns": {"spend": {"epsilon": 6}}}}, "changed_values": "redraw"}
    assert [code for code, _, _ in finish(sites.bank.start("party-a"), sites.shop.start("party-b"))] == [0, 0]
    sites.shop.table["spend"] = 100 - sites.shop.table["spend"]
    sites.shop.write()
    (bank_code, _, bank_error), (shop_code, _, shop_error) = finish(
        sites.bank.start("predict", "--mode", "desensitized"), sites.shop.start("predict")
    )
    assert (bank_code, shop_code) == (5, 4)
    assert "its account does not allow this. Nothing was released" in bank_error.splitlines()[-1]
    assert shop_error.splitlines()[-1].startswith(
        "error: over budget: column 'spend' per unit would have spent 10 of 6"
    )
    assert not (sites.bank.run_folder / "predictions.csv").exists()
    assert statement(sites.shop)["columns"][0]["epsilon"]["spent"] == pytest.approx(5.0)


def test_the_command_fails_on_a_ledger_or_a_store_that_cannot_be_trusted(sites: Any, outcomes: Outcomes) -> None:
    train_both(sites, outcomes)
    ledger = ledger_of(sites.shop)
    before = ledger.read_bytes()
    tamper(ledger)
    assert finish(sites.shop.start("ledger")) == [
        (
            6,
            "",
            f"error: {ledger} cannot be trusted: line 3 was changed or removed. Restore the ledger and its head from "
            "the same backup. Nothing was released\n",
        )
    ]
    ledger.write_bytes(before)
    database = sqlite3.connect(ledger)
    database.execute("UPDATE draws SET places = substr(places, 2) WHERE charge = 2")
    database.commit()
    database.close()
    ((code, out, error),) = finish(sites.shop.start("ledger", "--format", "json"))
    assert (code, out) == (6, "")
    assert "cells that line 2 charged are not those that were drawn" in error
    assert "Nothing was released" in error


def test_the_command_needs_a_passive_partys_ledger_that_is_there(sites: Any) -> None:
    ((code, out, error),) = finish(sites.bank.start("ledger"))
    assert (code, out) == (1, "")
    takes = "this command takes a run file of role passive, worker or owner. Nothing was done"
    assert error == f"error: {sites.bank.path / 'run.yaml'} is of role active; {takes}\n"
    ((code, _, error),) = finish(sites.shop.start("ledger"))
    assert (code, error) == (6, f"error: {ledger_of(sites.shop)} is not there. Nothing was released\n")
    assert not ledger_of(sites.shop).parent.exists()


def test_a_ledger_may_be_read_without_a_run_file_and_then_shows_no_limits(sites: Any, outcomes: Outcomes) -> None:
    from typer.testing import CliRunner

    from parties.cli import app

    train_both(sites, outcomes)
    result = CliRunner().invoke(app, ["ledger", "--path", str(ledger_of(sites.shop)), "--format", "json"])
    assert result.exit_code == 0
    assert json.loads(result.stdout)["record"] == {"spent": pytest.approx(18.0), "limit": None, "remaining": None}
    told = CliRunner().invoke(app, ["ledger", "--path", str(ledger_of(sites.shop))]).stdout
    assert "remaining: unknown without a run file." in told
    assert "no limit" not in told
