"""A run file in, a finished job out: reads tables, opens channels, runs the protocol, keeps what results."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd

from opboost import rng
from opboost.arrays import Mask, Values
from opboost.desensitize import ColumnMechanism, ReleasedColumn
from opboost.errors import OpBoostError
from opboost.metrics import evaluate
from opboost.preprocess import EncodedColumn
from opboost.schema import TableSchema
from parties.alignment import Aligner, training_table
from parties.config import ActiveRun, PassiveRun, read_run, read_schema
from parties.connections import active_channels, passive_channel
from parties.drawing import Account, open_books
from parties.entries import Occasion
from parties.errors import ConfigError, PartyError
from parties.party_a import ActiveJob, JointModel, predict_jointly, predict_locally, train_jointly
from parties.party_b import PassiveJob, ReleaseColumns, serve, train
from parties.progress import Progress, no_progress
from parties.record_ids import with_parts
from parties.runlog import RunLog
from parties.store import RunFolder, write_predictions
from parties.table import PartyTable, own_columns, read_table, select
from protocols.channel import Channel
from protocols.errors import ProtocolError
from protocols.messages import Task

# Everything that is reported to the user as one sentence; anything else is a defect and keeps its traceback.
EXPECTED_ERRORS = (OpBoostError, PartyError, ProtocolError)


@dataclass(frozen=True, slots=True, kw_only=True)
class Terminal:
    """How a job talks to the person who started it.

    Attributes
    ----------
    progress : Progress
    say : callable
        Takes a sentence.
    """

    progress: Progress = no_progress
    say: Callable[[str], None] = lambda sentence: None


def train_active(path: Path, *, insecure: bool, terminal: Terminal) -> RunFolder:
    """Run the active party's side of a training run."""
    run = read_run(path, ActiveRun)
    schema, ignore = read_schema(run.table_schema)
    if schema.label is None:
        raise ConfigError(f"{run.table_schema} names no `label`, which the active party needs")
    loss, parameters = run.model.loss(), run.model.parameters()
    table = training_table(run, schema, ignore, needs_label=True)
    assert table.labels is not None
    loss.check_labels(table.labels)
    aligner = Aligner.of(run, schema)
    folder = RunFolder(run.run_folder)
    with active_channels(run, insecure) as open_channels, _logged(folder, path, run, terminal) as log:
        channels = open_channels(log)
        aligned = aligner.lead(table, channels, folder, log, progress=terminal.progress)
        assert aligned.table.labels is not None
        job = ActiveJob(
            party=run.party,
            run_id=run.run_id,
            id_digest=aligned.table.id_digest,
            own=own_columns(aligned.table, schema),
            labels=aligned.table.labels,
            weights=np.ones(aligned.table.n_rows),
            loss=loss,
            parameters=parameters,
            constraints=run.model.constraints,
            validation=run.model.validation(aligned.table.n_rows),
            engine=run.model.engine,
            seed=run.model.seed,
            alignment=aligner.words,
            orders=aligned.orders,
        )
        train_jointly(job, channels, save=folder.save_joint_model, progress=terminal.progress)
        _finish(folder, log, channels, n_rows=aligned.table.n_rows)
    return folder


def train_passive(path: Path, *, insecure: bool, terminal: Terminal) -> RunFolder:
    """Run a passive party's side of a training run."""
    run = read_run(path, PassiveRun)
    schema, ignore = read_schema(run.table_schema)
    mechanisms = run.desensitize.mechanisms(schema)
    table = training_table(run, schema, ignore, needs_label=False)
    aligner = Aligner.of(run, schema)
    folder = RunFolder(run.run_folder)
    with (
        _account(run, schema, Task.TRAIN) as account,
        passive_channel(run, insecure) as open_channel,
        _logged(folder, path, run, terminal) as log,
    ):
        channel = open_channel(log)
        aligned = aligner.follow(table, channel, folder, log, progress=terminal.progress)
        table = aligned.table
        job = PassiveJob(
            party=run.party,
            run_id=run.run_id,
            id_digest=table.id_digest,
            features=table.features,
            mechanisms=mechanisms,
            rng=account.rng,
            opaque_names=run.opaque_names,
            share_thresholds=run.share_thresholds,
            alignment=aligner.words,
            order=aligned.orders.get(channel.peer),
            release=_release_once(account, table.ids, folder, log),
        )
        share = train(job, channel, progress=terminal.progress)
        folder.save_router(share.router, share.guarantee)
        for name, n_clipped in share.n_clipped.items():
            log.step("clipped", f"{n_clipped} values of {name} lay outside the public bounds and were moved to them")
        _finish(folder, log, [channel], n_rows=table.n_rows)
    return folder


