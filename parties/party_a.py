"""The active party: collect ranks, train, have split ranks resolved, bind."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from pydantic import JsonValue

from opboost.arrays import Values
from opboost.errors import ParameterError
from opboost.fit_quality import FitQuality, training_quality
from opboost.privacy.guarantee import Guarantee
from opboost.routing import Router
from opboost.trees.boosting import BoostingParameters, OnRound, RoundReport
from opboost.trees.constraints import ColumnConstraints
from opboost.trees.losses import Loss
from opboost.trees.tree import Ensemble
from opboost.trees.validation import History
from opboost.vertical import (
    Column,
    Engine,
    ListedTests,
    OwnColumn,
    RankColumn,
    TrainedTrees,
    ValidationPlan,
    bind,
    list_tests,
    train,
)
from parties.agreement import Phase, conversation, greet_all
from parties.encoding import router_from_dict
from parties.errors import ConfigError
from parties.journal import Journal
from parties.progress import Progress, no_progress
from parties.receipts import Receipt, collect
from protocols.channel import Channel, expect
from protocols.errors import UnexpectedMessage
from protocols.messages import Done, Hello, Role, SplitRanks, Task, Terms, Thresholds

# How often to look whether the peers are still there while trees grow.
CHECK_S = 0.5

# More tests than this no message can ask for.
MOST_TESTS = 1 << 32


class Grower(Protocol):
    """Grows trees where the active party's rows lie, from the passive parties' columns alone."""

    @property
    def n_rows(self) -> int: ...
    def __call__(self, received: Sequence[RankColumn], /) -> TrainedTrees: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ActiveJob:
    """What the active party brings to a training run.

    Attributes
    ----------
    party, run_id, id_digest : str
    own : tuple of OwnColumn
    labels, weights : ndarray of float64, shape (n_rows,)
        Like the rows of `own`, empty where `grow` has them.
    loss : Loss
    parameters : BoostingParameters
    constraints : ColumnConstraints
        On own columns and on passive parties', by the names that these go by.
    validation : ValidationPlan, optional
        Rows to hold out of training.
    engine : {"native", "xgboost"}
        What grows the trees.
    grow : Grower, optional
        Grows them in place of `engine`: for rows that lie elsewhere.
    seed : int or None
        For row and column sampling.
    alignment : str
        How the records were aligned, in words that must be the same on both sides.
    orders : dict of str to ndarray of int64
        Per passive party, in which order its ranks travel, where that is not the order of the records.
    on_round : callable
        Takes a RoundReport after every round; training ends if it returns True.
    column_order : tuple of str, optional
        Order of all columns, which decides ties; by default A's own, then each passive party's.
    agreed : mapping of str to Terms
        What was agreed that each peer does.
    journal : Journal, optional
        Where to keep what is needed to go on after an interruption, and what to go on from.
    """

    party: str
    run_id: str
    id_digest: str
    own: tuple[OwnColumn, ...]
    labels: Values
    weights: Values
    loss: Loss
    parameters: BoostingParameters
    constraints: ColumnConstraints = field(default_factory=ColumnConstraints)
    validation: ValidationPlan | None = None
    engine: Engine = "native"
    grow: Grower | None = None
    seed: int | None = None
    alignment: str = "prealigned"
    orders: Mapping[str, NDArray[np.int64]] = field(default_factory=dict)
    on_round: OnRound = lambda _: None
    column_order: tuple[str, ...] = ()
    agreed: Mapping[str, Terms] = field(default_factory=dict)
    journal: Journal | None = None

    @property
    def n_rows(self) -> int:
        """Records."""
        return len(self.labels) if self.grow is None else self.grow.n_rows

    @property
    def most_tests(self) -> int:
        """How many split tests the model can make, whosever columns they are on."""
        n_trees = self.parameters.n_estimators * self.loss.n_outputs
        return min(n_trees * self.parameters.max_splits, MOST_TESTS)

    def receipt(self, peer: str) -> Receipt:
        """What a peer has sent so far; empty without a journal."""
        folder = None if self.journal is None else self.journal.folder_of(peer)
        return Receipt(peer, self.n_rows, folder, order=self.orders.get(peer))

    def hello(self, peer: str, receipt: Receipt | None = None, task: Task = Task.TRAIN) -> Hello:
        """The greeting for a peer; with what was received of it, once ranks are due."""
        return Hello(
            role=Role.ACTIVE,
            party=self.party,
            run_id=self.run_id,
            task=task,
            n_rows=self.n_rows,
            id_digest=self.id_digest,
            alignment=self.alignment,
            has_label=True,
            plan=Terms(objective=self.loss.name, tests=self.most_tests),
            agreed=self.agreed.get(peer, Terms()),
            held=receipt.held() if receipt else None,
        )

    def check_names(self, theirs: Mapping[str, Hello]) -> None:
        """Refuse constraints on a column that no party is going to bring, while nothing is released.

        Raises
        ------
        ParameterError
        """
        names = [column.name for column in self.own]
        are_categorical = [column.is_categorical for column in self.own]
        for hello in theirs.values():
            names += hello.names
            are_categorical += [False] * len(hello.names)
        try:
            self.constraints.on(names, are_categorical=are_categorical, max_delta_step=0.0)
        except ParameterError as error:
            raise ParameterError(f"{error}. Nothing was released") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class JointModel:
    """A's share of a model.

    Attributes
    ----------
    ensemble : Ensemble
        With one feature per own column and per test of each passive party.
    guarantees : dict of str to Guarantee
        Per passive party, what its release promises.
    routers : dict of str to Router
        The passive parties that let A score alone.
    history : History
        Scores of the rows that were held out, round by round.
    fit : FitQuality or None
        How the model fits the held-out rows, or else those that it was trained on.
    """

    ensemble: Ensemble
    guarantees: dict[str, Guarantee] = field(default_factory=dict)
    routers: dict[str, Router] = field(default_factory=dict)
    history: History = field(default_factory=History)
    fit: FitQuality | None = None


def train_jointly(
    job: ActiveJob,
    channels: Sequence[Channel],
    *,
    save: Callable[[JointModel], None] = lambda model: None,
    progress: Progress = no_progress,
) -> JointModel:
    """Train with the passive parties at the other ends of `channels`.

    The peers are told that the job is done only after `save` has returned.

    Notes
    -----
    Privacy: sends no label, gradient or leaf; the split ranks say which thresholds trees use: these depend on labels.
    """
    with conversation(channels) as phase:
        receipts = _agree_and_collect(job, channels, phase, progress, accept=job.check_names)
        received = [column for receipt in receipts.values() for column in receipt.columns]
        phase.enter("growing trees")
        on_round = _watch(channels, job.on_round, progress)
        trained = _grow(job, received, on_round) if job.grow is None else job.grow(received)
        tests = list_tests(trained)
        if job.journal is not None:
            job.journal.note_tests(tests)
        phase.enter("having split ranks resolved")
        routers = _have_resolved(channels, tests)
        phase.enter("saving the model")
        guarantees = {peer: receipt.guarantee for peer, receipt in receipts.items() if receipt.guarantee}
        ensemble = bind(trained, tests)
        is_held_out = job.validation.is_held_out if job.validation is not None else None
        # Trees that were grown elsewhere have their rows there.
        fit = training_quality(trained, ensemble, job.labels, is_held_out) if job.grow is None else None
        model = JointModel(
            ensemble=ensemble,
            guarantees=guarantees,
            routers=routers,
            history=trained.history,
            fit=fit,
        )
        save(model)
        phase.enter("telling the others that the model is saved")
        _conclude(job, channels)
        return model


def _grow(job: ActiveJob, received: Sequence[RankColumn], on_round: OnRound) -> TrainedTrees:
    columns: list[Column] = [*job.own, *received]
    if job.column_order:
        columns.sort(key=lambda column: job.column_order.index(column.name))
    return train(
        columns,
        job.labels,
        job.weights,
        loss=job.loss,
        parameters=job.parameters,
        constraints=job.constraints,
        validation=job.validation,
        engine=job.engine,
        seed=job.seed,
        on_round=on_round,
    )


def conclude_saved(job: ActiveJob, channel: Channel, *, progress: Progress = no_progress) -> None:
    """Let a peer finish a run whose model is saved here, but that never confirmed that it is done.

    The peer goes through the same sequence as ever, for the tests that the saved trees make.
    """
    assert job.journal is not None
    with conversation([channel]) as phase:
        _agree_and_collect(job, [channel], phase, progress)
        phase.enter("having split ranks resolved")
        _have_resolved([channel], {channel.peer: job.journal.tests(channel.peer)})
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
    """Agree with every peer, and receive of its release what earlier attempts have not."""
    phase.enter("greeting")
    receipts = {channel.peer: job.receipt(channel.peer) for channel in channels}
    mine = {peer: job.hello(peer, receipt) for peer, receipt in receipts.items()}
    for peer, hello in greet_all(channels, mine, accept=accept).items():
        receipts[peer].names = hello.names
    phase.enter("collecting ranks")
    collect(channels, receipts, progress)
    return receipts


def _have_resolved(channels: Sequence[Channel], tests: Mapping[str, ListedTests]) -> dict[str, Router]:
    """Send every peer the tests on its columns; returns what answers them, of the peers that share it."""
    for channel in channels:
        wanted = tests[channel.peer]
        channel.send(SplitRanks(columns=wanted.columns, ranks=wanted.ranks, missing_left=wanted.missing_left))
    routers = {}
    for channel in channels:
        thresholds = expect(channel, Thresholds)
        if thresholds.router is not None:
            routers[channel.peer] = _shared_router(channel.peer, tests[channel.peer], thresholds.router)
    return routers


def _conclude(job: ActiveJob, channels: Sequence[Channel]) -> None:
    """Tell every peer that the model is saved, and hear that it has saved its share."""
    for channel in channels:
        channel.send(Done())
    for channel in channels:
        expect(channel, Done)
        if job.journal is not None:
            job.journal.note_confirmed(channel.peer)
        channel.close()


def _watch(channels: Sequence[Channel], on_round: OnRound, progress: Progress) -> OnRound:
    """After a round: report progress, and look now and then whether every peer is still there."""
    last_check = time.monotonic()

    def watch(report: RoundReport) -> bool | None:
        nonlocal last_check
        progress("growing trees", report.finished, report.total)
        if time.monotonic() - last_check > CHECK_S:
            last_check = time.monotonic()
            for channel in channels:
                channel.check()
        return on_round(report)

    return watch


def _shared_router(peer: str, wanted: ListedTests, document: Mapping[str, JsonValue]) -> Router:
    try:
        router = router_from_dict(document)
    except ConfigError as error:
        raise UnexpectedMessage(f"{peer} sent thresholds that cannot be used: {error}") from None
    if router.tests.n_tests != len(wanted.ranks):
        raise UnexpectedMessage(f"{peer} resolved {router.tests.n_tests} of {len(wanted.ranks)} split ranks")
    return router
