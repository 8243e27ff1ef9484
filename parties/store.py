"""A party's run folder: what it keeps, and nothing of the other side's.

==================  ====================================================================================
file                content
==================  ====================================================================================
``config.yaml``     the run file
``meta.json``       party, role, versions, start and end
``log.jsonl/txt``   steps, and every outgoing message with size and digest
``model.json``      A: the ensemble. B: its router (columns, mechanisms, tests with thresholds)
``guarantee.json``  what the releases of the run promise
``partners.json``   A only: routers that passive parties shared
``history.json``    A only: scores of the rows held out of training, round by round
``metrics.json``    scores
``predictions.csv`` A only
==================  ====================================================================================
"""

from __future__ import annotations

import json
import platform
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pandas as pd

from opboost.privacy.guarantee import Guarantee
from opboost.routing import Router
from opboost.trees.model_file import load_model, save_model
from parties.encoding import guarantee_from_dict, router_from_dict, router_to_dict
from parties.errors import RunFolderError
from parties.party_a import JointModel
from protocols import messages

ROUTER_FORMAT = "opboost-router"
ROUTER_VERSION = 1


class RunFolder:
    """One run's files on disk.

    Parameters
    ----------
    path : Path
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def create(self, config: Path, *, party: str, role: str) -> None:
        """Make the folder and note the start.

        A passive party may repeat its run: what it released is in its store and is sent again. `has_released` then
        still says so.

        Raises
        ------
        RunFolderError
            If the folder holds somebody else's files, or a run that may not be repeated: the active party's model
            would be lost.
        """
        has_released = self.has_released
        try:
            if self.path.exists() and any(self.path.iterdir()) and not self._may_be_repeated(party, role):
                raise RunFolderError(f"{self.path} holds a run already; choose another run_id. Nothing was sent")
            self.path.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(config, self.path / "config.yaml")
        except OSError as error:
            raise RunFolderError(f"{self.path} cannot be written: {error.strerror}") from None
        packages = {name: version(name) for name in ("opboost", "numpy", "pandas", "numba", "pyzmq", "msgpack")}
        self.write_json(
            "meta.json",
            {
                "party": party,
                "role": role,
                "started": _now(),
                "finished": None,
                "released": has_released,
                "protocol_version": messages.VERSION,
                "python": platform.python_version(),
                "packages": packages,
            },
        )

    @property
    def has_released(self) -> bool:
        """Whether this run's columns were drawn and stored: from then on it never draws them anew."""
        return (self.path / "meta.json").exists() and self.read_json("meta.json").get("released") is not False

    def mark_release(self) -> None:
        """Note, before anything is sent, that this run's columns were drawn and stored."""
        self.write_json("meta.json", {**self.read_json("meta.json"), "released": True})

    def _may_be_repeated(self, party: str, role: str) -> bool:
        """Whether an earlier attempt left nothing, or left what only this passive party can send again."""
        if not (self.path / "meta.json").exists():
            return False
        if self.has_released:
            meta = self.read_json("meta.json")
            return role == "passive" and (meta.get("party"), meta.get("role")) == (party, role)
        return not (self.path / "model.json").exists()

    def finish(self, **facts: object) -> None:
        """Note the end of the run, and facts about it."""
        self.write_json("meta.json", {**self.read_json("meta.json"), "finished": _now(), **facts})

    def save_joint_model(self, model: JointModel) -> None:
        """Keep the active party's share of a model."""
        self.write_json("guarantee.json", {peer: promise.to_dict() for peer, promise in model.guarantees.items()})
        self.write_json("partners.json", {peer: router_to_dict(router) for peer, router in model.routers.items()})
        if model.history.scores:
            self.write_json("history.json", {"best_round": model.history.best_round, "scores": model.history.scores})
        with _replacing(self.path / "model.json") as partial:
            save_model(model.ensemble, partial)

    def load_joint_model(self) -> JointModel:
        """Read the active party's share of a model."""
        self._require_model()
        return JointModel(
            ensemble=load_model(self.path / "model.json"),
            guarantees={peer: guarantee_from_dict(doc) for peer, doc in self.read_json("guarantee.json").items()},
            routers={peer: router_from_dict(doc) for peer, doc in self.read_json("partners.json").items()},
        )

    def save_router(self, router: Router, guarantee: Guarantee) -> None:
        """Keep a passive party's share of a model."""
        document = {"format": ROUTER_FORMAT, "version": ROUTER_VERSION, **router_to_dict(router)}
        self.write_json("guarantee.json", guarantee.to_dict())
        self.write_json("model.json", document)

    def load_router(self) -> Router:
        """Read a passive party's share of a model."""
        self._require_model()
        document = self.read_json("model.json")
        if document.get("format") != ROUTER_FORMAT or document.get("version") != ROUTER_VERSION:
            raise RunFolderError(
                f"{self.path / 'model.json'} is not an {ROUTER_FORMAT} file of version {ROUTER_VERSION}"
            )
        return router_from_dict(document)

    def write_json(self, name: str, document: Any) -> None:
        """Write a JSON file as a whole."""
        with _replacing(self.path / name) as partial:
            partial.write_text(json.dumps(document, indent=2, allow_nan=False) + "\n")

    def read_json(self, name: str) -> Any:
        """Read one of the folder's JSON files."""
        try:
            return json.loads((self.path / name).read_text())
        except OSError as error:
            raise RunFolderError(f"{self.path / name} cannot be read: {error.strerror}") from None
        except ValueError:
            raise RunFolderError(f"{self.path / name} is not JSON") from None

    def _require_model(self) -> None:
        if not (self.path / "model.json").exists():
            raise RunFolderError(f"{self.path} holds no trained model; train the run first")


def write_predictions(predictions: pd.DataFrame, path: Path) -> None:
    """Write predictions keyed by id, as CSV or Parquet by the file's name; an existing file is never replaced."""
    if path.exists():
        raise RunFolderError(f"{path} exists; give another file with --out. Nothing was written")
    try:
        with _replacing(path) as partial:
            if path.suffix == ".parquet":
                predictions.to_parquet(partial, index=False)
            else:
                predictions.to_csv(partial, index=False)
    except OSError as error:
        raise RunFolderError(f"{path} cannot be written: {error.strerror or type(error).__name__}") from None


@contextmanager
def _replacing(path: Path) -> Iterator[Path]:
    """Where to write a file that takes its place as a whole: a crash leaves the old one or the new one."""
    partial = path.with_name(f".{path.name}.partial")
    yield partial
    partial.replace(path)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
