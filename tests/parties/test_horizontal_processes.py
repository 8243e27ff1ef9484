"""A coordinator and workers as processes of their own: run files, keys and tables on disk, sockets on loopback."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml

from opboost.horizontal.sgbdt_owners import SGBDTAmongOwners
from opboost.rng import seeded
from opboost.trees.holder import SummedHolders
from opboost.trees.model_file import load_model
from parties.config import read_schema
from parties.errors import ConfigError
from parties.horizontal_agreement import commitment, public_bits
from parties.horizontal_config import CoordinatorRun, WorkerRun, read_horizontal
from parties.horizontal_jobs import make_recipe
from parties.sgbdt_section import _DEFAULTS, SGBDTSection
from protocols.keys import generate

SCHEMA = {
    "id": "id", "label": "y",
    "columns": {"age": {"lower": 0, "upper": 1}, "dose": {"lower": 0, "upper": 1}, "size": {"lower": 0, "upper": 1}},
}  # fmt: skip
NAMES = ("w0", "w1", "w2")
COLUMNS = tuple(SCHEMA["columns"])


class Clinics:
    """A hub and three clinics with rows of their own."""

    def __init__(self, root: Path, **training: Any) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            address = f"tcp://127.0.0.1:{probe.getsockname()[1]}"
        self.root = root
        self.training: dict[str, Any] = {
            "epsilon": 2.0, "delta": 1e-6, "noise": "workers", "workers": 3, "threshold": 2, "honest": 2,
            "sgbdt": {"n_estimators": 6, "max_depth": 2}, **training,
        }  # fmt: skip
        for name in ("hub", *NAMES):
            (root / name).mkdir()
            generate(root / name / "keys", name)
        for name in ("hub", *NAMES):
            for other in ("hub", *NAMES):
                key = f"keys/{other}.public"
                (root / name / key).write_text((root / other / key).read_text())
        common = {"run_id": "spring", "schema": "schema.yaml", "timeout": 3, "wait": 20}
        self.runs: dict[str, dict[str, Any]] = {
            "hub": {
                **common, "role": "coordinator", "party": "hub", "secret_key": "keys/hub.secret", "listen": address,
                "workers": [{"name": name, "public_key": f"keys/{name}.public"} for name in NAMES], "seed": 8,
            }
        }  # fmt: skip
        draw = np.random.default_rng(4)
        for place, name in enumerate(NAMES):
            self.runs[name] = {
                **common, "role": "worker", "party": name, "secret_key": f"keys/{name}.secret", "data": "data.csv",
                "connect": address, "coordinator": {"name": "hub", "public_key": "keys/hub.public"}, "seed": place,
            }  # fmt: skip
            X = draw.random((80, 3)).round(6)
            frame = pd.DataFrame(X, columns=list(COLUMNS)).assign(y=(X[:, 0] > 0.5).astype(int))
            frame.insert(0, "id", [f"{name}-{i:03}" for i in range(80)])
            frame.to_csv(root / name / "data.csv", index=False)

    def write(self, name: str) -> Path:
        folder = self.root / name
        (folder / "schema.yaml").write_text(yaml.safe_dump(SCHEMA, sort_keys=False))
        training = self.runs[name].get("training", self.training)
        (folder / "run.yaml").write_text(yaml.safe_dump({**self.runs[name], "training": training}))
        return folder / "run.yaml"

    def start(self, name: str, *options: str) -> subprocess.Popen[str]:
        command = "coordinator" if name == "hub" else "worker"
        call = [sys.executable, "-m", "parties.cli", command, str(self.write(name)), *options]
        return subprocess.Popen(call, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def folder(self, name: str) -> Path:
        return self.root / name / "runs" / "spring"

    def read(self, name: str, file: str) -> Any:
        return json.loads((self.folder(name) / file).read_text())

    def recipe(self) -> SGBDTAmongOwners:
        run = read_horizontal(self.write("hub"), CoordinatorRun)
        return make_recipe(run.training, read_schema(run.table_schema)[0])

    def simulated(self) -> list[list[float]]:
        """The leaves of the same training in this process."""
        of = self.recipe()
        random = [seeded(place).fork("public").words(4).tobytes() for place in range(3)]
        committed = [commitment("spring", name, each) for name, each in zip(NAMES, random, strict=True)]
        rows = [np.frombuffer(b"".join(parts), np.uint8).reshape(-1, 32) for parts in (committed, random)]
        holders = []
        for place, name in enumerate(NAMES):
            frame = pd.read_csv(self.root / name / "data.csv")
            bits = seeded(place).fork("rows")
            X, y = frame[list(COLUMNS)].to_numpy(), frame["y"].to_numpy(float)
            holders.append(of.rows(X, y, shape_bits=public_bits("spring", NAMES, *rows), rng=bits))
        model = of.train(SummedHolders(holders), shape_bits=public_bits("spring", NAMES, *rows), rng=seeded(8))
        return [tree.values.tolist() for tree in model.trees]


def finish(*processes: subprocess.Popen[str], seconds: float = 60) -> list[tuple[int, str]]:
    """Exit code and standard error of each process, all of which must end in time."""
    try:
        ends = [process.communicate(timeout=seconds) for process in processes]
    finally:
        for process in processes:
            if process.poll() is None:
                process.kill()
                process.communicate()
    return [(process.returncode, end[1]) for process, end in zip(processes, ends, strict=True)]


def test_processes_train_the_model_of_a_simulation_to_the_last_bit_and_are_finished_then(tmp_path: Path) -> None:
    clinics = Clinics(tmp_path, known_workers=True)
    for name in NAMES:
        others = [other for other in NAMES if other != name]
        clinics.runs[name]["peers"] = [{"name": other, "public_key": f"keys/{other}.public"} for other in others]
    ends = finish(*(clinics.start(name) for name in ("hub", *NAMES)))
    assert [code for code, _ in ends] == [0] * 4, ends
    models = [load_model(clinics.folder(name) / "model.json") for name in ("hub", *NAMES)]
    assert [tree.values.tolist() for tree in models[0].trees] == clinics.simulated()
    for model in models[1:]:
        assert [tree.values.tolist() for tree in model.trees] == clinics.simulated()
    promise = clinics.read("hub", "guarantee.json")
    assert promise["epsilon"] <= 2.0
    assert not promise["is_secure"]
    assert "as long as 2 of the workers in every sum add their share of the noise" in promise["protected"]
    assert clinics.read("w1", "metrics.json")["own_rows"]["auc"] > 0.5
    assert clinics.read("w1", "answers.json")["tree"] == 6
    assert all(clinics.read(name, "meta.json")["finished"] for name in ("hub", *NAMES))
    sent = sum(
        json.loads(line)["bytes"]
        for line in (clinics.folder("w0") / "log.jsonl").read_text().splitlines()
        if json.loads(line)["event"] == "sent"
    )
    assert clinics.read("w0", "meta.json")["sent_bytes"] == sent

    again = finish(clinics.start("hub"), clinics.start("w1"))
    assert [code for code, _ in again] == [0, 0]
    assert "was finished at" in again[1][1]


def wait_for(path: Path, words: str, seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while not (path.exists() and words in path.read_text()):
        assert time.monotonic() < deadline, f"no {words!r} in {path.name} after {seconds} s"
        time.sleep(0.02)


def test_a_worker_that_is_killed_and_started_again_takes_part_again(tmp_path: Path) -> None:
    clinics = Clinics(tmp_path)
    clinics.training["sgbdt"] = {"n_estimators": 600, "max_depth": 2}
    hub, *workers = [clinics.start(name) for name in ("hub", *NAMES)]
    wait_for(clinics.folder("w2") / "answers.json", '"tree": 2')
    os.kill(workers[2].pid, signal.SIGKILL)
    finish(workers[2])
    before = clinics.read("w2", "answers.json")["tree"]
    wait_for(clinics.folder("hub") / "log.txt", "goes on without w2")
    workers[2] = clinics.start("w2")
    ends = finish(hub, *workers, seconds=120)
    assert [code for code, _ in ends] == [0] * 4, ends
    assert "w2 takes part again" in (clinics.folder("hub") / "log.txt").read_text()
    assert clinics.read("w2", "answers.json")["tree"] == 600 > before
    assert len(load_model(clinics.folder("w2") / "model.json").trees) == 600


def test_a_second_process_with_a_workers_key_is_turned_away_and_the_run_goes_on(tmp_path: Path) -> None:
    clinics = Clinics(tmp_path)
    clinics.training["sgbdt"] = {"n_estimators": 400, "max_depth": 2}
    processes = [clinics.start(name) for name in ("hub", *NAMES)]
    wait_for(clinics.folder("w2") / "answers.json", '"tree": 2')
    copy = dict(clinics.runs["w2"], folder="elsewhere")
    clinics.runs["w2"] = copy
    twin = clinics.start("w2")
    (code, words), *ends = finish(twin, *processes, seconds=120)
    assert code == 1
    assert "another connection with the same key is in use" in words
    assert [code for code, _ in ends] == [0] * 4, ends


def test_other_settings_are_named_on_both_sides_and_nothing_is_answered(tmp_path: Path) -> None:
    clinics = Clinics(tmp_path)
    clinics.runs["w1"]["training"] = {**clinics.training, "epsilon": 1.0}
    ends = finish(*(clinics.start(name) for name in ("hub", *NAMES)))
    assert [code for code, _ in ends] == [1] * 4
    assert "epsilon: w1 has 1.0, this party 2.0" in ends[0][1]
    assert "epsilon: hub has 2.0, this party 1.0" in ends[2][1]
    assert not (clinics.folder("w0") / "answers.json").exists()


def test_too_few_workers_are_refused_before_anything_is_asked(tmp_path: Path) -> None:
    clinics = Clinics(tmp_path)
    clinics.runs["hub"]["wait"] = 2
    ends = finish(clinics.start("hub"), clinics.start("w0"))
    assert [code for code, _ in ends] == [1, 1]
    assert "1 of 3 workers came where every sum needs 2" in ends[0][1]
    assert not (clinics.folder("w0") / "answers.json").exists()


def test_rows_that_changed_are_not_taken_for_those_of_a_run_that_was_stopped(tmp_path: Path) -> None:
    clinics = Clinics(tmp_path)
    clinics.training["sgbdt"] = {"n_estimators": 2000, "max_depth": 2}
    hub, *workers = [clinics.start(name) for name in ("hub", *NAMES)]
    wait_for(clinics.folder("w2") / "answers.json", '"tree": 2')
    for process in (hub, *workers):
        process.send_signal(signal.SIGTERM)
    finish(hub, *workers)
    path = tmp_path / "w2" / "data.csv"
    path.write_text(path.read_text().replace(",1\n", ",0\n", 1))
    ((code, words),) = finish(clinics.start("w2"))
    assert code == 1
    assert "the beginning of a run on other rows" in words


@pytest.mark.parametrize(
    ("name", "change", "words"),
    [
        ("hub", {"threshold": 1}, "greater than or equal to 2"),
        ("hub", {"workers": 4}, "more than half of the `workers`"),
        ("hub", {"workers": 2, "threshold": 2}, "must list the 2 workers"),
        ("hub", {"honest": 3}, "no more than these can be promised"),
        ("hub", {"honest": None}, "goes with noise in shares alone"),
        ("hub", {"noise": "aggregator"}, "goes with noise in shares alone"),
        ("hub", {"sgbdt": {"subsample": 0.5}}, "no account of sampled records"),
        ("hub", {"objective": "reg:squarederror"}, "public `label_bounds` go with"),
        ("hub", {"label_bounds": [0, 1]}, "public `label_bounds` go with"),
        ("hub", {"mode": "paper", "noise": "aggregator", "honest": None}, "say `noise: workers`"),
        ("hub", {"recipe": "surprise"}, "training.recipe"),
        ("w0", {"known_workers": True}, "must list 2 other workers"),
    ],
)
def test_a_run_file_that_would_not_be_safe_is_refused_with_its_fault_in_words(
    tmp_path: Path, name: str, change: dict[str, Any], words: str
) -> None:
    clinics = Clinics(tmp_path, **change)
    kind = CoordinatorRun if name == "hub" else WorkerRun
    with pytest.raises(ConfigError, match="run.yaml: .*" + words.replace("`", "`")):
        read_horizontal(clinics.write(name), kind)


@pytest.mark.parametrize(
    ("training", "words"),
    [
        ({"noise": "aggregator", "honest": None}, "not against the coordinator"),
        ({}, "the coordinator too, as long as 2"),
        ({"mode": "paper", "honest": None, "sgbdt": {"n_estimators": 5, "subsample": 0.5}}, "claims epsilon 2"),
        ({"objective": "reg:squarederror", "label_bounds": [0, 10]}, "Skellam noise in shares"),
    ],
)
def test_every_kind_of_run_file_becomes_a_recipe_that_says_what_it_promises(
    tmp_path: Path, training: dict[str, Any], words: str
) -> None:
    promise = Clinics(tmp_path, **training).recipe().guarantee(is_secure=True)
    assert words in str(promise)
    assert promise.certified == (training.get("mode") != "paper")


def test_defaults_are_those_of_the_estimators() -> None:
    import inspect

    from opboost import SGBDTClassifier, SGBDTRegressor

    for objective, estimator in (("binary:logistic", SGBDTClassifier), ("reg:squarederror", SGBDTRegressor)):
        known = {name: p.default for name, p in inspect.signature(estimator).parameters.items()}
        section = SGBDTSection().completed(objective).model_dump()
        assert {name: known[name] for name in section} == section
        assert set(_DEFAULTS[objective]) <= set(section)
