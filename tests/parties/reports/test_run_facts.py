"""Reports of finished runs: each side's own facts, the audit list against the wire, and nothing of the other side."""

from __future__ import annotations

import contextlib
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from typer.testing import CliRunner

from opboost.privacy.guarantee import ROUTED_ANSWERS
from parties.cli import app
from parties.config.reading import read_any_run
from parties.errors import RunFolderError
from parties.jobs.answer_vertical import serve_passive
from parties.jobs.predict_vertical import predict_active
from parties.jobs.train_vertical import Terminal, train_active, train_passive
from parties.reports import writing
from parties.reports.plain import plain
from parties.reports.run_facts import run_facts
from parties.reports.run_history import _step
from parties.reports.writing import report_of
from parties.runs.run_log import RunLog
from parties.session.session_log import SessionLog, Tally


def document(site: Any) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((site.run_folder / "report.json").read_text())
    return found


def test_both_run_folders_hold_a_report_in_both_forms(finished: Any) -> None:
    for site in (finished.bank, finished.shop):
        assert document(site)["kind"] == "run"
        html = (site.run_folder / "report.html").read_text()
        assert html.startswith("<!doctype html>")
        assert not [word for word in ("<script", "src=", "http://", "https://") if word in _without_namespaces(html)]


def _without_namespaces(html: str) -> str:
    return html.replace("http://www.w3.org/2000/svg", "").replace("http://www.w3.org/1999/xlink", "")


def test_a_report_tells_what_the_run_shared_and_how_it_drew_whatever_its_file_says_now(finished: Any) -> None:
    path = finished.shop.path / "run.yaml"
    before, text = plain(run_facts(path)), path.read_text()
    run = yaml.safe_load(text)
    try:
        # The twin: what may change for predictions is told as it is now.
        changed = {"share_thresholds": not run.get("share_thresholds", False), "allow_routed": False}
        path.write_text(yaml.safe_dump({**run, **changed, "seed": None if "seed" in run else 7}))
        after = plain(run_facts(path))
    finally:
        path.write_text(text)
    assert (before["allows_routed"], after["allows_routed"]) == (True, False)
    assert after["shared_thresholds"] == before["shared_thresholds"]
    assert after["history"]["randomness"] == before["history"]["randomness"]
    assert ("SEEDED" in after["history"]["randomness"]) is not after["guarantee"]["is_secure"]


def test_exact_answers_that_the_run_refused_stand_in_the_report_once_they_are_given(
    finished: Any, tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(finished.shop.path, tmp_path / "shop"))
    path, run_folder = folder / "run.yaml", folder / "runs" / "spring"
    run, promise = yaml.safe_load(path.read_text()), json.loads((run_folder / "guarantee.json").read_text())
    refusing = [one for one in promise["not_protected"] if not one.startswith(ROUTED_ANSWERS)]
    assert len(refusing) == len(promise["not_protected"]) - 1
    (run_folder / "guarantee.json").write_text(json.dumps({**promise, "not_protected": refusing}))
    path.write_text(yaml.safe_dump({**run, "allow_routed": False}))
    # The twin: a run that refused them, and still does.
    assert list(run_facts(path).guarantee.not_protected) == refusing
    log = (run_folder / "log.jsonl").read_text()
    counts = {"records": 3, "answered": 3, "routed_bits": 9}
    line = {"time": "2026-01-01T00:00:00+00:00", "event": "answered", "message": "", "seconds": 1.0, **counts}
    (run_folder / "log.jsonl").write_text(f"{log}{json.dumps(line)}\n")
    assert sorted(run_facts(path).guarantee.not_protected) == sorted(promise["not_protected"])
    (run_folder / "log.jsonl").write_text(log)
    path.write_text(yaml.safe_dump({**run, "allow_routed": True}))
    assert sorted(run_facts(path).guarantee.not_protected) == sorted(promise["not_protected"])


def test_the_audit_list_is_what_the_log_says_left(finished: Any) -> None:
    for site, kinds in (
        (finished.bank, {"hello", "split ranks", "done"}),
        (finished.shop, {"hello", "rank chunk", "offer"}),
    ):
        lines = [json.loads(line) for line in (site.run_folder / "log.jsonl").read_text().splitlines()]
        sent = [line for line in lines if line["event"] == "sent"]
        listed = document(site)["history"]["outgoing"]
        assert [(one["kind"], one["bytes"], one["sha256"]) for one in listed] == [
            (line["kind"], line["bytes"], line["sha256"]) for line in sent
        ]
        assert kinds <= {one["kind"] for one in listed}
        assert sum(one["bytes"] for one in listed) == document(site)["history"]["sent_bytes"]


