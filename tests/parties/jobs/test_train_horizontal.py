"""A coordinator and workers as processes of their own: run files, keys and tables on disk, sockets on loopback."""

from __future__ import annotations

import json
import math
import os
import signal
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from opboost.trees.holder import SummedHolders
from opboost.trees.losses import Softmax
from opboost.trees.model_file import load_model
from opboost.trees.tree import Tree
from parties.config.horizontal import CoordinatorRun, WorkerRun
from parties.config.reader_section import LABEL_TERM
from parties.config.reading import read_run
from parties.config.record_runs import charge_of
from parties.doctor.check_result import Checklist
from parties.doctor.run_files import check_folder
from parties.errors import ConfigError
from parties.horizontal.answered_questions import Answered
from parties.horizontal.worker import WorkerJob, run_worker
from parties.horizontal.worker_checkpoint import WorkerCheckpoint
from parties.jobs import train_horizontal
from parties.jobs.train_horizontal import train_coordinator, train_worker
from parties.jobs.train_vertical import Terminal
from parties.ledger.model_ledger import worker_ledger
from parties.runs.run_folder import RunFolder
from protocols.errors import PeerAborted, PeerLost, PeerRestarted
from protocols.transport.channel import Channel
from tests.support.clinics import NAMES, Clinics
from tests.support.processes import finish, wait_for_words


def test_processes_train_the_model_of_a_simulation_to_the_last_bit_and_are_finished_then(tmp_path: Path) -> None:
    clinics = Clinics(tmp_path)
    clinics.with_categories()
    clinics.runs["hub"]["report"] = True
    ends = finish(*(clinics.start(name) for name in ("hub", *NAMES)))
    assert [code for code, _, _ in ends] == [0] * 4, ends
    models = [load_model(clinics.folder(name) / "model.json") for name in ("hub", *NAMES)]
    assert [tree.values.tolist() for tree in models[0].trees] == clinics.simulated()
    for model in models[1:]:
        assert [tree.values.tolist() for tree in model.trees] == clinics.simulated()
        assert [tree.left_categories for tree in model.trees] == [tree.left_categories for tree in models[0].trees]
    assert any(tree.left_categories for tree in models[0].trees)
    promise = clinics.read("hub", "guarantee.json")
    assert promise["epsilon"] <= 2.0
    assert not promise["is_secure"]
    assert "as long as 2 of the workers in every sum add their share of the noise" in promise["protected"]
    report = clinics.read("hub", "report.json")
    assert report["account"]["guarantee"]["epsilon"] == promise["epsilon"]
    assert report["account"]["queries"][0]["kind"] == "Skellam"
    assert report["n_trees"] == 6
    assert "NOT FOR RELEASE" in (clinics.folder("hub") / "report.html").read_text()
    assert clinics.read("w1", "metrics.json")["own_rows"]["auc"] > 0.5
    assert clinics.read("w1", "answers.json")["answered"]["n_trees"] == 6
    assert all(clinics.read(name, "meta.json")["finished"] for name in ("hub", *NAMES))
    sent = sum(
        json.loads(line)["bytes"]
        for line in (clinics.folder("w0") / "log.jsonl").read_text().splitlines()
        if json.loads(line)["event"] == "sent"
    )
    assert clinics.read("w0", "meta.json")["sent_bytes"] == sent

    said: list[str] = []
    train_worker(clinics.write("w1"), insecure=False, terminal=Terminal(say=said.append))
    assert "was finished at" in said[0]


def test_processes_train_the_federated_model_of_a_simulation_too(tmp_path: Path) -> None:
    federated = {"n_estimators": 6, "max_depth": 2, "split_candidates": "ih", "batch_size": 3, "hessian_rounds": 2}
    clinics = Clinics(tmp_path, recipe="federated", noise="aggregator", honest=None, federated=federated)
    ends = finish(*(clinics.start(name) for name in ("hub", *NAMES)))
    assert [code for code, _, _ in ends] == [0] * 4, ends
    models = [load_model(clinics.folder(name) / "model.json") for name in ("hub", *NAMES)]
    for model in models:
        assert [tree.values.tolist() for tree in model.trees] == clinics.simulated(AskedClients)
        assert [tree.thresholds.tolist() for tree in model.trees] == [t.thresholds.tolist() for t in models[0].trees]
    assert "not against the coordinator" in clinics.read("hub", "guarantee.json")["protected"]
    assert 1.99 < clinics.read("w0", "guarantee.json")["epsilon"] <= 2.0
    assert clinics.read("w1", "answers.json")["answered"]["n_trees"] == 6