def _release_once(account: Account, ids: pd.Index, folder: RunFolder, log: RunLog) -> ReleaseColumns:
    """Release columns on an account; a run that has released before sends the same again or nothing."""

    def release(mechanisms: Sequence[ColumnMechanism], encoded: Sequence[EncodedColumn]) -> Iterator[ReleasedColumn]:
        noting = replace(account, note=_noting(log, account, "columns"))
        yield from noting.columns(mechanisms, encoded, ids, may_draw=not folder.has_released)
        folder.mark_release()

    return release


def _noting(log: RunLog, account: Account, of_what: str) -> Callable[[int, int], None]:
    def note(n_drawn: int, n_reused: int) -> None:
        log.step(
            "released",
            f"{n_drawn} {of_what} drawn and charged to {account.ledger.path.name}, {n_reused} taken from the store",
            n_drawn=n_drawn,
            n_reused=n_reused,
        )

    return note


def predict_active(
    path: Path,
    *,
    data: Path | None,
    ids: Path | None,
    mode: str,
    out: Path | None,
    insecure: bool,
    terminal: Terminal,
) -> Path:
    """Score records with the run's model; returns the file of predictions.

    In modes ``routed`` and ``desensitized`` the passive parties must be running `serve_passive` for the same run. In
    mode ``local`` the data file holds the passive parties' columns too, in clear.
    """
    run = read_run(path, ActiveRun)
    schema, ignore = read_schema(run.table_schema)
    folder = RunFolder(run.run_folder)
    model = folder.load_joint_model()
    source = data or run.data
    known = _with_passive_columns(schema, model) if mode == "local" else schema
    table = read_table(source, known, ignore=ignore, needs_label=False, duplicates=run.align.duplicates)
    if ids is not None:
        table = select(table, ids, source)
    own = {column.name: column.values for column in own_columns(table, schema)}
    target = out or folder.path / "predictions.csv"
    if target.exists():
        raise ConfigError(f"{target} exists; give another file with --out. Nothing was sent")
    log = RunLog(folder.path, echo=terminal.say)
    with ExitStack() as stack:
        stack.callback(log.close)
        if mode == "local":
            predictions, is_complete = predict_locally(model, own, table.features), np.ones(table.n_rows, np.bool_)
        else:
            channels = stack.enter_context(active_channels(run, insecure))(log)
            predictions, is_complete = predict_jointly(
                model,
                table.ids,
                own,
                channels,
                party=run.party,
                run_id=run.run_id,
                desensitized=mode == "desensitized",
                progress=terminal.progress,
            )
        scored = _prediction_table(table.ids, predictions, is_complete)
        write_predictions(with_parts(scored, schema.id_columns), target)
        log.step("predicted", f"wrote {table.n_rows} predictions ({mode}) to {target.name}", n_rows=table.n_rows)
        if not is_complete.all():
            n_incomplete = int((~is_complete).sum())
            log.step("incomplete", f"{n_incomplete} records are unknown to a passive party and have no prediction")
        _score(folder, log, model, table, predictions, is_complete, mode)
    return target


