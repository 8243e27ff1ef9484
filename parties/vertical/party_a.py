"""The active party's side of a training run: collect ranks, train, have split ranks resolved, bind."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial

from opboost.columns import Column, RankColumn
from opboost.errors import ParameterError
from opboost.fit_quality import training_quality
from opboost.privacy.guarantee import with_tests
from opboost.routing import Router
from opboost.split_tests import ListedTests, bind, list_tests
from opboost.trees.boosting import OnRound, RoundReport
from opboost.vertical import TrainedTrees, train
from parties.progress import Progress, no_progress
from parties.runs.joint_model import JointModel, release_digests
from parties.session.handshake import Phase, conversation, greet_all
from parties.session.heartbeats import HEARTBEAT_S, heartbeats
from parties.vertical.agreed_grid import shared_router
from parties.vertical.held_out_score import HeldOutCells, ask_cells, score_held_out
from parties.vertical.rank_receiver import Receipt, collect
from parties.vertical.release_offer import training_digest
from parties.vertical.training_job import ActiveJob
from protocols.errors import UnexpectedMessage
from protocols.messages.fields import MAX_TESTS
from protocols.messages.vertical import Done, Hello, SplitRanks, Terms, Thresholds
from protocols.transport.channel import Channel, expect


def train_jointly(
    job: ActiveJob,
    channels: Sequence[Channel],
    *,
    save: Callable[[JointModel], None] = lambda model: None,
    progress: Progress = no_progress,
) -> JointModel:
    """Run the active party's side of a training run with the passive parties at the other ends of `channels`.

    Peers are sent `Done` only after `save` has returned.

    Notes
    -----
    Privacy: sends no label, gradient or leaf. The split ranks show which thresholds the trees use, and these depend on
    labels. Where peers answer with cells, no split ranks are sent, and nothing that a peer reads depends on labels.
    """
    with conversation(channels) as phase:
        receipts = _agree_and_collect(job, channels, phase, progress, accept=job.check_names)
        received = [column for receipt in receipts.values() for column in receipt.released()]
        if job.earlier is not None:
            job.earlier.check(received, correct_noise=job.correct_noise)
        cells = None
        if job.held_out is not None and job.by_cells:
            phase.enter("asking about held-out records")
            cells = ask_cells(job, _columns(job, received), channels, _trainings(receipts, {}))
        phase.enter("growing trees")
        trained = grow_trees(job, channels, received, progress, cells=cells)
        tests = list_tests(trained)
        _check_number(tests)
        if job.journal is not None:
            job.journal.note_tests(tests)
        phase.enter("having split ranks resolved")
        routers = _have_resolved(job, channels, tests, receipts)
        phase.enter("saving the model")
        guarantees = {
            peer: with_tests(receipt.guarantee, len(tests[peer].ranks))
            for peer, receipt in receipts.items()
            if receipt.guarantee
        }
        ensemble = bind(trained, tests)
        is_held_out = job.validation.is_held_out if job.validation is not None else None
        # Where the job has its own grower, the rows are on the cluster.
        fit = training_quality(trained, ensemble, job.labels, is_held_out) if job.grow is None else None
        model = JointModel(
            ensemble=ensemble,
            guarantees=guarantees,
            routers=routers,
            history=trained.history,
            fits=() if fit is None else (fit,),
            choice=trained.choice,
            n_own_trees=trained.n_own_trees,
            release=release_digests(received) if job.grow is None else {},
            categories={column.name: column.categories for column in job.own},
            trainings=_trainings(receipts, {} if job.by_cells else tests),
        )
        if job.held_out is not None:
            phase.enter("scoring held-out records")
            offered = {peer: [column.name for column in receipt.columns] for peer, receipt in receipts.items()}
            grow_alone = partial(grow_trees, channels=channels, received=(), progress=no_progress, cells=cells)
            model = score_held_out(job, model, channels, grow_alone, offered, cells=cells)
        save(model)
        phase.enter("telling the others that the model is saved")
        _conclude(job, channels)
        return model


def _trainings(receipts: Mapping[str, Receipt], tests: Mapping[str, ListedTests]) -> dict[str, str]:
    """A digest per peer of its release and of the split tests that it is asked."""
    return {peer: training_digest(receipt.offered(), tests.get(peer)) for peer, receipt in receipts.items()}


def _columns(job: ActiveJob, received: Sequence[RankColumn]) -> list[Column]:
    """All columns, own and received, in the order that breaks ties between splits."""
    columns: list[Column] = [*job.own, *received]
    if job.column_order:
        columns.sort(key=lambda column: job.column_order.index(column.name))
    return columns


def grow_trees(
    job: ActiveJob,
    channels: Sequence[Channel],
    received: Sequence[RankColumn],
    progress: Progress,
    *,
    cells: HeldOutCells | None = None,
) -> TrainedTrees:
    """Grow a job's trees on own and received columns; heartbeats keep the peers informed meanwhile."""
    if job.grow is not None:
        with heartbeats(channels):
            return job.grow(received, parameters=job.parameters, constraints=job.constraints)
    columns = _columns(job, received)
    known = None if cells is None else cells.known(job, columns)
    parameters = job.parameters
    if job.metrics and known is None and job.validation is None:
        # None of the held-out records was answered.
        parameters = replace(parameters, early_stopping_rounds=None)
    # Steps before the first round, such as fitting the noise correction, report no progress: a thread sends heartbeats.
    with ExitStack() as before_rounds:
        raise_if_lost = before_rounds.enter_context(heartbeats(channels))
        after_round = _watch(channels, job.on_round, progress)

        def on_round(report: RoundReport) -> bool | None:
            before_rounds.close()
            return after_round(report)

        return train(
            columns,
            job.labels if job.noised_labels is None else job.noised_labels,
            job.weights,
            loss=job.loss,
            parameters=parameters,
            constraints=job.constraints,
            validation=job.validation,
            known=known,
            engine=job.engine,
            correct_noise=job.correct_noise,
            left_open=job.left_open,
            seed=job.seed,
            on_round=on_round,
            leaf_labels=None if job.noised_labels is None else job.labels,
            margins=job.margins,
            earlier=None if job.earlier is None else job.earlier.model,
            watch=raise_if_lost,
        )


