"""Prediction job of the active party."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TypeVar

import numpy as np

from opboost.arrays import Values
from opboost.schema import TableSchema
from parties.config.reading import check_schema_of_model, read_run, read_schema
from parties.config.vertical import ActiveRun
from parties.errors import ConfigError
from parties.jobs.life_cycle import Terminal, logged, reporting_afterwards
from parties.jobs.prediction_note import NOTE_FILE, PredictionNote, digest_of_records
from parties.runs.joint_model import JointModel
from parties.runs.run_folder import RunFolder
from parties.runs.run_log import RunLog
from parties.session.connections import open_connections
from parties.session.reconnection import with_restarts
from parties.storage.paths import check_writable, is_folder, is_taken
from parties.tables.data_files import check_unchanged, stamp_of
from parties.tables.destinations import Destination
from parties.tables.keyed_table import names_to_ask, read_keyed
from parties.tables.listed_ids import select
from parties.tables.misfits import showing_misfits
from parties.tables.party_table import PartyTable, model_inputs
from parties.tables.passive_columns import names_of_passive, with_passive
from parties.vertical.prediction_client import FinishedBatches, Session, predict_locally, session
from parties.vertical.prediction_output import PredictionFormat, count_statuses, note_unanswered, score
from parties.vertical.reasons import check_reasons
from protocols.messages.prediction import RecordStatus
from protocols.transport.channel import Channel

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Request:
    """A request for predictions: its records, model, mode and output."""

    path: Path
    run: ActiveRun
    folder: RunFolder
    model: JointModel
    schema: TableSchema
    ignore: Sequence[str]
    source: Path
    ids: Path | None
    mode: str
    out: Path | str | None
    reasons: int
    insecure: bool
    terminal: Terminal
    unasked: Callable[[], None]

    def note(self, table: PartyTable) -> PredictionNote:
        """The note by which an interrupted request for these records is recognised."""
        out = str(self.out or "")
        what_else = {"mode": self.mode, "reasons": self.reasons, "reveal": self.run.reveal.words()}
        # The same relative path is another file in another working folder.
        place = os.path.abspath(out) if out and "://" not in out else out
        return PredictionNote(self.folder, {"records": digest_of_records(table), **what_else, "out": place})

    @property
    def is_desensitized(self) -> bool:
        return self.mode == "desensitized"

    @contextmanager
    def logged(self, terminal: Terminal) -> Iterator[RunLog]:
        """Log to the terminal and the run folder, and write the run's report again afterwards."""
        path, run = self.path, self.run
        with (
            reporting_afterwards(path, run, terminal),
            logged(self.folder, terminal, path=path, run=run, is_service=True) as log,
        ):
            yield log

    def note_caveats(self, log: RunLog) -> None:
        """Log a warning about training records, and limits of the predictions."""
        if self.source == self.run.data and self.mode == "routed":
            log.step(
                "training records",
                f"these are records of {self.source.name}, which the model was trained on: passive parties refuse "
                "exact answers about those that were released, unless they allow them; give others with --data",
            )
        note_caveat(self.model, log, desensitized=self.is_desensitized)

    def note_written(self, log: RunLog, n_rows: int, name: str) -> None:
        """Log where the predictions are."""
        log.step("predicted", f"wrote {n_rows} predictions ({self.mode}) to {name}", records=n_rows)


def predict_active(
    path: Path,
    *,
    data: Path | None,
    ids: Path | None,
    mode: str,
    out: Path | str | None,
    overwrite: bool = False,
    append: bool = False,
    reasons: int = 0,
    insecure: bool,
    terminal: Terminal,
    scored: Callable[[Mapping[str, float]], None] = lambda metrics: None,
    unasked: Callable[[], None] = lambda: None,
) -> Path | str:
    """Score records with the run's model, with so many `reasons` each; returns where the predictions are.

    `scored` takes the metrics, where labels are known. `unasked` is called if nobody is asked, since an earlier process
    of the same request has written the predictions; with `overwrite` they are made anew.

    In modes ``routed`` and ``desensitized`` the passive parties must be running `serve_passive` for the same run. In
    mode ``local`` the data file holds the passive parties' columns too, in clear.
    """
    run = read_run(path, ActiveRun)
    schema, ignore = read_schema(run.table_schema)
    folder = RunFolder(run.run_folder)
    model = folder.load_joint_model()
    check_schema_of_model(schema, folder.path, model.ensemble)
    run.reveal.check(model.ensemble.loss)
    if mode != "local":
        model.check_asked(peer.name for peer in run.passive)
    if reasons:
        check_reasons(model.ensemble, run.reveal)
    request = _Request(
        path=path,
        run=run,
        folder=folder,
        model=model,
        schema=schema,
        ignore=ignore,
        source=data or run.data,
        ids=ids,
        mode=mode,
        out=out,
        reasons=reasons,
        insecure=insecure,
        terminal=terminal,
        unasked=unasked,
    )
    # Requests that partitions cannot be scored for one by one are served in memory.
    needs_whole = mode == "local", run.reveal.top is not None, reasons, overwrite, append, schema.base_margin
    if run.engine == "dask" and is_folder(request.source) and not any(needs_whole):
        return _predict_partitions(request)
    return _predict_table(request, scored, overwrite=overwrite, append=append)


