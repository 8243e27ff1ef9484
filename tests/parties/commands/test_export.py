"""`opboost export`: what each system reads back, and refusals that write nothing."""

from __future__ import annotations

import json
import os
import re
import sqlite3
import sys
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from opboost.trees.losses import Logistic
from opboost.trees.model_file import save_model
from parties.cli import app
from parties.runs.run_folder import RunFolder
from tests.support.exported_models import trained


def _export(*words: object) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, ["export", *map(str, words)])
    return result.exit_code, result.stdout, result.stderr


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    ensemble, _ = trained(Logistic(), n_rounds=3)
    save_model(ensemble, tmp_path / "model.json")
    return tmp_path


def test_every_system_reads_what_is_written(folder: Path) -> None:
    ensemble, matrix = trained(Logistic(), n_rounds=3)
    expected = ensemble.predict(matrix)
    paths = {system: folder / f"{system}.json" for system in ("onnx", "treelite", "xgboost", "sql")}
    for system, path in paths.items():
        code, out, err = _export(folder, "--to", system, "--out", path, "--keep", "id", "--format", "json")
        assert (code, json.loads(out)) == (0, {"model": str(path), "inputs": 3}), err
        assert path.stat().st_mode & 0o777 == 0o600

    runtime = pytest.importorskip("onnxruntime").InferenceSession(str(paths["onnx"]))
    np.testing.assert_allclose(runtime.run(["predictions"], {"features": matrix})[0][:, 0], expected, atol=1e-9)
    treelite = pytest.importorskip("treelite")
    found = treelite.gtil.predict(treelite.Model.deserialize(str(paths["treelite"])), matrix)
    np.testing.assert_allclose(found.reshape(-1), expected, atol=1e-9)
    xgboost = pytest.importorskip("xgboost")
    booster = xgboost.Booster(model_file=str(paths["xgboost"]))
    rows = xgboost.DMatrix(matrix, feature_names=booster.feature_names, feature_types=booster.feature_types)
    np.testing.assert_allclose(booster.predict(rows), expected, atol=1e-5)
    database = sqlite3.connect(":memory:")
    database.execute('CREATE TABLE records (id, "width" REAL, "the ""height""" REAL, "kind")')
    cells = [[None if np.isnan(cell) else cell for cell in row] for row in matrix.tolist()]
    database.executemany("INSERT INTO records VALUES (?, ?, ?, ?)", [(i, *row) for i, row in enumerate(cells)])
    scored = sorted(database.execute(paths["sql"].read_text()).fetchall())
    np.testing.assert_allclose([prediction for _, prediction in scored], expected, rtol=1e-12)


def test_a_schema_names_the_categories_of_a_query(folder: Path) -> None:
    schema = folder / "schema.yaml"
    kinds = "[red, blue, green, grey, black]"
    schema.write_text(f"columns:\n  kind: {{kind: unordered, categories: {kinds}}}\n  other: {{lower: 0, upper: 1}}\n")
    code, _, err = _export(folder / "model.json", "--to", "sql", "--out", folder / "q.sql", "--schema", schema)
    assert code == 0, err
    assert "'grey'" in (folder / "q.sql").read_text()
    # Beside the model lies the schema of its training.
    other = folder / "other.yaml"
    other.write_text(schema.read_text().replace("red, blue", "blue, red"))
    code, _, err = _export(folder, "--to", "sql", "--out", folder / "new.sql", "--schema", other)
    assert code == 1
    assert "another order of them" in err
    # Another table's, with which categories would have been told by their numbers.
    other.write_text("columns:\n  spend: {lower: 0, upper: 1}\n")
    code, _, err = _export(folder, "--to", "sql", "--out", folder / "new.sql", "--schema", other)
    assert (code, err) == (1, f"error: {other} describes no column of the model's own. No model was exported\n")
    assert not (folder / "new.sql").exists()