def test_processes_train_the_recommended_model_of_several_classes(tmp_path: Path) -> None:
    """Noise in shares, categories, one worker's rows in partitions; the model is that of a simulation."""
    recommended = {"records": 240, "n_estimators": 6, "max_depth": 2}
    clinics = Clinics(tmp_path, recipe="recommended", objective="multi:softprob", classes=3, recommended=recommended)
    clinics.with_categories()
    for name in NAMES:
        frame = pd.read_csv(tmp_path / name / "data.csv")
        frame.assign(y=(3 * frame["age"]).astype(int)).to_csv(tmp_path / name / "data.csv", index=False)
    expected = clinics.simulated(AskedClients)
    in_partitions(tmp_path / "w1")
    clinics.runs["w1"]["data"] = "parts"
    clinics.runs["hub"]["report"] = True
    ends = finish(*(clinics.start(name) for name in ("hub", *NAMES)))
    assert [code for code, _, _ in ends] == [0] * 4, ends
    for name in ("hub", *NAMES):
        model = load_model(clinics.folder(name) / "model.json")
        assert [tree.values.tolist() for tree in model.trees] == expected
        assert (model.loss, len(model.base_scores)) == (Softmax(3), 3)
    promise = clinics.read("hub", "guarantee.json")
    assert 1.99 < promise["epsilon"] <= 2.0
    assert "as long as 2 of the workers in every sum add their share of the noise" in promise["protected"]
    report = clinics.read("hub", "report.json")
    assert report["n_rounds"] == 1 + 3 + 6
    assert report["questions"] == {"want totals": 3 + 3 * 6, "want histograms": 3}
    assert clinics.read("w0", "metrics.json")["own_rows"]["accuracy"] > 0.3


def test_processes_train_the_recommended_model_of_numbers(tmp_path: Path) -> None:
    """Smaller bounds are told by trees of their own, which no model has."""
    recommended = {"records": 240, "n_estimators": 6, "max_depth": 2}
    numbers = {"objective": "reg:squarederror", "label_bounds": [0.0, 1.0]}
    clinics = Clinics(tmp_path, recipe="recommended", **numbers, recommended=recommended)
    expected = clinics.simulated(AskedClients)
    ends = finish(*(clinics.start(name) for name in ("hub", *NAMES)))
    assert [code for code, _, _ in ends] == [0] * 4, ends
    for name in ("hub", *NAMES):
        model = load_model(clinics.folder(name) / "model.json")
        assert len(model.trees) == 6
        np.testing.assert_allclose([tree.values.tolist() for tree in model.trees], expected, rtol=1e-14)
    assert clinics.read("w0", "answers.json")["answered"]["n_trees"] == 4 + 3 + 6 + 3


def test_processes_screen_many_columns(tmp_path: Path) -> None:
    """A round without a tree of the model; one worker's rows in partitions; the model is that of a simulation."""
    recommended = {"records": 240, "n_estimators": 6, "max_depth": 2}
    numbers = {"objective": "reg:squarederror", "label_bounds": [0.0, 1.0], "epsilon": 20.0}
    clinics = Clinics(tmp_path, recipe="recommended", **numbers, recommended=recommended)
    labs = [f"lab {number}" for number in range(40)]
    clinics.schema["columns"] |= {lab: {"lower": 0, "upper": 1} for lab in labs}
    for number, name in enumerate(NAMES):
        frame = pd.read_csv(tmp_path / name / "data.csv")
        frame[labs] = np.random.default_rng(number).random((len(frame), 40))
        frame.to_csv(tmp_path / name / "data.csv", index=False)
    expected = clinics.simulated(AskedClients)
    in_partitions(tmp_path / "w1")
    clinics.runs["w1"]["data"] = "parts"
    ends = finish(*(clinics.start(name) for name in ("hub", *NAMES)))
    assert [code for code, _, _ in ends] == [0] * 4, ends
    for name in ("hub", *NAMES):
        trees = load_model(clinics.folder(name) / "model.json").trees
        np.testing.assert_allclose([tree.values.tolist() for tree in trees], expected, rtol=1e-14)
    assert clinics.read("w0", "answers.json")["answered"]["n_trees"] == 4 + 3 + 2 + 6 + 3


