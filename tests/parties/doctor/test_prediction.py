"""The doctor before a prediction: model, data, account, limits and the peer's terms, and nothing is disturbed."""

from __future__ import annotations

import gzip
import os
import shutil
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from parties.cli import app
from parties.doctor.check_result import Finding, Status
from parties.doctor.prediction import examine_prediction
from parties.errors import ConfigError, TableError
from parties.jobs.answer_vertical import serve_passive, serve_until_stopped
from parties.jobs.predict_vertical import predict_active
from parties.jobs.train_vertical import Terminal, train_active, train_passive
from parties.runs.run_folder import RunFolder
from parties.vertical.prediction_service import StopSignals

Outcomes = Callable[[Mapping[str, Callable[[], Any]]], dict[str, Any]]

SILENT = Terminal()
HASTE = 0.3


def told(findings: list[Finding], status: Status = Status.PROBLEM) -> dict[str, str]:
    return {finding.check: finding.sentence for finding in findings if finding.status is status}


@pytest.fixture(scope="module")
def trained(make_sites: Any, tmp_path_factory: pytest.TempPathFactory, outcomes: Outcomes) -> Path:
    root = tmp_path_factory.mktemp("trained")
    sites = make_sites(root)
    bank, shop = sites.bank.write(), sites.shop.write()
    found = outcomes(
        {
            "bank": lambda: train_active(bank, insecure=False, terminal=SILENT),
            "shop": lambda: train_passive(shop, insecure=False, terminal=SILENT),
        }
    )
    assert all(isinstance(folder, RunFolder) for folder in found.values()), found
    return root


@pytest.fixture
def finished(sites: Any, trained: Path) -> Any:
    """Two parties with a model, in folders of their own."""
    for site in (sites.bank, sites.shop):
        for name in ("runs", "keys"):
            shutil.rmtree(site.path / name, ignore_errors=True)
            shutil.copytree(trained / site.party / name, site.path / name)
    return sites


def meet(sites: Any, outcomes: Outcomes, *, serves: bool = False) -> dict[str, list[Finding]]:
    bank, shop = sites.bank.write(), sites.shop.write()
    return outcomes({"bank": lambda: examine_prediction(bank), "shop": lambda: examine_prediction(shop, serves=serves)})


@pytest.mark.parametrize("serves", [True, False])
def test_two_doctors_meet_and_agree(finished: Any, outcomes: Outcomes, serves: bool) -> None:
    found = meet(finished, outcomes, serves=serves)
    for party, peer in (("bank", "shop"), ("shop", "bank")):
        assert told(found[party]) == {}
        assert told(found[party], Status.OK)["peer"].startswith(f"{peer} is there")
    assert told(found["bank"], Status.OK).keys() == {"run file", "keys", "model", "data", "peer"}
    assert told(found["shop"], Status.OK).keys() == {"run file", "keys", "model", "data", "ledger", "budget", "peer"}
    assert told(found["shop"], Status.WARNING).keys() == {"limits"}


def test_terms_of_scores_are_compared_and_told_on_both_sides(finished: Any, outcomes: Outcomes) -> None:
    finished.shop.run["serve"] = {"reveal": {"round": 2}}
    for findings in meet(finished, outcomes).values():
        assert "revealing of scores" in told(findings)["peer"]


def test_who_waits_for_a_prediction_is_asked_and_waits_on(finished: Any, outcomes: Outcomes) -> None:
    bank, shop = finished.bank.write(), finished.shop.write()
    served: dict[str, Any] = {}
    thread = threading.Thread(
        target=lambda: served.update(
            outcomes({"shop": lambda: serve_passive(shop, data=None, insecure=False, terminal=SILENT)})
        ),
        daemon=True,
    )
    thread.start()
    time.sleep(0.3)
    found = examine_prediction(bank)
    assert told(found) == {}
    assert told(found, Status.OK)["peer"].startswith("shop is there")
    scores = predict_active(bank, data=None, ids=None, mode="routed", out=None, insecure=False, terminal=SILENT)
    thread.join(30)
    assert scores.exists()
    assert served == {"shop": 400}
    assert "predictions.csv exists" in told(examine_prediction(bank, wait_s=HASTE), Status.WARNING)["predictions"]


def no_model(site: Any) -> None:
    (site.run_folder / "model.json").unlink()


