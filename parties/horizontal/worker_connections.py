"""Connections from the coordinator to all workers: membership, next message, failure handling."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass

from protocols.errors import (
    DecodeError,
    Outlook,
    PeerAborted,
    PeerRestarted,
    ProtocolError,
    SumRefused,
    TooFewWorkers,
    UnexpectedMessage,
)
from protocols.messages.comparison import Compare
from protocols.messages.horizontal import Masked, ParcelFor
from protocols.messages.message import Message
from protocols.messages.vertical import Abort
from protocols.secure_aggregation.epochs import Epoch, Parcel
from protocols.transport.channel import Channel, abort, aborted

# Seconds between checks for messages while nothing comes.
MEMBERSHIP_POLL_S = 0.001

# Most messages of a worker while one is due: an answer, and some late ones.
MAX_MESSAGES = 64

# Most times that rounds wait for a restarted worker, so that one that keeps failing does not hold up the others.
MAX_RETURNS = 8


@dataclass(slots=True)
class Connection:
    """Connection to one worker.

    Attributes
    ----------
    name : str
    channel : Channel
    key : bytes
        Its public key for secure aggregation; empty unless it joined and is connected since.
    n_told : int
        Number of the kept messages that it was sent.
    is_in : bool
        Whether it takes part.
    is_over : bool
        Whether nothing more is expected of it.
    is_secure : bool
    returns : bool
        Whether it waits to be let in again.
    awaited_until : float
        Until when a round waits for it to come back, by `time.monotonic`: it was started again, or the coordinator was.
    parcel : (int, int, Parcel) or None
        The epoch and round that it is for, and the parcel.
    """

    name: str
    channel: Channel
    key: bytes = b""
    n_told: int = 0
    is_in: bool = False
    returns: bool = False
    awaited_until: float = 0.0
    is_over: bool = False
    is_secure: bool = True
    parcel: tuple[int, int, Parcel] | None = None


class Connections:
    """Connections to all workers.

    Parameters
    ----------
    channels : sequence of Channel
    note : callable
        Takes a short name and a sentence for the log.
    return_s : float
        Seconds to wait for a worker that was restarted, or may be.
    terms : Compare, optional
        The answer to a worker that only checks agreement, `MAX_MESSAGES` times in all.
    """

    def __init__(
        self,
        channels: Sequence[Channel],
        *,
        note: Callable[[str, str], None],
        return_s: float = 0.0,
        terms: Compare | None = None,
    ) -> None:
        self.all = {channel.peer: Connection(channel.peer, channel) for channel in channels}
        self._note = note
        self.return_s = return_s
        self._terms = terms
        self._n_restarts: Counter[str] = Counter()
        self._n_checks: Counter[str] = Counter()

    def listen(
        self, names: Collection[str], seconds: float, *, until: Callable[[], bool]
    ) -> Iterator[tuple[Connection, Message]]:
        """Messages of these workers, until a condition holds or time is over; a lost worker no longer takes part.

        After the deadline each is read once more. A worker that sends more than `MAX_MESSAGES` is expelled.
        """
        deadline = time.monotonic() + seconds
        n_received: Counter[str] = Counter()
        while not until():
            is_last = time.monotonic() >= deadline
            before = n_received.total()
            for name in names:
                worker = self.all[name]
                while not worker.is_over and worker.channel.is_ready():
                    n_received[name] += 1
                    if n_received[name] > MAX_MESSAGES:
                        self.expel(worker, f"it sent more than {MAX_MESSAGES} messages where one was due")
                    elif (message := self.receive(worker)) is not None:
                        yield worker, message
                    if not is_last:
                        break
            if is_last:
                return
            if n_received.total() == before:
                time.sleep(MEMBERSHIP_POLL_S)

    def answers(self, names: Collection[str], seconds: float, came: set[str]) -> Iterator[tuple[Connection, Message]]:
        """Messages of these workers, until all that still take part are in `came`; the others then no longer do."""
        yield from self.listen(names, seconds, until=lambda: came >= self.still_in(names))
        for name in sorted(self.still_in(names) - came):
            self.lose_late(name, seconds)

    def receive(self, worker: Connection) -> Message | None:
        """The next message of a worker; None if it is gone."""
        try:
            message = worker.channel.receive()
        except (DecodeError, UnexpectedMessage) as error:
            self.expel(worker, str(error))
            return None
        except ProtocolError as error:
            self._lose_connection(worker, error)
            return None
        if isinstance(message, Abort):
            self._lose_connection(worker, aborted(worker.name, message))
            return None
        if isinstance(message, Compare) and self._terms is not None:
            self._n_checks[worker.name] += 1
            if self._n_checks[worker.name] > MAX_MESSAGES:
                self.expel(worker, f"it only looked, {MAX_MESSAGES} times")
            else:
                self._note("looked at", f"{worker.name} only looked whether both sides agree")
                self.send(worker, self._terms)
                if not worker.key:
                    # The worker may connect before the process that only checked has left.
                    worker.channel.reset()
            return None
        return message

    def send(self, worker: Connection, message: Message) -> None:
        """Send a message, or note that the worker is gone."""
        try:
            worker.channel.send(message)
        except ProtocolError as error:
            self._lose_connection(worker, error)

    def _lose_connection(self, worker: Connection, error: ProtocolError) -> None:
        """Note that a worker is gone; one that was started again, or may be, is waited for, but not without end."""
        self.lose(worker, str(error), is_gone=True)
        may_return = isinstance(error, PeerRestarted) or (
            isinstance(error, PeerAborted) and error.outlook is not Outlook.OVER
        )
        self._n_restarts[worker.name] += may_return
        if may_return and self._n_restarts[worker.name] <= MAX_RETURNS:
            worker.awaited_until = time.monotonic() + self.return_s

    def lose(self, worker: Connection, why: str, *, is_gone: bool) -> None:
        """Drop a worker from the run; one that is gone must join again."""
        if worker.is_in:
            self._note("dropped out", f"{why}; the run goes on without {worker.name}")
        worker.is_in, worker.parcel = False, None
        if is_gone:
            worker.key, worker.returns = b"", False
            worker.channel.reset()

    def lose_late(self, name: str, seconds: float) -> None:
        """Drop a worker that did not answer within so many seconds, until it is heard again."""
        self.lose(self.all[name], f"{name} did not answer within {seconds:g} s", is_gone=False)

    def expel(self, worker: Connection, why: str) -> None:
        """Expel a worker that does not keep to the protocol, for good."""
        abort(worker.channel, "adding up", why)
        self.lose(worker, f"{worker.name} does not keep to the protocol: {why}", is_gone=False)
        worker.is_over = True
        worker.channel.close()

    def keep_parcel(self, worker: Connection, message: ParcelFor | Masked, epoch: Epoch, number: int) -> None:
        """Keep what a worker sent for a round of an epoch; one whose parcel does not fit is expelled."""
        parcel = Parcel(sealed=message.sealed, seeds=message.seeds, mark=message.mark, digests=message.digests)
        try:
            parcel.check(epoch)
        except SumRefused as error:
            self.expel(worker, str(error))
            return
        worker.parcel = epoch.number, number, parcel

    def present(self) -> list[Connection]:
        """Workers that take part."""
        return [worker for worker in self.all.values() if worker.is_in]

    def awaited(self) -> list[str]:
        """Names of workers that do not take part and are waited for."""
        now = time.monotonic()
        away = [worker for worker in self.all.values() if not (worker.is_in or worker.is_over)]
        return [worker.name for worker in away if worker.returns or now < worker.awaited_until]

    def still_in(self, names: Collection[str]) -> set[str]:
        """The workers among these that take part."""
        return {name for name in names if self.all[name].is_in}

    def check_enough(self, n: int, threshold: int, what: str, *, due: Collection[str] = ()) -> None:
        """Refuse to go on with too few workers, or without one of those over whom alone a sum may be opened."""
        if missing := ", ".join(sorted(set(due) - self.still_in(due))):
            raise TooFewWorkers(
                f"{missing} is lacking where a sum may have been opened over {', '.join(sorted(due))} before: it is "
                "opened over no other workers. Nothing more was released"
            )
        if n < threshold:
            raise TooFewWorkers(
                f"{n} of {len(self.all)} workers {what} where every sum needs {threshold}. Nothing more was released"
            )
