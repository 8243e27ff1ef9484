"""Training jobs of the active party and of a passive party."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from opboost.errors import OpBoostError
from opboost.routing import Router
from parties.cluster.prepared_inputs import ActiveInputs, PassiveInputs, prepared_active, prepared_passive
from parties.config.reading import read_run
from parties.config.vertical import ActiveRun, PassiveRun
from parties.errors import Disagreement, RunFolderError
from parties.jobs.life_cycle import Terminal, TrainingRun, note_others
from parties.jobs.warm_up import compiled_before, warm_drawing, warm_training
from parties.ledger.charged_release import Account
from parties.runs.joint_model import TRAININGS_FILE, JointModel
from parties.runs.journal import Journal
from parties.runs.run_folder import RunFolder
from parties.session.connections import open_connections
from parties.session.reconnection import Restarts, with_restarts
from parties.session.session_log import Tally
from parties.tables.blocks import record_set
from parties.vertical.alignment import AlignmentPlace
from parties.vertical.party_a import conclude_saved, train_jointly
from parties.vertical.party_b import PassiveShare, train
from parties.vertical.prediction_server import Answerer
from parties.vertical.rate_limits import Allowance
from parties.vertical.release_accounts import TrainingRecords, account_of, allowance_of, release_once
from parties.vertical.release_job import PassiveJob
from parties.vertical.resolution_limit import ResolvedTests
from protocols.errors import PeerLost, PeerRestarted, ProtocolError
from protocols.messages.vertical import Task
from protocols.transport.channel import Channel

_RESUMING = "Start the same run again on both sides: it goes on where it stopped"


def train_active(
    path: Path, *, insecure: bool, terminal: Terminal, run: ActiveRun | None = None, restarts: Restarts | None = None
) -> RunFolder:
    """Run the active party's side of a training run; `run` replaces the run file's settings.

    `restarts` counts over all attempts of a job that is begun again.
    """
    run = run or read_run(path, ActiveRun)
    life = TrainingRun(path, run, terminal)
    folder = life.folder
    if life.is_over():
        return folder
    with (
        prepared_active(run, path) as prepared,
        open_connections(run, insecure) as open_channels,
        life.begin_or_resume(prepared.schema, resuming=_RESUMING) as log,
    ):
        note_others(prepared.others, log)
        journal, place = Journal(folder.path, seed=_seed(run)), AlignmentPlace(folder.path, log, log.progress)
        # This party's inputs are compared with those of the run's first attempt before it connects.
        if folder.has_model:
            prepared.take_up(journal)
        else:
            prepared.begin(journal)
        channels = list(open_channels(log).values())

        def work() -> int:
            call = _conclude_saved if folder.has_model else _train
            return call(prepared, journal, channels, place, folder)

        n_rows = with_restarts(channels, work, log, restarts)
        life.finish(log, channels, n_rows=n_rows, seed=journal.seed)
        if set(journal.confirmed) == {peer.name for peer in run.passive}:
            journal.close()
    return life.report()


def train_passive(
    path: Path, *, insecure: bool, terminal: Terminal, run: PassiveRun | None = None, restarts: Restarts | None = None
) -> RunFolder:
    """Run a passive party's side of a training run; see `train_active`."""
    run = run or read_run(path, PassiveRun)
    life = TrainingRun(path, run, terminal)
    folder = life.folder
    if life.is_over():
        return folder
    with (
        prepared_passive(run, path, keeps=True) as prepared,
        account_of(run, prepared.schema, Task.TRAIN) as account,
        open_connections(run, insecure) as open_channels,
        life.begin_or_resume(prepared.schema, resuming=_RESUMING) as log,
        allowance_of(run, log) as allowance,
    ):

        def save(share: PassiveShare) -> None:
            folder.write_json(TRAININGS_FILE, {run.active.name: share.training})
            folder.save_router(share.router, share.guarantee)
            folder.finish()

        def note_held_out(request: Tally) -> None:
            # Logged at once, also for an attempt that fails: the active party keeps these answers.
            if request.n_asked:
                log.step(
                    "held out",
                    f"answered for {request.n_answered} of {request.n_asked} held-out records, which were not "
                    f"released, with {request.n_routed_bits} routed bits",
                    **request.answers,
                )

        folder.note_inputs(prepared.digest)
        note_others(prepared.others, log)
        (channel,) = open_channels(log).values()
        warm_drawing(prepared.mechanisms)
        place = AlignmentPlace(folder.path, log, log.progress)

        def work() -> tuple[PassiveShare, int]:
            job = _agree(prepared, channel, account, place, folder, allowance=allowance)
            job = replace(job, resolved=ResolvedTests(account.ledger, account.occasion))
            share = train(job, channel, save=save, note_held_out=note_held_out, progress=log.progress)
            return share, job.n_rows

        share, n_rows = with_restarts([channel], work, log, restarts)
        for name, n in share.n_clipped.items():
            log.step("clipped", f"{n} values of {name} lay outside the public bounds and were moved to them")
        life.finish(log, [channel], n_rows=n_rows)
    return life.report()


