"""A run of a coordinator and workers that goes on from another one with records that have arrived, as processes."""

from __future__ import annotations

import json
import os
import shutil
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from opboost.horizontal.rows.stream import Arrival
from opboost.trees.model_file import load_model
from parties.doctor.check_result import Status
from parties.doctor.horizontal import examine_rows
from parties.errors import ConfigError, RunFolderError, TableError
from parties.jobs.train_horizontal import train_coordinator, train_worker
from parties.jobs.train_vertical import Terminal
from parties.ledger.model_ledger import worker_ledger
from parties.ledger.run_charge import RunBudget
from parties.runs.model_share import TREES_FILE
from parties.runs.row_stream import RowStream
from parties.runs.run_folder import RunFolder
from parties.storage.twice_kept import write_twice
from tests.support.clinics import COLUMNS, NAMES, Clinics
from tests.support.processes import finish, wait_for_words

EVERYBODY = ("hub", *NAMES)


def train(clinics: Clinics) -> None:
    ends = finish(*(clinics.start(name) for name in EVERYBODY))
    assert [code for code, _, _ in ends] == [0] * 4, ends


def go_on(clinics: Clinics, run_id: str = "autumn", before: str = "spring") -> None:
    for name in EVERYBODY:
        clinics.runs[name] |= {"run_id": run_id, "continue_from": f"runs/{before}"}


def add_rows(clinics: Clinics, name: str, n: int, seed: int) -> None:
    path = clinics.root / name / "data.csv"
    X = np.random.default_rng(seed).random((n, 3)).round(6)
    more = pd.DataFrame(X, columns=list(COLUMNS)).assign(y=(X[:, 0] > 0.5).astype(int))
    more.insert(0, "id", [f"{name}-later-{seed}-{i:03}" for i in range(n)])
    pd.concat([pd.read_csv(path), more]).to_csv(path, index=False)


def spent(clinics: Clinics, name: str) -> float:
    with worker_ledger(clinics.root / name / "runs" / "worker-ledger.sqlite", RunBudget()) as ledger:
        return ledger.spent()[0]


def refusal(clinics: Clinics, name: str) -> str:
    run = train_coordinator if name == "hub" else train_worker
    with pytest.raises((ConfigError, RunFolderError, TableError)) as caught:
        run(clinics.write(name), insecure=False, terminal=Terminal())
    return str(caught.value)


TRAININGS: dict[str, dict[str, Any]] = {
    "filter": {"sgbdt": {"n_estimators": 6, "max_depth": 2, "use_filter": True}},
    "no filter": {"sgbdt": {"n_estimators": 6, "max_depth": 2, "use_filter": False}},
    "recommended": {"recommended": {"n_estimators": 6, "max_depth": 2, "records": 240}},
}


@pytest.mark.parametrize("training", TRAININGS.values(), ids=TRAININGS)
def test_three_runs_are_one_model_and_one_guarantee(tmp_path: Path, training: dict[str, Any]) -> None:
    """One worker has nothing new the second time, and to another come records whose ids stand before all others."""
    clinics = Clinics(tmp_path, recipe=next(iter(training)), **training)
    clinics.with_categories()
    for name in EVERYBODY:
        clinics.runs[name].pop("seed")
    train(clinics)
    first = load_model(clinics.folder("hub") / "model.json")
    go_on(clinics)
    if "recommended" in training:
        # As many have arrived, about; this may differ.
        clinics.training["recommended"] = {**training["recommended"], "records": 60}
    for name in ("w0", "w2"):
        frame = pd.read_csv(tmp_path / name / "data.csv")
        frame = pd.concat([frame, frame.head(30).assign(id=[f"a-{name}-{i}" for i in range(30)], age=0.25)])
        frame.to_csv(tmp_path / name / "data.csv", index=False)
    clinics.runs["hub"]["report"] = clinics.runs["w0"]["report"] = True
    clinics.runs["w0"]["ledger"] = {"epsilon": 2.001}
    found = {one.check: one for one in examine_rows(clinics.write("w0"))}
    assert found["ledger"].status is Status.OK, found
    train(clinics)
    models = [load_model(tmp_path / name / "runs" / "autumn" / "model.json") for name in EVERYBODY]
    for model in models:
        assert len(model.trees) == 12
        for tree, other in zip(model.trees, (*first.trees, *models[0].trees[6:]), strict=True):
            np.testing.assert_array_equal(tree.values, other.values)
            np.testing.assert_array_equal(tree.thresholds, other.thresholds)
    promise = json.loads((tmp_path / "w0" / "runs" / "autumn" / "guarantee.json").read_text())
    assert 1.9 < promise["epsilon"] < 2.001
    assert "of spring, from which it goes on, together" in promise["protected"]
    assert spent(clinics, "w0") == promise["epsilon"]

    go_on(clinics, "winter", "autumn")
    train(clinics)
    assert len(load_model(tmp_path / "w1" / "runs" / "winter" / "model.json").trees) == 18
    assert spent(clinics, "w0") < 2.001


