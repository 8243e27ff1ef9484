"""The run folder: made once, written whole, read back to the bit."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from opboost.desensitize import ColumnMechanism
from opboost.errors import ModelFileError
from opboost.mechanism_settings import MechanismSettings
from opboost.privacy.guarantee import Guarantee, compose
from opboost.routing import Router, SplitTests
from opboost.schema import ColumnSchema
from opboost.trees.losses import Logistic
from opboost.trees.tree import Ensemble, Feature, Tree
from opboost.trees.validation import History
from parties.errors import RunFolderError
from parties.runs.joint_model import JointModel
from parties.runs.run_folder import RunFolder, RunState

MECHANISMS = (ColumnMechanism(ColumnSchema(name="spend", lower=0, upper=9), MechanismSettings(epsilon=0.5)),)
ROUTER = Router(MECHANISMS, SplitTests((("spend", None),), np.array([3.5]), np.array([True])))
GUARANTEE: Guarantee = compose((MECHANISMS[0].guarantee(),), is_secure=True)


def stump() -> Tree:
    return Tree(
        columns=np.array([0, -1, -1], np.int32),
        thresholds=np.array([0.5, 0, 0]),
        missing_left=np.zeros(3, np.bool_),
        lefts=np.array([1, 0, 0], np.int32),
        rights=np.array([2, 0, 0], np.int32),
        values=np.array([0, 1 / 3, -0.1]),
        gains=np.array([2.0, 0, 0]),
        covers=np.array([5.0, 3, 2]),
    )


MODEL = JointModel(
    ensemble=Ensemble((stump(),), np.array([-1.6]), Logistic(), (Feature("c0", "shop", 3, True),)),
    guarantees={"shop": GUARANTEE},
    routers={"shop": ROUTER},
)


def with_history(scores: dict[str, list[float]], best_round: int) -> JointModel:
    return replace(MODEL, history=History(scores, best_round))


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    (tmp_path / "run.yaml").write_text("party: bank\n")
    folder = RunFolder(tmp_path / "runs" / "spring")
    folder.create(tmp_path / "run.yaml", party="bank", role="active")
    return folder


def test_a_folder_that_others_could_enter_is_closed_before_anything_is_written(tmp_path: Path) -> None:
    path = tmp_path / "runs" / "spring"
    path.mkdir(parents=True)
    path.chmod(0o755)
    (tmp_path / "run.yaml").write_text("party: bank\n")
    RunFolder(path).create(tmp_path / "run.yaml", party="bank", role="active")
    assert path.stat().st_mode & 0o777 == 0o700


def test_a_new_folder_holds_the_run_file_and_who_ran_it(folder: RunFolder) -> None:
    assert (folder.path / "config.yaml").read_text() == "party: bank\n"
    meta = folder.read_json("meta.json")
    assert (meta["party"], meta["role"], meta["finished"]) == ("bank", "active", None)
    assert {"opboost", "numpy", "pyzmq"} <= set(meta["packages"])


def test_finishing_adds_the_end_and_facts(folder: RunFolder) -> None:
    folder.finish(n_rows=3)
    meta = folder.read_json("meta.json")
    assert (meta["party"], meta["n_rows"]) == ("bank", 3)
    assert meta["finished"] >= meta["started"]


def test_a_folder_that_holds_anything_is_refused_and_left_alone(folder: RunFolder, tmp_path: Path) -> None:
    folder.mark_release()
    before = {path.name: path.read_bytes() for path in folder.path.iterdir()}
    with pytest.raises(RunFolderError, match=r"holds a run already; choose another run_id.*Nothing was sent"):
        folder.create(tmp_path / "run.yaml", party="shop", role="passive")
    assert {path.name: path.read_bytes() for path in folder.path.iterdir()} == before


def test_an_attempt_that_ended_before_anything_was_drawn_may_be_repeated(folder: RunFolder, tmp_path: Path) -> None:
    folder.create(tmp_path / "run.yaml", party="shop", role="passive")
    assert folder.read_json("meta.json")["party"] == "shop"
    (folder.path / "model.json").write_text("{}")
    with pytest.raises(RunFolderError, match="holds a run already"):
        folder.create(tmp_path / "run.yaml", party="shop", role="passive")


def test_a_worker_that_only_fetched_the_model_takes_its_run_up(tmp_path: Path) -> None:
    """It was stopped while it scored its own rows, after it had told the coordinator that it is done."""
    (tmp_path / "run.yaml").write_text("party: w0\n")
    worker = RunFolder(tmp_path / "runs" / "summer")
    worker.create(tmp_path / "run.yaml", party="w0", role="worker")
    (worker.path / "model.json").write_text("{}")
    assert worker.create(tmp_path / "run.yaml", party="w0", role="worker") is RunState.UNFINISHED
    with pytest.raises(RunFolderError, match="holds a run already"):
        worker.create(tmp_path / "run.yaml", party="w1", role="worker")
    worker.finish()
    assert worker.create(tmp_path / "run.yaml", party="w0", role="worker") is RunState.FINISHED


@pytest.fixture
def shop(tmp_path: Path) -> RunFolder:
    """A passive party's folder after its columns were drawn and stored."""
    (tmp_path / "run.yaml").write_text("party: shop\n")
    folder = RunFolder(tmp_path / "runs" / "summer")
    folder.create(tmp_path / "run.yaml", party="shop", role="passive")
    assert not folder.has_released
    folder.mark_release()
    return folder


