"""Admission of workers: comparison of terms, and the drawing of public bits by all who are present at the start."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray
from pydantic import JsonValue

from opboost.rng import BitSource
from parties.errors import Disagreement
from parties.horizontal.answered_questions import ToldWorkers
from parties.horizontal.first_messages import term_differences
from parties.horizontal.public_randomness import drawing_digest, public_bits
from parties.horizontal.round_journal import RoundJournal
from parties.horizontal.worker_connections import Connection, Connections
from parties.runs.row_stream import terms_digest
from protocols.errors import PeerRestarted, SumRefused, TooFewWorkers, UnexpectedMessage
from protocols.messages.horizontal import Commitments, Join, Reveal, Reveals, Welcome
from protocols.messages.message import Message
from protocols.secure_aggregation.epochs import Epoch
from protocols.secure_aggregation.masking import is_usable


class WorkerAdmission:
    """Admission of workers at the coordinator.

    Parameters
    ----------
    connections : Connections
    run_id : str
    terms : mapping of str to plain values
        What every worker must have agreed on.
    journal : RoundJournal

    Attributes
    ----------
    drawing : bytes
        Digest of the drawing of the public bits; empty before it.
    told : ToldWorkers
        What all workers are told from then on.
    """

    def __init__(
        self, connections: Connections, *, run_id: str, terms: Mapping[str, JsonValue], journal: RoundJournal
    ) -> None:
        self._connections = connections
        self._journal = journal
        self._run_id = run_id
        self._terms = terms
        self.drawing = b""
        self.told = ToldWorkers(self.drawing)
        self._public: tuple[Message, ...] = ()

    def gather(self, threshold: int, *, wait_s: float, patience_s: float) -> BitSource:
        """Wait for the workers, compare terms, and draw the public bits together; returns these.

        Bits that are drawn already need nobody: workers are then taken in as they come. A drawing that was broken off
        goes on with the same commitments, to which workers reveal the same bytes, unless that has failed twice.

        Parameters
        ----------
        threshold : int
        wait_s : float
            Whoever has not come by then may come later.
        patience_s : float
            How long a worker may take to reveal its bytes.

        Raises
        ------
        Disagreement
            If a worker has other terms; it was told which.
        TooFewWorkers
            If fewer came than every sum needs, or somebody did not reveal its bytes. Nothing was asked.
        PeerRestarted
            If a worker was started again before the bits were drawn: the drawing goes on with all from the greeting on.
        """
        if (drawing := self._journal.drawing) is not None:
            for worker in self._connections.all.values():
                worker.awaited_until = time.monotonic() + wait_s
            return self._publish(*drawing)
        before = self._journal.commitments
        joined = self._joined(wait_s)
        self._connections.check_enough(len(joined), threshold, "came")
        if before is None or not set(before.names) <= set(joined):
            names = tuple(name for name in self._connections.all if name in joined)
            committed = Commitments(names=names, rows=_rows(joined[name].commitment for name in names), is_open=True)
            self._journal.note_commitments(committed)
        else:
            committed = before
        for name in committed.names:
            self._connections.all[name].channel.send(committed)
        try:
            revealed = Reveals(rows=self._revealed(committed.names, patience_s))
            bits = self._publish(committed.model_copy(update={"is_open": False}), revealed)
        except (SumRefused, Disagreement):
            if committed is before:
                self._journal.note_commitments(None)
            raise
        self._journal.note_reveals(revealed)
        for name in joined:
            worker, is_first = self._connections.all[name], name in committed.names
            worker.is_in = bool(worker.key)
            for message in (revealed,) if is_first else self._public:
                self._connections.send(worker, message)
        return bits

    def _joined(self, wait_s: float) -> dict[str, Join]:
        """Wait for all workers to join that were not expelled meanwhile; returns with what each did."""
        joined: dict[str, Join] = {}

        def is_complete() -> bool:
            return all(worker.name in joined or worker.is_over for worker in self._connections.all.values())

        for worker, message in self._connections.listen(list(self._connections.all), wait_s, until=is_complete):
            if worker.key:
                # Who is gone, and came again, has none.
                raise UnexpectedMessage(f"{worker.name} joined twice. Nothing was released")
            joined[worker.name] = self._joining(worker, message)
        return joined

    def _revealed(self, names: tuple[str, ...], patience_s: float) -> NDArray[np.uint8]:
        """Collect the random bytes of these workers, a row each."""
        revealed: dict[str, bytes] = {}
        for worker, message in self._connections.listen(names, patience_s, until=lambda: len(revealed) == len(names)):
            if isinstance(message, Join):
                raise PeerRestarted(f"{worker.name} was started again before it had revealed its random bytes")
            if not isinstance(message, Reveal) or worker.name in revealed:
                raise _unexpected(worker, message, Reveal)
            revealed[worker.name] = message.random
        if len(revealed) < len(names):
            silent = ", ".join(name for name in names if name not in revealed)
            raise TooFewWorkers(f"{silent} did not reveal the random bytes committed to. Nothing was released")
        return _rows(revealed[name] for name in names)

    def _publish(self, committed: Commitments, revealed: Reveals) -> BitSource:
        """The public bits of a drawing, which whoever comes later is told."""
        bits = public_bits(self._run_id, committed.names, committed.rows, revealed.rows)
        self.drawing = drawing_digest(self._run_id, committed.names, committed.rows)
        self.told = ToldWorkers(self.drawing)
        self._public = committed, revealed
        return bits

    def epoch(self, number: int, members: Sequence[Connection], *, threshold: int) -> Epoch:
        """The epoch of these workers, bound to what they drew and agreed on."""
        return Epoch(
            run=self._run_id,
            number=number,
            names=tuple(worker.name for worker in members),
            keys=tuple(worker.key for worker in members),
            threshold=threshold,
            drawing=self.drawing,
            terms=terms_digest(self._terms),
        )

    def take_back(self, worker: Connection, message: Join) -> None:
        """Take in a worker that was started again, or comes for the first time; it waits for the next epoch."""
        try:
            self._joining(worker, message)
        except Disagreement as error:
            self._connections.expel(worker, str(error))
            return
        worker.returns, worker.n_told = bool(worker.key), 0
        for known in self._public:
            if worker.returns:
                self._connections.send(worker, known)

    def _joining(self, worker: Connection, message: Message) -> Join:
        """Compare a worker's terms with the run's; one that is gone before it is answered has no key then."""
        if not isinstance(message, Join):
            raise _unexpected(worker, message, Join)
        differences = term_differences(self._terms, message.terms, worker.name)
        others = {other.key for other in self._connections.all.values() if other is not worker}
        if not is_usable(message.key) or message.key in others:
            differences.append("its key for secure aggregation is not valid, or another worker's")
        if message.party != worker.name:
            differences.append(f"it calls itself {message.party!r}")
        if message.run_id != self._run_id:
            differences.append(f"its run is {message.run_id!r}, this party's is {self._run_id!r}")
        if not differences:
            worker.key, worker.is_secure = message.key, worker.is_secure and message.is_secure
        self._connections.send(worker, Welcome(terms=dict(self._terms)))
        if differences:
            raise Disagreement(
                f"{worker.name} and this party do not agree: {'; '.join(differences)}. Nothing was released"
            )
        return message


def _unexpected(worker: Connection, message: Message, due: type[Message]) -> UnexpectedMessage:
    return UnexpectedMessage(f"{worker.name} sent {message.kind!r} where {due.kind!r} was due")


def _rows(parts: Iterable[bytes]) -> NDArray[np.uint8]:
    """Parts of 32 bytes each as rows."""
    return np.frombuffer(b"".join(parts), np.uint8).reshape(-1, 32)
