"""A run file in, a finished job out: reads tables, opens channels, runs the protocol, keeps what results."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from opboost import rng
from opboost.arrays import Mask, Values
from opboost.errors import OpBoostError
from opboost.metrics import evaluate
from opboost.preprocess import own_features
from opboost.schema import TableSchema
from opboost.vertical import OwnColumn
from parties.config import ActiveRun, PassiveRun, read_run, read_schema
from parties.errors import ConfigError, PartyError, TableError
from parties.party_a import ActiveJob, JointModel, predict_jointly, predict_locally, train_jointly
from parties.party_b import PassiveJob, serve, train
from parties.progress import Progress, no_progress
from parties.runlog import RunLog
from parties.store import RunFolder, write_predictions
from parties.table import PartyTable, check_varied, read_table, select
from protocols.channel import Channel
from protocols.errors import KeyFileError, ProtocolError
from protocols.keys import KeyPair, read_public, read_secret
from protocols.zmq_channel import ConnectedChannel, Listener

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
    table = _training_table(run, schema, ignore, needs_label=True)
    assert table.labels is not None
    loss.check_labels(table.labels)
    names, matrix = own_features(table.features, schema.columns)
    job = ActiveJob(
        party=run.party,
        run_id=run.run_id,
        id_digest=table.id_digest,
        own=tuple(OwnColumn(name, matrix[:, i]) for i, name in enumerate(names)),
        labels=table.labels,
        weights=np.ones(table.n_rows),
        loss=loss,
        parameters=parameters,
        seed=run.model.seed,
    )
    folder = RunFolder(run.run_folder)
    with _active_channels(run, insecure) as open_channels, _logged(folder, path, run, terminal) as log:
        channels = open_channels(log)
        train_jointly(job, channels, save=folder.save_joint_model, progress=terminal.progress)
        _finish(folder, log, channels, n_rows=table.n_rows)
    return folder


def train_passive(path: Path, *, insecure: bool, terminal: Terminal) -> RunFolder:
    """Run a passive party's side of a training run."""
    run = read_run(path, PassiveRun)
    schema, ignore = read_schema(run.table_schema)
    mechanisms = run.desensitize.mechanisms(schema)
    table = _training_table(run, schema, ignore, needs_label=False)
    folder = RunFolder(run.run_folder)
    job = PassiveJob(
        party=run.party,
        run_id=run.run_id,
        id_digest=table.id_digest,
        features=table.features,
        mechanisms=mechanisms,
        rng=_bits(run),
        opaque_names=run.opaque_names,
        share_thresholds=run.share_thresholds,
        before_release=folder.mark_release,
    )
    with _passive_channel(run, insecure) as open_channel, _logged(folder, path, run, terminal) as log:
        channel = open_channel(log)
        share = train(job, channel, progress=terminal.progress)
        folder.save_router(share.router, share.guarantee)
        for name, n_clipped in share.n_clipped.items():
            log.step("clipped", f"{n_clipped} values of {name} lay outside the public bounds and were moved to them")
        _finish(folder, log, [channel], n_rows=table.n_rows)
    return folder


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
    table = read_table(source, known, ignore=ignore, needs_label=False)
    if ids is not None:
        table = select(table, ids, source)
    names, matrix = own_features(table.features, schema.columns)
    own = {name: matrix[:, i] for i, name in enumerate(names)}
    target = out or folder.path / "predictions.csv"
    if target.exists():
        raise ConfigError(f"{target} exists; give another file with --out. Nothing was sent")
    log = RunLog(folder.path, echo=terminal.say)
    with ExitStack() as stack:
        stack.callback(log.close)
        if mode == "local":
            predictions, is_complete = predict_locally(model, own, table.features), np.ones(table.n_rows, np.bool_)
        else:
            channels = stack.enter_context(_active_channels(run, insecure))(log)
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
        write_predictions(_prediction_table(table.ids, predictions, is_complete), target)
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
    table = read_table(data or run.data, schema, ignore=ignore, needs_label=False)
    log = RunLog(folder.path, echo=terminal.say)
    with ExitStack() as stack:
        stack.callback(log.close)
        channel = stack.enter_context(_passive_channel(run, insecure))(log)
        n_answered = serve(
            router,
            table.ids,
            table.features,
            channel,
            party=run.party,
            run_id=run.run_id,
            rng=_bits(run),
            may_route=run.allow_routed,
            progress=terminal.progress,
        )
        log.step("answered", f"answered for {n_answered} records, {channel.traffic.sent_bytes} bytes sent")
    return n_answered