@pytest.mark.parametrize("is_finished", [False, True])
def test_a_passive_party_may_repeat_a_run_and_it_stays_known_that_it_has_released(
    shop: RunFolder, tmp_path: Path, is_finished: bool
) -> None:
    if is_finished:
        shop.save_router(ROUTER, GUARANTEE)
    shop.create(tmp_path / "run.yaml", party="shop", role="passive")
    assert shop.has_released
    assert (shop.path / "model.json").exists() == is_finished


@pytest.mark.parametrize(("party", "role"), [("post", "passive"), ("shop", "active")])
def test_nobody_else_may_repeat_it(shop: RunFolder, tmp_path: Path, party: str, role: str) -> None:
    before = {path.name: path.read_bytes() for path in shop.path.iterdir()}
    with pytest.raises(RunFolderError, match="holds a run already; choose another run_id"):
        shop.create(tmp_path / "run.yaml", party=party, role=role)
    assert {path.name: path.read_bytes() for path in shop.path.iterdir()} == before


def test_the_active_party_never_repeats_a_run_that_has_a_model(folder: RunFolder, tmp_path: Path) -> None:
    folder.save_joint_model(MODEL)
    with pytest.raises(RunFolderError, match="holds a run already; choose another run_id"):
        folder.create(tmp_path / "run.yaml", party="bank", role="active")


def test_a_run_that_does_not_say_whether_it_has_released_counts_as_one_that_has(
    shop: RunFolder, tmp_path: Path
) -> None:
    shop.write_json("meta.json", {"party": "shop", "role": "passive"})
    shop.create(tmp_path / "run.yaml", party="shop", role="passive")
    assert shop.has_released


def test_a_folder_with_somebody_elses_files_is_refused(tmp_path: Path) -> None:
    (tmp_path / "run.yaml").write_text("party: bank\n")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.txt").write_text("")
    with pytest.raises(RunFolderError, match="holds a run already"):
        RunFolder(tmp_path / "full").create(tmp_path / "run.yaml", party="bank", role="active")


def test_an_empty_folder_may_be_used(tmp_path: Path) -> None:
    (tmp_path / "run.yaml").write_text("party: bank\n")
    (tmp_path / "empty").mkdir()
    RunFolder(tmp_path / "empty").create(tmp_path / "run.yaml", party="bank", role="active")
    assert (tmp_path / "empty" / "meta.json").exists()


@pytest.mark.parametrize("place", ["file", "file/runs"])
def test_a_folder_that_cannot_be_made_is_refused(tmp_path: Path, place: str) -> None:
    (tmp_path / "run.yaml").write_text("party: bank\n")
    (tmp_path / "file").write_text("")
    with pytest.raises(RunFolderError, match="cannot be written: Not a directory"):
        RunFolder(tmp_path / place).create(tmp_path / "run.yaml", party="bank", role="active")


def test_the_active_partys_share_reads_back_to_the_bit(folder: RunFolder) -> None:
    folder.save_joint_model(MODEL)
    found = folder.load_joint_model()
    assert found.guarantees == MODEL.guarantees
    assert found.ensemble.features == MODEL.ensemble.features
    matrix = np.array([[0.0], [1.0], [np.nan]])
    np.testing.assert_array_equal(found.ensemble.predict(matrix), MODEL.ensemble.predict(matrix))
    table = pd.DataFrame({"spend": [0.0, 4.0, 9.0]})
    np.testing.assert_array_equal(found.routers["shop"].answer(table, rng=None), ROUTER.answer(table, rng=None))