def test_what_one_side_sent_is_what_the_other_side_received(finished: Any) -> None:
    for sender, receiver in ((finished.bank, finished.shop), (finished.shop, finished.bank)):
        log = [json.loads(line) for line in (receiver.run_folder / "log.jsonl").read_text().splitlines()]
        received = [line["sha256"] for line in log if line["event"] == "received"]
        assert [one["sha256"] for one in document(sender)["history"]["outgoing"]] == received


def test_the_active_partys_report_has_curves_importance_and_no_name_of_the_others_columns(finished: Any) -> None:
    found = document(finished.bank)
    (fit,) = found["fits"]
    assert (fit["basis"], fit["n_rows"], fit["metric"]) == ("validation rows", 100, "logloss")
    assert len(fit["curve"]) == 6
    history = json.loads((finished.bank.run_folder / "history.json").read_text())
    np.testing.assert_allclose([score for _, score in fit["curve"][1:]], history["scores"]["logloss"], rtol=1e-9)
    assert sum(one["share"] for one in found["importance"]) == pytest.approx(1)
    assert {(one["owner"], one["column"]) for one in found["importance"]} <= {
        ("", "age"),
        ("shop", "c0"),
        ("shop", "c1"),
    }
    assert "seed of sampling" in found["history"]["randomness"]
    text = (finished.bank.run_folder / "report.html").read_text() + json.dumps(found)
    assert "spend" not in text
    assert "visits" not in text


def test_the_passive_partys_report_has_its_ledger_and_nothing_of_the_trees(finished: Any) -> None:
    found = document(finished.shop)
    assert [column["column"] for column in found["columns"]] == ["spend", "visits"]
    tests = json.loads((finished.shop.run_folder / "model.json").read_text())["tests"]
    assert sum(column["n_tests"] for column in found["columns"]) == len(tests)
    assert found["ledger"]["n_records"] == 400
    assert [column["epsilon"]["spent"] for column in found["ledger"]["columns"]] == pytest.approx([5.0, 10.0])
    text = (finished.shop.run_folder / "report.html").read_text() + json.dumps(found)
    assert not [word for word in ("auc", "gains", "logloss", "age") if f'"{word}"' in text]
    assert str(finished.shop.path) not in text


def test_a_page_says_who_saw_what_and_what_is_not_protected(finished: Any) -> None:
    for site in (finished.bank, finished.shop):
        html = (site.run_folder / "report.html").read_text()
        for words in ("gradient leakage", "histogram leakage", "model-statistics leakage", "Not protected:", "SHA-256"):
            assert words in html
        assert "at prediction, whether B&#39;s data file holds any id that A asks for" in html


def test_the_report_is_written_again_from_the_folder_alone(finished: Any) -> None:
    for site in (finished.bank, finished.shop):
        path = site.path / "run.yaml"
        before = (site.run_folder / "report.html").read_text()
        report_of(path).write()
        assert (site.run_folder / "report.html").read_text() == before
        code = CliRunner().invoke(app, ["report", str(path), "--format", "json"])
        assert json.loads(code.stdout) == document(site)


@pytest.mark.parametrize(
    ("message", "said"),
    [
        ("the run is in /home/ann/runs/q3", "the run is in q3"),
        ("HOME/x.csv: label", "x.csv: label"),
        ("/data/x.csv: label 'y'", "x.csv: label 'y'"),
        ("waits at tcp://0.0.0.0:5555", "waits at tcp://0.0.0.0:5555"),
    ],
)
def test_a_time_line_names_files_without_their_folders(
    make_sites: Any, message: str, said: str, tmp_path: Path
) -> None:
    (tmp_path / "a b").mkdir()
    path = make_sites(tmp_path / "a b").shop.write()
    line = {"time": "t", "seconds": 0.0, "event": "e", "message": message.replace("HOME", str(path.parent))}
    assert _step(line, read_any_run(path)).message == said


def test_a_run_that_is_not_finished_has_no_report(make_sites: Any, tmp_path: Path) -> None:
    with pytest.raises(RunFolderError):
        run_facts(make_sites(tmp_path).shop.write())


