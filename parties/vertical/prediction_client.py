"""The active party with a trained model: ask the passive parties for the answers of their tests, and score."""

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

# Features of records that are scored together: they should stay in the processor's cache.
_SCORED_CELLS = 1 << 17

T = TypeVar("T")

Statuses = NDArray[np.uint8]
"""Per record a `RecordStatus`: of several passive parties' words the one that counts."""

Evaluation = Callable[[Ensemble, Values], Values]
"""What is computed of records: `Ensemble.predict`, or another method that takes a feature matrix."""

AnswerBits = dict[str, NDArray[np.uint8]]
"""Answers of shape (n_rows, ceil(n_bits / 8)) by passive party; 0 where it did not answer."""


@dataclass(slots=True)
class FinishedBatches(Generic[T]):
    """What is known of records while they are asked about; outlives a peer's restart, so that nothing is asked twice.

    Attributes
    ----------
    parts : list of (object, ndarray)
        What was made of the batches that are finished, as predictions or packed bits, and their statuses.
    answered : dict of str to Answers
        About the records that come next, by party: of the batch that is under way, and maybe of some behind it.
    """

    parts: list[tuple[T, Statuses]] = field(default_factory=list)
    answered: dict[str, Answers] = field(default_factory=dict)


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

        known = finished or FinishedBatches()
        predictions, status = self._go_on(ids, known, scored, desensitized=desensitized, progress=progress)
        return np.concatenate(predictions), status

    def ask(
        self, ids: Sequence[str] | pd.Index, *, desensitized: bool, finished: FinishedBatches[AnswerBits] | None = None
    ) -> tuple[AnswerBits, Statuses]:
        """The passive parties' answers about records, one round trip per batch, to be scored elsewhere.

        `finished` is of an earlier session about the same records.
        """
        known = finished or FinishedBatches()
        packed, status = self._go_on(ids, known, lambda rows, packed, status: packed, desensitized=desensitized)
        return {one.peer: np.concatenate([part[one.peer] for part in packed]) for one in self._channels}, status

    def _go_on(
        self,
        ids: Sequence[str] | pd.Index,
        known: FinishedBatches[T],
        make: Callable[[slice, AnswerBits, Statuses], T],
        *,
        desensitized: bool,
        progress: Progress = no_progress,
    ) -> tuple[tuple[T, ...], Statuses]:
        """Ask about the batches that are not finished; what was made of all, and the statuses of records."""
        start = sum(len(status) for _, status in known.parts)
        while start < len(ids) or not known.parts:
            # No more than those who answered were asked for; one that was started again may take fewer.
            n_rows = min((self._batch_rows, *(len(answers.status) for answers in known.answered.values())))
            rows = slice(start, start + n_rows)
            packed, status = self._ask_batch(tuple(ids[rows]), known.answered, desensitized=desensitized)
            known.parts.append((make(rows, packed, status), status))
            known.answered = {
                peer: Answers(status=answers.status[n_rows:], bits=answers.bits[n_rows:])
                for peer, answers in known.answered.items()
                if len(answers.status) > n_rows
            }
            start = min(rows.stop, len(ids))
            progress("predicting", start, len(ids))
        made, statuses = zip(*known.parts, strict=True)
        return made, np.concatenate(statuses)

    def check(self) -> None:
        """Return at once if all passive parties are there; they hear that this one goes on.

        Raises
        ------
        PeerLost, PeerAborted
        """
        for channel in self._channels:
            channel.check()

    def heartbeats(self) -> AbstractContextManager[Callable[[], None]]:
        """A block of work during which nothing is asked, and the passive parties know that this one goes on."""
        return heartbeats(self._channels)

    def _ask_batch(
        self, ids: tuple[str, ...], answered: dict[str, Answers], *, desensitized: bool
    ) -> tuple[AnswerBits, Statuses]:
        """Ask those who have not answered yet."""
        asked = [channel for channel in self._channels if channel.peer not in answered]
        for channel in asked:
            channel.send(Ask(ids=ids, desensitized=desensitized))
        for channel in asked:
            answered[channel.peer] = self._read_answers(channel, len(ids))
        packed, status = {}, np.zeros(len(ids), np.uint8)
        for peer, answers in answered.items():
            packed[peer] = answers.bits[: len(ids)]
            np.maximum(status, answers.status[: len(ids)], out=status)
        return packed, status

    def _read_answers(self, channel: Channel, n_rows: int) -> Answers:
        """One peer's answers to a batch: bits about each record, and what it did with it."""
        n_bits = n_answer_bits(self._ensemble, channel.peer)
        answers = expect(channel, Answers)
        if len(answers.status) != n_rows or answers.bits.shape != (n_rows, -(-n_bits // 8)):
            raise UnexpectedMessage(
                f"{channel.peer} answered {len(answers.status)} records in {answers.bits.shape[1]} bytes each; "
                f"{n_rows} records with {n_bits} bits each were asked for"
            )
        return answers


def evaluated(
    ensemble: Ensemble,
    own: Mapping[str, Values],
    packed: Mapping[str, NDArray[np.uint8]],
    n_rows: int,
    evaluate: Evaluation = Ensemble.predict,
) -> Values:
    """What is computed of records by own columns and packed answers: a few at a time, since unpacked they are large."""
    n_at_once = max(256, _SCORED_CELLS // max(1, len(ensemble.features)))
    found = []
    for start in range(0, max(1, n_rows), n_at_once):
        rows = slice(start, min(start + n_at_once, n_rows))
        answers = {peer: unpacked(ensemble, peer, bits[rows]) for peer, bits in packed.items()}
        mine = {name: values[rows] for name, values in own.items()}
        found.append(evaluate(ensemble, feature_matrix(ensemble, mine, answers, rows.stop - rows.start)))
    return np.concatenate(found)


def asking_hello(party: str, run_id: str, reveal: str | None, training: str | None = None) -> Hello:
    """The active party's greeting for prediction; `reveal` is how coarse the scores are that it lets out."""
    return Hello(
        role=Role.ACTIVE,
        party=party,
        run_id=run_id,
        task=Task.PREDICT,
        n_rows=0,
        plan=Terms(reveal=reveal),
        training=training,
    )


def most_rows(n_bits: int) -> int:
    """Records per request whose answers fit into a message."""
    return min(BATCH_ROWS, MAX_ARRAY_BYTES // max(1, -(-n_bits // 8)))


@contextmanager
def session(
    model: JointModel, channels: Sequence[Channel], *, party: str, run_id: str, reveal: str | None = None
) -> Iterator[Session]:
    """Greet all passive parties, let the caller ask, and tell them when that is over.

    Parameters
    ----------
    model : JointModel
    channels : sequence of Channel
    party, run_id : str
    reveal : str, optional
        How coarse the scores are that this party lets out, in words; None if it lets them out as they are.

    Raises
    ------
    Disagreement
    """
    with conversation(channels) as phase:
        phase.enter("greeting")
        hellos = {one.peer: asking_hello(party, run_id, reveal, model.trainings.get(one.peer)) for one in channels}
        theirs = greet_all(channels, hellos)
        phase.enter("asking for answers")
        takes = (greeting.max_rows for greeting in theirs.values() if greeting.max_rows is not None)
        yield Session(model, channels, batch_rows=min((BATCH_ROWS, *takes)))
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
    """Predict records in a `session` of their own; see `Session.predict` for what is taken and returned."""
    with session(model, channels, party=party, run_id=run_id) as asking:
        return asking.predict(ids, own, desensitized=desensitized, evaluate=evaluate)


def predict_locally(
    model: JointModel, own: Mapping[str, Values], columns: pd.DataFrame, *, evaluate: Evaluation = Ensemble.predict
) -> Values:
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
        router = model.routers[owner]
        codes = {mechanism.schema.name: exact(mechanism, column) for mechanism, column in router.encode(columns)}
        answers[owner] = unpacked(model.ensemble, owner, PackedAnswers(router).of(codes, len(columns)))
    return evaluate(model.ensemble, feature_matrix(model.ensemble, own, answers, len(columns)))
