"""A run file in, a finished job out: reads tables, opens channels, runs the protocol, keeps what results."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from parties.config.reading import read_run
from parties.config.vertical import ActiveRun, PassiveRun
from parties.errors import EXPECTED_ERRORS, RunFolderError, Stopped
from parties.ledger.charged_release import Account
from parties.progress import Progress, no_progress
from parties.runs.journal import Journal
from parties.runs.run_folder import RunFolder, RunState
from parties.runs.run_log import RunLog
from parties.session.connections import active_channels, passive_channel
from parties.vertical.alignment import Place
from parties.vertical.party_a import conclude_saved, train_jointly
from parties.vertical.party_b import PassiveJob, PassiveShare, train
from parties.vertical.preparation import PreparedActive, PreparedPassive, prepare_active, prepare_passive
from parties.vertical.release_accounts import account_of, noting, release_once
from parties.vertical.resolution_limit import ResolvedTests
from parties.vertical.warm_up import warm_drawing, warm_training
from protocols.errors import PeerLost
from protocols.messages.vertical import Task
from protocols.transport.channel import Channel

if TYPE_CHECKING:
    from parties.cluster.active_preparation import PartitionedActive
    from parties.cluster.passive_preparation import PartitionedPassive


OpenChannels = Callable[[RunLog], list[Channel]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Terminal:
    """How a job talks to the person who started it.

    Attributes
    ----------
    progress : Progress
    say : callable
        Takes a sentence about where the job is, which the log has too.
    warn : callable
        Takes a sentence that must be read.
    """

    progress: Progress = no_progress
    say: Callable[[str], None] = lambda sentence: None
    warn: Callable[[str], None] = lambda sentence: None


def train_active(path: Path, *, insecure: bool, terminal: Terminal) -> RunFolder:
    """Run the active party's side of a training run."""
    run = read_run(path, ActiveRun)
    folder = RunFolder(run.run_folder)
    if _is_over(folder, path, run, terminal):
        return folder
    with (
        _prepared_active(run, path) as prepared,
        active_channels(run, insecure) as open_channels,
        _logged(folder, path, run, terminal) as log,
    ):
        journal, place = Journal(folder.path, seed=run.model.seed), Place(folder.path, log, terminal.progress)
        if folder.has_model:
            channels, n_rows = _conclude_saved(prepared, journal, open_channels, place)
        else:
            channels, n_rows = _train(prepared, journal, open_channels, place, folder)
        note_end(folder, log, channels, n_rows=n_rows, seed=journal.seed)
        if set(journal.confirmed) == {peer.name for peer in run.passive}:
            journal.remove()
    _report(path, run, terminal)
    return folder


def train_passive(path: Path, *, insecure: bool, terminal: Terminal) -> RunFolder:
    """Run a passive party's side of a training run."""
    run = read_run(path, PassiveRun)
    folder = RunFolder(run.run_folder)
    if _is_over(folder, path, run, terminal):
        return folder
    with (
        _prepared_passive(run, path) as prepared,
        account_of(run, prepared.schema, Task.TRAIN) as account,
        passive_channel(run, insecure) as open_channel,
        _logged(folder, path, run, terminal) as log,
    ):

        def save(share: PassiveShare) -> None:
            folder.save_router(share.router, share.guarantee)
            folder.finish()

        folder.note_inputs(prepared.digest)
        channel = open_channel(log)
        warm_drawing(prepared.mechanisms)
        job = _agree(prepared, channel, account, Place(folder.path, log, terminal.progress), folder)
        job = replace(job, resolved=ResolvedTests(folder.path))
        share = train(job, channel, save=save, progress=terminal.progress)
        n_clipped = share.n_clipped if isinstance(prepared, PreparedPassive) else prepared.surveyed.n_clipped()
        for name, n in n_clipped.items():
            log.step("clipped", f"{n} values of {name} lay outside the public bounds and were moved to them")
        note_end(folder, log, [channel], n_rows=job.n_rows)
    _report(path, run, terminal)
    return folder


@contextmanager
def reporting_afterwards(path: Path, run: ActiveRun | PassiveRun, terminal: Terminal) -> Iterator[None]:
    """Write the run's report again, however a job with its model ends: what left and what was charged is in it."""
    try:
        yield
    finally:
        if RunFolder(run.run_folder).is_finished:
            _report(path, run, terminal)


def _report(path: Path, run: ActiveRun | PassiveRun, terminal: Terminal) -> None:
    """Write the finished run's report. The run is done and stays so if that fails."""
    if not run.report:
        return
    from parties.reports.writing import run_report

    try:
        run_report(path).write()
    except EXPECTED_ERRORS as error:
        terminal.warn(
            f"the run is done, but its report could not be written: {error}. `opboost report` writes it again"
        )


