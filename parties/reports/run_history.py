"""Run history of any role: steps, versions and outgoing messages, from the log and the meta data."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from parties.config.horizontal import HorizontalRun
from parties.config.vertical import ActiveRun, PassiveRun
from parties.errors import RunFolderError
from parties.reports.log_lines import in_time, read_parts
from parties.runs.run_folder import RunFolder
from parties.runs.run_log import CELL_COUNTS

# The folders before a file's name, where they hold no spaces; an address such as tcp://host:port is none.
_FOLDERS = re.compile(r"(?<![\w:/.])/(?:[^/\s]+/)+")


# Steps of the log that are prediction jobs: of A, answered by B, and served by B.
_PREDICTIONS, _HELD_OUT = ("predicted", "answered", "session"), "held out"

# Steps of a passive party that begins to answer, and what it says at the end, when all of its answers are logged.
_ANSWERING = {"answering": "answered", "serving": "stopped"}


class RunMeta(BaseModel):
    """Meta data of a finished run, as its folder keeps them."""

    started: str
    finished: str
    resumed: list[str] = []
    n_rows: int = 0
    n_rounds: int = 0
    sent_bytes: int = 0
    received_bytes: int = 0
    seed: int | None = None
    protocol_version: int
    python: str
    packages: dict[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class OutgoingMessage:
    """An outgoing message in the audit list: size and digest, no content.

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
class PredictionJob:
    """A prediction job, from the log.

    Attributes
    ----------
    time, message : str
    n_records : int
        That were asked for.
    n_answered, n_routed_bits : int or None
        At a passive party: records that were answered, and exact bits that left.
    """

    time: str
    message: str
    n_records: int
    n_answered: int | None
    n_routed_bits: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunHistory:
    """History of a run at any role.

    Attributes
    ----------
    party, run_id : str
    peers : tuple of str
    started, finished : str
    resumed : tuple of str
    n_records : int
    sent_bytes, received_bytes : int
        In training, by all attempts at it.
    versions : dict of str to str
        Of Python, the packages and the protocol.
    randomness : str
        Where it came from. A's seed serves sampling and is told; a seed of noise is not.
    steps : tuple of Step
    outgoing : tuple of OutgoingMessage
        Everything that left, in order; over all attempts at this run, and predictions; but for what `n_dropped` counts.
    n_trained : int
        How many of these left before the run was finished.
    is_cut : bool
        Whether lines of the training are gone from the log, and others may be.
    n_dropped : int
        Messages of services, sent and received, of which the log keeps no line each any more.
    predictions : tuple of PredictionJob
    lacks_answers : bool
        Whether a passive party may have given more answers: it answers now, or was killed when it did.
    held_out : PredictionJob or None
        A passive party's answers about held-out records, in training; those of all attempts together.
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
    n_trained: int
    is_cut: bool
    n_dropped: int
    predictions: tuple[PredictionJob, ...]
    lacks_answers: bool
    held_out: PredictionJob | None


def meta_of(folder: RunFolder) -> RunMeta:
    """Read a finished run's meta data.

    Raises
    ------
    RunFolderError
        If the run is not finished, or they are not what a run writes.
    """
    meta: dict[str, Any] = folder.read_json("meta.json")
    if meta.get("finished") is None:
        raise RunFolderError(f"{folder.path} holds no finished run; there is nothing to report yet")
    try:
        return RunMeta.model_validate(meta, strict=True)
    except ValidationError as error:
        wrong = dict.fromkeys(str(problem["loc"][0]) for problem in error.errors())
        raise RunFolderError(f"{folder.path / 'meta.json'} is malformed at {', '.join(wrong)}") from None


def run_history(
    run: ActiveRun | PassiveRun | HorizontalRun, peers: tuple[str, ...], folder: RunFolder, randomness: str
) -> RunHistory:
    """Read the history of a run.

    Raises
    ------
    RunFolderError
        If the run is not finished, or its folder is damaged.
    """
    meta, parts = meta_of(folder), read_parts(folder)
    lines = in_time(parts)
    of_training = lines[: _end_of_training(lines)]
    sent, received = ([line for line in of_training if line["event"] == event] for event in ("sent", "received"))
    return RunHistory(
        party=run.party,
        run_id=run.run_id,
        peers=peers,
        started=meta.started,
        finished=meta.finished,
        resumed=tuple(meta.resumed),
        n_records=meta.n_rows,
        sent_bytes=max(meta.sent_bytes, _bytes(sent)),
        received_bytes=max(meta.received_bytes, _bytes(received)),
        versions={"protocol": str(meta.protocol_version), "python": meta.python, **meta.packages},
        randomness=randomness,
        steps=tuple(_step(line, run) for line in lines if "message" in line and line["event"] != CELL_COUNTS),
        outgoing=tuple(_outgoing(line) for line in lines if line["event"] == "sent"),
        n_trained=len(sent),
        is_cut=_is_cut(lines, meta),
        n_dropped=_dropped(parts, lines),
        predictions=tuple(_prediction(line, run) for line in lines if line["event"] in _PREDICTIONS),
        lacks_answers=isinstance(run, PassiveRun) and _lacks_answers(lines),
        held_out=_together([_prediction(line, run) for line in lines if line["event"] == _HELD_OUT]),
    )


def _dropped(parts: Mapping[Path, Sequence[object]], lines: Sequence[Mapping[str, Any]]) -> int:
    """Number of a service's messages in parts of their log that are gone: the last one alone is kept."""
    noted = sum(line.get("messages", 0) for line in lines if line["event"] == "messages")
    kept = (len(own) for part, own in parts.items() if part.name.startswith("messages.jsonl."))
    return max(0, noted - sum(kept))


