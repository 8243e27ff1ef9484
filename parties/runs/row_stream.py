"""Row stream: what a finished run of several owners tells a run that goes on from it with records that arrived since.

It stands under ``stream`` in a run's ``meta.json``. A worker of S-GBDT keeps ``trees.json`` as well, since the leaves
of a model are in the unit of the labels, and what records have paid depends on every bit of the scores in training.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from pydantic import JsonValue, TypeAdapter, ValidationError

from opboost.horizontal.rows.stream import Arrival, EarlierTraining, n_arrived
from opboost.trees.model_file import document_digest, load_model
from parties.errors import RunFolderError
from parties.runs.model_share import TREES_FILE, check_shares, noted_shares
from parties.runs.run_folder import RunFolder


@dataclass(frozen=True, slots=True, kw_only=True)
class RowStream:
    """A finished run, as one that goes on from it needs it.

    Attributes
    ----------
    run : str
        Its `run_id`.
    terms : str
        Digest of what was agreed (`lasting_digest`).
    noise : tuple of (float, float), optional
        Of S-GBDT, deviations of the noise on sums of g and of h, in which records pay.
    rows : str
        Digest of a worker's rows that have trained; empty at a coordinator.
    arrivals : tuple of Arrival
        Of these rows.
    n_records : int
        Of the recommended recipe, about how many records of all owners the model has seen.
    holder : str
        Of a worker's charge for the run in its ledger.
    charged_run : str
        The earlier run whose charge that is, if the worker answered nothing in this one.
    """

    run: str
    terms: str
    noise: tuple[float, float] | None = None
    rows: str = ""
    arrivals: tuple[Arrival, ...] = ()
    n_records: int = 0
    holder: str = ""
    charged_run: str = ""

    @classmethod
    def of(cls, folder: RunFolder, role: str) -> RowStream:
        """Read what a finished run of this role left.

        Raises
        ------
        RunFolderError
            If the folder holds none that a run can go on from.
        """
        if not folder.is_finished:
            raise RunFolderError(f"{folder.path} holds no finished run to go on from. Nothing was sent")
        meta = folder.read_json("meta.json")
        if meta.get("role") != role or "stream" not in meta:
            raise RunFolderError(
                f"{folder.path} holds a run that none can go on from: it needs one of `recipe: recommended` or `sgbdt` "
                f"on rows in one file, and of this role ({role}). Nothing was sent"
            )
        malformed = RunFolderError(f"{folder.path / 'meta.json'} is malformed. Nothing was sent")
        try:
            found = _STREAM.validate_python(meta["stream"])
        except ValidationError:
            raise malformed from None
        # Runs of earlier builds kept none.
        if meta["stream"].get("digest", found.digest) != found.digest:
            raise RunFolderError(
                f"{folder.path / 'meta.json'} does not say of the run's rows what was written at its end: its digest "
                "is another one. Bring a copy of it back. Nothing was sent"
            )
        if role == "worker" and not found.rows:
            raise malformed
        return found

    @property
    def n_rows(self) -> int:
        """A worker's rows that have trained: its first ones."""
        return n_arrived(self.arrivals)

    @property
    def digest(self) -> str:
        """Digest of all fields, so that no number can be changed: earlier rows would then train a second time."""
        # Runs of earlier builds kept neither.
        newer = ("holder", "charged_run")
        return document_digest({name: value for name, value in asdict(self).items() if value or name not in newer})

    @property
    def facts(self) -> dict[str, Any]:
        """All fields as plain values, with their digest."""
        return {**asdict(self), "digest": self.digest}

    def check_account(self, folder: RunFolder) -> None:
        """Refuse a worker's run whose records go on paying, and of whose trees no digest was noted.

        Raises
        ------
        RunFolderError
        """
        if self.rows and TREES_FILE not in (noted_shares(folder.path) or {}):
            raise RunFolderError(
                f"{folder.path} holds a run of an earlier version of opboost, which noted no digest of {TREES_FILE}: "
                "what its records have spent of their budgets follows from that file, and whether it is this run's is "
                "not known. Train anew without `continue_from`. Nothing was sent"
            )

    def training(self, folder: RunFolder) -> EarlierTraining:
        """The run's training, of which a worker of S-GBDT has the trees on the scale of training, too.

        Raises
        ------
        RunFolderError, ModelFileError
            Also where a file is not the one with which the run ended.
        """
        check_shares(folder.path)
        document = folder.read_json("model.json")
        document.pop("digest", None)
        model = load_model(folder.path / "model.json")
        has_trees = bool(self.rows) and self.noise is not None
        trees = load_model(folder.path / TREES_FILE).trees if has_trees else ()
        if has_trees and len(trees) != len(model.trees):
            raise RunFolderError(f"{folder.path / TREES_FILE} has other trees than the model. Nothing was sent")
        return EarlierTraining(
            run=self.run,
            model=model,
            digest=document_digest(document),
            trees=trees,
            arrivals=self.arrivals,
            n_records=self.n_records,
            charged_run=self.charged_run or self.run,
            charge_holder=self.holder,
        )


_STREAM = TypeAdapter(RowStream)


def terms_digest(terms: Mapping[str, JsonValue]) -> str:
    """Digest of terms, independent of their order."""
    return document_digest(dict(sorted(terms.items())))


def lasting_digest(terms: Mapping[str, JsonValue]) -> str:
    """Digest of the terms that a continued run must keep: all but the approximate number of records."""
    return terms_digest({name: term for name, term in terms.items() if name != "recommended.records"})