def test_an_empty_cell_is_what_training_read_it_as(folder: Path) -> None:
    """The schema of the training lies beside the model; queries sent NULL another way than `opboost predict`."""
    (folder / "schema.yaml").write_text(
        "columns:\n  width: {lower: -5, upper: 5, missing: impute, fill: 1}\n"
        "  kind: {kind: unordered, categories: [red, blue, green, grey, black], missing: impute, fill: grey}\n"
    )
    ensemble, _ = trained(Logistic(), n_rounds=3)
    code, _, err = _export(folder, "--to", "sql", "--out", folder / "q.sql", "--keep", "id")
    assert code == 0, err
    database = sqlite3.connect(":memory:")
    database.execute('CREATE TABLE records (id, "width" REAL, "the ""height""" REAL, "kind")')
    heights = np.arange(-4, 4) / 2
    database.executemany("INSERT INTO records VALUES (?, NULL, ?, NULL)", enumerate(heights.tolist()))
    found = [prediction for _, prediction in sorted(database.execute((folder / "q.sql").read_text()))]
    filled = np.stack([np.ones(8), heights, np.full(8, 3.0)], axis=1)
    np.testing.assert_allclose(found, ensemble.predict(filled), rtol=1e-12)


def test_a_model_outside_its_run_folder_is_filled_by_the_schema_that_is_named(folder: Path) -> None:
    """Nothing lies beside it: its empty cells were scored as missing ones, whatever `--schema` said of them."""
    of_training = "columns:\n  width: {lower: -5, upper: 5, missing: impute, fill: 1}\n"
    for name, beside in (("run", "schema.yaml"), ("elsewhere", "named.yaml")):
        (folder / name).mkdir()
        (folder / name / "model.json").write_bytes((folder / "model.json").read_bytes())
        (folder / name / beside).write_text(of_training)
    moved = folder / "elsewhere" / "model.json"
    for system in ("sql", "xgboost"):
        runs = [(folder / "run", ()), (moved, ("--schema", folder / "elsewhere" / "named.yaml")), (moved, ())]
        ends = [
            _export(model, "--to", system, "--out", folder / f"{system}{number}", *words)
            for number, (model, words) in enumerate(runs)
        ]
        assert [code for code, _, _ in ends] == [0, 0, 0]
        whole, named, bare = ((folder / f"{system}{number}").read_bytes() for number in range(3))
        assert whole == named != bare
        assert [("no schema.yaml lies beside" in err, "--schema" in err) for _, _, err in ends] == [
            (False, False),
            (False, False),
            (True, True),
        ]


def test_a_schema_that_is_named_fills_whatever_lies_beside_the_model(folder: Path) -> None:
    """A schema.yaml of something else made `--schema` mean nothing."""
    filled, empty = (
        f"columns:\n  width: {{lower: -5, upper: 5, {of_empty}}}\n"
        for of_empty in ("missing: impute, fill: 1", "missing: category")
    )
    named, beside = folder / "named.yaml", folder / "schema.yaml"
    for system in ("onnx", "sql", "treelite", "xgboost"):
        if system in ("onnx", "treelite"):
            pytest.importorskip(system)
        written = []
        for number, (given, lies) in enumerate([(filled, None), (filled, empty), (empty, filled), (empty, None)]):
            named.write_text(given)
            beside.unlink(missing_ok=True)
            if lies is not None:
                beside.write_text(lies)
            out = folder / f"{system}{number}"
            code, _, err = _export(folder / "model.json", "--to", system, "--out", out, "--schema", named)
            assert (code, err) == (0, "")
            written.append(out.read_bytes())
        assert written[0] == written[1] != written[2] == written[3]


def test_where_a_schema_that_is_named_says_nothing_of_empty_cells_they_are_as_in_training(folder: Path) -> None:
    kinds = "kind: unordered, categories: [red, blue, green, grey, black]"
    (folder / "schema.yaml").write_text(
        "columns:\n  width: {lower: -5, upper: 5, missing: impute, fill: 1}\n"
        f"  kind: {{{kinds}, missing: impute, fill: grey}}\n"
    )
    (folder / "named.yaml").write_text(f"columns:\n  kind: {{{kinds}}}\n")
    for name, words in (("all", ()), ("some", ("--schema", folder / "named.yaml"))):
        code, _, err = _export(folder, "--to", "xgboost", "--out", folder / name, *words)
        assert (code, err) == (0, "")
    assert (folder / "all").read_bytes() == (folder / "some").read_bytes()