def _predict_table(
    request: _Request, scored: Callable[[Mapping[str, float]], None], *, overwrite: bool, append: bool
) -> Path | str:
    """Score the records of a file; returns where the predictions are."""
    run, folder, model, schema = request.run, request.folder, request.model, request.schema
    table, own, clippings = _records(request)
    note = request.note(table)
    noted = {} if overwrite else note.written()
    inputs, default = (request.source, request.ids, run.source, run.ids), folder.path / "predictions.csv"
    target = Destination.of(request.out, default, overwrite=overwrite, append=append, own=noted, inputs=inputs)
    if target.written is not None:
        return _end_written(request, target, note, counts=noted[target.written])
    form = PredictionFormat(
        ensemble=model.ensemble, reveal=run.reveal, n_reasons=request.reasons, id_columns=schema.id_columns
    )
    if append:
        target.check_columns(form.sample(table.index))
    with ExitStack() as stack:
        stack.push(note.close)
        log = stack.enter_context(request.logged(request.terminal))
        if overwrite:
            note.forget()
        request.note_caveats(log)
        if request.mode == "local":
            for sentence in clippings:
                log.step("clipped", sentence)
            predictions = predict_locally(model, own, table.frame, evaluate=form.evaluate)
            status = np.zeros(table.n_rows, np.uint8)
        else:
            channels = list(stack.enter_context(open_connections(run, request.insecure))(log).values())
            ids, batches = names_to_ask(table), FinishedBatches[Values]()
            ask = partial(Session.predict, ids=ids, own=own, evaluate=form.evaluate, finished=batches)
            predictions, status = _ask(request, channels, log, ask)
        written = form.table(table.index, predictions, status)
        counts = count_statuses(status)
        target.write(written, before=lambda digest: note.add(digest, counts))
        request.note_written(log, len(written), target.name)
        if run.reveal.words() is None:
            # Of few records, metrics and curves tell exact scores.
            scores = predictions[:, 0] if request.reasons else predictions
            scored(score(folder, log, model, table, scores, status == RecordStatus.ANSWERED, request.mode))
        note_unanswered(counts, log, target.name)
    return target.place


def _end_written(
    request: _Request, target: Destination, note: PredictionNote, *, counts: Mapping[str, int]
) -> Path | str:
    """End a request whose earlier process was stopped while it wrote: no peer is asked, and nothing is replaced.

    Raises
    ------
    ConfigError
        If it cannot be told whether a table holds the predictions.
    RecordsRefused
    """
    if not target.written:
        raise ConfigError(
            f"table {target.name!r} of {target} may hold the predictions of this very request, which was stopped when "
            f"it wrote them; if it does not, remove {request.folder.path / NOTE_FILE} and begin again. Nothing was sent"
        )
    with ExitStack() as stack:
        stack.push(note.close)
        # The predictions are of an earlier time: the user must read this even where steps are not shown.
        request.unasked()
        log = stack.enter_context(request.logged(replace(request.terminal, say=request.terminal.warn)))
        log.step(
            "predicted",
            f"{target.name} holds the predictions of this very request, which was stopped after it had written them: "
            "nobody was asked again, and metrics may be missing. With another --out or --overwrite, it predicts anew",
        )
        note_unanswered(counts, log, target.name)
    return target.place


def _ask(request: _Request, channels: Sequence[Channel], log: RunLog, ask: Callable[..., T]) -> T:
    """Ask the passive parties in a session, and in a new one whenever one of them was restarted.

    `ask` takes the session and its options, and keeps the answers of earlier sessions.
    """
    run, reveal = request.run, request.run.reveal.words()

    def work() -> T:
        with session(request.model, channels, party=run.party, run_id=run.run_id, reveal=reveal) as asking:
            return ask(asking, desensitized=request.is_desensitized, progress=log.progress)

    return with_restarts(channels, work, log)


def _records(request: _Request) -> tuple[PartyTable, dict[str, Values], list[str]]:
    """The records to score: their table, the model's inputs, and sentences about values moved to the bounds."""
    schema, source, align, ignore = request.schema, request.source, request.run.align, request.ignore
    routers = request.model.routers if request.mode == "local" else {}
    ignored, stamp = [*ignore, *names_of_passive(routers, schema)], stamp_of(source)
    with showing_misfits(source, schema):
        table = read_keyed(source, schema, align.keys, ignore=ignored, duplicates=align.duplicates)
        table = table if request.ids is None else select(table, request.ids, source)
        own = model_inputs(table, schema)
    ignored += [name for key in align.keys for name in key]
    table, clippings = with_passive(table, source, routers, schema, ignore=ignored, duplicates=align.duplicates)
    check_unchanged(source, stamp)
    return table, own, clippings


def _predict_partitions(request: _Request) -> Path | str:
    """Score a folder of partitions on the run's cluster; returns a folder of predictions."""
    from parties.cluster.prediction_batches import scorable_partitions

    run, model, default = request.run, request.model, request.folder.path / "predictions"
    target = Path(request.out or default)
    if "://" in str(request.out) or is_taken(target):
        raise ConfigError(f"{target} exists, or is elsewhere; give a new folder with --out. Nothing was sent")
    check_writable(target, makes_folders=True)
    columns = request.schema, request.ignore
    with ExitStack() as stack:
        scorer = stack.enter_context(scorable_partitions(run, request.source, *columns, model.ensemble, request.ids))
        log = stack.enter_context(request.logged(request.terminal))
        note_caveat(model, log, desensitized=request.is_desensitized)
        channels = list(stack.enter_context(open_connections(run, request.insecure))(log).values())
        status = _ask(request, channels, log, scorer.score)
        scorer.write(target, spare=default)
        request.note_written(log, len(status), target.name)
        note_unanswered(count_statuses(status), log, target.name)
    return target


def note_caveat(model: JointModel, log: RunLog, *, desensitized: bool) -> None:
    """Log the model's caveat about predictions, if it has one."""
    if (caveat := model.caveat(desensitized=desensitized)) is not None:
        log.step("noise", caveat)
