"""The credit validation of a finished run, by the command and by its parts."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from shutil import rmtree
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml
from typer.testing import CliRunner

from opboost.metrics import gini
from opboost.trees.losses import Softmax
from parties.cli import app
from parties.credit import validation
from parties.credit.validation import Validation, ValidationInputs, read_scores, validate
from parties.errors import ConfigError, TableError
from parties.runs.run_folder import RunFolder
from parties.tables.destinations import Destination
from parties.vertical.prediction_output import prediction_table
from tests.support.kept_runs import train_bank
from tests.support.sites import Sites


@pytest.fixture(scope="module")
def months(tuned_bank: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Predictions of two models and of an earlier month, and that month's data."""
    folder, draw = tmp_path_factory.mktemp("months"), np.random.default_rng(0)
    table, paths = tuned_bank.table, {name: folder / f"{name}.csv" for name in ("now", "other", "before", "data")}
    signal = 0.6 * table["y"].to_numpy() + 0.2
    for name, noise in (("now", 0.05), ("other", 0.15), ("before", 0.05)):
        p = np.clip(signal + draw.normal(0, noise, len(table)), 0.01, 0.99)
        pd.DataFrame({"id": table["id"], "prediction": p, "status": "ok"}).to_csv(paths[name], index=False)
    table.assign(age=table["age"].clip(upper=50)).to_csv(paths["data"], index=False)
    return paths


@pytest.fixture(scope="module")
def found(run_file: Path, months: dict[str, Path]) -> Validation:
    pytest.importorskip("fairlearn")
    return validate(
        ValidationInputs(
            run_file=run_file,
            scores=months["now"],
            challenger=months["other"],
            earlier_scores=months["before"],
            earlier_data=months["data"],
            groups=("age",),
        )
    )


def test_columns_of_both_parties_are_told(found: Validation) -> None:
    owners = {one.name: one.owner for one in found.card.characteristics}
    assert owners.pop("age") is None
    assert set(owners.values()) == {"shop"}
    assert all(one.is_corrected for one in found.card.characteristics if one.owner)
    assert found.card_gini > 0.5


def test_the_model_its_challenger_and_the_drift_are_scored(found: Validation) -> None:
    assert found.model is not None
    assert found.model.gini > 0.9
    assert found.model.n_records == 400
    assert found.model.uplift is not None
    assert found.model.uplift.uplift is not None
    assert found.model.uplift.uplift < 0
    assert found.drifts["scores"] < 0.1 < 0.25 < found.drifts["age"]
    assert sum(group.n_records for group in found.model.fairness[0].groups) == 400


