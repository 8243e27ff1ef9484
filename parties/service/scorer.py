"""Scorer: a thread with one lasting conversation with all passive parties, which scores waiting requests together.

Whatever waits when an answer has come is asked for in one message (micro-batch), so a request never waits for others to
come; `WaitingQueries` keeps those that a passive party's budget refuses apart. While a passive party is away, or owes
an answer for longer than requests may take, new requests are refused at once (circuit breaker); its return, or its
answer, lets them through again.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial

import numpy as np

from opboost.errors import OpBoostError
from opboost.trees.tree import Ensemble
from parties.errors import PartyError, RunFolderError, Unavailable
from parties.service.waiting_queries import Scored, ScoreQuery, WaitingQueries
from parties.vertical.prediction_client import Session
from parties.vertical.reasons import predicted_and_explained
from protocols.errors import ProtocolError
from protocols.messages.prediction import RecordStatus
from protocols.transport.channel import Channel

# How often an idle scorer looks after its connections, and how often a missing passive party is looked for.
_IDLE_S = 0.1

# Pause before a broken conversation is begun again, and the longest after several that broke sooner than that.
_PAUSE_S, _LONGEST_PAUSE_S = 0.1, 5.0

Connect = Callable[[Callable[[Sequence[Channel]], bool]], AbstractContextManager[Session | None]]
"""Opens channels to all passive parties, calls what waits until they are there, and begins a conversation.

There is none if that returns False.
"""


class Scorer:
    """Scores queries in a thread of its own, from `start` to `stop`.

    Parameters
    ----------
    connect : callable
    desensitized : bool
        Whether passive parties desensitize the records.
    patience_s : float
        How long passive parties may owe an answer until further queries are refused.
    max_waiting : int
        Queries that may wait, as of `WaitingQueries`.
    on_batch : callable
        Called with the number of records of every micro-batch.
    """

    def __init__(
        self,
        connect: Connect,
        *,
        desensitized: bool,
        patience_s: float,
        max_waiting: int,
        on_batch: Callable[[int], None] = lambda n_records: None,
    ) -> None:
        self._connect = connect
        self._desensitized = desensitized
        self._patience_s = patience_s
        self._on_batch = on_batch
        self._waiting = WaitingQueries(max_waiting)
        self._away = "the passive parties have not been reached yet"
        self._asked_at: float | None = None
        self._pause_s = _PAUSE_S
        self._stopping = threading.Event()
        # A passive party that hangs holds up this thread, but not the end of the process.
        self._thread = threading.Thread(target=self._run, name="opboost scorer", daemon=True)

    def start(self, deliver: Callable[[Callable[[], None]], object] = lambda call: call()) -> None:
        """Begin to connect. Scores of a batch are set in one call of `deliver`, which may be another thread's."""
        self._deliver = deliver
        self._thread.start()

    def stop(self, wait_s: float = 5.0) -> None:
        """Answer what waits, and end the conversation."""
        self._stopping.set()
        self._thread.join(wait_s)

    @property
    def is_alive(self) -> bool:
        """Whether the thread runs: it ends by `stop`, or by a defect."""
        return self._thread.is_alive()

    @property
    def refusal(self) -> str:
        """Why a query would not be scored now; empty if it would be."""
        asked_at = self._asked_at
        if not self._away and asked_at is not None and time.monotonic() - asked_at > self._patience_s:
            return f"a passive party has not answered for more than {self._patience_s:g} s"
        return self._away

    def submit(self, query: ScoreQuery) -> None:
        """Let a query wait for its turn.

        Raises
        ------
        Unavailable
            At once, if it would wait in vain. Nothing was asked then.
        """
        if refusal := self.refusal:
            raise Unavailable(refusal)
        self._waiting.put(query)

    def _run(self) -> None:
        reason = "the scorer has stopped"
        try:
            while not self._stopping.is_set():
                began, away = time.monotonic(), "the connection to the passive parties broke and is made again"
                # What ended a conversation is in the log, where that can be written.
                try:
                    self._converse()
                except RunFolderError:
                    away = "files in this party's run folder cannot be written"
                except (OpBoostError, PartyError, ProtocolError):
                    pass
                if time.monotonic() - began > _LONGEST_PAUSE_S:
                    self._pause_s = _PAUSE_S
                self._give_up(away)
                self._stopping.wait(self._pause_s)
                self._pause_s = min(2 * self._pause_s, _LONGEST_PAUSE_S)
        except Exception as error:
            reason = f"the scorer has stopped with {type(error).__name__}"
            raise
        finally:
            self._give_up(reason)

    def _converse(self) -> None:
        """One conversation: wait for all passive parties, answer until one is lost, or stopped and nothing waits."""
        with self._connect(self._wait_for_all) as session:
            if session is None:
                return
            self._away = ""
            while not self._stopping.is_set() or self._waiting:
                if batch := self._waiting.take(_IDLE_S):
                    self._score(session, batch)
                else:
                    session.check()

    def _wait_for_all(self, channels: Sequence[Channel]) -> bool:
        """Whether all passive parties came before the end of the service."""
        while absent := [channel.peer for channel in channels if not channel.is_ready()]:
            self._away = f"waiting for {', '.join(absent)}"
            if self._stopping.wait(_IDLE_S):
                return False
        return True

    def _score(self, session: Session, batch: Sequence[ScoreQuery]) -> None:
        """Score queries together; those that a passive party's budget refused among others wait again."""
        ids = tuple(record_id for query in batch for record_id in query.ids)
        try:
            scores, statuses = self._ask(session, ids, batch)
        except BaseException:
            for query in batch:
                query.refuse("a passive party did not answer")
            raise
        ends = np.cumsum([len(query.ids) for query in batch])[:-1]
        results = dict(zip(batch, zip(np.split(scores, ends), np.split(statuses, ends), strict=True), strict=True))
        refused = [query for query, (_, found) in results.items() if RecordStatus.REFUSED_BUDGET in found]
        again = set(self._waiting.note(batch, refused))
        self._deliver(partial(_answer_all, {query: scored for query, scored in results.items() if query not in again}))
        self._on_batch(len(ids))

    def _ask(self, session: Session, ids: tuple[str, ...], batch: Sequence[ScoreQuery]) -> Scored:
        own = batch[0].own
        if len(batch) > 1:
            own = {name: np.concatenate([query.own[name] for query in batch]) for name in own}
        evaluate = predicted_and_explained if batch[0].explains else Ensemble.predict
        self._asked_at = time.monotonic()
        try:
            return session.predict(ids, own, desensitized=self._desensitized, evaluate=evaluate)
        finally:
            self._asked_at = None

    def _give_up(self, reason: str) -> None:
        """Refuse what waits, and what comes until a conversation is on."""
        self._away = reason
        for query in self._waiting.take_all():
            query.refuse(reason)


def _answer_all(results: Mapping[ScoreQuery, Scored]) -> None:
    for query, scored in results.items():
        query.answer(scored)