@pytest.mark.parametrize("system", ["onnx", "sql", "treelite", "xgboost"])
def test_a_schema_of_another_table_is_refused_for_every_system(folder: Path, system: str) -> None:
    other = folder / "other.yaml"
    other.write_text("columns:\n  spend: {lower: 0, upper: 1, missing: impute, fill: 1}\n")
    code, _, err = _export(folder, "--to", system, "--out", folder / "new", "--schema", other)
    assert (code, err) == (1, f"error: {other} describes no column of the model's own. No model was exported\n")
    other.write_text("columns:\n  kind: {kind: unordered, categories: [b, a], missing: impute, fill: a}\n")
    (folder / "schema.yaml").write_text("columns:\n  kind: {kind: unordered, categories: [a, b]}\n")
    code, _, err = _export(folder, "--to", system, "--out", folder / "new", "--schema", other)
    assert (code, "another order of them" in err) == (1, True)
    for path, unit in ((folder / "schema.yaml", "day"), (other, "hour")):
        bounds = "lower: 2024-01-01, upper: 2024-12-31"
        path.write_text(
            f"columns:\n  width: {{kind: date, unit: {unit}, {bounds}, missing: impute, fill: 2024-05-31}}\n"
        )
    code, _, err = _export(folder, "--to", system, "--out", folder / "new", "--schema", other)
    assert (code, "column 'width' has another `unit`" in err) == (1, True)
    assert not (folder / "new").exists()


@pytest.mark.parametrize("name", ["model.json", "schema.yaml"])
def test_a_file_of_another_run_in_a_run_folder_is_refused(folder: Path, name: str) -> None:
    run = RunFolder(folder / "run")
    run.path.mkdir()
    (run.path / "model.json").write_bytes((folder / "model.json").read_bytes())
    (run.path / "schema.yaml").write_text("columns:\n  width: {lower: -5, upper: 5}\n")
    run.write_json("meta.json", {"party": "bank", "role": "active"})
    run.finish()
    assert _export(run.path, "--to", "sql", "--out", folder / "first")[0] == 0
    if name == "model.json":
        run.save_ensemble(trained(Logistic(), n_rounds=2)[0])
    else:
        (run.path / name).write_text("columns:\n  width: {lower: -5, upper: 5, missing: impute, fill: 1}\n")
    for model in (run.path, run.path / "model.json"):
        code, _, err = _export(model, "--to", "sql", "--out", folder / "second")
        assert code == 6
        assert err.startswith(f"error: {name} in {run.path} are not as at the end of the run")
        assert err.endswith("No model was read\n")
    assert not (folder / "second").exists()


def test_a_refusal_is_one_sentence_and_writes_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = folder / "out"
    out.write_text("mine")
    code, _, err = _export(folder, "--to", "sql", "--out", out)
    assert (code, err) == (1, f"error: {out} exists; name another file with --out. No model was exported\n")
    assert out.read_text() == "mine"
    monkeypatch.setitem(sys.modules, "onnx", None)
    code, _, err = _export(folder, "--to", "onnx", "--out", folder / "new")
    assert code == 1
    assert "needs the package onnx" in err
    code, _, err = _export(folder / "none", "--to", "sql", "--out", folder / "new")
    assert (code, err) == (1, f"error: {folder / 'none'} cannot be read: No such file or directory\n")
    long = folder / ("a" * 300)
    for words in ((folder, "--out", long), (long, "--out", folder / "new")):
        code, _, err = _export(*words, "--to", "sql")
        assert code
        assert re.fullmatch(r"error: .* cannot be (read|written): File name too long\n", err)
    os.mkfifo(folder / "pipe")
    code, _, err = _export(folder / "pipe", "--to", "sql", "--out", folder / "new")
    assert (code, err) == (
        1,
        f"error: {folder / 'pipe'} is a named pipe, where a model is needed. No model was exported\n",
    )
    assert not (folder / "new").exists()
