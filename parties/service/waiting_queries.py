"""Queries that wait to be scored, and which of them are asked for in the next message.

A passive party whose budget does not allow one of the records refuses all records of the message. If it was of several
callers, each message about them has at most half as many callers from then on, until one is answered or has a single
caller; that caller shares none with others for a while. Of its own refused message each query is asked for alone, and
stays so for that caller for as long, also if it was given up and comes again. Refused callers take turns: whose last
one was longest ago is next, however many queries another one has. While others wait, all these messages together take
about half of the time.

With ten columns a refusal about several records takes a step of 0.45 s. Of 20 callers beside one over budget, asking
for 20 refused queries one after the other left 3 answers in 12 s, and no refusal 261. Halves of a caller's own queries
found those over budget too late where most are about one record, which B answers at once.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from math import inf

from opboost.arrays import Values
from parties.errors import Unavailable
from parties.vertical.prediction_client import BATCH_ROWS, Statuses

# Characters of a message's ids behind which no further query joins it: with the longest ids of one request more, they
# still fit into a message.
MOST_CHARACTERS = 1 << 20

# How long a refusal is remembered, and of how many queries and callers, the latest.
REMEMBERED_S, MOST_REMEMBERED = 600.0, 4096

Scored = tuple[Values, Statuses]
"""Predictions, with contributions behind them where reasons were asked for, and a status per record."""


@dataclass(frozen=True, slots=True, eq=False)
class ScoreQuery:
    """Records to be scored, and where the scores go; one whose `scored` is cancelled before its turn is not asked for.

    Attributes
    ----------
    ids : tuple of str
    own : mapping of str to ndarray, each of shape (n_rows,)
        The active party's columns.
    explains : bool
        Whether contributions are wanted, too.
    caller : str
        Who asks: a name from the file of tokens.
    scored : Future
    """

    ids: tuple[str, ...]
    own: Mapping[str, Values]
    explains: bool = False
    caller: str = ""
    scored: Future[Scored] = field(default_factory=Future)

    def answer(self, scored: Scored) -> None:
        """Hand over the scores, unless the query was given up."""
        if self.scored.set_running_or_notify_cancel():
            self.scored.set_result(scored)

    def refuse(self, reason: str) -> None:
        """Say why there are no scores, unless the query was given up."""
        if self.scored.set_running_or_notify_cancel():
            self.scored.set_exception(Unavailable(reason))


class WaitingQueries:
    """Queries of all callers in the order in which they came; usable from several threads.

    Parameters
    ----------
    most : int
        How many may wait, and how many besides of each caller that was refused lately.
    clock : callable
        Seconds, of which differences count.
    """

    def __init__(self, most: int, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._most = most
        self._clock = clock
        self._changed = threading.Condition()
        self._waiting: list[ScoreQuery] = []
        # How many callers may share a message with one that was refused, or that a caller's query for these ids, by
        # their hash, is asked for alone; and when it was refused.
        self._refused: dict[str | tuple[str, int], tuple[int, float]] = {}
        # The number of the last message of callers that were refused, and of each one's own.
        self._n_turns, self._turns = 0, dict[str, int]()
        # When the message at hand was taken, and whether usual queries waited besides.
        self._taken_at, self._was_waited_for = 0.0, False
        # For how long messages of callers that were refused may go on while usual queries wait; below 0 they took more.
        self._time_left_s = 0.0

    def __bool__(self) -> bool:
        """Whether any query waits."""
        return bool(self._waiting)

    def put(self, query: ScoreQuery) -> None:
        """Let a query wait for its turn.

        Raises
        ------
        Unavailable
            If too many wait.
        """
        with self._changed:
            if len(self._waiting) >= self._most:
                self._drop_given_up()
                queue = self._queue_of(query)
                if sum(self._queue_of(waiting) == queue for waiting in self._waiting) >= self._most:
                    raise Unavailable(f"{self._most} requests wait already")
            self._waiting.append(query)
            self._changed.notify()

    def take(self, timeout_s: float) -> list[ScoreQuery]:
        """The queries of the next message, all with reasons or all without; none if none comes within `timeout_s`."""
        with self._changed:
            self._changed.wait_for(self.__bool__, timeout_s)
            self._drop_given_up()
            usual, isolated = list[ScoreQuery](), list[ScoreQuery]()
            for query in self._waiting:
                (isolated if self._is_isolated(query) else usual).append(query)
            batch = self._sharing(isolated) if isolated and (self._time_left_s > 0 or not usual) else _fitting(usual)
            taken = set(batch)
            self._waiting = [query for query in self._waiting if query not in taken]
            self._taken_at, self._was_waited_for = self._clock(), bool(usual)
        return batch

    def take_all(self) -> list[ScoreQuery]:
        """All queries that wait, which are not to be asked for."""
        with self._changed:
            queries, self._waiting = self._waiting, []
        return queries

    def note(self, batch: Sequence[ScoreQuery], refused: Sequence[ScoreQuery]) -> list[ScoreQuery]:
        """Take note of which queries of the message at hand were refused; returns those that wait again."""
        again = list(refused) if len(refused) > 1 else []
        callers = {query.caller for query in refused}
        with self._changed:
            took_s = self._clock() - self._taken_at
            if not self._is_isolated(batch[0]):
                self._time_left_s = min(self._time_left_s, 0.0) + took_s
            elif self._was_waited_for:
                self._time_left_s -= took_s
            for query in batch:
                self._refused.pop(_key(query), None)
                if self._limit(query.caller):
                    del self._refused[query.caller]
            for caller in callers:
                self._remember(caller, len(callers) // 2)
            for query in refused if len(callers) == 1 else ():
                self._remember(_key(query), 0)
            self._waiting[:0] = again
        return again

    def _remember(self, key: str | tuple[str, int], limit: int) -> None:
        self._refused.pop(key, None)
        self._refused[key] = limit, self._clock()
        if len(self._refused) > MOST_REMEMBERED:
            del self._refused[next(iter(self._refused))]

    def _limit(self, key: str | tuple[str, int]) -> int | None:
        """How many may share a message with a caller or query that was refused lately; None if it was not."""
        limit, at = self._refused.get(key, (0, -inf))
        return limit if self._clock() - at < REMEMBERED_S else None

    def _queue_of(self, query: ScoreQuery) -> str | None:
        """The queue in which a query is counted: its caller's own one if it is isolated, else that of all callers."""
        return query.caller if self._is_isolated(query) else None

    def _is_isolated(self, query: ScoreQuery) -> bool:
        return self._limit(query.caller) is not None or self._limit(_key(query)) is not None

    def _sharing(self, isolated: Sequence[ScoreQuery]) -> list[ScoreQuery]:
        """The next message of isolated queries: of the caller whose last turn was longest ago, and what may join it."""
        isolated = sorted(isolated, key=lambda query: self._turns.get(query.caller, 0))
        batch = [isolated[0]]
        if self._limit(_key(isolated[0])) is None:
            limit = self._limit(isolated[0].caller)
            alike = [
                query for query in isolated if self._limit(query.caller) == limit and self._limit(_key(query)) is None
            ]
            callers = list(dict.fromkeys(query.caller for query in alike))[: max(1, limit or 0)]
            batch = _fitting([query for query in alike if query.caller in callers])
        self._n_turns += 1
        self._turns |= {query.caller: self._n_turns for query in batch}
        return batch

    def _drop_given_up(self) -> None:
        self._waiting = [query for query in self._waiting if not query.scored.cancelled()]


def _key(query: ScoreQuery) -> tuple[str, int]:
    """Key under which a caller's query is recognised when it is sent again."""
    return query.caller, hash(query.ids)


def _fitting(queries: Sequence[ScoreQuery]) -> list[ScoreQuery]:
    """The first queries that fit into one message, all with reasons or all without as the first is."""
    batch = list[ScoreQuery]()
    n_rows = n_characters = 0
    for query in queries:
        if n_rows >= BATCH_ROWS or n_characters >= MOST_CHARACTERS:
            break
        if query.explains is queries[0].explains:
            batch.append(query)
            n_rows += len(query.ids)
            n_characters += sum(map(len, query.ids))
    return batch
