"""One worker and the coordinator's own code in one thread, so that every message to the worker can be looked at before.

The other worker of every sum has no rows. Messages pass through the codec in both directions.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from opboost.rng import seeded
from parties.horizontal.answered_questions import Answered
from parties.horizontal.remote_holder import RemoteHolder
from parties.horizontal.verified_rows import VerifiedRows
from parties.horizontal.worker import WorkerJob, WorkerSession
from parties.runs.row_stream import terms_digest
from protocols.messages.horizontal import AddUp, Confirmed, Masked, Members, ParcelFor, Shares, Survivors, Unmask
from protocols.messages.message import Message
from protocols.secure_aggregation.epochs import Epoch, Parcel
from protocols.secure_aggregation.sum import SumRound
from protocols.secure_aggregation.worker import SummedWorker
from protocols.transport.channel import Traffic
from protocols.transport.codec import decode, encode
from tests.support.workers import shape_bits

EVERYBODY = np.ones(2, np.bool_)


def over_the_wire(message: Message) -> Message:
    return decode([bytes(frame) for frame in encode(message)])


def parcel_of(message: ParcelFor | Masked) -> Parcel:
    return Parcel(sealed=message.sealed, seeds=message.seeds, mark=message.mark, digests=message.digests)


class Sent:
    """A channel to the coordinator that keeps what is sent."""

    def __init__(self) -> None:
        self.peer = "hub"
        self.traffic = Traffic()
        self.messages: list[Message] = []

    def send(self, message: Message) -> None:
        self.messages.append(over_the_wire(message))


class LoneWorker:
    """A worker's session, and the mate and the coordinator that a sum needs.

    Parameters
    ----------
    job : WorkerJob
    verified : callable
        Makes what stands between the session and the rows; another one in tests of what that is good for.
    """

    def __init__(self, job: WorkerJob, verified: Callable[..., VerifiedRows] = VerifiedRows) -> None:
        self.notes: list[Answered] = []
        self.job = replace(job, note_answer=self.notes.append)
        self.sent = Sent()
        self.summed, self._mate = (SummedWorker(name, job.run_id) for name in (job.party, "mate"))
        self.rows = verified(job.make_rows(), job.recipe, shape_bits=shape_bits(), answered=job.answered)
        self.session: Any = WorkerSession(self.job, self.sent, self.summed, self.rows, b"")  # type: ignore[arg-type]
        self.round = 0
        self._epoch: Epoch | None = None
        self._parcels: dict[int, Parcel] = {}

    def handle(self, message: Message) -> None:
        self.session.handle(over_the_wire(message))

    def meet(self, tell: Callable[[Message], None]) -> None:
        """Introduce the worker and its mate to each other."""
        names, keys = (self.job.party, "mate"), (self.summed.public_key, self._mate.public_key)
        number = 1 if self._epoch is None else self._epoch.number + 1
        terms = terms_digest(self.job.terms)
        self._epoch = Epoch(run=self.job.run_id, number=number, names=names, keys=keys, threshold=2, terms=terms)
        as_rows = np.frombuffer(b"".join(keys), np.uint8).reshape(2, 32)
        tell(Members(epoch=number, names=names, keys=as_rows, round=self.round))
        parcel = self._last(ParcelFor)
        self._mate.join(self._epoch)
        mine = self._mate.prepare(self.round)
        self._parcels = {0: parcel_of(parcel), 1: mine}

    def add_up(
        self, tell: Callable[[Message], None], n_wanted: int, length: int | None = None, about: bytes | None = None
    ) -> NDArray[np.int64]:
        """A round of secure aggregation; the sum of the worker's vector and zeros, which are about the same thing."""
        if self._epoch is None:
            self.meet(tell)
        epoch = self._epoch
        assert epoch is not None
        tell(AddUp(n_wanted=n_wanted, epoch=epoch.number, round=self.round, present=EVERYBODY))
        masked = self._last(Masked)
        about = self.rows.asked.about(n_wanted) if about is None else about
        n = len(masked.vector) if length is None else length
        of = SumRound(epoch, self.round, n, self._parcels, about=about)
        of.add(0, masked.vector)
        of.add(1, self._mate.mask(self.round, EVERYBODY, np.zeros(len(masked.vector), np.int64), about=about))
        survivors = of.close()
        tell(Survivors(epoch=epoch.number, round=self.round, survivors=survivors))
        of.add_confirmations(0, self._last(Confirmed).rows)
        of.add_confirmations(1, self._mate.confirm(self.round, survivors))
        sealed, confirmations = of.request(0)
        tell(Unmask(epoch=epoch.number, round=self.round, sealed=sealed, confirmations=confirmations))
        answer = self._last(Shares)
        of.add_shares(0, answer.rows, answer.confirmed)
        of.add_shares(1, *self._mate.unmask(self.round, *of.request(1)))
        self.round += 1
        mine = self._mate.prepare(self.round)
        self._parcels = {0: parcel_of(masked), 1: mine}
        return of.result()

    def _last(self, kind: type[Any]) -> Any:
        assert isinstance(self.sent.messages[-1], kind)
        return self.sent.messages[-1]


class Led:
    """The worker as the coordinator's group of workers (`parties.horizontal.remote_holder.Workers`).

    Parameters
    ----------
    worker : LoneWorker
    before : callable
        Called with every message before the worker gets it.
    """

    def __init__(self, worker: LoneWorker, before: Callable[[Message], None] = lambda message: None) -> None:
        self._worker = worker
        self._before = before
        self._n_wanted = 0

    def tell(self, message: Message) -> None:
        self._before(message)
        self._worker.handle(message)

    def want(self, message: Message) -> None:
        self._n_wanted += 1
        self.tell(message)

    def total(self, length: int) -> NDArray[np.int64]:
        n_wanted, self._n_wanted = self._n_wanted, 0
        return self._worker.add_up(self.tell, n_wanted, length)


def lead(worker: LoneWorker, before: Callable[[Message], None] = lambda message: None) -> Any:
    """Train on the worker alone, as a coordinator does; the model."""
    of: Any = worker.job.recipe
    return of.train(RemoteHolder(Led(worker, before)), shape_bits=shape_bits(), rng=seeded(8))
