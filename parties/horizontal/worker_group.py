"""Worker group: membership, drop-outs and returns of a run's workers, and sums of their answers.

A worker that does not answer a round in time, or is gone, is left out of the round; it may return in a later one. If it
is restarted in time, the round begins anew with it. Messages that every worker needs (splits, finished trees, questions
about growing trees) are kept and sent to workers that return. Sums are journaled: a restarted coordinator asks only for
those that it does not have.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from pydantic import JsonValue

from opboost.rng import BitSource
from parties.errors import Disagreement, RunFolderError
from parties.horizontal.round_journal import RoundJournal
from parties.horizontal.share_faults import ShareFaults
from parties.horizontal.sum_opening import SumOpening
from parties.horizontal.sum_steps import SumSteps
from parties.horizontal.worker_admission import WorkerAdmission
from parties.horizontal.worker_connections import MAX_RETURNS, MEMBERSHIP_POLL_S, Connection, Connections
from parties.progress import Progress, no_progress
from protocols.messages.comparison import Compare
from protocols.messages.horizontal import AddUp, Confirmed, Join, Masked, Members, ParcelFor, Shares, StartTree
from protocols.messages.message import Message
from protocols.messages.vertical import Done
from protocols.secure_aggregation.epochs import MAX_WORKERS, Epoch, majority_threshold
from protocols.secure_aggregation.sum import SumRound
from protocols.transport.channel import Channel


@dataclass(slots=True, kw_only=True)
class WorkerGroup:
    """The workers of a run.

    Parameters
    ----------
    channels : sequence of Channel
    run_id : str
    terms : mapping of str to plain values
        What every worker must have agreed on.
    threshold : int
        How many workers every sum needs.
    wait_s : float
        How long to wait for workers to come, or to come back when they are too few.
    patience_s : float
        How long a worker may take for an answer before a round goes on without it.
    note : callable
        Takes a short name and a sentence for the log.
    n_trees, progress : int, Progress
        For the progress report; trees on the wire, which are first questions too.
    journal : RoundJournal
        Of the run; one in memory by default.
    """

    channels: Sequence[Channel]
    run_id: str
    terms: Mapping[str, JsonValue]
    threshold: int
    wait_s: float
    patience_s: float
    note: Callable[[str, str], None] = lambda event, sentence: None
    n_trees: int = 0
    progress: Progress = no_progress
    journal: RoundJournal = field(default_factory=RoundJournal)
    _connections: Connections = field(init=False)
    _admission: WorkerAdmission = field(init=False)
    _faults: ShareFaults = field(init=False)
    _kept: list[Message | None] = field(init=False, default_factory=list)
    _questions: list[int] = field(init=False, default_factory=list)
    _n_wanted: int = field(init=False, default=0)
    _n_trees: int = field(init=False, default=0)
    _n_sums: int = field(init=False, default=0)
    _round: int = field(init=False, default=0)
    _n_returns: Counter[str] = field(init=False, default_factory=Counter)
    _is_stuck: bool = field(init=False, default=False)
    _epoch: Epoch | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        if not 2 <= len(self.channels) <= MAX_WORKERS:
            raise Disagreement(f"a run has 2 to {MAX_WORKERS} workers; found {len(self.channels)}")
        terms = Compare(party="coordinator", run_id=self.run_id, terms=dict(self.terms))
        self._connections = Connections(self.channels, note=self.note, return_s=self.patience_s, terms=terms)
        self._admission = WorkerAdmission(self._connections, run_id=self.run_id, terms=self.terms, journal=self.journal)
        self._faults = ShareFaults(self._connections, note=self.note)

    def gather(self) -> BitSource:
        """Wait for the workers, and draw the public bits with them; see `WorkerAdmission.gather`."""
        return self._admission.gather(self.threshold, wait_s=self.wait_s, patience_s=self.patience_s)

    @property
    def is_secure(self) -> bool:
        """Whether every worker that took part says that its bits came from its operating system's entropy."""
        return all(worker.is_secure for worker in self._connections.all.values())

    def tell(self, message: Message) -> None:
        """Broadcast a message to every worker, those too that come back later."""
        if isinstance(message, StartTree):
            self.progress("training steps", self._n_trees, self.n_trees)
            self._n_trees += 1
            if message.output == 0:
                # A worker that returns is asked about the trees of the current batch alone.
                for place in self._questions:
                    self._kept[place] = None
                self._questions = []
        self._kept.append(message)
        self._admission.told.note(message)
        for worker in self._connections.present():
            self._catch_up(worker)

    @property
    def n_rounds(self) -> int:
        """Rounds of secure aggregation so far that gave a sum."""
        return self._n_sums

    def want(self, message: Message) -> None:
        """Add a question to those that the next sum is of."""
        self._questions.append(len(self._kept))
        self._n_wanted += 1
        self.tell(message)

    def total(self, length: int) -> NDArray[np.int64]:
        """Sum the workers' vectors of all questions by secure aggregation, or read the sum from the journal.

        Raises
        ------
        SumRefused
            If too few workers are there, or their shares do not fit. Nothing was learnt then.
        RunFolderError
            If the journal is of other questions.
        """
        total = self.journal.sum(self._n_sums)
        while total is None:
            total = self._try_round(length)
        if total.shape != (length,):
            raise RunFolderError("the journal of the run has sums of other questions. Nothing was released")
        self._n_sums, self._n_wanted = self._n_sums + 1, 0
        self._n_returns = Counter({name: n - 1 for name, n in self._n_returns.items() if n > 1})
        return total

    def _try_round(self, length: int) -> NDArray[np.int64] | None:
        """One round of secure aggregation; None if it begins anew: a worker was started again, or see `opened`."""
        self._complete()
        epoch, number = self._epoch, self._round
        assert epoch is not None
        parcels = {
            epoch.names.index(worker.name): worker.parcel[2]
            for worker in self._connections.present()
            if worker.parcel is not None and worker.parcel[:2] == (epoch.number, number)
        }
        self._round += 1
        about = self._admission.told.about(self._n_wanted)
        of = SumRound(epoch, number, length, parcels, about=about)
        asked = [epoch.names[place] for place in sorted(parcels)]
        for name in asked:
            add_up = AddUp(n_wanted=self._n_wanted, epoch=epoch.number, round=number, present=of.present)
            self._connections.send(self._connections.all[name], add_up)
        steps = SumSteps(
            of,
            self._connections,
            patience_s=self.patience_s,
            keep_parcel=self._connections.keep_parcel,
            unexpected=self._ignore_or_expel,
        )
        steps.collect_vectors(asked)
        if set(asked) & set(self._connections.awaited()):
            return None
        try:
            total = steps.opened(SumOpening(self.journal, self._n_sums))
            if total is not None:
                self.journal.note_sum(self._n_sums, total)
        finally:
            self._faults.judge(of)
        self._is_stuck = total is None and self._connections.still_in(asked) == set(asked)
        return total

    def finish(self) -> list[str]:
        """Exchange completion messages with the workers; returns the names of those that did not confirm."""
        workers, done = self._connections.all, self.journal.done
        for name in done:
            workers[name].is_over = True
        self.tell(Done())

        def is_over() -> bool:
            self._let_in()
            return not (self._connections.present() or self._connections.awaited())

        # After another start all are waited for as long as for a first greeting.
        awaited_s = max(worker.awaited_until for worker in workers.values()) - time.monotonic()
        for worker, message in self._connections.listen(list(workers), max(self.patience_s, awaited_s), until=is_over):
            if isinstance(message, Done):
                self.journal.note_done(worker.name)
                worker.is_in, worker.is_over = False, True
                worker.channel.close()
            elif isinstance(message, Join):
                self._admission.take_back(worker, message)
        return [name for name in workers if name not in self.journal.done]

    def _complete(self) -> None:
        """Readmit returned workers and wait until enough are present and have sent their parcels.

        A sum that may have been opened before is opened again over the same workers alone. One that nobody left, and
        that was not opened, has wrong confirmations: it begins anew when somebody has come. Where too many were
        expelled for the others ever to be enough, nobody is waited for.
        """
        deadline = time.monotonic() + self.wait_s
        before = self.journal.survivors(self._n_sums)
        needed_here = max(self.threshold, len(before))
        due = [self._connections.all[name] for name in before or self._connections.all]
        while True:
            self._readmit()
            present = [worker for worker in self._connections.present() if not before or worker.name in before]
            if len(present) < needed_here or self._is_stuck or (self._connections.awaited() and not before):
                if time.monotonic() > deadline or sum(not worker.is_over for worker in due) < needed_here:
                    self._connections.check_enough(len(present), needed_here, "are there", due=before)
                    if self._is_stuck:
                        raise self._faults.no_sum()
                time.sleep(MEMBERSHIP_POLL_S)
            elif self._has_parcels(present):
                return
            else:
                self._begin_epoch(present)

    def _has_parcels(self, present: Sequence[Connection]) -> bool:
        """Whether all workers present share an epoch and have sent their parcels for the next round."""
        due = (self._epoch.number if self._epoch else 0, self._round)
        return all(worker.parcel is not None and worker.parcel[:2] == due for worker in present)

    def _begin_epoch(self, present: Sequence[Connection]) -> None:
        """Begin an epoch of the workers present, and collect their first parcels."""
        number = 1 if self._epoch is None else self._epoch.number + 1
        epoch = self._admission.epoch(number, present, threshold=majority_threshold(self.threshold, len(present)))
        keys = np.frombuffer(b"".join(epoch.keys), np.uint8).reshape(-1, 32)
        for worker in present:
            worker.parcel = None
            self._connections.send(worker, Members(epoch=number, names=epoch.names, keys=keys, round=self._round))
        came: set[str] = set()
        for worker, message in self._connections.answers(epoch.names, self.patience_s, came):
            if isinstance(message, ParcelFor) and (message.epoch, message.round) == (number, self._round):
                came.add(worker.name)
                self._connections.keep_parcel(worker, message, epoch, message.round)
            else:
                self._ignore_or_expel(worker, message)
        self._epoch = epoch

    def _readmit(self) -> None:
        """Receive from everybody; an absent worker that has joined or answered again takes part from now on.

        Those present are listened to as well: while others are waited for they would hear nothing of this party either.
        """
        away = [worker.name for worker in self._connections.all.values() if not (worker.is_in or worker.is_over)]
        for worker, message in self._connections.listen(list(self._connections.all), 0.0, until=lambda: False):
            if worker.name not in away:
                self._ignore_or_expel(worker, message)
            elif isinstance(message, Join):
                self._admission.take_back(worker, message)
            elif worker.key:
                worker.is_in = True
        self._let_in(*(name for name in away if self._connections.all[name].is_in))

    def _let_in(self, *heard: str) -> None:
        """Readmit the workers that joined again or were heard again, and send them the messages that they missed.

        A worker that returns more than once per sum, and `MAX_RETURNS` times beyond, is expelled: each return may cost
        `patience_s`, and the round could begin anew without end.
        """
        for worker in self._connections.all.values():
            if worker.returns or worker.name in heard:
                worker.is_in, worker.returns = True, False
                self._n_returns[worker.name] += 1
                if self._n_returns[worker.name] > MAX_RETURNS:
                    self._connections.expel(worker, f"it came back {MAX_RETURNS} times more than there were sums")
                    continue
                self._is_stuck = False
                self.note("returned", f"{worker.name} takes part again")
                self._catch_up(worker)

    def _catch_up(self, worker: Connection) -> None:
        while worker.is_in and worker.n_told < len(self._kept):
            message = self._kept[worker.n_told]
            worker.n_told += 1
            if message is not None:
                self._connections.send(worker, message)

    def _ignore_or_expel(self, worker: Connection, message: Message) -> None:
        """Ignore late answers to earlier rounds; expel a worker for anything else but a return that nobody noticed."""
        if isinstance(message, Join):
            self._connections.lose(worker, f"{worker.name} began anew", is_gone=False)
            self._admission.take_back(worker, message)
        elif not isinstance(message, (Masked, Confirmed, Shares, ParcelFor)):
            self._connections.expel(worker, f"a {message.kind!r} message was not due")