def no_data(site: Any) -> None:
    site.run["data"] = "other.csv"


def a_strange_cell(site: Any) -> None:
    site.table["spend"] = "much"


def a_garbled_head(site: Any) -> None:
    (site.path / "runs" / "ledger.head.json").write_text("{}")


def few_bits(site: Any) -> None:
    site.run["serve"] = {"routed_bits_per_day": 1}


def others_may_read(site: Any) -> None:
    (site.path / "keys" / f"{site.party}.secret").chmod(0o644)


def another_peer(site: Any) -> None:
    site.run["passive"][0]["name"] = "mall"


FAULTS: dict[str, tuple[str, Callable[[Any], None], str, str]] = {
    "no model at the bank": ("bank", no_model, "model", "holds no trained model"),
    "no model at the shop": ("shop", no_model, "model", "holds no trained model"),
    "no data": ("bank", no_data, "data", "other.csv cannot be read"),
    "a strange cell": ("shop", a_strange_cell, "data", "spend"),
    "a garbled head": ("shop", a_garbled_head, "ledger", "cannot be trusted"),
    "few bits": ("shop", few_bits, "limits", "no record can be answered"),
    "an open key": ("shop", others_may_read, "keys", "mode"),
    "another peer": ("bank", another_peer, "model", "the model needs answers of shop, whom the run file does not name"),
}


@pytest.mark.parametrize(("party", "break_it", "check", "words"), FAULTS.values(), ids=FAULTS)
def test_every_fault_is_a_problem_with_its_own_sentence(
    finished: Any, party: str, break_it: Callable[[Any], None], check: str, words: str
) -> None:
    site = getattr(finished, party)
    break_it(site)
    found = examine_prediction(site.write(), wait_s=HASTE)
    assert told(found).keys() == {check}
    assert words in told(found)[check]
    assert told(found, Status.SKIPPED)["peer"].startswith("not asked")


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"old": {"lower": 18, "upper": 90}}, "needs column age, which the schema does not describe"),
        ({"age": {"kind": "ordered", "categories": ["a", "b"]}}, "'age' has another kind"),
    ],
    ids=["absent", "changed"],
)
def test_a_schema_that_does_not_fit_the_model_is_found_by_doctor_and_party_before_anybody_is_asked(
    finished: Any, columns: Any, words: str
) -> None:
    bank = finished.bank
    kept = bank.run_folder / "schema.yaml"
    assert (yaml.safe_load(kept.read_text()), kept.stat().st_mode & 0o777) == (bank.schema, 0o600)
    bank.table = bank.table.rename(columns={"age": next(iter(columns))})
    if "age" in columns:
        bank.table["age"] = "a"
    bank.schema["columns"] = columns
    path = bank.write()
    found = examine_prediction(path, wait_s=HASTE)
    assert words in told(found)["data"]
    assert told(found, Status.SKIPPED)["peer"].startswith("not asked")
    with pytest.raises(ConfigError, match=words):
        predict_active(path, data=None, ids=None, mode="routed", out=None, insecure=False, terminal=SILENT)


def test_times_in_another_unit_are_found_by_a_passive_partys_doctor_and_all_that_answers(finished: Any) -> None:
    """Cells were read in the new unit and compared with thresholds in the old one."""
    shop = finished.shop
    date = {"kind": "date", "lower": "2020-01-01", "upper": "2024-01-01"}
    kept = {**shop.schema, "columns": {**shop.schema["columns"], "visits": date}}
    (shop.run_folder / "schema.yaml").write_text(yaml.safe_dump(kept))
    # As if trained by it.
    RunFolder(shop.run_folder).finish()
    shop.schema["columns"] = {**shop.schema["columns"], "visits": {**date, "unit": "hour"}}
    shop.table["visits"] = "2021-05-05"
    path, words = shop.write(), "'visits' has another `unit`"
    assert words in told(examine_prediction(path, wait_s=HASTE))["data"]
    with pytest.raises(ConfigError, match=words):
        serve_passive(path, data=None, insecure=False, terminal=SILENT)
    with StopSignals() as signals, pytest.raises(ConfigError, match=words):
        serve_until_stopped(path, data=None, insecure=False, terminal=SILENT, signals=signals)


