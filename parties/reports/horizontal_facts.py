"""Facts of a finished horizontal run: privacy accounting, participants, outgoing messages, importance.

A coordinator's facts, and what is here of trees and of the account, are within the model's promise. Scores are not:
they are statistics of the labels of an owner's own records, or of others that were scored here.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from opboost.fit_quality import FitQuality
from opboost.horizontal.inprivate.owners import InPrivateAmongOwners
from opboost.privacy.record_guarantee import RecordGuarantee
from opboost.privacy.releases import Release
from parties.config.horizontal import CoordinatorRun
from parties.config.reading import check_schema_of_run, read_schema
from parties.config.record_runs import (
    RecordRecipe,
    RecordRun,
    are_new_alone,
    charge_of,
    peers_of,
    read_record_run,
    recipe_of,
)
from parties.errors import RunFolderError
from parties.ledger.model_ledger import LedgerPosition, ledger_position
from parties.reports.horizontal_account import AccountFacts, account_facts
from parties.reports.horizontal_words import Observer, observers_of
from parties.reports.log_lines import log_lines
from parties.reports.run_facts import Importance, importance_of
from parties.reports.run_history import RunHistory, run_history
from parties.runs.config_diff import changes
from parties.runs.run_folder import RunFolder

_ABSENCES = ("dropped out", "returned", "resumed", "wrong share")


@dataclass(frozen=True, slots=True, kw_only=True)
class Participant:
    """A peer, by the messages in the log.

    Attributes
    ----------
    name : str
    n_rounds : int or None
        Sums that it is in, as a coordinator knows; None if that was not noted.
    sent_bytes, received_bytes : int
        To and from this party, over all attempts and later messages.
    """

    name: str
    n_rounds: int | None
    sent_bytes: int
    received_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordTerms:
    """Facts that follow from a run file, before the run as after it.

    Attributes
    ----------
    role : str
    account : AccountFacts
    observers : tuple of Observer
    ledger : LedgerPosition or None
        None at a coordinator.
    settings : dict of str to plain values
        What was agreed.
    """

    role: str
    account: AccountFacts
    observers: tuple[Observer, ...]
    ledger: LedgerPosition | None
    settings: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordFacts(RecordTerms):
    """Facts of a finished run, as one party knows them.

    Attributes
    ----------
    history : RunHistory
    has_answered : bool
        Whether anything of the party's records was released in the run.
    objective : str
    n_trees : int
    n_rounds : int or None
        Of secure aggregation; None in a chain.
    questions : dict of str to int
        Kind of question, and how often it was asked of one worker; empty in a chain.
    participants : tuple of Participant
    absences : tuple of (str, str)
        When somebody dropped out, came back or sent a wrong share, and the sentence of the log.
    importance : tuple of Importance
    has_gains : bool
        Whether the trees tell how much a split gained; otherwise shares are of the splits.
    fits : tuple of FitQuality
        On the party's own rows, in training, and of later predictions, which a coordinator may make, too.
    """

    history: RunHistory
    has_answered: bool
    objective: str
    n_trees: int
    n_rounds: int | None
    questions: dict[str, int]
    participants: tuple[Participant, ...]
    absences: tuple[tuple[str, str], ...]
    importance: tuple[Importance, ...]
    has_gains: bool
    fits: tuple[FitQuality, ...]


def record_terms(run: RecordRun, recipe: RecordRecipe, promise: RecordGuarantee) -> dict[str, Any]:
    """Collect the fields of `RecordTerms`.

    Raises
    ------
    LedgerError
        If a worker's ledger cannot be used.
    """
    return {
        "role": run.role,
        "account": account_facts(promise, releases_of(recipe)),
        "observers": observers_of(run.training, promise, are_new_alone=are_new_alone(recipe)),
        "ledger": None
        if isinstance(run, CoordinatorRun)
        else ledger_position(run.ledger.path, run.ledger.budget, charge_of(run, recipe)),
        "settings": run.training.agreed(exclude_none=True),
    }


def record_facts(path: Path) -> RecordFacts:
    """Collect the facts of a finished run.

    Raises
    ------
    RunFolderError
        If the run is not finished, its folder is damaged, or the run file's settings are not the run's any more.
    LedgerError
        If a worker's ledger cannot be used.
    """
    run = read_record_run(path)
    folder = RunFolder(run.run_folder)
    _check_unchanged(run, folder, path)
    schema, _ = read_schema(run.table_schema)
    recipe = recipe_of(run, schema, path)
    drawn = "noise from the operating system's entropy" if run.seed is None else "SEEDED NOISE: not for release"
    history = run_history(run, peers_of(run), folder, drawn)
    promise = recipe.guarantee(is_secure=folder.read_json("guarantee.json").get("is_secure") is True)
    model, lines, is_chain = folder.load_ensemble(), log_lines(folder), run.role == "owner"
    importance, has_gains = importance_of(model)
    return RecordFacts(
        **record_terms(run, recipe, promise),
        history=history,
        # Runs of earlier versions, and chains, have not noted it.
        has_answered=folder.read_json("meta.json").get("has_answered", folder.has_released),
        objective=model.loss.name,
        n_trees=len(model.trees),
        n_rounds=None if is_chain else _rounds(run, folder, lines),
        questions={} if is_chain else _questions(run, lines),
        participants=_participants(run, folder, lines),
        absences=tuple((line["time"], line["message"]) for line in lines if line["event"] in _ABSENCES),
        importance=importance,
        has_gains=has_gains,
        fits=folder.load_fits(),
    )


def _check_unchanged(run: RecordRun, folder: RunFolder, path: Path) -> None:
    """Refuse settings by which the run promised something else than a report would say."""
    check_schema_of_run(run)
    differences = changes(folder.path / "config.yaml", path)
    others = [change for change in differences if change.startswith(("training", "seed"))]
    # Whether workers know each other follows from other keys where `training` does not say it.
    if not others and read_record_run(folder.path / "config.yaml").training != run.training:
        others = [change for change in differences if change.startswith("secret_key")]
    if others:
        raise RunFolderError(
            f"{folder.path} holds a run of other settings: {'; '.join(others)}. Bring them back for its report. "
            "Nothing was written"
        )


def releases_of(recipe: RecordRecipe) -> tuple[Release, ...]:
    """Releases that a recipe's privacy accounting composes."""
    return recipe.releases if isinstance(recipe, InPrivateAmongOwners) else recipe.noise.releases


