"""What a finished run's folder says of it: who saw what, at what cost, and how good the model is.

Each side's facts are its own. A's hold statistics of its labels and the trees' importance, and of B what B released.
B's hold its columns' names and how many thresholds are used, and nothing else of the trees.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from opboost.fit_quality import FitQuality
from opboost.privacy.guarantee import Guarantee
from opboost.trees.tree import Ensemble
from parties.config import ActiveRun, PassiveRun, read_role, read_run
from parties.encoding import guarantee_from_dict
from parties.errors import RunFolderError
from parties.horizontal_config import HorizontalRun
from parties.reports.sentences import column_sentence
from parties.statement import Statement, read_statement
from parties.store import RunFolder

# The folders before a file's name, where they hold no spaces; an address such as tcp://host:port is none.
_FOLDERS = re.compile(r"(?<![\w:/.])/(?:[^/\s]+/)+")


@dataclass(frozen=True, slots=True, kw_only=True)
class OutgoingMessage:
    """One line of the audit list: that something left, never what.

    Attributes
    ----------
    time, peer, kind, sha256 : str
    bytes : int
    """

    time: str
    peer: str
    kind: str
    bytes: int
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A step of the run: when, how many seconds after this process began, and in words."""

    time: str
    seconds: float
    event: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RunHistory:
    """What both roles can tell of a run.

    Attributes
    ----------
    party, run_id : str
    peers : tuple of str
    started, finished : str
    resumed : tuple of str
    n_records, sent_bytes, received_bytes : int
    versions : dict of str to str
        Of Python, the packages and the protocol.
    randomness : str
        Where it came from. A's seed serves sampling and is told; a seed of noise is not.
    steps : tuple of Step
    outgoing : tuple of OutgoingMessage
        Everything that left, in order; over all attempts at this run, and predictions.
    """

    party: str
    run_id: str
    peers: tuple[str, ...]
    started: str
    finished: str
    resumed: tuple[str, ...]
    n_records: int
    sent_bytes: int
    received_bytes: int
    versions: dict[str, str]
    randomness: str
    steps: tuple[Step, ...]
    outgoing: tuple[OutgoingMessage, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Importance:
    """How much a column matters to the trees.

    Attributes
    ----------
    column : str
        A passive party's under the name that it goes by: a number, unless its owner names it.
    owner : str
        The passive party, or empty for A.
    share : float
        Of the total gain of all splits.
    n_splits : int
    """

    column: str
    owner: str
    share: float
    n_splits: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ActiveFacts:
    """A's side of a run.

    Attributes
    ----------
    history : RunHistory
    guarantees : dict of str to Guarantee
        By passive party.
    objective : str
    n_trees : int
    settings : dict
        The run file's `model` section.
    fits : tuple of FitQuality
        In training, and of predictions where labels were known.
    importance : tuple of Importance
        Most important first.
    shares_thresholds : tuple of str
        Passive parties that let A score alone.
    """

    history: RunHistory
    guarantees: dict[str, Guarantee]
    objective: str
    n_trees: int
    settings: dict[str, Any]
    fits: tuple[FitQuality, ...]
    importance: tuple[Importance, ...]
    shares_thresholds: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class UsedColumn:
    """A passive party's column: its promise in words, and how many of its thresholds the trees use."""

    column: str
    sentence: str
    n_tests: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PassiveFacts:
    """B's side of a run.

    Attributes
    ----------
    history : RunHistory
    guarantee : Guarantee
    columns : tuple of UsedColumn
    ledger : Statement or None
    shared_thresholds, allows_routed : bool
    """

    history: RunHistory
    guarantee: Guarantee
    columns: tuple[UsedColumn, ...]
    ledger: Statement | None
    shared_thresholds: bool
    allows_routed: bool


def run_facts(path: Path) -> ActiveFacts | PassiveFacts:
    """Collect the facts of a finished run.

    Raises
    ------
    RunFolderError
        If the run is not finished, or its folder is damaged.
    LedgerError
        If a passive party's ledger cannot be trusted.
    """
    if read_role(path) == "active":
        return _active_facts(read_run(path, ActiveRun))
    return _passive_facts(read_run(path, PassiveRun), path)


def is_finished(run_folder: Path) -> bool:
    """Whether a folder holds a finished run."""
    if not (run_folder / "meta.json").exists():
        return False
    return RunFolder(run_folder).read_json("meta.json").get("finished") is not None


def _active_facts(run: ActiveRun) -> ActiveFacts:
    folder = RunFolder(run.run_folder)
    model, meta = folder.load_joint_model(), _meta(folder)
    seed = run.model.seed if run.model.seed is not None else meta.get("seed")
    return ActiveFacts(
        history=run_history(run, tuple(peer.name for peer in run.passive), folder, f"seed of sampling: {seed}"),
        guarantees=model.guarantees,
        objective=model.ensemble.loss.name,
        n_trees=len(model.ensemble.trees),
        settings=run.model.model_dump(exclude_unset=True),
        fits=folder.load_fits(),
        importance=importance_of(model.ensemble)[0],
        shares_thresholds=tuple(sorted(model.routers)),
    )


def _passive_facts(run: PassiveRun, path: Path) -> PassiveFacts:
    folder = RunFolder(run.run_folder)
    router = folder.load_router()
    drawn = "noise from the operating system's entropy" if run.seed is None else "SEEDED NOISE: not for release"
    sources = [source for source, _ in router.tests.sources]
    return PassiveFacts(
        history=run_history(run, (run.active.name,), folder, drawn),
        guarantee=guarantee_from_dict(folder.read_json("guarantee.json")),
        columns=tuple(
            UsedColumn(
                column=mechanism.schema.name,
                sentence=column_sentence(mechanism),
                n_tests=sources.count(mechanism.schema.name),
            )
            for mechanism in router.mechanisms
        ),
        ledger=read_statement(path, None) if run.ledger.path.exists() else None,
        shared_thresholds=run.share_thresholds,
        allows_routed=run.allow_routed,
    )


def _meta(folder: RunFolder) -> dict[str, Any]:
    meta: dict[str, Any] = folder.read_json("meta.json")
    if meta.get("finished") is None:
        raise RunFolderError(f"{folder.path} holds no finished run; there is nothing to report yet")
    return meta


def run_history(
    run: ActiveRun | PassiveRun | HorizontalRun, peers: tuple[str, ...], folder: RunFolder, randomness: str
) -> RunHistory:
    """What any role can tell of a run.

    Raises
    ------
    RunFolderError
        If the run is not finished, or its folder is damaged.
    """
    meta, lines = _meta(folder), log_lines(folder)
    try:
        return RunHistory(
            party=run.party,
            run_id=run.run_id,
            peers=peers,
            started=meta["started"],
            finished=meta["finished"],
            resumed=tuple(meta.get("resumed", ())),
            n_records=meta.get("n_rows", 0),
            sent_bytes=meta.get("sent_bytes", 0),
            received_bytes=meta.get("received_bytes", 0),
            versions={"protocol": str(meta["protocol_version"]), "python": meta["python"], **meta["packages"]},
            randomness=randomness,
            steps=tuple(_step(line, run) for line in lines if "message" in line),
            outgoing=tuple(_outgoing(line) for line in lines if line["event"] == "sent"),
        )
    except (KeyError, TypeError):
        raise RunFolderError(f"the log or the meta data in {folder.path} are malformed") from None


def log_lines(folder: RunFolder) -> list[dict[str, Any]]:
    """A folder's log, line by line.

    Raises
    ------
    RunFolderError
    """
    path, found = folder.path / "log.jsonl", []
    try:
        text = path.read_text()
    except OSError as error:
        raise RunFolderError(f"{path} cannot be read: {error.strerror}") from None
    for line in text.splitlines():
        # A crash may have cut a line short.
        with suppress(ValueError):
            found.append(json.loads(line))
    return found


def _step(line: Mapping[str, Any], run: ActiveRun | PassiveRun | HorizontalRun) -> Step:
    """A step without the folders of files, which are nobody's business who gets the report."""
    message = str(line["message"])
    for path in (run.run_folder, getattr(run, "data", run.run_folder), run.table_schema):
        message = message.replace(f"{path.parent}/", "")
    message = _FOLDERS.sub("", message)
    return Step(time=line["time"], seconds=line["seconds"], event=line["event"], message=message)


def _outgoing(line: Mapping[str, Any]) -> OutgoingMessage:
    return OutgoingMessage(
        time=line["time"], peer=line["peer"], kind=line["kind"], bytes=line["bytes"], sha256=line["sha256"]
    )


def importance_of(ensemble: Ensemble) -> tuple[tuple[Importance, ...], bool]:
    """Gain and splits summed over the tests of each column; and whether the trees know gains.

    Where they do not, shares are of the splits.
    """
    has_gains = any(tree.gains.any() for tree in ensemble.trees)
    gains: dict[tuple[str, str], list[float]] = {}
    pairs = zip(
        ensemble.importance("total_gain" if has_gains else "split").tolist(),
        ensemble.importance("split").tolist(),
        strict=True,
    )
    for feature, (gain, n_splits) in zip(ensemble.features, pairs, strict=True):
        sums = gains.setdefault((feature.name, feature.owner or ""), [0.0, 0.0])
        sums[0] += gain
        sums[1] += n_splits
    total = sum(gain for gain, _ in gains.values()) or 1.0
    found = (
        Importance(column=name, owner=owner, share=gain / total, n_splits=round(n_splits))
        for (name, owner), (gain, n_splits) in gains.items()
    )
    return tuple(sorted(found, key=lambda one: (-one.share, one.owner, one.column))), has_gains
