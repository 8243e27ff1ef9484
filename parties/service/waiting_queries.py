"""Queries that wait to be scored, and which of them are asked for in the next message.

A passive party whose budget does not allow one of the records refuses all records of the message. If it was of several
callers, each message about them has at most half as many callers from then on, until one is answered or has a single
caller; that caller shares none with others for a while. Of its own refused message at most half as many queries are
asked for together, until they are answered or refused alone; the same query stays apart for as long, also if it was
given up and comes again. All these messages leave at least every second one to the others.

With ten columns a refusal about several records takes a step of 0.45 s. Of 20 callers beside one over budget, asking
for 20 refused queries one after the other left 3 answers in 12 s, and no refusal 261.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from enum import Enum, auto
from itertools import cycle, islice
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


class _Lane(Enum):
    """Who shares messages: usual queries, those of callers that were refused lately, and those refused themselves."""

    USUAL = auto()
    CALLERS = auto()
    REFUSED = auto()


class WaitingQueries:
    """Queries of all callers in the order in which they came; usable from several threads.

    Parameters
    ----------
    most : int
        How many may wait: usual ones, those of callers that were refused lately, and those that were themselves.
    clock : callable
        Seconds, of which differences count.
    """

    def __init__(self, most: int, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._most = most
        self._clock = clock
        self._changed = threading.Condition()
        self._waiting: list[ScoreQuery] = []
        self._turns = cycle((_Lane.USUAL, _Lane.CALLERS, _Lane.USUAL, _Lane.REFUSED))
        # How many callers may share a message with this one, or queries with that of these ids, by their hash; 0 if it
        # was refused alone. And when that was.
        self._refused: dict[str | int, tuple[int, float]] = {}

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
                lane = self._lane(query)
                if sum(self._lane(one) is lane for one in self._waiting) >= self._most:
                    raise Unavailable(f"{self._most} requests wait already")
            self._waiting.append(query)
            self._changed.notify()

    def take(self, timeout_s: float) -> list[ScoreQuery]:
        """The queries of the next message, with or all without reasons; none after a while without any."""
        with self._changed:
            self._changed.wait_for(self.__bool__, timeout_s)
            self._drop_given_up()
            lanes: dict[_Lane, list[ScoreQuery]] = {lane: [] for lane in _Lane}
            for query in self._waiting:
                lanes[self._lane(query)].append(query)
            lane = next((lane for lane in islice(self._turns, 4) if lanes[lane]), _Lane.USUAL)
            found = self._sharing(lane, lanes[lane])
            taken = set(found)
            self._waiting = [query for query in self._waiting if query not in taken]
        return found

    def take_all(self) -> list[ScoreQuery]:
        """All queries that wait, which are not to be asked for."""
        with self._changed:
            found, self._waiting = self._waiting, []
        return found

    def note(self, batch: Sequence[ScoreQuery], refused: Sequence[ScoreQuery]) -> list[ScoreQuery]:
        """Take note of which queries of a message were refused; returns those that wait again."""
        again = list(refused) if len(refused) > 1 else []
        callers = {query.caller for query in refused}
        with self._changed:
            for query in batch:
                self._refused.pop(hash(query.ids), None)
                if self._limit(query.caller):
                    del self._refused[query.caller]
            for caller in callers:
                self._remember(caller, len(callers) // 2)
            for query in refused if len(callers) == 1 else ():
                self._remember(hash(query.ids), len(refused) // 2)
            self._waiting[:0] = again
        return again

    def _remember(self, key: str | int, limit: int) -> None:
        self._refused.pop(key, None)
        self._refused[key] = limit, self._clock()
        if len(self._refused) > MOST_REMEMBERED:
            del self._refused[next(iter(self._refused))]

    def _limit(self, key: str | int) -> int | None:
        """How many share a message with a caller or query that was refused lately; None if it was not."""
        limit, at = self._refused.get(key, (0, -inf))
        return limit if self._clock() - at < REMEMBERED_S else None

    def _lane(self, query: ScoreQuery) -> _Lane:
        if self._limit(hash(query.ids)) is not None:
            return _Lane.REFUSED
        return _Lane.USUAL if self._limit(query.caller) is None else _Lane.CALLERS

    def _sharing(self, lane: _Lane, found: list[ScoreQuery]) -> list[ScoreQuery]:
        """The queries of a lane that share its next message: first those that may share it with most."""
        if lane is _Lane.USUAL:
            return _fitting(found)
        limits = [self._limit(query.caller if lane is _Lane.CALLERS else hash(query.ids)) or 0 for query in found]
        most = max(limits)
        found = [query for query, limit in zip(found, limits, strict=True) if limit == most]
        callers = list(dict.fromkeys(query.caller for query in found))[: max(1, most) if lane is _Lane.CALLERS else 1]
        batch = _fitting([query for query in found if query.caller in callers])
        return batch if lane is _Lane.CALLERS else batch[: max(1, most)]

    def _drop_given_up(self) -> None:
        self._waiting = [query for query in self._waiting if not query.scored.cancelled()]


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
