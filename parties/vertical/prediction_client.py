"""The active party's side of prediction: ask the passive parties for answers to their split tests, and score."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from opboost.arrays import Values
from opboost.desensitize import exact
from opboost.routing import PackedAnswers
from opboost.split_tests import feature_matrix, n_answer_bits, unpacked
from opboost.trees.tree import Ensemble
from parties.errors import Disagreement
from parties.progress import Progress, no_progress
from parties.runs.joint_model import JointModel
from parties.session.handshake import conversation, greet_all
from parties.session.heartbeats import heartbeats
from protocols.errors import UnexpectedMessage
from protocols.messages.prediction import Answers, Ask, RecordStatus
from protocols.messages.vertical import Done, Hello, Role, Task, Terms
from protocols.transport.channel import Channel, expect
from protocols.transport.codec import MAX_ARRAY_BYTES

# Records per request, unless a passive party takes fewer.
BATCH_ROWS = 1 << 14

# Cells of the feature matrix that is scored at once, so that it stays in the processor's cache.
_SCORED_CELLS = 1 << 17

T = TypeVar("T")

Statuses = NDArray[np.uint8]
"""Per record a `RecordStatus`: the highest of those that the passive parties sent."""

Evaluation = Callable[[Ensemble, Values], Values]
"""Computes values per record: `Ensemble.predict`, or another method that takes a feature matrix."""

AnswerBits = dict[str, NDArray[np.uint8]]
"""Answers of shape (n_rows, ceil(n_bits / 8)) by passive party; 0 where it did not answer."""


@dataclass(slots=True)
class FinishedBatches(Generic[T]):
    """Finished batches and open answers of a prediction; kept over a peer's restart, so that nothing is asked twice.

    Attributes
    ----------
    parts : list of (object, ndarray)
        Per finished batch, its result, such as predictions or packed bits, and its statuses.
    answered : dict of str to Answers
        By party, answers about the records after the finished batches.
    keep : callable
        Called with the number of a batch's first record, its result and its statuses, once it is finished.
    """

    parts: list[tuple[T, Statuses]] = field(default_factory=list)
    answered: dict[str, Answers] = field(default_factory=dict)
    keep: Callable[[int, T, Statuses], None] = lambda first, result, status: None


class Session:
    """An open conversation with all passive parties, for any number of requests; made by `session`.

    Parameters
    ----------
    model : JointModel
    channels : sequence of Channel
    batch_rows : int
        Records per request.
    """

    def __init__(self, model: JointModel, channels: Sequence[Channel], *, batch_rows: int) -> None:
        self._ensemble = model.ensemble
        self._channels = channels
        self._batch_rows = batch_rows

    def predict(
        self,
        ids: Sequence[str] | pd.Index,
        own: Mapping[str, Values],
        *,
        desensitized: bool,
        progress: Progress = no_progress,
        evaluate: Evaluation = Ensemble.predict,
        finished: FinishedBatches[Values] | None = None,
    ) -> tuple[Values, Statuses]:
        """Predict records with the answers of the passive parties, one round trip per batch.

        Parameters
        ----------
        ids : sequence or Index of str
        own : mapping of str to ndarray, each of shape (n_rows,)
            The active party's columns.
        desensitized : bool
            Whether the passive parties are to desensitize the records before they answer.
        evaluate : callable
            What is computed in place of predictions.
        finished : FinishedBatches, optional
            Of an earlier session about the same records.

        Returns
        -------
        predictions : ndarray of float64, shape (n_rows,) or (n_rows, n_classes)
            NaN where a passive party did not answer.
        status : ndarray of uint8, shape (n_rows,)
        """

        def scored(rows: slice, packed: AnswerBits, status: Statuses) -> Values:
            mine = {name: values[rows] for name, values in own.items()}
            predictions = evaluated(self._ensemble, mine, packed, len(status), evaluate)
            predictions[status != RecordStatus.ANSWERED] = np.nan
            return predictions

        batches = finished or FinishedBatches()
        predictions, status = self._finish(ids, batches, scored, desensitized=desensitized, progress=progress)
        return np.concatenate(predictions), status

    def ask(
        self, ids: Sequence[str] | pd.Index, *, desensitized: bool, finished: FinishedBatches[AnswerBits] | None = None
    ) -> tuple[AnswerBits, Statuses]:
        """Ask about records that are scored elsewhere; `finished` is of an earlier session about the same records."""
        batches = finished or FinishedBatches()
        packed, status = self._finish(ids, batches, lambda rows, packed, status: packed, desensitized=desensitized)
        return {peer: np.concatenate([part[peer] for part in packed]) for peer in packed[0]}, status

    def _finish(
        self,
        ids: Sequence[str] | pd.Index,
        batches: FinishedBatches[T],
        result_of: Callable[[slice, AnswerBits, Statuses], T],
        *,
        desensitized: bool,
        progress: Progress = no_progress,
    ) -> tuple[tuple[T, ...], Statuses]:
        """Ask about the unfinished batches; returns the results of all batches, and the statuses of all records."""
        start = sum(len(status) for _, status in batches.parts)
        while start < len(ids) or not batches.parts:
            # A party that has answered did so for a whole batch; one that was restarted may take smaller batches.
            n_rows = min((self._batch_rows, *(len(answers.status) for answers in batches.answered.values())))
            rows = slice(start, start + n_rows)
            packed, status = self._ask_batch(tuple(ids[rows]), batches.answered, desensitized=desensitized)
            result = result_of(rows, packed, status)
            batches.keep(start, result, status)
            batches.parts.append((result, status))
            batches.answered = {
                peer: Answers(status=answers.status[n_rows:], bits=answers.bits[n_rows:])
                for peer, answers in batches.answered.items()
                if len(answers.status) > n_rows
            }
            start = min(rows.stop, len(ids))
            progress("predicting", start, len(ids))
        results, statuses = zip(*batches.parts, strict=True)
        return results, np.concatenate(statuses)

    def check(self) -> None:
        """Check that all passive parties are connected and say nothing, and send them heartbeats; does not wait.

        Raises
        ------
        PeerLost, PeerAborted
        UnexpectedMessage
            If one has said something that nobody asked for, after which its end would go unnoticed.
        """
        for channel in self._channels:
            channel.check()
            if channel.is_ready():
                unasked = channel.receive()
                raise UnexpectedMessage(f"{channel.peer} sent a message {unasked.kind!r} that nobody asked for")

    def heartbeats(self) -> AbstractContextManager[Callable[[], None]]:
        """Send the passive parties heartbeats during a block that asks nothing."""
        return heartbeats(self._channels)

    def _ask_batch(
        self, ids: tuple[str, ...], answered: dict[str, Answers], *, desensitized: bool
    ) -> tuple[AnswerBits, Statuses]:
        """Ask the parties that have no answers in `answered` yet, and combine all answers to a batch."""
        asked = [channel for channel in self._channels if channel.peer not in answered]
        ask = Ask(ids=ids, desensitized=desensitized)
        for channel in asked:
            channel.send(ask)
        for channel in asked:
            answers = expect(channel, Answers)
            answers.check_for(ask, n_bits=n_answer_bits(self._ensemble, channel.peer), peer=channel.peer)
            answered[channel.peer] = answers
        packed, status = {}, np.zeros(len(ids), np.uint8)
        for peer, answers in answered.items():
            packed[peer] = answers.bits[: len(ids)]
            np.maximum(status, answers.status[: len(ids)], out=status)
        return packed, status


def evaluated(
    ensemble: Ensemble,
    own: Mapping[str, Values],
    packed: Mapping[str, NDArray[np.uint8]],
    n_rows: int,
    evaluate: Evaluation = Ensemble.predict,
) -> Values:
    """Evaluate records by own columns and packed answers, a few at a time: unpacked answers are large."""
    n_at_once = max(256, _SCORED_CELLS // max(1, len(ensemble.features)))
    results = []
    for start in range(0, max(1, n_rows), n_at_once):
        rows = slice(start, min(start + n_at_once, n_rows))
        answers = {peer: unpacked(ensemble, peer, bits[rows]) for peer, bits in packed.items()}
        mine = {name: values[rows] for name, values in own.items()}
        results.append(evaluate(ensemble, feature_matrix(ensemble, mine, answers, rows.stop - rows.start)))
    return np.concatenate(results)


def asking_hello(party: str, run_id: str, reveal: str | None, training: str | None = None) -> Hello:
    """The active party's greeting for prediction; `reveal` says how coarsely it publishes scores."""
    plan = Terms(reveal=reveal)
    return Hello(
        role=Role.ACTIVE, party=party, run_id=run_id, task=Task.PREDICT, n_rows=0, plan=plan, training=training
    )