def _step(line: Mapping[str, Any], run: ActiveRun | PassiveRun | HorizontalRun) -> Step:
    """A step without the folders of files, which a report does not show."""
    message = str(line["message"])
    for path in (run.run_folder, getattr(run, "data", run.run_folder), run.table_schema):
        message = message.replace(f"{path.parent}/", "")
    message = _FOLDERS.sub("", message)
    return Step(time=line["time"], seconds=line["seconds"], event=line["event"], message=message)


def _bytes(messages: Iterable[Mapping[str, Any]]) -> int:
    return sum(line["bytes"] for line in messages)


def _is_cut(lines: Sequence[Mapping[str, Any]], meta: RunMeta) -> bool:
    """Whether lines of the training are gone, of whichever attempt.

    Each process numbers its messages from 1 on, and all that took the run up are in the meta data; a log that begins
    with one of them lacks whatever came before.
    """
    end = _end_of_training(lines)
    if end is None or lines[0]["event"] == "resumed" or _bytes(_last_attempt(lines[:end])) < meta.sent_bytes:
        return True
    if sum(line["event"] == "resumed" for line in lines) < len(meta.resumed):
        return True
    for event in ("sent", "received"):
        # Earlier versions gave no numbers.
        numbers = [line["number"] for line in lines[:end] if line["event"] == event and "number" in line]
        if any(number not in (1, before + 1) for before, number in pairwise([0, *numbers])):
            return True
    return False


def _last_attempt(lines: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Messages that the process sent which finished the run: the meta data have their bytes."""
    start = max((place for place, line in enumerate(lines) if line["event"] == "resumed"), default=0)
    return [line for line in lines[start:] if line["event"] == "sent"]


def _end_of_training(lines: Sequence[Mapping[str, Any]]) -> int | None:
    """Place of the last line that says that the run is finished; None if it is gone."""
    return max((place for place, line in enumerate(lines) if line["event"] == "finished"), default=None)


def _prediction(line: Mapping[str, Any], run: ActiveRun | PassiveRun | HorizontalRun) -> PredictionJob:
    return PredictionJob(
        time=line["time"],
        message=_step(line, run).message,
        n_records=line.get("records", 0),
        n_answered=line.get("answered"),
        n_routed_bits=line.get("routed_bits"),
    )


def _outgoing(line: Mapping[str, Any]) -> OutgoingMessage:
    return OutgoingMessage(
        time=line["time"], peer=line["peer"], kind=line["kind"], bytes=line["bytes"], sha256=line["sha256"]
    )


def _lacks_answers(lines: Sequence[Mapping[str, Any]]) -> bool:
    """Whether a job began to answer and has not said that all of its answers are logged."""
    for begins, ends in _ANSWERING.items():
        n_open = 0
        for line in lines:
            # Not every end in the log of an earlier version has a beginning.
            n_open = max(0, n_open + (line["event"] == begins) - (line["event"] == ends))
        if n_open:
            return True
    return False


def _together(jobs: Sequence[PredictionJob]) -> PredictionJob | None:
    """All answers about held-out records, which may be asked for again whenever the active party begins again."""
    if len(jobs) < 2:
        return jobs[0] if jobs else None
    n_records = sum(job.n_records for job in jobs)
    n_answered = sum(job.n_answered or 0 for job in jobs)
    n_bits = sum(job.n_routed_bits or 0 for job in jobs)
    told = (
        f"answered for {n_answered} of {n_records} held-out records, which were not released, with {n_bits} routed "
        f"bits, in {len(jobs)} requests (a record that was asked for again counts again)"
    )
    return replace(jobs[-1], message=told, n_records=n_records, n_answered=n_answered, n_routed_bits=n_bits)
