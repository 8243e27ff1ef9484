"""The active party: collect ranks, train, have split ranks resolved, bind; later, predict."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pydantic import JsonValue

from opboost.arrays import Mask, Values
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
    ValidationPlan,
    bind,
    feature_matrix,
    list_tests,
    train,
)
from parties.agreement import conversation, greet
from parties.encoding import guarantee_from_dict, router_from_dict
from parties.errors import Disagreement
from parties.progress import Progress, no_progress
from protocols.channel import Channel, expect
from protocols.errors import UnexpectedMessage
from protocols.messages import Answers, Ask, Done, Hello, Offer, RankChunk, Role, SplitRanks, Task, Thresholds

# Records per request when predicting.
BATCH_ROWS = 1 << 14

# How often to look whether the peers are still there while trees grow.
CHECK_S = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class ActiveJob:
    """What the active party brings to a training run.

    Attributes
    ----------
    party, run_id, id_digest : str
    own : tuple of OwnColumn
    labels, weights : ndarray of float64, shape (n_rows,)
    loss : Loss
    parameters : BoostingParameters
    constraints : ColumnConstraints
        On own columns and on passive parties', by the names that these go by.
    validation : ValidationPlan, optional
        Rows to hold out of training.
    engine : {"native", "xgboost"}
        What grows the trees.
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
    seed: int | None = None
    alignment: str = "prealigned"
    orders: Mapping[str, NDArray[np.int64]] = field(default_factory=dict)
    on_round: OnRound = lambda _: None
    column_order: tuple[str, ...] = ()


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
    """

    ensemble: Ensemble
    guarantees: dict[str, Guarantee] = field(default_factory=dict)
    routers: dict[str, Router] = field(default_factory=dict)
    history: History = field(default_factory=History)


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
    Privacy: sends no label, gradient or leaf; the split ranks say which thresholds the trees use, and these depend
    on the labels.
    """
    with conversation(channels) as phase:
        phase.enter("greeting")
        for channel in channels:
            greet(channel, _hello(job))
        phase.enter("collecting ranks")
        guarantees: dict[str, Guarantee] = {}
        columns: list[Column] = list(job.own)
        for channel in channels:
            offer = expect(channel, Offer)
            guarantees[channel.peer] = guarantee_from_dict(offer.guarantee)
            columns.extend(_collect(channel, offer, job, progress))
        if job.column_order:
            columns.sort(key=lambda column: job.column_order.index(column.name))
        phase.enter("growing trees")
        trained = train(
            columns,
            job.labels,
            job.weights,
            loss=job.loss,
            parameters=job.parameters,
            constraints=job.constraints,
            validation=job.validation,
            engine=job.engine,
            seed=job.seed,
            on_round=_watch(channels, job.on_round, progress),
        )
        phase.enter("having split ranks resolved")
        tests = list_tests(trained)
        for channel in channels:
            wanted = tests[channel.peer]
            channel.send(SplitRanks(columns=wanted.columns, ranks=wanted.ranks, missing_left=wanted.missing_left))
        routers = {}
        for channel in channels:
            thresholds = expect(channel, Thresholds)
            if thresholds.router is not None:
                routers[channel.peer] = _shared_router(channel.peer, tests[channel.peer], thresholds.router)
        phase.enter("saving the model")
        model = JointModel(
            ensemble=bind(trained, tests), guarantees=guarantees, routers=routers, history=trained.history
        )
        save(model)
        for channel in channels:
            channel.send(Done())
        return model


def predict_jointly(
    model: JointModel,
    ids: pd.Index,
    own: Mapping[str, Values],
    channels: Sequence[Channel],
    *,
    party: str,
    run_id: str,
    desensitized: bool,
    progress: Progress = no_progress,
) -> tuple[Values, Mask]:
    """Predict records with the answers of the passive parties, one round trip per batch.

    Returns
    -------
    predictions : ndarray of float64, shape (n_rows,) or (n_rows, n_classes)
        NaN where a passive party does not know the record.
    is_complete : ndarray of bool, shape (n_rows,)
    """
    with conversation(channels) as phase:
        phase.enter("greeting")
        hello = Hello(role=Role.ACTIVE, party=party, run_id=run_id, task=Task.PREDICT, n_rows=0, id_digest="")
        for channel in channels:
            greet(channel, hello)
        phase.enter("asking for answers")
        predictions, complete = [], []
        for start in range(0, len(ids), BATCH_ROWS):
            batch = slice(start, start + BATCH_ROWS)
            ask = Ask(ids=tuple(ids[batch]), desensitized=desensitized)
            for channel in channels:
                channel.send(ask)
            answers, is_known = {}, np.ones(len(ask.ids), dtype=np.bool_)
            for channel in channels:
                answers[channel.peer], known = _read_answers(channel, model.ensemble, len(ask.ids))
                is_known &= known
            own_batch = {name: values[batch] for name, values in own.items()}
            matrix = feature_matrix(model.ensemble, own_batch, answers, len(ask.ids))
            scored = model.ensemble.predict(matrix)
            scored[~is_known] = np.nan
            predictions.append(scored)
            complete.append(is_known)
            progress("predicting", min(start + BATCH_ROWS, len(ids)), len(ids))
        for channel in channels:
            channel.send(Done())
        return np.concatenate(predictions), np.concatenate(complete)