def most_rows(n_bits: int) -> int:
    """Records per request whose answers fit into a message."""
    return min(BATCH_ROWS, MAX_ARRAY_BYTES // max(1, -(-n_bits // 8)))


@contextmanager
def session(
    model: JointModel, channels: Sequence[Channel], *, party: str, run_id: str, reveal: str | None = None
) -> Iterator[Session]:
    """Open a session with all passive parties: greet them, and end it with `Done`.

    Parameters
    ----------
    model : JointModel
    channels : sequence of Channel
    party, run_id : str
    reveal : str, optional
        How coarsely this party publishes scores, in words; None if it publishes them exactly.

    Raises
    ------
    Disagreement
    """
    with conversation(channels) as phase:
        phase.enter("greeting")
        peers = [channel.peer for channel in channels]
        hellos = {peer: asking_hello(party, run_id, reveal, model.trainings.get(peer)) for peer in peers}
        theirs = greet_all(channels, hellos)
        phase.enter("asking for answers")
        limits = (greeting.max_rows for greeting in theirs.values() if greeting.max_rows is not None)
        yield Session(model, channels, batch_rows=min((BATCH_ROWS, *limits)))
        for channel in channels:
            channel.send(Done())


def predict_jointly(
    model: JointModel,
    ids: pd.Index,
    own: Mapping[str, Values],
    channels: Sequence[Channel],
    *,
    party: str,
    run_id: str,
    desensitized: bool,
    evaluate: Evaluation = Ensemble.predict,
) -> tuple[Values, Statuses]:
    """Predict records in a new `session`; parameters and result are those of `Session.predict`."""
    with session(model, channels, party=party, run_id=run_id) as asking:
        return asking.predict(ids, own, desensitized=desensitized, evaluate=evaluate)


def predict_locally(
    model: JointModel, own: Mapping[str, Values], columns: pd.DataFrame, *, evaluate: Evaluation = Ensemble.predict
) -> Values:
    """Predict records whose columns A holds all in clear, with the thresholds that the passive parties shared.

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
        router = model.routers[owner]
        codes = {mechanism.schema.name: exact(mechanism, column) for mechanism, column in router.encode(columns)}
        answers[owner] = unpacked(model.ensemble, owner, PackedAnswers(router).of(codes, len(columns)))
    return evaluate(model.ensemble, feature_matrix(model.ensemble, own, answers, len(columns)))