def test_a_passive_partys_share_reads_back(folder: RunFolder) -> None:
    folder.save_router(ROUTER, GUARANTEE)
    found = folder.load_router()
    assert found.tests.sources == ROUTER.tests.sources
    assert found.tests.thresholds.tolist() == [3.5]
    assert folder.read_json("guarantee.json") == GUARANTEE.to_dict()


def test_the_model_file_comes_last_so_that_a_half_saved_share_is_not_taken_for_a_whole_one(
    folder: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_json = RunFolder.write_json

    def full_disk(self: RunFolder, name: str, document: object) -> None:
        if name == "model.json":
            raise OSError("no space left")
        write_json(self, name, document)

    monkeypatch.setattr(RunFolder, "write_json", full_disk)
    with pytest.raises(OSError, match="no space"):
        folder.save_router(ROUTER, GUARANTEE)
    with pytest.raises(RunFolderError, match="holds no trained model; train the run first"):
        folder.load_router()


def test_a_folder_without_a_model_says_so(folder: RunFolder) -> None:
    for load in (folder.load_joint_model, folder.load_router):
        with pytest.raises(RunFolderError, match="holds no trained model; train the run first"):
            load()


def test_one_partys_share_is_not_taken_for_the_others(folder: RunFolder) -> None:
    folder.save_joint_model(MODEL)
    with pytest.raises(RunFolderError, match="is no opboost-router file of version 1"):
        folder.load_router()
    folder.save_router(ROUTER, GUARANTEE)
    with pytest.raises(ModelFileError, match="is not an opboost-model file"):
        folder.load_joint_model()


@pytest.mark.parametrize("document", [{"shop": 5}, {"shop": "A" * 64}, {"shop": ["a" * 64]}])
def test_what_tells_a_training_is_read_as_digests_alone(folder: RunFolder, document: dict[str, object]) -> None:
    assert folder.load_trainings() == {}
    folder.write_json("trainings.json", {"shop": "a" * 64})
    assert folder.load_trainings() == {"shop": "a" * 64}
    folder.write_json("trainings.json", document)
    with pytest.raises(RunFolderError, match=r"trainings\.json is malformed; bring a copy of it back"):
        folder.load_trainings()


@pytest.mark.parametrize("change", [{"format": "opboost-model"}, {"version": 2}])
def test_a_share_of_another_format_or_version_is_refused(folder: RunFolder, change: dict[str, object]) -> None:
    folder.save_router(ROUTER, GUARANTEE)
    folder.write_json("model.json", {**folder.read_json("model.json"), **change})
    with pytest.raises(RunFolderError, match="is no opboost-router file of version 1"):
        folder.load_router()


def test_a_file_is_written_whole_or_not_at_all(folder: RunFolder) -> None:
    folder.write_json("metrics.json", {"auc": 0.5})
    with pytest.raises(ValueError, match="JSON compliant"):
        folder.write_json("metrics.json", {"auc": float("nan")})
    assert folder.read_json("metrics.json") == {"auc": 0.5}


def test_an_absent_or_broken_file_is_named(folder: RunFolder) -> None:
    with pytest.raises(RunFolderError, match=r"metrics\.json cannot be read: No such file"):
        folder.read_json("metrics.json")
    (folder.path / "metrics.json").write_text("{")
    with pytest.raises(RunFolderError, match=r"metrics\.json is not JSON"):
        folder.read_json("metrics.json")


def test_a_file_that_is_a_pipe_or_a_folder_is_told_and_never_waited_for(folder: RunFolder) -> None:
    os.mkfifo(folder.path / "metrics.json")
    (folder.path / "fit.json").mkdir()
    for name, kind in (("metrics.json", "a named pipe"), ("fit.json", "a folder")):
        with pytest.raises(RunFolderError, match=f"{name} cannot be read: it is {kind}, where a file is needed"):
            folder.read_json(name)


def test_no_file_of_a_share_is_executable_code(folder: RunFolder) -> None:
    folder.save_joint_model(MODEL)
    for path in folder.path.glob("*.json"):
        json.loads(path.read_text())
    assert {path.suffix for path in folder.path.iterdir()} == {".json", ".yaml"}


def test_scores_of_the_rows_held_out_are_kept_round_by_round_where_there_are_any(folder: RunFolder) -> None:
    folder.save_joint_model(MODEL)
    assert not (folder.path / "history.json").exists()
    scores = {"auc": [0.5, 2 / 3], "logloss": [0.7, 0.6]}
    folder.save_joint_model(with_history(scores, 2))
    assert folder.read_json("history.json") == {"best_round": 2, "scores": scores}