def conclude_saved(job: ActiveJob, channel: Channel, *, progress: Progress = no_progress) -> None:
    """Repeat the end of a run, whose model is saved here, with a peer that has not confirmed its share.

    The peer goes through the sequence of a training run; the split tests are those of the saved trees.
    """
    assert job.journal is not None
    with conversation([channel]) as phase:
        receipts = _agree_and_collect(job, [channel], phase, progress)
        phase.enter("having split ranks resolved")
        _have_resolved(job, [channel], {channel.peer: job.journal.tests(channel.peer)}, receipts)
        phase.enter("telling the others that the model is saved")
        _conclude(job, [channel])


def _agree_and_collect(
    job: ActiveJob,
    channels: Sequence[Channel],
    phase: Phase,
    progress: Progress,
    *,
    accept: Callable[[Mapping[str, Hello]], None] = lambda theirs: None,
) -> dict[str, Receipt]:
    """Greet every peer, and receive the part of its release that earlier attempts did not."""
    phase.enter("greeting")
    receipts = {channel.peer: job.receipt(channel.peer) for channel in channels}
    mine = {peer: job.hello(peer, receipt) for peer, receipt in receipts.items()}
    theirs = greet_all(channels, mine, passwords=job.passwords(mine), accept=accept)
    for peer, hello in theirs.items():
        receipts[peer].names = hello.names
    phase.enter("collecting ranks")
    collect(channels, receipts, progress)
    for peer, receipt in receipts.items():
        _check_grid(receipt, by_cells=job.by_cells)
        _check_promise(receipt, theirs[peer].plan)
    return receipts


def _have_resolved(
    job: ActiveJob, channels: Sequence[Channel], tests: Mapping[str, ListedTests], receipts: Mapping[str, Receipt]
) -> dict[str, Router]:
    """Send every peer its split tests; returns the routers of the peers that share theirs.

    Where peers answer with cells nothing is sent: their offers hold the routers.
    """
    for channel in channels if not job.by_cells else ():
        listed = tests[channel.peer]
        channel.send(SplitRanks(columns=listed.columns, ranks=listed.ranks, missing_left=listed.missing_left))
    routers = {}
    for channel in channels:
        offer, n_asked = receipts[channel.peer].offered(), len(tests[channel.peer].ranks)
        document = offer.router if job.by_cells else expect(channel, Thresholds).router
        if document is not None:
            routers[channel.peer] = shared_router(channel.peer, document, offer, n_asked=n_asked, by_cells=job.by_cells)
    return routers


def _conclude(job: ActiveJob, channels: Sequence[Channel]) -> None:
    """Exchange `Done` with every peer: the model is saved here, and its share there."""
    for channel in channels:
        channel.send(Done())
    for channel in channels:
        expect(channel, Done)
        if job.journal is not None:
            job.journal.note_confirmed(channel.peer)
        channel.close()


def _watch(channels: Sequence[Channel], on_round: OnRound, progress: Progress) -> OnRound:
    """A callback after each round that reports progress and regularly checks that every peer is connected."""
    last_check = time.monotonic()

    def on_report(report: RoundReport) -> bool | None:
        nonlocal last_check
        progress("growing trees", report.finished, report.total)
        if time.monotonic() - last_check > HEARTBEAT_S:
            last_check = time.monotonic()
            for channel in channels:
                channel.check()
        return on_round(report)

    return on_report


def _check_grid(receipt: Receipt, *, by_cells: bool) -> None:
    """Refuse an offer whose columns have cuts without an agreed grid, lack them with one, or have them out of range."""
    for column in receipt.offered().columns:
        if (column.cuts is not None) is not by_cells or (column.cuts and column.cuts[-1] >= column.n_ranks - 1):
            raise UnexpectedMessage(
                f"{receipt.peer} offered a column of {column.n_ranks} ranks with "
                f"{'no cuts' if column.cuts is None else 'other cuts'} than "
                f"`answers: {'cells' if by_cells else 'tests'}` allows. Nothing was asked"
            )


def _check_promise(receipt: Receipt, plan: Terms) -> None:
    """Refuse a guarantee whose epsilon differs from the greeting's, which was compared with the agreed terms."""
    assert receipt.guarantee is not None
    sent, planned = receipt.guarantee.epsilon, plan.total_epsilon
    if planned is not None and not math.isclose(sent, planned, rel_tol=1e-9):
        raise UnexpectedMessage(
            f"{receipt.peer} sent a guarantee with an epsilon of {sent:.6g} for all columns; its greeting said "
            f"{planned:.6g}. Nothing was asked"
        )


def _check_number(tests: Mapping[str, ListedTests]) -> None:
    """Refuse trees with more split tests on one party's columns than a message can hold."""
    for peer, listed in tests.items():
        if len(listed.ranks) > MAX_TESTS:
            raise ParameterError(
                f"the trees make {len(listed.ranks)} different splits on the columns of {peer}; at most {MAX_TESTS} "
                "can be resolved. Train fewer or smaller trees; no split rank was sent"
            )