class AskedClients(SummedHolders):
    """Owners of this process, asked and heard at once."""

    def totals_later(self, nodes: Any) -> Any:
        totals = self.totals(nodes)
        return lambda: totals

    def place(self, columns: Any) -> None:
        for holder in self._holders:
            holder.place(columns)


def test_a_worker_that_is_killed_comes_back_and_a_second_one_with_its_key_is_turned_away(tmp_path: Path) -> None:
    clinics = Clinics(tmp_path)
    # The round in which it is killed waits so long for its connection.
    clinics.runs["hub"]["patience"] = 4
    clinics.training["sgbdt"] = {"n_estimators": 150, "max_depth": 2}
    processes = {name: clinics.start(name) for name in ("hub", *NAMES)}
    wait_for_words(clinics.folder("w2") / "answers.json", "n_trees")
    os.kill(processes["w2"].pid, signal.SIGKILL)
    finish(processes.pop("w2"))
    before = clinics.read("w2", "answers.json")["answered"]["n_trees"]
    wait_for_words(clinics.folder("hub") / "log.txt", "goes on without w2")
    found = clinics.in_thread("w2")
    wait_for_words(clinics.folder("hub") / "log.txt", "w2 takes part again")
    clinics.runs["w2"] |= {"folder": "elsewhere", "ledger": {"path": "elsewhere.sqlite"}}
    with pytest.raises(PeerAborted, match="another connection with the same key is in use"):
        train_worker(clinics.write("w2"), insecure=False, terminal=Terminal())
    ends = finish(*processes.values())
    assert [code for code, _, _ in ends] == [0] * 3, ends
    assert isinstance(found.get(timeout=30), RunFolder)
    assert clinics.read("w2", "answers.json")["answered"]["n_trees"] == 150 > before
    assert len(load_model(clinics.folder("w2") / "model.json").trees) == 150


def test_a_coordinator_and_a_worker_that_are_killed_go_on_with_one_model_and_one_charge_of_secure_noise(
    tmp_path: Path,
) -> None:
    clinics = Clinics(tmp_path)
    clinics.training["sgbdt"] = {"n_estimators": 60, "max_depth": 2}
    for name in ("hub", *NAMES):
        del clinics.runs[name]["seed"]
        clinics.runs[name]["timeout"] = 2
    processes = {name: clinics.start(name) for name in ("hub", *NAMES)}
    for name, n_trees in (("hub", 10), ("w1", 25), ("hub", 40)):
        wait_for_trees(clinics, n_trees)
        processes[name].kill()
        finish(processes[name])
        processes[name] = clinics.start(name)
    ends = finish(*processes.values())
    assert [code for code, _, _ in ends] == [0] * 4, ends
    assert len({(clinics.folder(name) / "model.json").read_bytes() for name in ("hub", *NAMES)}) == 1
    assert len(load_model(clinics.folder("hub") / "model.json").trees) == 60
    assert clinics.read("hub", "meta.json")["n_rounds"] == 60
    assert clinics.read("hub", "meta.json")["unconfirmed"] == []
    assert not (clinics.folder("hub") / "journal").exists()
    for name in NAMES:
        assert clinics.read(name, "answers.json")["key"] == ""
        run = read_run(clinics.write(name), WorkerRun)
        with worker_ledger(run.ledger.path, run.ledger.budget) as ledger:
            assert len(ledger.charges()) == 1


