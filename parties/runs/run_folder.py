"""Run folder: the files of one run at one party.

==================  ====================================================================================
file                content
==================  ====================================================================================
``config.yaml``     the run file; ``schema.yaml``: the schema, by which whoever has a model reads its columns
``meta.json``       party, role, versions, start, end, digests of its model; B: of its whole file, for the next attempt
``log.jsonl/txt``   steps, and every message with size and digest; of who predicts or serves in ``messages.jsonl``
``progress.json``   how far the step at hand is, at most a second ago
``order.share``     this party's random bytes towards the order in which ranks travel (`parties.vertical.alignment`)
``journal/``        A and a coordinator, while the run is on; of A then ``received/``, with the ranks for `opboost tune`
``model.json``      A: the ensemble. B: its router (columns, mechanisms, tests with thresholds)
``guarantee.json``  what the releases of the run promise; ``partners.json``: at A, routers that passive parties shared
``history.json``    A only: scores of validation rows by round; ``uses.json``: what columns add (`opboost scout`)
``held_out.json``   A only: scores of held-out records; their key is kept for all runs (`parties.vertical.held_out`)
``fit.json``        A and owners of rows: how predictions compare with labels, in training and wherever known later
``release.json``    A only: digests of the released columns, by which a run that continues this one knows them
``trainings.json``  per peer, a digest of the release and of the tests that were asked for
``noise.json``      A only: what of noised columns the trees were grown on; ``labels.json``: of labels
``metrics.json``    scores; ``report.html``, ``report.json``: the same facts for people and programs (`parties.reports`)
``predictions.csv`` whoever has a model; meanwhile ``predicting.json``; ``tuning/``, ``scorecard/``: of these commands;
                    ``predictions.1a2b3c4d.csv``: such as could not be written where they were to go
``answers.json``    a worker: what it answered for; ``drawing.json``: the public bits that it helped to draw;
                    ``trees.json``: S-GBDT's, as in training (`parties.runs.row_stream`)
``coins.json``      an owner in a chain, with ``turns/``: see `parties.horizontal.chain.checkpoint`
==================  ====================================================================================

Shares, answers, drawings, coins and turns are kept twice, as ``*.copy`` too (`parties.storage.twice_kept`).
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from opboost.fit_quality import FitQuality
from opboost.fitting.noised_table import NoiseChoice
from opboost.privacy.guarantee import Guarantee
from opboost.routing import Router
from opboost.trees.model_file import load_model, save_model
from opboost.trees.tree import Ensemble
from parties.errors import RunFolderError
from parties.runs.config_diff import changes
from parties.runs.installed_versions import installed_versions
from parties.runs.joint_model import TRAININGS_FILE, JointModel
from parties.runs.journal import FOLDER, Journal
from parties.runs.model_share import check_shares, router_document, router_of, share_digests
from parties.storage.atomic_files import copy, is_half_written, replacing, sweep, write_json
from parties.storage.folder_lock import locked
from parties.storage.paths import is_there, read_json, writing
from parties.storage.serialization import guarantee_from_dict, router_from_dict, router_to_dict
from protocols.messages.fields import Digest
from protocols.private_files import private_folder

T = TypeVar("T")

# Has what noise on labels promises, from before the parties agree to train.
LABELS_FILE = "labels.json"

_FITS = TypeAdapter(dict[str, FitQuality])
_TRAININGS = TypeAdapter(dict[str, Digest])


class RunState(StrEnum):
    """State of a run folder before a job uses it."""

    NEW = "new"
    UNFINISHED = "unfinished"
    FINISHED = "finished"


class RunFolder:
    """One run's files on disk, at a path."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def create(self, config: Path, *, party: str, role: str) -> RunState:
        """Create the folder and note the start, or resume an unfinished run of the same run file.

        Where an earlier attempt has neither released nor received anything, the folder is as good as new.

        Raises
        ------
        RunFolderError
            If the folder holds somebody else's files, or a run of another run file.
        """
        state = self.state(config, party=party, role=role)
        has_released = self.has_released
        if state is RunState.FINISHED:
            return state
        with writing(self.path):
            private_folder(self.path)
            # An earlier version, or whoever made the folder beforehand, may have left it open to others.
            self.path.chmod(0o700)
            sweep(self.path)
            if state is RunState.NEW:
                shutil.rmtree(self.path / FOLDER, ignore_errors=True)
                (self.path / LABELS_FILE).unlink(missing_ok=True)
        before = self.read_json("meta.json") if state is RunState.UNFINISHED else {}
        self.write_json(
            "meta.json",
            {
                "party": party,
                "role": role,
                "started": before.get("started", _now()),
                "resumed": [*before.get("resumed", []), _now()] if before else [],
                "finished": None,
                "released": has_released,
                "inputs": before.get("inputs"),
                "records": before.get("records"),
                **installed_versions(),
            },
        )
        # After the note of the start, without which a folder that holds anything counts as somebody else's.
        copy(config, self.path / "config.yaml")
        return state

    def state(self, config: Path, *, party: str, role: str) -> RunState:
        """State of the folder for a run of this run file; nothing is changed.

        Raises
        ------
        RunFolderError
            As for `create`.
        """
        with writing(self.path):
            if not self.path.exists() or all(map(is_half_written, self.path.iterdir())):
                return RunState.NEW
        taken = RunFolderError(f"{self.path} holds a run already; choose another run_id. Nothing was sent")
        if not (meta := self._if_there("meta.json")):
            raise taken
        keeps = self.has_released if role != "active" else Journal.has_received(self.path)
        # A worker fetches the model of a run in which it answered nothing, too.
        keeps |= role == "worker" and self.has_model
        is_finished = meta.get("finished") is not None
        if not (keeps or is_finished or self.has_model or self.has_released):
            return RunState.NEW
        if (meta.get("party"), meta.get("role")) != (party, role) or not (keeps or is_finished):
            raise taken
        if differences := changes(self.path / "config.yaml", config):
            what = "a run" if is_finished else "the beginning of a run"
            raise RunFolderError(
                f"{self.path} holds {what} of another run file: {'; '.join(differences)}. Bring it back or choose "
                "another run_id. Nothing was sent"
            )
        return RunState.FINISHED if is_finished else RunState.UNFINISHED

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Lock the folder against a second process; the lock ends with the process, however that ends.

        Raises
        ------
        RunFolderError
        """
        with writing(self.path):
            private_folder(self.path)
        with locked(self.path) as is_alone:
            if not is_alone:
                raise RunFolderError(f"another process works on the run in {self.path} now. Nothing was sent")
            yield

    @property
    def has_released(self) -> bool:
        """Whether this run's release was drawn and stored: from then on it is never drawn anew."""
        return is_there(self.path / "meta.json") and self.read_json("meta.json").get("released") is not False

    def note_inputs(self, digest: str) -> None:
        """Keep the digest of a passive party's whole file, or compare it with what this run has released from.

        Called before the parties meet: a refusal must not depend on which of the records are common.

        Raises
        ------
        RunFolderError
        """
        meta = self.read_json("meta.json")
        if self.has_released and meta.get("inputs") not in (None, digest):
            raise RunFolderError(
                f"{self.path} holds a run that has released other records or cells than the data file holds now; bring "
                "them back or choose another run_id. Nothing was sent"
            )
        self.write_json("meta.json", {**meta, "inputs": digest})

    def mark_release(self, records: str | None = None) -> None:
        """Note, before anything is sent, that this run's columns were drawn and stored, and of which records."""
        self.write_json("meta.json", {**self.read_json("meta.json"), "released": True, "records": records})

    @property
    def released_records(self) -> str | None:
        """The digest that `mark_release` noted; None before, and of a run of an earlier version."""
        return self.read_json("meta.json").get("records")

    @property
    def is_finished(self) -> bool:
        """Whether this is the folder of a finished run."""
        return self._if_there("meta.json").get("finished") is not None

    @property
    def has_model(self) -> bool:
        """Whether a model, or a share of one, is saved."""
        return is_there(self.path / "model.json")

    def finish(self, **facts: object) -> None:
        """Note the end of the run, the files of its share of a model, and facts about it."""
        ended = {"finished": _now(), "shares": share_digests(self.path)}
        self.write_json("meta.json", {**self.read_json("meta.json"), **ended, **facts})

    def save_joint_model(self, model: JointModel) -> None:
        """Keep the active party's share of a model."""
        self.write_json("guarantee.json", {peer: promise.to_dict() for peer, promise in model.guarantees.items()})
        self.write_json("partners.json", {peer: router_to_dict(router) for peer, router in model.routers.items()})
        for name, document in model.documents().items():
            self.write_json(name, document)
        for fit in model.fits:
            self.note_fit(fit)
        self.save_ensemble(model.ensemble)

    def save_ensemble(self, ensemble: Ensemble, name: str = "model.json") -> None:
        """Keep the trees of a model."""
        with replacing(self.path / name) as partial:
            save_model(ensemble, partial)

    def load_ensemble(self) -> Ensemble:
        """Read the trees of a model."""
        self._require_model()
        return load_model(self.path / "model.json")

    def note_fit(self, fit: FitQuality) -> None:
        """Keep how predictions compare with labels, in place of what was noted before on the same basis."""
        self.write_json("fit.json", {**self._if_there("fit.json"), fit.basis: asdict(fit)})

    def load_fits(self) -> tuple[FitQuality, ...]:
        """Read what `note_fit` kept."""
        return tuple(self._checked("fit.json", _FITS).values())

    def load_joint_model(self) -> JointModel:
        """Read the active party's share of a model."""
        ensemble, of_noise = self.load_ensemble(), self._if_there("noise.json")
        choice, n_own = of_noise.get("choice"), of_noise.get("own_trees")
        return JointModel(
            ensemble=ensemble,
            guarantees={peer: guarantee_from_dict(doc) for peer, doc in self.read_json("guarantee.json").items()},
            routers={peer: router_from_dict(doc) for peer, doc in self.read_json("partners.json").items()},
            choice=NoiseChoice(choice) if choice in tuple(NoiseChoice) else None,
            n_own_trees=n_own if type(n_own) is int else 0,
            release=self._if_there("release.json"),
            trainings=self.load_trainings(),
        )

    def save_router(self, router: Router, guarantee: Guarantee) -> None:
        """Keep a passive party's share of a model."""
        self.write_json("guarantee.json", guarantee.to_dict())
        self.write_json("model.json", router_document(router))

    def load_router(self) -> Router:
        """Read a passive party's share of a model."""
        self._require_model()
        return router_of(self.read_json("model.json"), self.path / "model.json")

    def load_trainings(self) -> dict[str, str]:
        """Per peer, which training the share of a model is of; empty if it was trained before that was noted."""
        return self._checked(TRAININGS_FILE, _TRAININGS)

    def write_json(self, name: str, document: Any) -> None:
        """Write a JSON file as a whole."""
        write_json(self.path / name, document)

    def read_json(self, name: str) -> dict[str, Any]:
        """Read one of the folder's JSON files, each of which holds an object."""
        return read_json(self.path / name)

    def _checked(self, name: str, content: TypeAdapter[T]) -> T:
        try:
            return content.validate_python(self._if_there(name))
        except ValidationError:
            raise RunFolderError(f"{self.path / name} is malformed; bring a copy of it back") from None

    def _if_there(self, name: str) -> dict[str, Any]:
        return self.read_json(name) if is_there(self.path / name) else {}

    def _require_model(self) -> None:
        if not self.has_model:
            raise RunFolderError(f"{self.path} holds no trained model; train the run first")
        check_shares(self.path)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