def test_a_worker_that_was_away_for_a_run_pays_for_the_next_one_as_if_there_had_been_none(tmp_path: Path) -> None:
    """It fetched the model afterwards, answered nothing, and was not charged: its ledger knows the run before alone."""
    clinics = Clinics(tmp_path, recipe="sgbdt", **TRAININGS["filter"])
    for name in EVERYBODY:
        clinics.runs[name].pop("seed")
    clinics.runs["hub"]["patience"], clinics.runs["w2"]["ledger"] = 2, {"epsilon": 2.01}
    train(clinics)
    go_on(clinics)
    for name in EVERYBODY:
        clinics.runs[name]["wait"] = 5
    add_rows(clinics, "w2", 30, 5)
    assert [code for code, _, _ in finish(*(clinics.start(name) for name in ("hub", "w0", "w1")))] == [0] * 3
    clinics.runs["w2"]["report"] = True
    assert [code for code, _, _ in finish(*(clinics.start(name) for name in ("hub", "w2")))] == [0] * 2
    page = (tmp_path / "w2" / "runs" / "autumn" / "report.html").read_text()
    assert "w2 answered nothing in this run, so that none of its 110 rows trained" in page
    assert "took part with" not in page
    with worker_ledger(tmp_path / "w2" / "runs" / "worker-ledger.sqlite", RunBudget()) as ledger:
        assert [charge.run for charge in ledger.charges()] == ["spring"]
    # As if it had been stopped before it noted the end: the hub has been told, and is gone.
    autumn = RunFolder(tmp_path / "w2" / "runs" / "autumn")
    autumn.write_json("meta.json", {**autumn.read_json("meta.json"), "finished": None, "stream": None})
    assert finish(clinics.start("w2"))[0][0] == 0
    go_on(clinics, "winter", "autumn")
    train(clinics)
    with worker_ledger(tmp_path / "w2" / "runs" / "worker-ledger.sqlite", RunBudget(epsilon=2.01)) as ledger:
        assert [(charge.run, charge.continues) for charge in ledger.charges()] == [("spring", ""), ("winter", "spring")]
        assert ledger.spent()[0] < 2.01
    streams = [
        RowStream.of(RunFolder(tmp_path / "w2" / "runs" / run_id), "worker")
        for run_id in ("spring", "autumn", "winter")
    ]
    # Records that came for the run that was missed began in the next one, when its trees were there.
    first, last = Arrival(80, 0), Arrival(110, 12)
    assert [stream.arrivals for stream in streams] == [(first,), (first,), (first, last)]
    assert streams[1].rows == streams[0].rows