def _is_over(folder: RunFolder, path: Path, run: ActiveRun | PassiveRun, terminal: Terminal) -> bool:
    """Whether the run is finished on all sides, as far as this party knows; then it says so."""
    is_over = folder.state(path, party=run.party, role=run.role) is RunState.FINISHED and not Journal.is_open(
        folder.path
    )
    if is_over:
        finished = folder.read_json("meta.json")["finished"]
        terminal.say(f"run {run.run_id!r} of {run.party} was finished at {finished}; nothing was done")
    return is_over


@contextmanager
def _prepared_active(run: ActiveRun, path: Path) -> Iterator[PreparedActive | PartitionedActive]:
    if run.engine != "dask":
        yield prepare_active(run, path)
        return
    from parties.cluster.active_preparation import partitioned_active

    with partitioned_active(run, path) as prepared:
        yield prepared


@contextmanager
def _prepared_passive(run: PassiveRun, path: Path) -> Iterator[PreparedPassive | PartitionedPassive]:
    if run.engine != "dask":
        yield prepare_passive(run, path)
        return
    from parties.cluster.passive_preparation import partitioned_passive

    with partitioned_passive(run, path) as prepared:
        yield prepared


def _agree(
    prepared: PreparedPassive | PartitionedPassive, channel: Channel, account: Account, place: Place, folder: RunFolder
) -> PassiveJob:
    """Find the common records; returns the job on them, with the run's account to release from."""
    if not isinstance(prepared, PreparedPassive):
        return prepared.agree(replace(account, note=noting(place.log, account, "columns")), folder)
    aligned = prepared.aligner.follow(prepared.table, channel, prepared.job().hello(), place)
    release = release_once(account, aligned.table.ids, folder, place.log)
    return replace(prepared.job(aligned), rng=account.rng, release=release)


def _train(
    prepared: PreparedActive | PartitionedActive,
    journal: Journal,
    open_channels: OpenChannels,
    place: Place,
    folder: RunFolder,
) -> tuple[list[Channel], int]:
    """Find the common records and train on them; returns the channels, and how many records there are."""
    prepared.begin(journal)
    channels = open_channels(place.log)
    if isinstance(prepared, PreparedActive) and prepared.run.model.engine == "native":
        warm_training(prepared.loss)
    job = prepared.agree(channels, journal, place)
    model = train_jointly(job, channels, save=folder.save_joint_model, progress=place.progress)
    if model.choice is not None:
        place.log.step("noise", model.choice.sentence, grown_on=model.choice.value)
    return channels, job.n_rows


def _conclude_saved(
    prepared: PreparedActive | PartitionedActive, journal: Journal, open_channels: OpenChannels, place: Place
) -> tuple[list[Channel], int]:
    """Let the peers finish that did not confirm; one that is finished already does not come, and need not.

    Each is asked by itself, so the records are those that were common to all of them before.
    """
    prepared = prepared.take_up(journal)
    channels = [channel for channel in open_channels(place.log) if channel.peer not in journal.confirmed]
    for channel in channels:
        try:
            conclude_saved(prepared.agree([channel], journal, place), channel, progress=place.progress)
        except PeerLost as error:
            place.log.step(
                "unconfirmed", f"the model is saved, but {channel.peer} has not confirmed its share: {error}"
            )
    return channels, prepared.n_rows


@contextmanager
def _logged(folder: RunFolder, path: Path, run: ActiveRun | PassiveRun, terminal: Terminal) -> Iterator[RunLog]:
    """Make the run folder or take it up, for this process alone, with its log."""
    with folder.locked():
        state = folder.create(path, party=run.party, role=run.role)
        with recorded(folder, terminal) as log:
            if state is not RunState.NEW:
                log.step("resumed", f"{run.party} takes up run {run.run_id!r} where it stopped")
            try:
                yield log
            except PeerLost as error:
                if not (folder.has_released or Journal.has_received(folder.path)):
                    raise
                hint = "Start the same run again on both sides: it goes on where it stopped"
                raise PeerLost(f"{error}. {hint}") from None


@contextmanager
def recorded(folder: RunFolder, terminal: Terminal) -> Iterator[RunLog]:
    """A log in a folder that is there; a failure is its last line."""
    log = RunLog(folder.path, echo=terminal.say)
    try:
        yield log
    except BaseException as error:
        is_expected = isinstance(error, (*EXPECTED_ERRORS, Stopped))
        sentence = str(error) if is_expected else f"stopped with {type(error).__name__}"
        # The reason for the end is not hidden behind a log that cannot be written either.
        with suppress(RunFolderError):
            log.step("failed", sentence, error=type(error).__name__)
        raise
    finally:
        log.close()


def note_end(folder: RunFolder, log: RunLog, channels: list[Channel], *, n_rows: int, **facts: object) -> None:
    """Note the end of a run, and what it took."""
    sent = sum(channel.traffic.sent_bytes for channel in channels)
    received = sum(channel.traffic.received_bytes for channel in channels)
    folder.finish(n_rows=n_rows, sent_bytes=sent, received_bytes=received, **facts)
    log.step(
        "finished",
        f"finished: {n_rows} records, {sent} bytes sent, {received} received; the run is in {folder.path}",
        sent_bytes=sent,
        received_bytes=received,
    )