def serve_passive(path: Path, *, data: Path | None, insecure: bool, terminal: Terminal) -> int:
    """Answer the active party's requests of one `predict_active`; returns the number of records answered for."""
    run = read_run(path, PassiveRun)
    schema, ignore = read_schema(run.table_schema)
    folder = RunFolder(run.run_folder)
    router = folder.load_router()
    source, duplicates = data or run.data, run.align.duplicates
    table = read_table(source, schema, ignore=ignore, needs_label=False, duplicates=duplicates)
    with ExitStack() as stack:
        account = stack.enter_context(_account(run, schema, Task.PREDICT))
        log = RunLog(folder.path, echo=terminal.say)
        stack.callback(log.close)
        channel = stack.enter_context(passive_channel(run, insecure))(log)
        n_answered = serve(
            router,
            table.ids,
            table.features,
            channel,
            party=run.party,
            run_id=run.run_id,
            rng=account.rng,
            may_route=run.allow_routed,
            release=replace(account, note=_noting(log, account, "cells")).records,
            progress=terminal.progress,
        )
        log.step("answered", f"answered for {n_answered} records, {channel.traffic.sent_bytes} bytes sent")
    return n_answered


def _with_passive_columns(schema: TableSchema, model: JointModel) -> TableSchema:
    """The schema of a table that holds the passive parties' columns too."""
    passive = (mechanism.schema for router in model.routers.values() for mechanism in router.mechanisms)
    return TableSchema(columns=(*schema.columns, *passive), id=schema.id, label=schema.label)


def _bits(run: PassiveRun) -> rng.BitSource:
    return rng.secure() if run.seed is None else rng.seeded(run.seed)


@contextmanager
def _account(run: PassiveRun, schema: TableSchema, task: Task) -> Iterator[Account]:
    """The run's ledger and store, verified, and what its budget allows."""
    budget = run.ledger.budget.budget(schema)
    with open_books(run.ledger.path) as (ledger, store):
        occasion = Occasion(run_id=run.run_id, task=task.value, peer=run.active.name)
        yield Account(ledger=ledger, store=store, budget=budget, occasion=occasion, rng=_bits(run))


@contextmanager
def _logged(folder: RunFolder, path: Path, run: ActiveRun | PassiveRun, terminal: Terminal) -> Iterator[RunLog]:
    """Make the run folder and its log; a failure is the log's last line."""
    folder.create(path, party=run.party, role=run.role)
    log = RunLog(folder.path, echo=terminal.say)
    try:
        yield log
    except EXPECTED_ERRORS as error:
        log.step("failed", str(error), error=type(error).__name__)
        raise
    finally:
        log.close()


def _finish(folder: RunFolder, log: RunLog, channels: list[Channel], *, n_rows: int) -> None:
    sent = sum(channel.traffic.sent_bytes for channel in channels)
    received = sum(channel.traffic.received_bytes for channel in channels)
    folder.finish(n_rows=n_rows, sent_bytes=sent, received_bytes=received)
    log.step(
        "finished",
        f"finished: {n_rows} records, {sent} bytes sent, {received} received; the run is in {folder.path}",
        sent_bytes=sent,
        received_bytes=received,
    )


def _prediction_table(ids: pd.Index, predictions: Values, is_complete: Mask) -> pd.DataFrame:
    """Keyed by id; multiclass gives one column per class beside the most probable one."""
    status = np.where(is_complete, "ok", "missing_passive_columns")
    if predictions.ndim == 1:
        return pd.DataFrame({"id": ids, "prediction": predictions, "status": status})
    chosen = np.where(is_complete, np.nan_to_num(predictions).argmax(axis=1), np.nan)
    classes = {f"probability_{k}": predictions[:, k] for k in range(predictions.shape[1])}
    return pd.DataFrame({"id": ids, "prediction": chosen, **classes, "status": status})


def _score(
    folder: RunFolder, log: RunLog, model: JointModel, table: PartyTable, predictions: Values, known: Mask, mode: str
) -> None:
    """Compare predictions with labels, where the table holds both classes of them."""
    if table.labels is None or not known.any() or len(np.unique(table.labels[known])) < 2:
        return
    metrics = evaluate(model.ensemble.loss.name, table.labels[known], predictions[known])
    metrics_path = folder.path / "metrics.json"
    before = folder.read_json("metrics.json") if metrics_path.exists() else {}
    folder.write_json("metrics.json", {**before, mode: {**metrics, "n_rows": int(known.sum())}})
    log.step("scored", ", ".join(f"{name} {value:.4f}" for name, value in metrics.items()), **metrics)
