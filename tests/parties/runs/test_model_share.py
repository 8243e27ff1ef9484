"""A file of another run's share, or an older one, is refused: nothing else tells that its tests are others."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest

from opboost.desensitize import ColumnMechanism
from opboost.mechanism_settings import MechanismSettings
from opboost.privacy.guarantee import compose
from opboost.routing import Router, SplitTests
from opboost.schema import ColumnSchema
from opboost.trees.losses import Logistic
from opboost.trees.tree import LEAF, Ensemble, Feature
from parties.errors import RunFolderError
from parties.runs.joint_model import JointModel
from parties.runs.model_share import KEPT_SCHEMA, TREES_FILE, check_shares
from parties.runs.run_folder import RunFolder

MECHANISMS = (ColumnMechanism(ColumnSchema(name="spend", lower=0, upper=9), MechanismSettings(epsilon=0.5)),)
GUARANTEE = compose((MECHANISMS[0].guarantee(),), is_secure=True)


def router(threshold: float) -> Router:
    return Router(MECHANISMS, SplitTests((("spend", None),), np.array([threshold]), np.array([True])))


def finished(tmp_path: Path, name: str, threshold: float, *, role: str) -> RunFolder:
    (tmp_path / "run.yaml").write_text("party: bank\n")
    folder = RunFolder(tmp_path / name)
    folder.create(tmp_path / "run.yaml", party="bank", role=role)
    if role == "active":
        ensemble = Ensemble((LEAF,), np.array([threshold]), Logistic(), (Feature("c0", "shop", 3, True),))
        folder.save_joint_model(
            JointModel(ensemble=ensemble, guarantees={"shop": GUARANTEE}, routers={"shop": router(threshold)})
        )
    else:
        folder.save_router(router(threshold), GUARANTEE)
    for file in (KEPT_SCHEMA, TREES_FILE):
        (folder.path / file).write_text(f"of {name}")
    folder.finish()
    return folder


def load(folder: RunFolder, role: str) -> object:
    return folder.load_joint_model() if role == "active" else folder.load_router()


@pytest.mark.parametrize(
    ("role", "name"),
    [
        ("active", "model.json"),
        ("active", "partners.json"),
        ("passive", "model.json"),
        ("passive", KEPT_SCHEMA),
        ("active", TREES_FILE),
    ],
)
def test_a_file_of_another_training_is_refused(tmp_path: Path, role: str, name: str) -> None:
    spring, autumn = (finished(tmp_path, one, threshold, role=role) for one, threshold in (("s", 3.5), ("a", 6.5)))
    load(spring, role)
    shutil.copy(autumn.path / name, spring.path / name)
    with pytest.raises(RunFolderError, match=f"^{name} in .* not as at the end of the run.* Bring the folder back"):
        load(spring, role)
    if name == "model.json":
        with pytest.raises(RunFolderError, match="not as at the end of the run"):
            spring.load_ensemble()
    # Whole folders may change places, and one that an earlier version wrote has no such note.
    shutil.copytree(autumn.path, spring.path, dirs_exist_ok=True)
    load(spring, role)
    meta = {key: value for key, value in spring.read_json("meta.json").items() if key != "shares"}
    (spring.path / "meta.json").write_text(json.dumps(meta))
    load(spring, role)


@pytest.mark.parametrize("noted", [{}, [], "model.json", {"model.json": 3}])
def test_a_note_that_is_none_is_no_note_of_these_files(tmp_path: Path, noted: object) -> None:
    folder = finished(tmp_path, "s", 3.5, role="passive")
    (folder.path / "meta.json").write_text(json.dumps({**folder.read_json("meta.json"), "shares": noted}))
    with pytest.raises(RunFolderError, match="not as at the end of the run"):
        folder.load_router()


def test_files_that_an_earlier_version_did_not_note_may_be_any(tmp_path: Path) -> None:
    folder = finished(tmp_path, "s", 3.5, role="active")
    meta = folder.read_json("meta.json")
    for name in (KEPT_SCHEMA, TREES_FILE):
        del meta["shares"][name]
    folder.write_json("meta.json", meta)
    for name in (KEPT_SCHEMA, TREES_FILE):
        (folder.path / name).write_text("another")
    folder.load_joint_model()
    (folder.path / "partners.json").write_text("{}")
    with pytest.raises(RunFolderError, match=r"^partners\.json in .* not as at the end of the run"):
        folder.load_joint_model()


@pytest.mark.parametrize("is_noted", [True, False])
@pytest.mark.parametrize("name", ["model.json", "partners.json"])
def test_what_is_no_file_is_told_and_never_waited_for(tmp_path: Path, name: str, is_noted: bool) -> None:
    folder = finished(tmp_path, "s", 3.5, role="active")
    if not is_noted:
        folder.write_json("meta.json", {**folder.read_json("meta.json"), "shares": None})
    path = folder.path / name
    for make, kind in ((os.mkfifo, "a named pipe"), (os.mkdir, "a folder")):
        path.unlink()
        make(path)
        for use in (folder.load_joint_model, folder.finish, lambda: check_shares(folder.path)):
            with pytest.raises(RunFolderError, match=f"^{path} cannot be read: it is {kind}, where a file is needed"):
                use()