def _participants(run: RecordRun, folder: RunFolder, lines: list[dict[str, Any]]) -> tuple[Participant, ...]:
    """Peers with a connection; a worker has one to the coordinator alone."""
    n_bytes = Counter[tuple[str, str]]()
    for line in lines:
        if line["event"] in ("sent", "received"):
            n_bytes[line["event"], line["peer"]] += line["bytes"]
    names = peers_of(run)[:1] if run.role == "worker" else peers_of(run)
    rounds_of = folder.read_json("meta.json").get("rounds_of")
    return tuple(
        Participant(
            name=name,
            n_rounds=None if rounds_of is None else rounds_of.get(name, 0),
            sent_bytes=n_bytes["sent", name],
            received_bytes=n_bytes["received", name],
        )
        for name in names
    )


def _rounds(run: RecordRun, folder: RunFolder, lines: list[dict[str, Any]]) -> int:
    """Rounds of secure aggregation: all of them at the coordinator, those that it answered at a worker."""
    if isinstance(run, CoordinatorRun):
        return int(folder.read_json("meta.json").get("n_rounds", 0))
    return sum(line["event"] == "sent" and line["kind"] == "masked" for line in lines)


def _questions(run: RecordRun, lines: list[dict[str, Any]]) -> dict[str, int]:
    """Questions by kind; at the coordinator, of the worker that was asked most."""
    heard = "sent" if isinstance(run, CoordinatorRun) else "received"
    asked = Counter((line["kind"], line["peer"]) for line in lines if line["event"] == heard)
    found: dict[str, int] = {}
    for (kind, _), count in asked.items():
        if kind in ("want totals", "want histograms"):
            found[kind] = max(found.get(kind, 0), count)
    return found