def test_a_worker_that_has_the_model_and_was_killed_before_it_said_so_says_so_when_it_is_started_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clinics = Clinics(tmp_path)
    clinics.runs["hub"].update(patience=2, wait=10)

    def killed_at_the_end(job: WorkerJob, channel: Channel, **options: Any) -> list[Tree]:
        def save(trees: list[Tree]) -> None:
            job.save(trees)
            raise KeyboardInterrupt

        return run_worker(replace(job, save=save) if job.party == "w0" else job, channel, **options)

    monkeypatch.setattr(train_horizontal, "run_worker", killed_at_the_end)
    found = {name: clinics.in_thread(name) for name in ("hub", *NAMES)}
    ends = {name: end.get(timeout=60) for name, end in found.items()}
    assert isinstance(ends["w0"], KeyboardInterrupt)
    assert clinics.read("hub", "meta.json")["unconfirmed"] == ["w0"]
    again = {name: clinics.in_thread(name) for name in ("hub", "w0")}
    assert all(isinstance(end.get(timeout=60), RunFolder) for end in again.values())
    assert clinics.read("hub", "meta.json")["unconfirmed"] == []
    assert not (clinics.folder("hub") / "journal").exists()


def test_a_worker_that_has_the_model_finishes_without_a_coordinator_that_is_gone(tmp_path: Path) -> None:
    clinics = Clinics(tmp_path)
    finish(*(clinics.start(name) for name in ("hub", *NAMES)))
    clinics.runs["w0"]["wait"] = 0.5
    folder = RunFolder(clinics.folder("w0"))
    folder.write_json("meta.json", {**folder.read_json("meta.json"), "finished": None})
    assert isinstance(clinics.in_thread("w0").get(timeout=60), RunFolder)
    assert (
        "the model is saved, but hub was not told that it is: hub could not be reached"
        in (clinics.folder("w0") / "log.txt").read_text()
    )


def test_a_worker_whose_partitions_are_replaced_when_the_model_is_there_finishes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clinics = Clinics(tmp_path)
    in_partitions(tmp_path / "w0")
    clinics.runs["w0"]["data"] = "parts"

    def replaced_at_the_end(job: WorkerJob, channel: Channel, **options: Any) -> list[Tree]:
        trees = run_worker(job, channel, **options)
        if job.party == "w0":
            (tmp_path / "w0" / "parts" / "1.parquet").unlink()
        return trees

    monkeypatch.setattr(train_horizontal, "run_worker", replaced_at_the_end)
    found = {name: clinics.in_thread(name) for name in ("hub", *NAMES)}
    ends = {name: end.get(timeout=100) for name, end in found.items()}
    assert all(isinstance(end, RunFolder) for end in ends.values()), ends
    assert clinics.read("w0", "metrics.json")["own_rows"] == {}
    assert clinics.read("w0", "meta.json")["finished"]
    assert "the model is saved; how it fits the own rows is not known" in (clinics.folder("w0") / "log.txt").read_text()


def wait_for_trees(clinics: Clinics, n_trees: int, seconds: float = 100) -> None:
    deadline, path = time.monotonic() + seconds, clinics.folder("w0") / "answers.json"
    while not path.exists() or clinics.read("w0", "answers.json")["answered"]["n_trees"] < n_trees:
        assert time.monotonic() < deadline, f"not {n_trees} trees after {seconds} s"
        time.sleep(0.002)


def test_other_settings_are_named_on_both_sides_and_nothing_is_answered(tmp_path: Path) -> None:
    clinics = Clinics(tmp_path)
    clinics.runs["w1"]["training"] = {**clinics.training, "epsilon": 1.0}
    for name in ("w0", "w2"):
        clinics.runs[name]["wait"] = 2  # the coordinator may have ended before they look for it
    found = {name: clinics.in_thread(name) for name in ("hub", *NAMES)}
    ends = {name: str(end.get(timeout=60)) for name, end in found.items()}
    assert "epsilon: w1 has 1.0, this party 2.0" in ends["hub"]
    assert "epsilon: hub has 2.0, this party 1.0" in ends["w1"]
    assert not (clinics.folder("w0") / "answers.json").exists()


