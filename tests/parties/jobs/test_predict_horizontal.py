"""Prediction with a model of horizontal training: alone, and never over a file that is there."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from opboost.errors import DataError
from opboost.horizontal.inprivate.training import run_chain
from opboost.trees.model_file import load_model
from parties.cli import app
from parties.errors import ConfigError, RunFolderError, notes_on
from parties.jobs.life_cycle import Terminal
from parties.jobs.predict_horizontal import predict_alone
from parties.runs.run_folder import RunFolder
from tests.support.chains import owner_of, recipe
from tests.support.clinics import COLUMNS, Clinics


@pytest.fixture
def clinics(tmp_path: Path) -> Clinics:
    """Clinics whose run folders hold a model."""
    found = Clinics(tmp_path)
    of = recipe(n_rounds=1)
    ensemble = of.ensemble(run_chain([owner_of(of, place) for place in range(3)], n_rounds=1, epsilon=of.epsilon))
    features = [replace(one, name=name) for one, name in zip(ensemble.features, COLUMNS, strict=True)]
    ensemble = replace(ensemble, features=tuple(features))
    for name, role in (("hub", "coordinator"), ("w0", "worker")):
        folder = RunFolder(found.folder(name))
        folder.create(found.write(name), party=name, role=role)
        folder.save_ensemble(ensemble)
    return found


def predict(clinics: Clinics, name: str, data: Path | None = None, ids: Path | None = None) -> Path:
    return predict_alone(clinics.write(name), data=data, ids=ids, out=None, terminal=Terminal())


def test_a_worker_scores_its_own_records_as_the_model_does(clinics: Clinics) -> None:
    written = pd.read_csv(predict(clinics, "w0")).set_index("id")
    data = pd.read_csv(clinics.root / "w0" / "data.csv").set_index("id")
    expected = load_model(clinics.folder("w0") / "model.json").predict(data[list(COLUMNS)].to_numpy())
    np.testing.assert_allclose(written["prediction"].reindex(data.index), expected, rtol=1e-12)
    events = [json.loads(line)["event"] for line in (clinics.folder("w0") / "log.jsonl").read_text().splitlines()]
    assert "predicted" in events
    with pytest.raises(ConfigError, match=r"predictions\.csv exists; give another file with --out, or --overwrite"):
        predict(clinics, "w0")


def test_the_command_prints_metrics_where_labels_are_known(clinics: Clinics, tmp_path: Path) -> None:
    (unlabelled := tmp_path / "new.csv").write_text("id,age,dose,size\nn1,0.5,0.5,0.5\n")
    words = ["predict", str(clinics.write("w0")), "--format", "json", "--overwrite"]
    printed = [CliRunner().invoke(app, [*words, *more]) for more in ([], ["--data", str(unlabelled)])]
    ((labelled, alone), path) = [json.loads(each.stdout) for each in printed], clinics.folder("w0") / "predictions.csv"
    metrics = clinics.read("w0", "metrics.json")["alone"]
    assert labelled == {
        "predictions": str(path),
        **{name: round(value, 4) for name, value in metrics.items() if name != "n_rows"},
    }
    assert "auc" in labelled
    assert alone == {"predictions": str(path)}


def test_listed_records_alone_are_scored(clinics: Clinics, tmp_path: Path) -> None:
    (tmp_path / "ids.txt").write_text("w0-003\nw0-001\n")
    assert pd.read_csv(predict(clinics, "w0", ids=tmp_path / "ids.txt"))["id"].tolist() == ["w0-001", "w0-003"]


def test_a_coordinator_needs_a_file_and_a_folder_of_partitions_is_none(clinics: Clinics) -> None:
    with pytest.raises(ConfigError, match="a coordinator has no records of its own; name a file with --data"):
        predict(clinics, "hub")
    assert predict(clinics, "hub", data=clinics.root / "w1" / "data.csv").exists()
    with pytest.raises(ConfigError, match="names partitions, which are not scored as they are"):
        predict(clinics, "hub", data=clinics.root / "w1")


def test_no_file_that_is_read_gives_way_to_predictions(clinics: Clinics) -> None:
    own, other = (clinics.root / name / "data.csv" for name in ("w0", "w1"))
    before = own.read_bytes()
    for data in (None, other):
        with pytest.raises(ConfigError, match="holds data that is read"):
            predict_alone(clinics.write("w0"), data=data, ids=None, out=own, overwrite=True, terminal=Terminal())
    assert own.read_bytes() == before


def test_the_owner_is_shown_a_cell_that_does_not_fit(clinics: Clinics, tmp_path: Path) -> None:
    frame = pd.read_csv(clinics.root / "w0" / "data.csv").astype({COLUMNS[0]: object})
    frame.loc[2, COLUMNS[0]] = "1,234.5"
    frame.to_csv(tmp_path / "new.csv", index=False)
    with pytest.raises(DataError, match="1 cell is not a number") as refused:
        predict(clinics, "w0", data=tmp_path / "new.csv")
    assert [note for note in notes_on(refused.value) if "line 4" in note and "9,999.9: thousands" in note]


def test_without_a_model_nothing_is_scored(clinics: Clinics) -> None:
    with pytest.raises(RunFolderError, match="holds no trained model; train the run first"):
        predict(clinics, "w1")
