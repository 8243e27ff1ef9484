"""The passive party's side of prediction: the records that it answers, the answer bits, and the conversation."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from typing import NoReturn, Protocol

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from opboost.arrays import Mask
from opboost.desensitize import ColumnMechanism, ReleasedColumn, exact
from opboost.preprocess import EncodedColumn
from opboost.routing import PackedAnswers, Router
from parties.errors import OverBudget
from parties.ledger.answer_steps import Steps, no_steps
from parties.progress import Progress, no_progress
from parties.session.handshake import conversation, greet
from parties.session.session_log import Tally
from parties.tables.record_ids import each_id
from parties.tables.record_keys import KeyTexts, places_by_key
from parties.vertical.rate_limits import Allowance
from protocols.errors import UnexpectedMessage
from protocols.messages.prediction import Answers, Ask, RecordStatus
from protocols.messages.vertical import Abort, Done, Hello, Role, Task, Terms
from protocols.transport.channel import Channel, aborted
from protocols.transport.codec import MAX_ARRAY_BYTES

ReleaseRecords = Callable[[Sequence[ColumnMechanism], Sequence[EncodedColumn], pd.Index], Sequence[ReleasedColumn]]
"""Desensitizes the columns of records, given their ids."""


@dataclass(frozen=True)
class AnswerableRecords:
    """A table's records with their exact codes, which must not leave the party.

    Attributes
    ----------
    ids : Index of str
    columns : tuple of (ColumnMechanism, EncodedColumn)
        The columns that the split tests name.
    bits : ndarray of uint8, optional
        The packed answers from the exact codes, if computed in advance.
    keys : sequence of KeyTexts
        The keys by which records are asked for; empty if they are asked for by id.
    """

    ids: pd.Index
    columns: tuple[tuple[ColumnMechanism, EncodedColumn], ...]
    bits: NDArray[np.uint8] | None = None
    keys: Sequence[KeyTexts] = ()

    @cached_property
    def places(self) -> dict[str, int]:
        """The row of each id, or of each name by a key."""
        if self.keys:
            return places_by_key(self.keys)
        return {name: row for row, name in enumerate(each_id(self.ids))}

    @classmethod
    def of(
        cls, router: Router, ids: pd.Index, features: pd.DataFrame, keys: Sequence[KeyTexts] = ()
    ) -> AnswerableRecords:
        """Encode a table.

        Raises
        ------
        DataError
            If a column is absent or a cell does not fit the schema.
        """
        columns, bits = tuple(router.encode(features)), None
        if router.tests.by_cells:
            # Computed once: cells take a few bytes per record, and do not depend on the model's trees.
            codes = {mechanism.schema.name: exact(mechanism, column) for mechanism, column in columns}
            bits = PackedAnswers(router).of(codes, len(ids))
        return cls(ids, columns, bits, keys)

    def about(self, ids: Sequence[str]) -> AnswerableRecords:
        """All records of the table; `RecordSource` allows more than those asked for."""
        return self


class RecordSource(Protocol):
    """Interface of a source of answerable records; `AnswerableRecords` is one, in memory."""

    def about(self, ids: Sequence[str]) -> AnswerableRecords:
        """Records that include all known ones of these ids. Its duration may reveal which are known, and no more."""
        ...


def releases_nothing(
    mechanisms: Sequence[ColumnMechanism], columns: Sequence[EncodedColumn], ids: pd.Index
) -> NoReturn:
    """Refuse to desensitize records, with an `UnexpectedMessage`."""
    raise UnexpectedMessage("desensitized records were asked for where exact answers were due. Nothing was released")


class Answerer:
    """Answers requests about one table, within its owner's limits.

    Parameters
    ----------
    router : Router
    records : RecordSource
    release : callable
        Desensitizes records; by default it refuses.
    steps : callable
        Delays desensitized answers, whose time would otherwise reveal earlier releases.
    may_route : bool
        Whether exact bits may be sent.
    allowance : Allowance, optional
        Limits on the records that are asked for and on the exact bits that are sent.
    max_rows : int, optional
        Records per request; by default as many as one message can answer.
    trained : callable, optional
        Mask of a table's records that were released for training, which get no exact bits.
    note_over_budget : callable, optional
        Takes the error if desensitized records would exceed the ledger's budget; then all records of the request get a
        status. By default the error is raised.
    """

    def __init__(
        self,
        router: Router,
        records: RecordSource,
        *,
        release: ReleaseRecords = releases_nothing,
        steps: Steps = no_steps,
        may_route: bool,
        allowance: Allowance | None = None,
        max_rows: int | None = None,
        trained: Callable[[pd.Index], Mask] | None = None,
        note_over_budget: Callable[[OverBudget], None] | None = None,
    ) -> None:
        self.records: RecordSource = records
        self._trained = trained
        self._packed = PackedAnswers(router)
        self._n_columns = len(router.tests.columns)
        # Answers to more records would not fit into a message.
        rows_per_message = MAX_ARRAY_BYTES // max(1, -(-self._packed.n_bits // 8))
        self.max_rows = min(rows_per_message, max_rows or rows_per_message)
        self._release = release
        self._steps = steps
        self._may_route = may_route
        self._allowance = allowance
        self._note_over_budget = note_over_budget

    @property
    def n_bits(self) -> int:
        """Bits per answered record."""
        return self._packed.n_bits

    @property
    def n_records(self) -> int:
        """Number of records of a table in memory."""
        return len(self.records.about(()).ids)

    def answer(self, ask: Ask) -> Answers:
        """Answer a request; a record that the owner's limits refuse gets a status that says so, and no bits.

        Raises
        ------
        LedgerError
            If the ledger cannot be used, or desensitized records would exceed its budget and nothing notes that.

        Notes
        -----
        Privacy: for a desensitized request the bits are a function of codes drawn with the training mechanism, a new
        release of each record unless `release` finds it in a store. For a routed request they are exact: they reveal
        on which side of each used threshold, or in which cell of the agreed grid, a record lies, without any
        differential privacy. A refusal tells no bits, and only the one by the daily limit that the record is known. The
        one by the budget is the same for all records of the request, known or not, since the ledger charges for them
        together; the limits were charged for them before.
        """
        n_rows = len(ask.ids)
        if n_rows > self.max_rows:
            raise UnexpectedMessage(
                f"{n_rows} records were asked for at once; this party answers at most {self.max_rows} per request"
            )
        with self._steps(n_rows, self._n_columns) if ask.desensitized else nullcontext():
            return self._answer(ask, n_rows)

    def _answer(self, ask: Ask, n_rows: int) -> Answers:
        if not ask.desensitized and not self._may_route:
            return self._answers(np.full(n_rows, RecordStatus.REFUSED_ROUTED, np.uint8))
        n_taken = n_rows if self._allowance is None else self._allowance.take_records(n_rows)
        records = self.records.about(ask.ids[:n_taken])
        rows = np.full(n_rows, -1, np.intp)
        rows[:n_taken] = [records.places.get(name, -1) for name in ask.ids[:n_taken]]
        is_trained = np.zeros(n_rows, np.bool_)
        if self._trained is not None and not ask.desensitized and len(records.ids):
            is_trained = self._trained(records.ids)[rows] & (rows >= 0)
        status = self._status((rows >= 0) & ~is_trained, is_routed=not ask.desensitized)
        status[is_trained] = RecordStatus.REFUSED_TRAINING
        status[n_taken:] = RecordStatus.REFUSED_RATE_LIMIT
        answered = np.flatnonzero(status == RecordStatus.ANSWERED)
        answers = self._answers(status)
        if len(answered):
            try:
                answers.bits[answered] = self._bits(records, rows[answered], desensitized=ask.desensitized)
            except OverBudget as error:
                if self._note_over_budget is None:
                    raise
                self._note_over_budget(error)
                return self._answers(np.full(n_rows, RecordStatus.REFUSED_BUDGET, np.uint8))
        return answers

    def _bits(self, records: AnswerableRecords, rows: NDArray[np.intp], *, desensitized: bool) -> NDArray[np.uint8]:
        """Packed answers about some of the records."""
        if records.bits is not None and not desensitized:
            return records.bits[rows]
        selected = [(m, EncodedColumn(c.codes[rows], c.is_missing[rows], 0)) for m, c in records.columns]
        if desensitized:
            columns = list(self._release([m for m, _ in selected], [c for _, c in selected], records.ids[rows]))
        else:
            columns = [exact(mechanism, column) for mechanism, column in selected]
        return self._packed.of({c.schema.name: c for c in columns}, len(rows))

    def _answers(self, status: NDArray[np.uint8]) -> Answers:
        return Answers(status=status, bits=np.zeros((len(status), -(-self.n_bits // 8)), np.uint8))

    def _status(self, is_known: Mask, *, is_routed: bool) -> NDArray[np.uint8]:
        """The status of each record by the daily limit, which is charged for the known records."""
        status = np.where(is_known, RecordStatus.ANSWERED, RecordStatus.UNKNOWN).astype(np.uint8)
        if self._allowance is not None:
            known = np.flatnonzero(is_known)
            n_paid = self._allowance.take_bits(len(known), bits_each=self.n_bits if is_routed else 0)
            status[known[n_paid:]] = RecordStatus.REFUSED_DAILY_LIMIT
        return status


def prediction_hello(
    party: str,
    run_id: str,
    *,
    training: str | None = None,
    max_rows: int | None = None,
    reveal: str | None = None,
    comes_again: bool = False,
) -> Hello:
    """A passive party's greeting for prediction.

    `training` is the digest of the training that its share of the model is from; `reveal` is how coarsely A must
    publish scores.
    """
    return Hello(
        role=Role.PASSIVE,
        party=party,
        run_id=run_id,
        task=Task.PREDICT,
        n_rows=0,
        agreed=Terms(reveal=reveal),
        max_rows=max_rows,
        comes_again=comes_again,
        training=training,
    )


def answer_session(
    answerer: Answerer,
    channel: Channel,
    hello: Hello,
    *,
    tally: Tally,
    around: Callable[[], AbstractContextManager[None]] = nullcontext,
    progress: Progress = no_progress,
) -> None:
    """Answer the active party's requests until it sends `Done`; `tally` counts them, also if an error ends this.

    `around` makes a context for every request: entered before it is answered, left when the answer was sent.
    """
    with conversation([channel]) as phase:
        phase.enter("greeting")
        greet(channel, hello)
        tally.began = time.monotonic()
        while True:
            phase.enter("waiting for a request")
            match channel.receive():
                case Ask() as ask:
                    phase.enter("answering")
                    with around():
                        tally.count_request(ask)
                        answers = answerer.answer(ask)
                        tally.count_answers(ask, answers, answerer.n_bits)
                        channel.send(answers)
                    progress("answering", tally.n_answered, tally.n_answered)
                case Done():
                    return
                case Abort() as message:
                    raise aborted(channel.peer, message)
                case message:
                    raise UnexpectedMessage(f"{channel.peer} sent {message.kind!r} where a request was due")