def test_a_charge_that_was_not_noted_paid_for_the_run_and_is_not_paid_again(tmp_path: Path) -> None:
    """As if the worker had ended between the two, and its budget was spent when it was started again."""
    clinics = Clinics(tmp_path, recipe="sgbdt", **TRAININGS["no filter"])
    for name in EVERYBODY:
        clinics.runs[name].pop("seed")
    clinics.runs["w2"]["ledger"] = {"epsilon": 2.01}
    train(clinics)
    spring = RunFolder(clinics.folder("w2"))
    kept = spring.read_json("answers.json")["answers.json"]
    write_twice(spring.path / "answers.json", {**kept, "is_charged": False})
    spring.write_json("meta.json", {**spring.read_json("meta.json"), "finished": None, "stream": None})
    clinics.runs["w2"]["wait"] = 5
    assert finish(clinics.start("w2"))[0][0] == 0
    assert RowStream.of(spring, "worker").arrivals == (Arrival(80, 0),)
    go_on(clinics)
    train(clinics)
    assert spent(clinics, "w2") < 2.01


def test_rows_that_have_answered_are_not_new_though_an_older_ledger_was_put_back(tmp_path: Path) -> None:
    """The run folder knows what was released, and the worker is charged in full for the next run."""
    clinics = Clinics(tmp_path, recipe="sgbdt", **TRAININGS["no filter"])
    for name in EVERYBODY:
        clinics.runs[name].pop("seed")
        clinics.runs[name]["wait"] = 5
    train(clinics)
    runs = tmp_path / "w2" / "runs"
    older = {path: path.read_bytes() for path in runs.glob("worker-ledger.*")}
    go_on(clinics)
    add_rows(clinics, "w2", 30, 5)
    train(clinics)
    autumn = RunFolder(runs / "autumn")
    autumn.write_json("meta.json", {**autumn.read_json("meta.json"), "finished": None, "stream": None})
    for path in runs.glob("worker-ledger.*"):
        path.unlink()
    for path, content in older.items():
        path.touch(mode=0o600)
        path.write_bytes(content)
    # The hub is gone; the model is here.
    assert [code for code, _, _ in finish(clinics.start("w2"))] == [0]
    assert RowStream.of(autumn, "worker").arrivals == (Arrival(80, 0), Arrival(110, 6))
    go_on(clinics, "winter", "autumn")
    train(clinics)
    assert spent(clinics, "w2") == pytest.approx(4.0, abs=1e-5)


@pytest.mark.parametrize("training", TRAININGS.values(), ids=TRAININGS)
def test_a_worker_that_missed_the_first_run_has_new_records_in_the_next_one(
    tmp_path: Path, training: dict[str, Any]
) -> None:
    clinics = Clinics(tmp_path, recipe=next(iter(training)), **training)
    for name in EVERYBODY:
        clinics.runs[name].pop("seed")
        clinics.runs[name]["wait"] = 5
    clinics.runs["hub"]["patience"] = 2
    assert [code for code, _, _ in finish(*(clinics.start(name) for name in ("hub", "w0", "w1")))] == [0] * 3
    assert [code for code, _, _ in finish(*(clinics.start(name) for name in ("hub", "w2")))] == [0] * 2
    go_on(clinics)
    train(clinics)
    stream = RowStream.of(RunFolder(tmp_path / "w2" / "runs" / "autumn"), "worker")
    assert stream.arrivals == (Arrival(80, 6),)
    assert spent(clinics, "w2") == pytest.approx(2.0, abs=1e-5)


def test_a_run_of_the_same_name_in_another_project_is_not_the_one_that_a_run_goes_on_from(tmp_path: Path) -> None:
    """Both projects' first runs have the default name, and the second one goes on with the ledger of the first."""
    projects = []
    for place in ("one", "two"):
        (tmp_path / place).mkdir()
        projects.append(Clinics(tmp_path / place))
        for name in EVERYBODY:
            projects[-1].runs[name].pop("seed")
        train(projects[-1])
    one, two = projects
    add_rows(two, "w0", 20, seed=0)
    go_on(two)
    two.runs["w0"]["ledger"] = {"path": str(tmp_path / "one" / "w0" / "runs" / "worker-ledger.sqlite")}
    found = {check.check: check for check in examine_rows(two.write("w0"))}
    assert "this run costs epsilon 2" in found["ledger"].sentence or "epsilon 1.99" in found["ledger"].sentence
    train(two)
    assert spent(one, "w0") == pytest.approx(4.0, rel=1e-3)
    assert spent(two, "w1") == pytest.approx(2.0, rel=1e-3)