def test_labels_that_mean_another_number_are_named_on_both_sides_and_nothing_is_charged(tmp_path: Path) -> None:
    """A model of labels that are opposite at one of three workers would be wrong without a word."""
    clinics = Clinics(tmp_path)
    clinics.with_words(w1="well")
    for name in ("w0", "w2"):
        clinics.runs[name]["wait"] = 2  # the coordinator may have ended before they look for it
    processes = [clinics.start(name) for name in ("hub", *NAMES)]
    ends = dict(zip(("hub", *NAMES), finish(*processes), strict=True))
    assert f"w1 and this party do not agree: {LABEL_TERM}: w1 has " in ends["hub"][2]
    assert f"hub and this party do not agree: {LABEL_TERM}: hub has " in ends["w1"][2]
    for name in NAMES:
        assert ends[name][0] != 0
        assert not (clinics.folder(name) / "answers.json").exists()
        run = read_run(clinics.write(name), WorkerRun)
        with worker_ledger(run.ledger.path, run.ledger.budget) as ledger:
            assert ledger.charges() == ()


@pytest.mark.parametrize("insecure", [False, True], ids=["with keys", "in plain text"])
def test_an_outdated_public_key_of_another_worker_is_named_and_nothing_is_answered(
    tmp_path: Path, insecure: bool
) -> None:
    """Masks of the two would not cancel: every sum would be a random number, and the model noise."""
    clinics = Clinics(tmp_path)
    clinics.outdate("w0", "w1")
    for name in ("w1", "w2"):
        clinics.runs[name]["wait"] = 2  # the coordinator may have ended before they look for it
    found = {name: clinics.in_thread(name, insecure=insecure) for name in ("hub", *NAMES)}
    ends = {name: str(end.get(timeout=60)) for name, end in found.items()}
    assert "w0 and this party do not agree: public key of w1: w0 has " in ends["hub"]
    assert "hub and this party do not agree: public key of w1: hub has " in ends["w0"]
    assert ends["w0"].endswith("Nothing was released")
    assert not any((clinics.folder(name) / "answers.json").exists() for name in NAMES)


