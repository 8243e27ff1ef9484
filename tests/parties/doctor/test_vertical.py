"""The doctor finds before a run what would end it, names all of it at once, and disturbs nobody."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from parties.cli import app
from parties.config.reading import read_run
from parties.config.serve_section import ServeSection
from parties.config.vertical import PassiveRun
from parties.doctor.check_result import Finding, Status
from parties.doctor.vertical import examine
from parties.errors import LedgerError
from parties.jobs.train_vertical import Terminal, train_active, train_passive
from parties.ledger.release_ledger import Ledger
from parties.vertical.preparation import prepare_passive
from parties.vertical.rate_limits import Allowance
from protocols.messages.message import PROTOCOL_VERSION

Outcomes = Callable[..., dict[str, Any]]

SILENT = Terminal()
HASTE = 0.3


def told(findings: list[Finding], status: Status = Status.PROBLEM) -> dict[str, str]:
    return {finding.check: finding.sentence for finding in findings if finding.status is status}


def files(site: Any) -> set[Path]:
    return {path for path in site.path.rglob("*") if path.is_file()}


@pytest.mark.parametrize("party", ["bank", "shop"])
def test_a_sound_party_without_its_peer_is_checked_and_told_that_only_this_side_was(sites: Any, party: str) -> None:
    site = getattr(sites, party)
    path = site.write()
    before = files(site)
    found = examine(path, wait_s=HASTE)
    assert told(found) == {}
    assert told(found, Status.SKIPPED)["peer"].startswith("only this side was checked: ")
    checks = {finding.check for finding in found if finding.status is Status.OK}
    assert checks >= {"run file", "keys", "run folder", "data", "header", "ids"}
    assert ("ledger" in checks) == (party == "shop")
    assert files(site) == before
    assert not (site.path / "runs").exists()


def test_two_doctors_meet_and_agree(sites: Any, outcomes: Outcomes) -> None:
    bank, shop = sites.bank.write(), sites.shop.write()
    found = outcomes({"bank": lambda: examine(bank), "shop": lambda: examine(shop)})
    for party, peer in (("bank", "shop"), ("shop", "bank")):
        assert told(found[party]) == {}
        assert (
            told(found[party], Status.OK)["peer"]
            == f"{peer} is there, speaks protocol version {PROTOCOL_VERSION} and agrees"
        )


AGREEMENTS: dict[str, tuple[str, dict[str, Any], list[str]]] = {
    "tests": ("shop", {"tests": 34}, ["number of split tests", "plans 35 where at most 34 was agreed on"]),
    "objective": ("shop", {"objective": "reg:squarederror"}, ["objective", "binary:logistic", "reg:squarederror"]),
    "mechanism": ("bank", {"mechanism": "adj"}, ["mechanism", "plans global where adj was agreed on"]),
    "law": ("bank", {"law": "exponential"}, ["law", "plans clamped where exponential was agreed on"]),
    "epsilon": ("bank", {"epsilon": 0.25}, ["epsilon", "plans 0.5 where 0.25 was agreed on"]),
    "total": ("bank", {"total_epsilon": 2}, ["epsilon of all columns", "plans 18 where 2 was agreed on"]),
    "columns": ("bank", {"columns": 3}, ["number of columns", "plans 2 where 3 was agreed on"]),
    "thresholds": ("bank", {"share_thresholds": True}, ["sharing of thresholds", "plans no where yes was agreed on"]),
}


def agree(sites: Any, party: str, terms: dict[str, Any]) -> None:
    if party == "bank":
        sites.bank.run["passive"][0]["agreed"] = terms
    else:
        sites.shop.run["active"]["agreed"] = terms


@pytest.mark.parametrize(("party", "terms", "words"), AGREEMENTS.values(), ids=AGREEMENTS)
def test_what_was_agreed_on_is_compared_and_the_difference_told_on_both_sides(
    sites: Any, outcomes: Outcomes, party: str, terms: dict[str, Any], words: list[str]
) -> None:
    agree(sites, party, terms)
    bank, shop = sites.bank.write(), sites.shop.write()
    found = outcomes({"bank": lambda: examine(bank), "shop": lambda: examine(shop)})
    for findings in found.values():
        assert [word for word in words if word not in told(findings)["peer"]] == []


def test_terms_that_were_kept_are_no_difference(sites: Any, outcomes: Outcomes) -> None:
    agree(sites, "shop", {"objective": "binary:logistic", "tests": 35})
    agree(
        sites,
        "bank",
        {
            "columns": 2,
            "mechanism": "global",
            "law": "clamped",
            "epsilon": 0.5,
            "total_epsilon": 18.0,
            "share_thresholds": False,
        },
    )
    bank, shop = sites.bank.write(), sites.shop.write()
    found = outcomes({"bank": lambda: examine(bank), "shop": lambda: examine(shop)})
    assert [told(findings) for findings in found.values()] == [{}, {}]


def bring_another(site: Any) -> None:
    """As many customers as before, of which the other side does not know one."""
    site.table = site.table.assign(id=site.table["id"].replace("k0007", "k9999"))


def test_two_doctors_compare_the_ids_themselves_where_files_are_aligned(sites: Any, outcomes: Outcomes) -> None:
    bring_another(sites.shop)
    bank, shop = sites.bank.write(), sites.shop.write()
    found = outcomes({"bank": lambda: examine(bank), "shop": lambda: examine(shop)})
    for party, peer in (("bank", "shop"), ("shop", "bank")):
        assert told(found[party]) == {
            "peer": f"{peer} and this party do not agree: the sets of ids differ: it has 400 records, this party 400; "
            "both need the same ids"
        }


@pytest.mark.parametrize("waiting", ["bank", "shop"])
def test_a_party_that_waits_compares_its_ids_with_whoever_asks_and_waits_on(
    sites: Any, outcomes: Outcomes, waiting: str
) -> None:
    asking = {"bank": sites.shop, "shop": sites.bank}[waiting]
    jobs = {"bank": train_active, "shop": train_passive}
    paths = {"bank": sites.bank.write(), "shop": sites.shop.write()}
    started: dict[str, Any] = {}
    wait = {waiting: lambda: jobs[waiting](paths[waiting], insecure=False, terminal=SILENT)}
    thread = threading.Thread(target=lambda: started.update(outcomes(wait)), daemon=True)
    thread.start()
    whole = asking.table
    bring_another(asking)
    assert "the sets of ids differ" in told(examine(asking.write()))["peer"]
    asking.table = whole
    path = asking.write()
    assert told(examine(path)) == {}
    found = outcomes({asking.party: lambda: jobs[asking.party](path, insecure=False, terminal=SILENT)})
    thread.join(40)
    assert not [error for error in (*found.values(), *started.values()) if isinstance(error, BaseException)]


@pytest.mark.parametrize("waiting", ["bank", "shop"])
def test_a_party_that_waits_for_the_run_is_asked_and_waits_on(sites: Any, outcomes: Outcomes, waiting: str) -> None:
    bank, shop = sites.bank.write(), sites.shop.write()
    run = {
        "bank": lambda: train_active(bank, insecure=False, terminal=SILENT),
        "shop": lambda: train_passive(shop, insecure=False, terminal=SILENT),
    }
    (asking,) = set(run) - {waiting}
    started: dict[str, Any] = {}
    thread = threading.Thread(target=lambda: started.update(outcomes({waiting: run[waiting]})), daemon=True)
    thread.start()
    time.sleep(0.3)
    found = examine({"bank": bank, "shop": shop}[asking])
    assert (
        told(found, Status.OK)["peer"] == f"{waiting} is there, speaks protocol version {PROTOCOL_VERSION} and agrees"
    )
    assert not isinstance(outcomes({asking: run[asking]})[asking], BaseException)
    thread.join(30)
    assert not isinstance(started[waiting], BaseException)


def test_whole_numbers_that_are_one_double_are_no_constant_column_to_the_doctor_as_to_the_party(sites: Any) -> None:
    sites.shop.schema["columns"]["spend"] = {"lower": 0, "upper": 1e20}
    sites.shop.table["spend"] = np.resize(np.array([2**63, 2**63 + 1], np.uint64), 400)
    path = sites.shop.write()
    prepare_passive(read_run(path, PassiveRun), path)
    assert told(examine(path, wait_s=HASTE)) == {}


FAULTS: dict[str, tuple[str, Callable[[Any], None], dict[str, str]]] = {
    "label given as id": (
        "bank",
        lambda s: s.schema.update(id="y", label="id"),
        {
            "ids": "column 'y' holds 2 different values in 400 records: is it a label or a category?",
            "label": "label column 'id' is missing, infinite or not a number in 400 rows",
        },
    ),
    "constant and unreadable columns": (
        "shop",
        lambda s: s.table.update({"spend": np.full(400, 7.0)}) or setattr(s, "table", s.table.assign(visits="many")),
        {"column spend": "is constant", "column visits": "is numeric by the schema but 400 cells are not numbers"},
    ),
    "outside and missing, both refused": (
        "shop",
        lambda s: s.schema["columns"].update(
            spend={"lower": 0, "upper": 50, "outside": "refuse"}, visits={"lower": 0, "upper": 50}
        ),
        {"column spend": "outside its public bounds", "column visits": "missing cells"},
    ),
    "a column that nobody described": (
        "shop",
        lambda s: setattr(s, "table", s.table.assign(colour=1)),
        {"header": "columns that the schema does not know: colour"},
    ),
    "two ids alike": (
        "shop",
        lambda s: setattr(s, "table", s.table.assign(id=["k0001", *s.table["id"][1:]])),
        {"ids": "repeats an id"},
    ),
    "a label at the passive party": (
        "shop",
        lambda s: s.schema.update(label="visits", columns={"spend": {"lower": 0, "upper": 100}}),
        {"label": "only the active party has"},
    ),
    "no secret key": ("shop", lambda s: s.run.pop("secret_key"), {"keys": "names no secret_key"}),
    "the peer's key is its own": (
        "shop",
        lambda s: s.run["active"].update(public_key="keys/shop.public"),
        {"keys": "a peer's public key is this party's own"},
    ),
    "over budget": (
        "shop",
        lambda s: s.run.update(ledger={"budget": {"epsilon": 0.2}}),
        {"budget": "over budget: column 'spend'"},
    ),
    "impossible parameter": (
        "bank",
        lambda s: s.run["model"].update(learning_rate=-1),
        {"settings": "learning_rate must be a number"},
    ),
    "no schema": ("bank", lambda s: s.run.update({"schema": "none.yaml"}), {"schema": "none.yaml cannot be read"}),
    "no such key in the run file": ("bank", lambda s: s.run.update(epsilon=1), {"run file": "epsilon: is no key here"}),
}


@pytest.mark.parametrize(("party", "spoil", "words"), FAULTS.values(), ids=FAULTS)
def test_every_fault_is_a_problem_with_its_own_sentence(
    sites: Any, party: str, spoil: Callable[[Any], None], words: dict[str, str]
) -> None:
    site = getattr(sites, party)
    spoil(site)
    found = told(examine(site.write(), wait_s=HASTE))
    assert set(found) == set(words)
    assert [check for check, part in words.items() if part not in found[check]] == []


def test_a_secret_key_that_others_may_read_is_a_problem(sites: Any) -> None:
    path = sites.shop.write()
    (sites.shop.path / "keys/shop.secret").chmod(0o644)
    assert "must be readable by its owner alone" in told(examine(path, wait_s=HASTE))["keys"]


def test_what_would_be_changed_or_looks_odd_is_a_warning(sites: Any) -> None:
    sites.shop.schema["columns"]["spend"]["upper"] = 99
    sites.shop.table["visits"] = np.arange(400.0)
    sites.shop.schema["columns"]["visits"]["upper"] = 400
    found = told(examine(sites.shop.write(), wait_s=HASTE), Status.WARNING)
    assert "values lie outside the public bounds" in found["column spend"]
    assert "is it an id?" in found["column visits"]


def test_a_file_without_a_header_and_one_with_too_many_cells_are_named(sites: Any) -> None:
    path = sites.shop.write()
    data = sites.shop.path / "data.csv"
    lines = data.read_text().splitlines()
    data.write_text("\n".join(["1,2,3", "4,5,6"]))
    assert "the first line holds numbers" in told(examine(path, wait_s=HASTE))["header"]
    data.write_text("\n".join([lines[0], *(f"{line},9" for line in lines[1:])]))
    assert "more cells than its header names" in told(examine(path, wait_s=HASTE))["data"]


def test_after_a_run_the_folder_and_the_store_are_known(sites: Any, outcomes: Outcomes) -> None:
    bank, shop = sites.bank.write(), sites.shop.write()
    run = {
        "bank": lambda: train_active(bank, insecure=False, terminal=SILENT),
        "shop": lambda: train_passive(shop, insecure=False, terminal=SILENT),
    }
    outcomes(run)
    found = examine(shop, wait_s=HASTE)
    assert "0 columns to draw, 2 stored already" in told(found, Status.OK)["ledger"]
    assert "is finished: starting it does nothing" in told(found, Status.WARNING)["run folder"]
    (sites.shop.path / "runs/ledger.head.json").write_text("{}")
    assert "ledger" in told(examine(shop, wait_s=HASTE))


def test_a_grid_with_few_cells_from_a_small_release_is_warned_of(sites: Any, outcomes: Outcomes) -> None:
    sites.shop.run["desensitize"] = {"epsilon": 5.0, "domain_size": 65}
    for site in (sites.bank, sites.shop):
        site.run["answers"] = "cells"
    whole = sites.bank.table, sites.shop.table
    some = sorted(sites.bank.table["id"])[:4]
    warnings = []
    for run_id, n_cells in (("spring", 16), ("summer", 16), ("summer", 12)):
        for site, table in zip((sites.bank, sites.shop), whole, strict=True):
            site.run["run_id"] = run_id
            site.table = table[table["id"].isin(some)] if run_id == "spring" else table
        sites.bank.table = sites.bank.table.assign(y=np.arange(len(sites.bank.table)) % 2)
        sites.shop.run["cells"] = n_cells
        bank, shop = sites.bank.write(), sites.shop.write()
        if run_id == "spring":
            outcomes(
                {
                    "bank": lambda path=bank: train_active(path, insecure=False, terminal=SILENT),
                    "shop": lambda path=shop: train_passive(path, insecure=False, terminal=SILENT),
                }
            )
        warnings.append(told(examine(shop, wait_s=HASTE), Status.WARNING).get("grid", ""))
    assert "'visits' at most half of 16 cells" in warnings[1]
    assert "at most half" not in warnings[2]
    assert "answered about visits, spend by other cells" in warnings[2] or "spend, visits by other" in warnings[2]


def test_the_command_prints_a_table_or_json_and_fails_on_a_problem(sites: Any) -> None:
    path = str(sites.bank.write())
    sound = CliRunner().invoke(app, ["doctor", path, "--wait", "0.2", "--format", "json"])
    assert (sound.exit_code, json.loads(sound.stdout)["ok"]) == (0, True)
    sites.bank.table["age"] = 30.0
    sites.bank.write()
    sick = CliRunner().invoke(app, ["doctor", path, "--wait", "0.2", "--format", "json"])
    report = json.loads(sick.stdout)
    assert (sick.exit_code, report["ok"]) == (1, False)
    assert {f["check"] for f in report["findings"] if f["status"] == "problem"} == {"column age"}
    table = CliRunner().invoke(app, ["doctor", path, "--wait", "0.2"])
    assert table.exit_code == 1
    assert "column 'age' is constant" in table.stdout
    assert "1 problems, 0 warnings: the run would not succeed" in table.stdout


@pytest.mark.parametrize("party", ["bank", "shop"])
def test_a_run_file_that_leaves_answers_open_is_warned_of_split_tests(sites: Any, party: str) -> None:
    site = getattr(sites, party)
    said = [one.sentence for one in examine(site.write(), wait_s=0) if one.check == "answers"]
    assert len(said) == 1
    assert said[0].startswith("`answers` is not set: passive parties learn which thresholds trees use")
    site.run["answers"] = "cells"
    assert not [one for one in examine(site.write(), wait_s=0) if one.check == "answers"]


def test_weak_columns_and_a_ledger_without_limits_are_warned_of_and_protected_ones_are_not(sites: Any) -> None:
    sites.shop.run |= {"desensitize": {"epsilon": 0.5, "domain_size": 100}, "answers": "tests"}
    weak = told(examine(sites.shop.write(), wait_s=0), Status.WARNING)
    assert "`ledger.budget` is empty" in weak["budget"]
    assert "answered exactly, one bit per split test" in weak["answers"]
    assert {"privacy of spend", "privacy of visits"} <= weak.keys()
    sites.shop.run |= {"desensitize": {"whole_range": 0.5}, "answers": "cells"}
    sites.shop.run["ledger"] = {"budget": {"epsilon": 1}}
    (exact,) = told(examine(sites.shop.write(), wait_s=0), Status.WARNING).items()
    assert exact[0] == "allow_routed"
    assert "released for training are answered exactly too" in exact[1]
    sites.shop.run["allow_routed"] = True
    assert told(examine(sites.shop.write(), wait_s=0), Status.WARNING) == {}


def test_what_is_missing_for_a_gpu_is_named_before_any_release(sites: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    xgboost = pytest.importorskip("xgboost")
    monkeypatch.setattr(xgboost, "build_info", lambda: {"USE_CUDA": False})
    sites.bank.run["model"] = {"engine": "xgboost", "device": "cuda"}
    assert "install `xgboost` in place of `xgboost-cpu`" in told(examine(sites.bank.write(), wait_s=HASTE))["settings"]
    sites.bank.run["model"] = {"device": "cuda"}
    assert "goes with engine: xgboost" in told(examine(sites.bank.write(), wait_s=HASTE))["settings"]


@pytest.mark.parametrize("has_ledger", [True, False])
@pytest.mark.parametrize("kind", ["folder", "garbage", "open to others"])
def test_counts_of_answers_that_cannot_be_used_are_a_problem(sites: Any, has_ledger: bool, kind: str) -> None:
    """The doctor said yes, and the party did not start."""
    sites.shop.run["serve"] = {"records_per_minute": 100}
    path = sites.shop.write()
    run = read_run(path, PassiveRun)
    if has_ledger:
        Ledger(run.ledger.path).__exit__()
    else:
        run.ledger.path.parent.mkdir()
    counts = run.ledger.path.with_suffix(".served.sqlite")
    counts.mkdir() if kind == "folder" else counts.write_bytes(b"xx" * 500 if kind == "garbage" else b"")
    counts.chmod(0o644 if kind == "open to others" else 0o700)
    with pytest.raises(LedgerError, match="served"):
        train_passive(path, insecure=False, terminal=SILENT)
    problems = told(examine(path, wait_s=HASTE))
    assert problems.keys() == {"limits"}
    assert "ledger.served.sqlite" in problems["limits"]


def test_counts_of_answers_that_can_be_used_are_told(sites: Any) -> None:
    sites.shop.run["serve"] = {"records_per_minute": 100}
    path = sites.shop.write()
    Ledger(read_run(path, PassiveRun).ledger.path).__exit__()
    found = examine(path, wait_s=HASTE)
    assert told(found) == {}
    assert told(found, Status.OK)["limits"] == "records_per_minute 100"


def test_lost_counts_of_answers_are_told_and_nothing_is_written(sites: Any) -> None:
    """The doctor named the file anew, and the service did not tell that its counts were lost."""
    sites.shop.run["serve"] = {"records_per_minute": 100}
    path = sites.shop.write()
    ledger = read_run(path, PassiveRun).ledger.path
    Ledger(ledger).__exit__()
    for is_lost in (False, False, True, True):
        counts = ledger.with_suffix(".served.sqlite")
        if is_lost:
            counts.unlink(missing_ok=True)
        before = {one: one.read_bytes() for one in ledger.parent.iterdir()}
        found = examine(path, wait_s=HASTE)
        assert told(found) == {}
        assert ("limits" in told(found, Status.WARNING)) == is_lost
        assert {one: one.read_bytes() for one in ledger.parent.iterdir()} == before
        if not is_lost:
            Allowance(ledger, ServeSection(records_per_minute=100), "bank").__exit__()
    with Allowance(ledger, ServeSection(records_per_minute=100), "bank") as allowance:
        assert allowance.is_lost


@pytest.mark.parametrize("party", ["bank", "shop"])
def test_no_ledger_is_begun_through_a_link_by_a_doctor_or_a_party(sites: Any, tmp_path: Path, party: str) -> None:
    """The folder of a disk that is not mounted is there and empty: everything was drawn a second time."""
    site = getattr(sites, party)
    site.run |= {"label_epsilon": 1.0} if party == "bank" else {}
    path = site.write()
    (disk := tmp_path / "disk").mkdir()
    (path.parent / "runs").mkdir()
    for name in ("ledger.sqlite", "labels.sqlite"):
        (path.parent / "runs" / name).symlink_to(disk / name)
    train = {"bank": train_active, "shop": train_passive}[party]
    with pytest.raises(LedgerError, match=r"is a link to .*, which is not there: bring that file back") as refusal:
        train(path, insecure=False, terminal=SILENT)
    assert str(refusal.value) in told(examine(path, wait_s=HASTE)).values()
    assert not list(disk.iterdir())