def test_a_second_run_that_goes_on_from_the_same_one_is_charged_as_any(tmp_path: Path) -> None:
    clinics = Clinics(tmp_path)
    for name in EVERYBODY:
        clinics.runs[name].pop("seed")
    train(clinics)
    for seed, run_id in enumerate(("autumn", "winter")):
        add_rows(clinics, "w0", 20, seed)
        go_on(clinics, run_id)
        found = {check.check: check.sentence for check in examine_rows(clinics.write("w0"))}
        is_first = run_id == "autumn"
        assert ("this run costs epsilon 0 and delta 0 more than run 'spring'" in found["ledger"]) == is_first
        assert ("records that have arrived since spend up to epsilon 2 and" in found["ledger"]) == is_first
        train(clinics)
    assert spent(clinics, "w0") == pytest.approx(4.0, rel=1e-3)


def test_a_worker_and_a_coordinator_that_are_killed_go_on_with_the_stream(tmp_path: Path) -> None:
    """Both runs once whole and once with kills: with seeds they are the same model."""
    models = []
    for place, kills in enumerate((False, True)):
        (tmp_path / str(place)).mkdir()
        clinics = Clinics(tmp_path / str(place), sgbdt={"n_estimators": 60, "max_depth": 2, "use_filter": True})
        clinics.runs["hub"]["patience"] = 4
        train(clinics)
        go_on(clinics)
        add_rows(clinics, "w1", 40, seed=9)
        processes = {name: clinics.start(name) for name in EVERYBODY}
        for name in ("w1", "hub") if kills else ():
            wait_for_words(clinics.root / "w1" / "runs" / "autumn" / "answers.json", "n_trees")
            os.kill(processes[name].pid, signal.SIGKILL)
            finish(processes[name])
            processes[name] = clinics.start(name)
        ends = finish(*processes.values())
        assert [code for code, _, _ in ends] == [0] * 4, ends
        models.append(load_model(clinics.root / "w2" / "runs" / "autumn" / "model.json"))
    assert [len(model.trees) for model in models] == [120, 120]


def test_a_run_that_was_stopped_is_not_taken_up_on_another_earlier_run(tmp_path: Path) -> None:
    """Through a link, one run file may mean another folder: records that arrived in between would train twice."""
    clinics = Clinics(tmp_path, sgbdt={"n_estimators": 60, "max_depth": 2})
    train(clinics)
    go_on(clinics)
    add_rows(clinics, "w0", 20, seed=1)
    train(clinics)
    go_on(clinics, "winter", "latest")
    add_rows(clinics, "w0", 20, seed=2)
    links = [tmp_path / name / "runs" / "latest" for name in EVERYBODY]
    for link in links:
        link.symlink_to("autumn")
    processes = [clinics.start(name) for name in EVERYBODY]
    for name in ("w0", "w1"):
        wait_for_words(tmp_path / name / "runs" / "winter" / "meta.json", '"released": true')
    for process in processes:
        os.kill(process.pid, signal.SIGKILL)
    finish(*processes)
    for link in links:
        link.unlink()
        link.symlink_to("spring")
    assert "on other rows, or one that goes on from another run; bring them back" in refusal(clinics, "w0")
    # A worker to whom nothing came does not go on from another model either.
    assert "or one that goes on from another run" in refusal(clinics, "w1")