def test_columns_that_are_left_out_are_told_with_their_owner(run_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = validate(ValidationInputs(run_file=run_file)).card.characteristics
    monkeypatch.setattr(validation, "LEAST_INFORMATION", max(one.information_value for one in before))
    left = {(one.owner, one.name) for one in validate(ValidationInputs(run_file=run_file)).left_out}
    assert len({(one.owner, one.name) for one in before} - left) == 1


@pytest.mark.parametrize("change", [{"label_epsilon": 1.0}, {"engine": "dask"}], ids=str)
def test_a_run_without_ranks_or_with_noised_labels_has_no_scorecard(run_file: Path, change: dict[str, Any]) -> None:
    other = run_file.with_name("other.yaml")
    other.write_text(yaml.safe_dump(yaml.safe_load(run_file.read_text()) | change))
    with pytest.raises(ConfigError, match=r"^a scorecard is for tables in memory .* Nothing was computed$"):
        validate(ValidationInputs(run_file=other))


@pytest.mark.parametrize("name", ["scores.csv", "scores.parquet"])
def test_of_two_classes_the_second_ones_probability_is_the_score(tmp_path: Path, name: str) -> None:
    """`prediction` is the more probable class there, which passed for a probability of 0 or 1."""
    p, statuses = np.array([[0.9, 0.1], [0.2, 0.8], [np.nan, np.nan]]), np.array([0, 0, 1], np.uint8)
    table = prediction_table(pd.Index(["a", "b", "c"]), p, statuses, loss=Softmax(2))
    assert table["prediction"].tolist()[:2] == [0, 1]
    Destination(tmp_path / name).write(table)
    assert read_scores(tmp_path / name).fillna(-1).to_dict() == {"a": 0.1, "b": 0.8, "c": -1}


@pytest.mark.parametrize(
    "columns",
    [
        ("prediction", "probability_0", "probability_1", "probability_2"),
        ("prediction", "probability_1"),
        ("prediction_0", "prediction_1"),
        ("prediction", "prediction_1"),
        ("quantile_0.5",),
    ],
    ids=str,
)
def test_a_table_of_several_scores_is_refused(tmp_path: Path, columns: tuple[str, ...]) -> None:
    path = tmp_path / "scores.csv"
    path.write_text(",".join(["id", *columns]) + "\na" + ",0.5" * len(columns) + "\n")
    with pytest.raises(TableError, match=r"scores\.csv has the columns? .*_.*: .* Nothing was computed"):
        read_scores(path)


@pytest.mark.parametrize(
    ("model", "words"),
    [
        ({"objective": "multi:softprob", "num_class": 2}, None),
        ({"objective": "multi:softprob", "num_class": 3}, "multi:softprob"),
        ({"objective": "reg:squarederror"}, "reg:squarederror"),
    ],
    ids=str,
)
def test_own_predictions_are_scored_if_the_objective_gives_a_probability(
    tmp_path: Path, months: dict[str, Path], model: dict[str, Any], words: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    bank = train_bank(Sites(tmp_path), model=model | {"n_estimators": 1})
    p = pd.read_csv(months["now"]).set_index("id")["prediction"].loc[bank.table["id"]].to_numpy()
    loss = RunFolder(bank.run_folder).load_ensemble().loss
    predicted = p if loss.n_outputs == 1 else np.column_stack([1 - p, p])
    table = prediction_table(pd.Index(bank.table["id"]), predicted, np.zeros(len(p), np.uint8), loss=loss)
    Destination(bank.run_folder / "predictions.csv").write(table)
    asked = ValidationInputs(run_file=bank.path / "run.yaml")
    if words is not None:
        monkeypatch.chdir(bank.run_folder)
        for scores in (None, Path("predictions.csv")):
            with pytest.raises(ConfigError, match=f"holds predictions of {words}; .* Nothing was computed"):
                validate(replace(asked, scores=scores))
        asked = replace(asked, scores=months["now"])
    found = validate(asked).model
    assert found is not None
    assert found.gini == gini(bank.table["y"].to_numpy(float), p)


def test_without_predictions_there_is_the_scorecard_alone(run_file: Path) -> None:
    assert validate(ValidationInputs(run_file=run_file)).model is None
    with pytest.raises(ConfigError, match="predict first, or give --scores"):
        validate(ValidationInputs(run_file=run_file, groups=("age",)))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("id,prediction\na,2\n", "no probabilities"),
        ("id,prediction\na,0.1\na,0.2\n", "an id twice"),
        ("id,score\na,0.1\n", "holds no predictions: KeyError"),
        ("id,prediction\na,low\n", "holds no predictions: ValueError"),
    ],
)
def test_what_is_no_table_of_probabilities_is_refused(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "scores.csv"
    path.write_text(text)
    with pytest.raises(TableError, match=words):
        read_scores(path)


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "scores.csv")
    with pytest.raises(TableError, match="is a named pipe"):
        read_scores(tmp_path / "scores.csv")


def test_ids_are_read_as_predictions_are_written(tmp_path: Path) -> None:
    ids = ["=A1", "'=A1", "'a", "NA", "nan", "007", "-5", "@x"]
    written = pd.DataFrame({"id": ids, "prediction": 0.5, "status": "ok"})
    for name in ("scores.csv", "scores.parquet"):
        Destination(tmp_path / name).write(written)
        assert read_scores(tmp_path / name).index.tolist() == ids


def test_lists_are_no_predictions(tmp_path: Path) -> None:
    pd.DataFrame({"id": ["a"], "prediction": [[0.5]]}).to_parquet(tmp_path / "scores.parquet")
    with pytest.raises(TableError, match="holds no predictions: TypeError"):
        read_scores(tmp_path / "scores.parquet")


def test_the_command_writes_points_and_a_page_for_their_owner_alone(
    run_file: Path, months: dict[str, Path], tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    out = run_file.parent / "runs" / "spring" / "scorecard"
    request.addfinalizer(lambda: rmtree(out))
    options = ["--scores", str(months["now"]), "--points", "500", "--format", "json"]
    # A second time, the page and the points are made anew.
    for _ in range(2):
        done = CliRunner().invoke(app, ["scorecard", str(run_file), *options])
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["gini"] > 0.9
    card = json.loads((out / "scorecard.json").read_text())
    assert card["points"] == 500
    assert {one["owner"] for one in card["characteristics"]} == {None, "shop"}
    assert "Credit validation of run spring" in (out / "report.html").read_text()
    assert {path.stat().st_mode & 0o077 for path in (out, *out.iterdir())} == {0}


def test_whoever_has_no_labels_has_no_scorecard(tuned_bank: Any) -> None:
    done = CliRunner().invoke(app, ["scorecard", str(tuned_bank.path.parent / "shop" / "run.yaml")])
    assert done.exit_code != 0
    assert "takes a run file of role active" in done.stderr