def test_logs_of_workers_name_whose_confirmations_were_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of workers that have other keys than each other, as if nobody had compared them."""
    without_keys = partial(train_horizontal.terms_of, lasting_keys={})
    monkeypatch.setattr(train_horizontal, "terms_of", lambda *of, lasting_keys, **more: without_keys(*of, **more))
    clinics = Clinics(tmp_path)
    clinics.outdate("w0", "w1")
    found = {name: clinics.in_thread(name) for name in ("hub", *NAMES)}
    for end in found.values():
        assert isinstance(one := end.get(timeout=60), RunFolder), one
    for name, denied in {"w0": ["w1"], "w1": ["w0"], "w2": []}.items():
        told = [line for line in (clinics.folder(name) / "log.txt").read_text().splitlines() if "is wrong" in line]
        assert [line.split("'s confirmation to this worker is wrong")[0].split()[-1] for line in told] == denied


def test_noise_that_can_be_drawn_again_costs_without_end_and_no_budget_has_room_for_it(tmp_path: Path) -> None:
    clinics = Clinics(tmp_path)
    of = clinics.recipe()
    assert charge_of(read_run(clinics.write("w2"), WorkerRun), of).epsilon == math.inf
    clinics.runs["w2"] |= {"ledger": {"epsilon": 30.0}, "wait": 0.2}
    assert "this run costs inf, which is over the budget of 30" in str(clinics.in_thread("w2").get(timeout=60))
    del clinics.runs["w2"]["seed"]
    assert charge_of(read_run(clinics.write("w2"), WorkerRun), of).epsilon == of.noise.epsilon(1e-6) <= 2.0


def test_nobody_takes_part_in_a_run_whose_noise_somebody_else_can_draw_again(tmp_path: Path) -> None:
    clinics = Clinics(tmp_path)
    del clinics.runs["w1"]["seed"]
    found = {name: clinics.in_thread(name) for name in ("hub", "w1")}
    ends = {name: str(end.get(timeout=60)) for name, end in found.items()}
    assert "seeded: w1 has False, this party True" in ends["hub"]
    assert "seeded: hub has True, this party False" in ends["w1"]
    assert not (clinics.folder("w1") / "answers.json").exists()


def test_a_log_says_what_it_means_that_workers_do_not_know_each_other(tmp_path: Path) -> None:
    clinics = Clinics(tmp_path, known_workers=False)
    for name in NAMES:
        del clinics.runs[name]["peers"]
    for name in ("hub", "w2"):
        clinics.runs[name]["wait"] = 0.2
        clinics.in_thread(name).get(timeout=60)
        told = (clinics.folder(name) / "log.txt").read_text()
        worst = max(one.epsilon for one in clinics.recipe().guarantee(is_secure=True).weaker)
        assert worst > 2.8
        assert "a coordinator that makes up workers sees the sums of one worker alone" in told
        assert f"epsilon against it is {worst:.4g}, and not 2" in told


def test_too_few_workers_are_refused_before_anything_is_asked(tmp_path: Path) -> None:
    clinics = Clinics(tmp_path)
    clinics.runs["hub"]["wait"] = 1
    hub, worker = clinics.in_thread("hub"), clinics.in_thread("w0")
    assert "1 of 3 workers came where every sum needs 2" in str(hub.get(timeout=60))
    assert isinstance(worker.get(timeout=60), PeerAborted)
    assert not (clinics.folder("w0") / "answers.json").exists()


def test_rows_that_changed_are_not_taken_for_those_of_a_run_that_was_stopped(tmp_path: Path) -> None:
    clinics = Clinics(tmp_path)
    clinics.runs["w2"]["wait"] = 0.2
    assert isinstance(clinics.in_thread("w2").get(timeout=60), PeerLost)
    folder = RunFolder(clinics.folder("w2"))
    folder.write_json("answers.json", {"table": "that of other rows", "key": "00" * 32, "answered": {"n_trees": 2}})
    folder.mark_release()
    assert "the beginning of a run on other rows" in str(clinics.in_thread("w2").get(timeout=60))


def test_a_run_that_was_stopped_is_not_taken_up_by_another_schema(tmp_path: Path) -> None:
    # The same noise on sums of other cells would leave their difference bare.
    clinics = Clinics(tmp_path)
    clinics.training["noise"] = "aggregator"
    del clinics.training["honest"], clinics.runs["w2"]["seed"]
    for name in ("hub", "w2"):
        clinics.runs[name]["wait"] = 0.1
        clinics.in_thread(name).get(timeout=60)
        if name == "w2":
            WorkerCheckpoint(RunFolder(clinics.folder(name))).note_answer(Answered(n_trees=1))
        RunFolder(clinics.folder(name)).mark_release()
    clinics.schema["columns"]["age"]["upper"] = 2
    for name, kind in (("hub", CoordinatorRun), ("w2", WorkerRun)):
        assert "the beginning of a run by another schema" in str(clinics.in_thread(name).get(timeout=60))
        checks, path = Checklist(), clinics.write(name)
        check_folder(read_run(path, kind), path, checks)
        assert "by another schema" in checks.findings[0].sentence


@pytest.mark.parametrize("data", ["data.csv", "parts"])
def test_a_schema_file_that_is_edited_while_a_worker_begins_again_is_for_the_next_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, data: str
) -> None:
    """Its rows were read by the new one, and answered under the terms of the one before."""
    clinics, schema, edited = Clinics(tmp_path), tmp_path / "w0" / "schema.yaml", []
    in_partitions(tmp_path / "w0")
    clinics.runs["w0"]["data"] = data

    def edit_first(job: WorkerJob, channel: Channel, **more: Any) -> Any:
        if job.party == "w0" and not edited:
            edited.append(text := schema.read_text())
            schema.write_text(text.replace("age:", "x:").replace("size:", "age:").replace("x:", "size:"))
            raise PeerRestarted("hub was started again")
        return run_worker(job, channel, **more)

    monkeypatch.setattr(train_horizontal, "run_worker", edit_first)
    found = {name: clinics.in_thread(name) for name in ("hub", *NAMES)}
    for end in found.values():
        assert isinstance(one := end.get(timeout=60), RunFolder), one
    assert edited != [schema.read_text()]
    model = load_model(clinics.folder("w0") / "model.json")
    assert [tree.values.tolist() for tree in model.trees] == clinics.simulated()


def test_a_worker_over_its_budget_sends_nothing(tmp_path: Path) -> None:
    clinics = Clinics(tmp_path)
    clinics.runs["w2"]["ledger"] = {"epsilon": 1.0}
    clinics.runs["w2"]["wait"] = 0.2
    assert "which is over the budget of 1. Nothing was sent" in str(clinics.in_thread("w2").get(timeout=60))


def test_a_worker_that_lost_its_folder_does_not_answer_a_second_time_for_one_charge(tmp_path: Path) -> None:
    clinics = Clinics(tmp_path)
    path = clinics.write("w2")
    run = read_run(path, WorkerRun)
    with worker_ledger(run.ledger.path, run.ledger.budget) as ledger:
        ledger.charge(charge_of(run, clinics.recipe()))
    assert "the same charge does not pay for other answers" in str(clinics.in_thread("w2").get(timeout=60))


def test_noise_in_shares_of_histograms_is_refused_with_the_name_of_the_run_file(tmp_path: Path) -> None:
    clinics = Clinics(tmp_path, recipe="federated", federated={"split_method": "hist"})
    with pytest.raises(ConfigError, match=r"run\.yaml: noise in shares is for random trees"):
        train_coordinator(clinics.write("hub"), insecure=False, terminal=Terminal())


def in_partitions(folder: Path) -> None:
    frame = pd.read_csv(folder / "data.csv")
    (folder / "parts").mkdir()
    for number, part in enumerate((frame[:70], frame[70:])):
        part.to_parquet(folder / "parts" / f"{number}.parquet")


def test_processes_with_one_worker_on_dask_and_one_on_partitions_train_the_model_of_tables(tmp_path: Path) -> None:
    pytest.importorskip("distributed", reason="Dask is not installed: pip install 'opboost[dask]'")
    clinics = Clinics(tmp_path)
    for name in NAMES[:2]:
        in_partitions(tmp_path / name)
        clinics.runs[name]["data"] = "parts"
    clinics.runs["w0"] |= {"engine": "dask", "dask": {"workers": 1}}
    ends = finish(*(clinics.start(name) for name in ("hub", *NAMES)))
    assert [code for code, _, _ in ends] == [0] * 4, ends
    for name in ("hub", *NAMES):
        model = load_model(clinics.folder(name) / "model.json")
        assert [tree.values.tolist() for tree in model.trees] == clinics.simulated()
    assert clinics.read("w0", "metrics.json")["own_rows"]["auc"] > 0.5
    assert clinics.read("w0", "answers.json")["answered"]["n_trees"] == 6


def test_a_worker_notes_in_its_own_log_how_many_cells_are_read_as_other(tmp_path: Path) -> None:
    clinics = Clinics(tmp_path)
    clinics.with_categories()
    clinics.schema["columns"]["size"] = {"kind": "unordered", "categories": ["0", "1"], "other": True}
    for queue in [clinics.in_thread(name) for name in ("hub", *NAMES)]:
        assert not isinstance(found := queue.get(timeout=60), BaseException), found
    for name in NAMES:
        n_other = int((pd.read_csv(tmp_path / name / "data.csv")["size"] == 2).sum())
        assert (
            f"column size: {n_other} of 80 cells are read as `other`" in (clinics.folder(name) / "log.txt").read_text()
        )
    assert "read as `other`" not in (clinics.folder("hub") / "log.txt").read_text()