def test_what_does_not_go_on_is_refused_before_anything_is_sent(tmp_path: Path) -> None:
    clinics = Clinics(tmp_path)
    train(clinics)
    go_on(clinics)
    data = tmp_path / "w0" / "data.csv"
    before = data.read_text()

    data.write_text("\n".join(before.splitlines()[:-1]) + "\n")
    assert "its first 80 rows are not those that run 'spring' ended with" in refusal(clinics, "w0")
    frame = pd.read_csv(tmp_path / "w1" / "data.csv")
    frame.iloc[::-1].to_csv(data, index=False)
    assert "put records that have arrived behind them, and change none. Nothing was sent" in refusal(clinics, "w0")
    assert {one.check: one for one in examine_rows(clinics.write("w0"))}["label"].status is Status.PROBLEM
    data.write_text(before)

    clinics.training["epsilon"] = 1.0
    for name in ("hub", "w0"):
        assert "training, schema or seed are not those of run 'spring'" in refusal(clinics, name)
    clinics.training["epsilon"] = 2.0
    clinics.runs["w0"]["continue_from"] = "../hub/runs/spring"
    assert "of this role (worker). Nothing was sent" in refusal(clinics, "w0")
    clinics.runs["w0"]["continue_from"] = "runs/summer"
    assert "holds no finished run to go on from. Nothing was sent" in refusal(clinics, "w0")
    clinics.runs["w0"] |= {"continue_from": "runs/spring", "data": "parts"}
    (tmp_path / "w0" / "parts").mkdir()
    assert "continue_from needs rows in one file" in refusal(clinics, "w0")
    clinics.training.pop("sgbdt")
    clinics.training |= {"recipe": "recommended", "recommended": {"records": 240}}
    assert "training, schema or seed are not those of run 'spring'" in refusal(clinics, "hub")
    clinics.training.pop("recommended")
    clinics.training["recipe"] = "federated"
    assert "continue_from goes with `recipe: recommended`, or `recipe: sgbdt` in" in refusal(clinics, "hub")
    for name in EVERYBODY:
        assert not RunFolder(tmp_path / name / "runs" / "autumn").has_released


def test_workers_that_go_on_from_another_model_are_turned_away(tmp_path: Path) -> None:
    clinics = Clinics(tmp_path)
    train(clinics)
    folder = clinics.folder("w2")
    others: dict[str, Any] = {}
    for name in ("model.json", "trees.json"):
        document = json.loads((folder / name).read_text())
        document.pop("digest")
        document["trees"][0]["values"] = [1.5 * value for value in document["trees"][0]["values"]]
        others[name] = document
        (folder / name).write_text(json.dumps(document))
    # Its run ended with these files, as far as it knows.
    RunFolder(folder).finish()
    go_on(clinics)
    for name in ("w0", "w1"):
        # Where the hub has ended already, they look for it so long.
        clinics.runs[name]["wait"] = 10
    ends = finish(*(clinics.start(name) for name in EVERYBODY))
    assert all(code != 0 for code, _, _ in ends)
    assert any("continues" in error for _, _, error in ends), ends


@pytest.mark.parametrize("training", ["filter", "no filter"])
def test_trees_of_another_run_are_refused_by_the_worker_and_its_doctor(tmp_path: Path, training: str) -> None:
    """By other trees records have paid less than they did, and would spend more than their budget."""
    clinics = Clinics(tmp_path, recipe="sgbdt", **TRAININGS[training])
    for name in EVERYBODY:
        clinics.runs[name].pop("seed")
    spring, summer = (RunFolder(tmp_path / "w2" / "runs" / run_id) for run_id in ("spring", "summer"))
    for run in (summer, spring):
        for name in EVERYBODY:
            clinics.runs[name]["run_id"] = run.path.name
        train(clinics)
    go_on(clinics)
    path, ours = clinics.write("w2"), (spring.path / TREES_FILE).read_bytes()
    shutil.copy(summer.path / TREES_FILE, spring.path / TREES_FILE)
    words = f"{TREES_FILE} in {spring.path} are not as at the end of the run"
    assert words in refusal(clinics, "w2")
    found = {one.check: one for one in examine_rows(path)}["settings"]
    assert (found.status, words in found.sentence) == (Status.PROBLEM, True)
    # Earlier versions noted no digest of it.
    (spring.path / TREES_FILE).write_bytes(ours)
    meta = spring.read_json("meta.json")
    del meta["shares"][TREES_FILE]
    spring.write_json("meta.json", meta)
    if training == "filter":
        assert f"noted no digest of {TREES_FILE}" in refusal(clinics, "w2")
        found = {one.check: one for one in examine_rows(path)}["settings"]
        assert (found.status, TREES_FILE in found.sentence) == (Status.PROBLEM, True)
    else:
        train(clinics)