def _seed(run: ActiveRun) -> int | None:
    """The seed of the run file, or that of the continued run; None to draw one."""
    if run.model.seed is not None or run.continue_from is None:
        return run.model.seed
    seed = RunFolder(run.continue_from).read_json("meta.json").get("seed", 0)
    if type(seed) is not int or seed < 0:
        raise RunFolderError(f"{run.continue_from / 'meta.json'} is malformed: its seed is no number. Nothing was sent")
    return seed


def _agree(
    prepared: PassiveInputs,
    channel: Channel,
    account: Account,
    place: AlignmentPlace,
    folder: RunFolder,
    *,
    allowance: Allowance | None,
) -> PassiveJob:
    """Align records; returns the job on the common ones, which releases through the privacy ledger."""
    job, ids, held_out = prepared.agree(channel, place)

    def answerer(router: Router) -> Answerer:
        assert held_out is not None
        records = held_out(router)
        account.ledger.note_released(record_set(records.ids), account.occasion, held_out=True)
        return Answerer(
            router,
            records,
            may_route=prepared.run.allow_routed,
            allowance=allowance,
            # Records that an earlier run released get no exact answer, even if this run holds them out.
            trained=None if prepared.run.routed.training_records else TrainingRecords(account).among,
        )

    return replace(
        job,
        rng=account.rng,
        release=release_once(account, ids, folder, place.log, order=job.order, run_blocks=job.run_blocks),
        held_out=None if held_out is None else answerer,
    )


def _train(
    prepared: ActiveInputs, journal: Journal, channels: Sequence[Channel], place: AlignmentPlace, folder: RunFolder
) -> int:
    """Align records and train on the common ones; returns their number."""
    if not prepared.run.grows_on_cluster and prepared.run.model.engine == "native":
        if not compiled_before():
            place.log.step("compiling", "compiling loops, which the first run on a machine takes up to a minute for")
        warm_training(prepared.loss)
    job = prepared.agree(channels, journal, place)
    # Curves and metrics of few records reveal exact scores.
    is_coarse = prepared.run.reveal.words() is not None
    save = partial(_save_without_fits, folder) if is_coarse else folder.save_joint_model
    model = train_jointly(job, channels, save=save, progress=place.progress)
    if model.choice is not None:
        place.log.step("noise", model.choice.sentence, grown_on=model.choice.value)
    return job.n_rows


def _save_without_fits(folder: RunFolder, model: JointModel) -> None:
    folder.save_joint_model(replace(model, fits=()))


def _conclude_saved(
    prepared: ActiveInputs, journal: Journal, channels: Sequence[Channel], place: AlignmentPlace, folder: RunFolder
) -> int:
    """Conclude a saved run with the peers that did not confirm; a finished peer does not connect.

    Each peer is served separately, on the records that were common to all: the failure of one does not affect the
    others, and is raised after all were served.
    """
    prepared = prepared.take_up(journal)
    for channel in channels:
        channel.isolate()
    errors: list[ProtocolError | Disagreement | OpBoostError] = []
    for channel in channels:
        if channel.peer in journal.confirmed:
            continue
        try:
            conclude_saved(prepared.agree([channel], journal, place), channel, progress=place.progress)
        except (ProtocolError, Disagreement, OpBoostError) as error:
            if isinstance(error, PeerRestarted) or not isinstance(error, PeerLost):
                errors.append(error)
            place.log.step(
                "unconfirmed", f"the model is saved, but {channel.peer} has not confirmed its share: {error}"
            )
    if errors:
        # A restart comes first: after it this party begins again with the peers that are left.
        raise min(errors, key=lambda error: not isinstance(error, PeerRestarted))
    return prepared.n_trained