def test_a_report_that_cannot_be_written_does_not_undo_the_run(
    make_sites: Any, tmp_path: Path, outcomes: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(path: Path) -> None:
        raise RunFolderError("the disk is full")

    monkeypatch.setattr(writing, "finished_report", broken)
    sites, said = make_sites(tmp_path), []
    for site in (sites.bank, sites.shop):
        site.run["report"] = True
    done = outcomes(
        {
            "bank": lambda: train_active(sites.bank.write(), insecure=False, terminal=Terminal(warn=said.append)),
            "shop": lambda: train_passive(sites.shop.write(), insecure=False, terminal=Terminal(warn=said.append)),
        }
    )
    assert not [one for one in done.values() if isinstance(one, BaseException)]
    assert sum("`opboost report` writes it again" in sentence for sentence in said) == 2
    assert not (sites.shop.run_folder / "report.html").exists()


def test_reports_hold_what_predictions_used_the_model_for(make_sites: Any, outcomes: Any, tmp_path: Path) -> None:
    sites = make_sites(tmp_path)
    bank, shop = sites.bank, sites.shop
    for site in (bank, shop):
        site.run |= {"report": True, "timeout": 20}  # figures are drawn beside the other party
    # Trees enough that they ask for both columns, whatever the noise.
    bank.run["model"] = {"n_estimators": 40, "max_depth": 5}

    def together(active: Any, passive: Any) -> None:
        calls = {
            site.party: lambda site=site, call=call: call(site.write(), insecure=False, terminal=Terminal())
            for site, call in ((bank, active), (shop, passive))
        }
        for one in outcomes(calls).values():
            assert not isinstance(one, BaseException), one

    together(train_active, train_passive)
    assert document(shop)["history"]["predictions"] == []
    spent = document(shop)["ledger"]["record"]["spent"]
    bank.table = bank.table.head(30)
    for mode in ("routed", "desensitized"):
        out = bank.path / f"{mode}.csv"
        together(
            lambda path, out=out, mode=mode, **rest: predict_active(
                path, data=None, ids=None, mode=mode, out=out, **rest
            ),
            lambda path, **rest: serve_passive(path, data=None, **rest),
        )
    found = document(shop)
    n_tests = len(json.loads((shop.run_folder / "model.json").read_text())["tests"])
    uses = found["history"]["predictions"]
    assert [(one["n_records"], one["n_answered"], one["n_routed_bits"]) for one in uses] == [
        (30, 30, 30 * n_tests),
        (30, 30, 0),
    ]
    # The desensitized answers are the draws of the training run, which cost nothing again.
    assert found["ledger"]["record"]["spent"] == spent
    logged = "".join((shop.run_folder / name).read_text() for name in ("log.jsonl", "messages.jsonl"))
    sent = [line for line in logged.splitlines() if '"sent"' in line]
    assert len(found["history"]["outgoing"]) == len(sent) > found["history"]["n_trained"] > 0
    trained = found["history"]["outgoing"][: found["history"]["n_trained"]]
    assert sum(one["bytes"] for one in trained) == found["history"]["sent_bytes"]
    html = (shop.run_folder / "report.html").read_text()
    assert f"It answered for 60 records, with {30 * n_tests:,} exact routing bits" in html
    basis = [fit["basis"] for fit in document(bank)["fits"]]
    assert basis[1:] == ["records scored in mode routed", "records scored in mode desensitized"]
    assert [one["n_records"] for one in document(bank)["history"]["predictions"]] == [30, 30]


def test_sessions_of_a_service_are_uses_of_the_model(finished: Any, tmp_path: Path) -> None:
    shutil.copytree(finished.shop.path, tmp_path / "shop")
    log = tmp_path / "shop" / "runs" / "spring" / "log.jsonl"
    tally = Tally(n_requests=2, n_asked=12, n_answered=11, n_routed_bits=99, modes={"routed"}, began=0.0)
    with contextlib.closing(RunLog(log.parent)) as written:
        SessionLog(written, 9).add(tally, "done")
    found = run_facts(tmp_path / "shop" / "run.yaml").history
    assert [(one.n_records, one.n_answered, one.n_routed_bits) for one in found.predictions] == [(12, 11, 99)]
    text = report_of(tmp_path / "shop" / "run.yaml").text("md")
    assert "It answered for 11 records, with 99 exact routing bits" in text