def test_a_service_beside_another_process_is_a_problem(finished: Any) -> None:
    path = finished.shop.write()
    with RunFolder(finished.shop.run_folder).locked():
        assert "another process works on the run" in told(examine_prediction(path, serves=True))["model"]
        assert told(examine_prediction(path, wait_s=HASTE)) == {}


def test_columns_of_keys_are_read_as_the_parties_read_them(finished: Any) -> None:
    bank = finished.bank
    bank.run["align"] = {"keys": [{"mail": "email"}]}
    bank.table["mail"] = bank.table["id"] + "@x.de"
    assert told(examine_prediction(bank.write(), wait_s=HASTE)) == {}
    bank.table["mail"] = "same@x.de"
    assert "key 1 (mail) is the same in 400 of 400 rows" in told(examine_prediction(bank.write(), wait_s=HASTE))["data"]


def test_what_the_ledger_has_no_room_for_is_a_warning(finished: Any) -> None:
    finished.shop.run["ledger"] = {"budget": {"epsilon": 0.6}}
    found = examine_prediction(finished.shop.write(), wait_s=HASTE)
    assert told(found) == {}
    assert "mode `desensitized`, if all records are to be drawn: over budget" in told(found, Status.WARNING)["budget"]


def test_the_command_takes_the_purpose(finished: Any) -> None:
    bank, shop = str(finished.bank.write()), str(finished.shop.write())
    calls = ((bank, "serve", 1), (shop, "serve", 0), (bank, "predict", 0), (shop, "predict", 0))
    for path, purpose, code in calls:
        assert CliRunner().invoke(app, ["doctor", path, "--for", purpose, "--wait", "0.1"]).exit_code == code
    assert CliRunner().invoke(app, ["doctor", bank, "--data", bank]).exit_code == 2


@pytest.mark.parametrize(
    ("name", "make", "words"),
    [
        ("new.csv", os.mkfifo, "is a named pipe"),
        ("new.csv", lambda path: path.write_text("id,age,spend,visits\nk0001,20\n"), "with fewer cells"),
        ("new.csv.gz", lambda path: path.write_bytes(gzip.compress(b"id,age\n" * 99)[:-9]), "it is damaged"),
        ("new.parquet", lambda path: path.write_bytes(b"PAR1" * 9), "it is damaged"),
    ],
    ids=["pipe", "ragged", "cut gz", "no Parquet"],
)
def test_new_records_that_cannot_be_read_are_found_by_doctor_and_party(
    finished: Any, tmp_path: Path, name: str, make: Callable[[Path], object], words: str
) -> None:
    make(tmp_path / name)
    bank, shop, data = finished.bank.write(), finished.shop.write(), tmp_path / name
    for path in (bank, shop):
        assert words in told(examine_prediction(path, data=data, wait_s=HASTE))["data"]
    with pytest.raises(TableError, match=words):
        serve_passive(shop, data=data, insecure=False, terminal=SILENT)
    with pytest.raises(TableError, match=words):
        predict_active(bank, data=data, ids=None, mode="routed", out=None, insecure=False, terminal=SILENT)


def test_how_many_cells_are_read_as_other_is_told_before_a_prediction_too(finished: Any) -> None:
    finished.bank.schema["columns"]["town"] = {"kind": "unordered", "categories": ["x", "y"], "other": True}
    finished.bank.table["town"] = ["x", "v"] * 200
    found = told(examine_prediction(finished.bank.write(), wait_s=HASTE), Status.WARNING)
    assert found["column town"].startswith("200 of 400 cells are read as `other`")


def test_a_cell_that_is_no_date_is_told_as_such_before_a_prediction_too(finished: Any) -> None:
    bank = finished.bank
    born = {"kind": "date", "format": "%d.%m.%Y", "lower": "1920-01-01", "upper": "2024-01-01"}
    bank.schema["columns"] = {**bank.schema["columns"], "age": born}
    (bank.run_folder / "schema.yaml").write_text(yaml.safe_dump(bank.schema))
    # As if trained by it.
    RunFolder(bank.run_folder).finish()
    bank.table["age"] = ["31.12.1990"] * (len(bank.table) - 1) + ["1990-12-31"]
    found = told(examine_prediction(bank.write(), wait_s=HASTE))["data"]
    assert "column 'age' is a date by the schema but 1 cell is not a date written as '%d.%m.%Y'" in found
