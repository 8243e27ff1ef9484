"""Worker: holds rows, and answers the questions of the agreed recipe under secure aggregation only."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from itertools import compress
from typing import Any

import numpy as np
from pydantic import JsonValue

from opboost.arrays import Sums
from opboost.rng import BitSource
from opboost.trees.holder import RowHolder
from opboost.trees.tree import Tree
from parties.errors import Disagreement
from parties.horizontal.answered_questions import Answered
from parties.horizontal.first_messages import first_answer, term_differences
from parties.horizontal.public_drawing import PublicDrawing
from parties.horizontal.public_randomness import commitment
from parties.horizontal.share_faults import ConfirmationFaults
from parties.horizontal.verified_rows import VerifiedRows, WorkerRecipe
from parties.progress import Progress, no_progress
from parties.runs.row_stream import terms_digest
from parties.session.handshake import conversation
from protocols.errors import UnexpectedMessage
from protocols.messages.horizontal import (
    AddUp,
    Confirmed,
    Divide,
    FinishTree,
    Join,
    Masked,
    Members,
    ParcelFor,
    Place,
    Shares,
    StartTree,
    Survivors,
    Unmask,
    WantHistograms,
    WantTotals,
    Welcome,
)
from protocols.messages.message import Message
from protocols.messages.vertical import Abort, Done
from protocols.secure_aggregation.epochs import Epoch, Parcel, majority_threshold
from protocols.secure_aggregation.worker import SummedWorker
from protocols.transport.channel import Channel, aborted
from protocols.transport.keys import KeyPair


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerJob:
    """Inputs of a worker to a training run.

    Attributes
    ----------
    party, run_id : str
    terms : mapping of str to plain values
        The agreed terms, equal for all parties.
    threshold : int
        Fewest workers in a sum.
    recipe : WorkerRecipe
    make_rows : callable
        Makes the holder of this worker's rows, whose answers may be summed with the other workers'.
    rng : BitSource
        For the public bits, the same in every process of the run; the coordinator learns whether it is secure.
    answered : Answered
        The questions that earlier processes of this worker answered.
    note_answer : callable
        Called with the new `Answered` before an answer leaves and before a sum is opened.
    save : callable
        Called with the trees before `Done` is sent.
    drawing : bytes
        Digest of the drawing of public bits that an earlier process noted (`PublicDrawing.before`).
    n_drawings : int
        Number of drawings for which earlier processes revealed random bytes; these bytes are used once.
    note_drawing : callable
        Called with the digest of a drawing before bytes are revealed.
    identity : KeyPair, optional
    lasting_keys : mapping of str to bytes, optional
        All workers' public keys, with `identity`.
    note : callable
        Takes a short name and a sentence for the log.
    """

    party: str
    run_id: str
    terms: Mapping[str, JsonValue]
    threshold: int
    recipe: WorkerRecipe
    make_rows: Callable[[], RowHolder]
    rng: BitSource
    answered: Answered = field(default_factory=Answered)
    note_answer: Callable[[Answered], None] = lambda answered: None
    save: Callable[[list[Tree]], None] = lambda trees: None
    drawing: bytes = b""
    n_drawings: int = 0
    note_drawing: Callable[[bytes], None] = lambda drawing: None
    identity: KeyPair | None = None
    lasting_keys: Mapping[str, bytes] = field(default_factory=dict)
    note: Callable[[str, str], None] = lambda event, sentence: None

    def public_bytes(self, number: int) -> bytes:
        """Random bytes of this worker for the drawing of public bits with this number, from 0."""
        return self.rng.fork(f"public {number}" if number else "public").words(4).tobytes()


def run_worker(job: WorkerJob, channel: Channel, *, progress: Progress = no_progress) -> list[Tree]:
    """Run a worker's side of a training run; returns the trees received from the coordinator, on values.

    Notes
    -----
    Privacy: what leaves are the answers of ``job.make_rows(...)``, masked; no question has two answers, whatever the
    process. The coordinator learns sums over at least `threshold` workers.
    """
    with conversation([channel]) as phase:
        phase.enter("greeting")
        random = job.public_bytes(job.n_drawings)
        summed = SummedWorker(job.party, job.run_id, identity=job.identity)
        mine = Join(
            party=job.party,
            run_id=job.run_id,
            terms=dict(job.terms),
            key=summed.public_key,
            commitment=commitment(job.run_id, job.party, random),
            answered=job.answered.n_trees,
            is_secure=job.rng.is_secure,
        )
        channel.send(mine)
        welcome = first_answer(channel, kind=Welcome, mine=mine)
        if differences := term_differences(job.terms, welcome.terms, channel.peer):
            raise Disagreement(
                f"{channel.peer} and this party do not agree: {'; '.join(differences)}. Nothing was released"
            )
        phase.enter("drawing public bits")
        bits, drawing = PublicDrawing(
            party=job.party,
            run_id=job.run_id,
            random=random,
            revealed=job.public_bytes(job.n_drawings - 1) if job.n_drawings else b"",
            threshold=job.threshold,
            known=job.lasting_keys,
            before=job.drawing,
            note=job.note_drawing,
        ).take_part(channel)
        phase.enter("answering")
        rows = VerifiedRows(job.make_rows(), job.recipe, shape_bits=bits, answered=job.answered, drawing=drawing)
        session = WorkerSession(job, channel, summed, rows, drawing)
        while True:
            message = channel.receive()
            match message:
                case Done():
                    session.check_whole()
                    job.save(session.trees)
                    channel.send(Done())
                    return session.trees
                case Abort():
                    raise aborted(channel.peer, message)
            session.handle(message)
            progress("training steps", len(session.trees), job.recipe.tree_rules.n_trees)


class WorkerSession:
    """Protocol state of a worker between messages.

    Parameters
    ----------
    job : WorkerJob
    channel : Channel
        To the coordinator.
    summed : SummedWorker
    rows : VerifiedRows
    drawing : bytes
        Digest of the drawing of the public bits, which binds the sums to it.

    Attributes
    ----------
    trees : list of Tree
        Finished trees, on values.
    """

    def __init__(
        self, job: WorkerJob, channel: Channel, summed: SummedWorker, rows: VerifiedRows, drawing: bytes
    ) -> None:
        self.trees: list[Tree] = []
        self._job = job
        self._channel = channel
        self._summed = summed
        self._rows = rows
        self._drawing = drawing
        self._wanted: list[Sums] = []
        self._is_summed = False
        self._epoch: Epoch | None = None
        self._survivors: tuple[str, ...] = ()
        self._faults = ConfirmationFaults(note=job.note)

    def handle(self, message: Message) -> None:
        """Process a message, and answer it where an answer is due."""
        match message:
            case StartTree():
                self._rows.start_tree(message)
                if message.output == 0:
                    # A batch begins: open answers are of rounds that went on without this worker.
                    self._wanted = []
            case Place():
                self._rows.place(message)
            case Divide():
                self._rows.divide(message)
            case FinishTree():
                self.trees.append(self._rows.finish_tree(message))
            case WantTotals() | WantHistograms():
                # It is masked before it is sent. Answers that were summed are kept until the next question.
                answer = self._rows.answer(message)
                self._wanted, self._is_summed = [*([] if self._is_summed else self._wanted), answer], False
            case Members():
                self._join_epoch(message)
            case AddUp():
                self._send_sum(message)
            case Survivors() | Unmask():
                self._reveal(message)
            case _:
                raise UnexpectedMessage(f"{self._channel.peer} sent {message.kind!r} where a question was due")

    def check_whole(self) -> None:
        """Refuse to end the run before all training steps are finished."""
        n_trees = self._job.recipe.tree_rules.n_trees
        if len(self.trees) < n_trees:
            raise UnexpectedMessage(
                f"{self._channel.peer} said that the run is over after {len(self.trees)} of {n_trees} training steps; "
                "no model was saved"
            )

    def _reveal(self, message: Survivors | Unmask) -> None:
        """Confirm the survivors; send shares once the others have confirmed the same.

        If the shares are kept back, nothing is noted: the sum may be opened over other workers later.
        """
        match message:
            case Survivors():
                rows = self._summed.confirm(message.round, message.survivors)
                assert self._epoch is not None
                self._survivors = tuple(sorted(compress(self._epoch.names, message.survivors)))
                self._channel.send(Confirmed(epoch=message.epoch, round=message.round, rows=rows))
            case Unmask():
                answered = self._rows.asked.opened_over(self._survivors)
                rows, confirmed = self._summed.unmask(message.round, message.sealed, message.confirmations)
                assert self._epoch is not None
                self._faults.judge(self._epoch, self._survivors, message.confirmations, confirmed)
                if rows.any() or confirmed.sum() >= self._epoch.threshold:
                    self._note(answered)
                self._channel.send(Shares(epoch=message.epoch, round=message.round, rows=rows, confirmed=confirmed))

    def _join_epoch(self, message: Members) -> None:
        """Join an epoch: agree on keys with the workers present, if they are enough."""
        epoch = Epoch(
            run=self._job.run_id,
            number=message.epoch,
            names=message.names,
            keys=tuple(row.tobytes() for row in message.keys),
            threshold=majority_threshold(self._job.threshold, len(message.names)),
            drawing=self._drawing,
            terms=terms_digest(self._job.terms),
        )
        self._summed.join(epoch, self._job.lasting_keys)
        self._epoch = epoch
        parcel = _fields(self._summed.prepare(message.round))
        self._channel.send(ParcelFor(epoch=message.epoch, round=message.round, **parcel))

    def _send_sum(self, message: AddUp) -> None:
        """Send the masked answers, and the parcel for the next round."""
        if not 0 < message.n_wanted <= len(self._wanted):
            raise UnexpectedMessage("a sum was asked for, but not of what; nothing was sent")
        answered = self._rows.asked.summed(message.n_wanted)
        # Earlier answers may be of a round that went on without this worker.
        vector = np.concatenate([part.reshape(-1) for part in self._wanted[-message.n_wanted :]])
        about = self._rows.asked.about(message.n_wanted)
        masked = self._summed.mask(message.round, message.present, vector, about=about)
        self._is_summed = True
        parcel = _fields(self._summed.prepare(message.round + 1))
        self._note(answered)
        self._channel.send(Masked(epoch=message.epoch, round=message.round, vector=masked, **parcel))

    def _note(self, answered: Answered) -> None:
        """Note the answered questions before the answer leaves."""
        self._rows.asked.answered = answered
        self._job.note_answer(answered)


def _fields(parcel: Parcel) -> dict[str, Any]:
    """A parcel as messages carry it."""
    return {parcel_field.name: getattr(parcel, parcel_field.name) for parcel_field in fields(parcel)}