def _with_passive_columns(schema: TableSchema, model: JointModel) -> TableSchema:
    """The schema of a table that holds the passive parties' columns too."""
    passive = (mechanism.schema for router in model.routers.values() for mechanism in router.mechanisms)
    return TableSchema(columns=(*schema.columns, *passive), id=schema.id, label=schema.label)


def _training_table(
    run: ActiveRun | PassiveRun, schema: TableSchema, ignore: tuple[str, ...], *, needs_label: bool
) -> PartyTable:
    table = read_table(run.data, schema, ignore=ignore, needs_label=needs_label)
    if run.ids is not None:
        table = select(table, run.ids, run.data)
    if needs_label and table.labels is not None and len(np.unique(table.labels)) < 2:
        raise TableError(f"{run.data}: label column {schema.label!r} holds a single value")
    check_varied(table, run.data)
    return table


def _bits(run: PassiveRun) -> rng.BitSource:
    return rng.secure() if run.seed is None else rng.seeded(run.seed)


def _own_keys(run: ActiveRun | PassiveRun, insecure: bool) -> KeyPair | None:
    if insecure:
        return None
    if run.secret_key is None:
        raise KeyFileError(
            "the run file names no secret_key; make one with `opboost keygen`, or type --insecure for a run on "
            "loopback. Nothing was sent"
        )
    return read_secret(run.secret_key)


def _peer_key(path: Path | None, name: str, insecure: bool) -> bytes | None:
    if insecure:
        return None
    if path is None:
        raise KeyFileError(f"the run file names no public_key for {name}. Nothing was sent")
    return read_public(path)


@contextmanager
def _active_channels(run: ActiveRun, insecure: bool) -> Iterator[Callable[[RunLog], list[Channel]]]:
    """Keys are read at once; the socket opens when the log is there."""
    keys = _own_keys(run, insecure)
    peers = {peer.name: _peer_key(peer.public_key, peer.name, insecure) for peer in run.passive}
    with ExitStack() as stack:

        def open_channels(log: RunLog) -> list[Channel]:
            def note(event: str) -> None:
                log.step("connection", event)

            listener = Listener(run.listen, peers, keys=keys, timing=run.timing, on_event=note)
            stack.callback(listener.close)
            log.step("listening", f"{run.party} waits for {', '.join(peers)} at {listener.address}")
            channels: list[Channel] = [listener.channel(peer) for peer in peers]
            for channel in channels:
                channel.traffic.on_send = log.sent(channel.peer)
            return channels

        yield open_channels


@contextmanager
def _passive_channel(run: PassiveRun, insecure: bool) -> Iterator[Callable[[RunLog], Channel]]:
    keys = _own_keys(run, insecure)
    peer_key = _peer_key(run.active.public_key, run.active.name, insecure)
    with ExitStack() as stack:

        def open_channel(log: RunLog) -> Channel:
            log.step("connecting", f"{run.party} connects to {run.active.name} at {run.connect}")
            channel = ConnectedChannel(
                run.connect, name=run.party, peer=run.active.name, keys=keys, peer_key=peer_key, timing=run.timing
            )
            stack.callback(channel.close)
            channel.traffic.on_send = log.sent(run.active.name)
            return channel

        yield open_channel


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