def predict_locally(model: JointModel, own: Mapping[str, Values], columns: pd.DataFrame) -> Values:
    """Predict records of which A holds every column in clear, with the thresholds that the passive parties shared.

    Raises
    ------
    Disagreement
        If a passive party keeps its thresholds.
    """
    answers = {}
    for owner in model.ensemble.owners:
        if owner not in model.routers:
            raise Disagreement(
                f"{owner} keeps its thresholds, so A cannot score alone; predict in mode `routed` or `desensitized`"
            )
        answers[owner] = model.routers[owner].answer(columns, rng=None)
    return model.ensemble.predict(feature_matrix(model.ensemble, own, answers, len(columns)))


def _hello(job: ActiveJob) -> Hello:
    return Hello(
        role=Role.ACTIVE,
        party=job.party,
        run_id=job.run_id,
        task=Task.TRAIN,
        n_rows=len(job.labels),
        id_digest=job.id_digest,
        alignment=job.alignment,
    )


def _collect(channel: Channel, offer: Offer, job: ActiveJob, progress: Progress) -> list[RankColumn]:
    """Receive every chunk of every offered column, in order, and put the ranks in the order of the records."""
    columns, n_rows, order = [], len(job.labels), job.orders.get(channel.peer)
    for index, offered in enumerate(offer.columns):
        if offered.n_ranks > n_rows:
            raise UnexpectedMessage(
                f"{channel.peer} offers {offered.n_ranks} ranks in column {index}, more than the {n_rows} records"
            )
        ranks = np.empty(n_rows, dtype=np.uint32)
        filled = 0
        while filled < n_rows:
            chunk = expect(channel, RankChunk)
            end = filled + len(chunk.ranks)
            if (chunk.column, chunk.start) != (index, filled) or not filled < end <= n_rows:
                raise UnexpectedMessage(
                    f"{channel.peer} sent rows {chunk.start}.. of column {chunk.column} where rows {filled}.. of "
                    f"column {index} were due"
                )
            highest = offered.n_ranks if offered.has_missing else offered.n_ranks - 1
            if int(chunk.ranks.max()) > highest:
                raise UnexpectedMessage(
                    f"{channel.peer} sent a rank above {highest} in column {index}, which has {offered.n_ranks} ranks"
                )
            ranks[filled:end] = chunk.ranks
            filled = end
        if order is not None:
            ranks[order] = ranks.copy()
        columns.append(RankColumn(channel.peer, index, offered.name, ranks, offered.n_ranks))
        progress(f"collecting ranks of {channel.peer}", index + 1, len(offer.columns))
    return columns


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
    router = router_from_dict(document)
    if router.tests.n_tests != len(wanted.ranks):
        raise UnexpectedMessage(f"{peer} resolved {router.tests.n_tests} of {len(wanted.ranks)} split ranks")
    return router


def _read_answers(channel: Channel, ensemble: Ensemble, n_rows: int) -> tuple[Mask, Mask]:
    """One peer's answers to a batch: a bit per record and test, and which records it knows."""
    n_tests = sum(feature.owner == channel.peer for feature in ensemble.features)
    answers = expect(channel, Answers)
    if len(answers.is_known) != n_rows or answers.bits.shape != (n_rows, -(-n_tests // 8)):
        raise UnexpectedMessage(
            f"{channel.peer} answered {len(answers.is_known)} records in {answers.bits.shape[1]} bytes each; "
            f"{n_rows} records with {n_tests} tests were asked for"
        )
    return np.unpackbits(answers.bits, axis=1, count=n_tests).astype(np.bool_), answers.is_known
