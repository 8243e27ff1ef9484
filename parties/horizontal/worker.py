"""A worker: holds rows, answers what the recipe it agreed to allows, and only under secure aggregation."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np
from pydantic import JsonValue

from opboost.arrays import Sums
from opboost.horizontal.rows.client_rows import PlacedHolder
from opboost.horizontal.rows.public_grid import PublicGrid
from opboost.rng import BitSource
from opboost.trees.holder import RowHolder
from opboost.trees.splitting import Splits
from opboost.trees.tree import Tree
from parties.errors import Disagreement
from parties.horizontal.public_drawing import PublicDrawing
from parties.horizontal.public_randomness import commitment, needed, term_differences
from parties.progress import Progress, no_progress
from parties.session.handshake import conversation
from protocols.errors import UnexpectedMessage
from protocols.messages.horizontal import (
    AddUp,
    Divide,
    FinishTree,
    Join,
    Masked,
    Members,
    ParcelFor,
    Place,
    Shares,
    StartTree,
    Unmask,
    WantHistograms,
    WantTotals,
    Welcome,
)
from protocols.messages.vertical import Abort, Done, Message
from protocols.secure_aggregation.epochs import Epoch
from protocols.secure_aggregation.worker import SummedWorker
from protocols.transport.channel import Channel, aborted, expect
from protocols.transport.keys import KeyPair


class MakeRows(Protocol):
    """Makes the holder of a worker's rows, whose answers may be summed with the other workers'."""

    def __call__(self, *, shape_bits: BitSource) -> RowHolder: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerJob:
    """What a worker brings to a run.

    Attributes
    ----------
    party, run_id : str
    terms : mapping of str to plain values
        What was agreed; the same at everybody's.
    threshold : int
        How many workers every sum must have.
    n_trees : int
    columns : PublicGrid
        The cells to begin with.
    make_rows : callable
    rng : BitSource
        For the public bits; and whether it is secure is told.
    answered : int
        Trees that an earlier process of this worker answered for.
    note_answer : callable
        Called with the number of the last tree that an answer is for, before it leaves.
    drawing : bytes
        Of the public bits, noted by an earlier process of this worker (`PublicDrawing.before`).
    note_drawing : callable
        Called with it, before bytes are revealed.
    identity : KeyPair, optional
    lasting_keys : mapping of str to bytes, optional
        The other workers' public keys, with `identity`.
    """

    party: str
    run_id: str
    terms: Mapping[str, JsonValue]
    threshold: int
    n_trees: int
    columns: PublicGrid
    make_rows: MakeRows
    rng: BitSource
    answered: int = 0
    note_answer: Callable[[int], None] = lambda tree: None
    drawing: bytes = b""
    note_drawing: Callable[[bytes], None] = lambda drawing: None
    identity: KeyPair | None = None
    lasting_keys: Mapping[str, bytes] = field(default_factory=dict)


def work(job: WorkerJob, channel: Channel, *, progress: Progress = no_progress) -> list[Tree]:
    """Take part in one training run; returns the trees that the coordinator told of, on values.

    Notes
    -----
    Privacy: what leaves are the answers of ``job.make_rows(...)``, masked, as often as these rows answer, and never for
    a tree that an earlier process answered for. The coordinator learns sums over at least `threshold` workers.
    """
    with conversation([channel]) as phase:
        phase.enter("greeting")
        random = job.rng.fork("public").words(4).tobytes()
        summed = SummedWorker(job.party, job.run_id, identity=job.identity)
        channel.send(
            Join(
                party=job.party, run_id=job.run_id, terms=dict(job.terms), key=summed.public_key,
                commitment=commitment(job.run_id, job.party, random), answered=job.answered,
                is_secure=job.rng.is_secure,
            )
        )  # fmt: skip
        if found := term_differences(job.terms, expect(channel, Welcome).terms, channel.peer):
            raise Disagreement(f"{channel.peer} and this party do not agree: {'; '.join(found)}. Nothing was released")
        phase.enter("drawing public bits")
        bits, drawing = PublicDrawing(
            party=job.party,
            run_id=job.run_id,
            random=random,
            threshold=job.threshold,
            known=job.lasting_keys,
            before=job.drawing,
            note=job.note_drawing,
        ).take_part(channel)
        phase.enter("answering")
        session = _Session(job, channel, summed, job.make_rows(shape_bits=bits), drawing)
        while True:
            message = channel.receive()
            match message:
                case Done():
                    channel.send(Done())
                    return session.trees
                case Abort():
                    raise aborted(channel.peer, message)
            session.handle(message)
            progress("trees", len(session.trees), job.n_trees)


class _Session:
    """The state of a worker between messages."""

    def __init__(self, job: WorkerJob, channel: Channel, summed: SummedWorker, rows: RowHolder, drawing: bytes) -> None:
        self.trees: list[Tree] = []
        self._job = job
        self._channel = channel
        self._summed = summed
        self._rows = rows
        self._drawing = drawing
        self._epoch: Epoch | None = None
        self._columns = job.columns
        self._n_bins = job.columns.axes.n_bins
        self._n_started = 0
        # Of the trees that are not finished: the cells at their time, and how many nodes they have by now.
        self._growing: deque[tuple[PublicGrid, int]] = deque()
        self._wanted: list[Sums] = []

    def handle(self, message: Message) -> None:
        """Do what a message says; some are answered."""
        match message:
            case StartTree():
                self._n_started += 1
                self._growing.append((self._columns, 1))
                self._rows.start_tree(message.output)
            case Place():
                self._place(message)
            case Divide():
                self._divide(message)
            case FinishTree():
                self._finish_tree(message)
            case WantTotals() | WantHistograms():
                self._want(message)
            case Members():
                self._meet(message)
            case AddUp():
                self._add_up(message)
            case Unmask():
                rows = self._summed.unmask(message.round, message.survivors, message.sealed)
                self._channel.send(Shares(epoch=message.epoch, round=message.round, rows=rows))
            case _:
                raise UnexpectedMessage(f"{self._channel.peer} sent {message.kind!r} where a question was due")

    def _meet(self, message: Members) -> None:
        """Agree on keys with the workers who are there, if there are enough of them."""
        self._epoch = Epoch(
            run=self._job.run_id,
            number=message.epoch,
            names=message.names,
            keys=tuple(row.tobytes() for row in message.keys),
            threshold=needed(self._job.threshold, len(message.names)),
            drawing=self._drawing,
        )
        self._summed.join(self._epoch, self._job.lasting_keys)
        parcel = self._summed.prepare(message.round)
        self._channel.send(
            ParcelFor(
                epoch=message.epoch, round=message.round, sealed=parcel.sealed, seeds=parcel.seeds, mark=parcel.mark
            )
        )

    def _divide(self, message: Divide) -> None:
        columns, n_nodes = self._newest("split")
        names = [name for name in type(message).model_fields if name != "levels"]
        if (message.levels < 1).any() or any(len(getattr(message, name)) != message.levels.sum() for name in names):
            raise UnexpectedMessage("splits do not fit their levels; nothing was sent")
        ends = np.cumsum(message.levels)
        for begin, end in zip(ends - message.levels, ends, strict=True):
            self._rows.divide(Splits(**{name: getattr(message, name)[begin:end] for name in names}))
        self._growing[-1] = columns, max(n_nodes, int(message.rights.max(initial=0)) + 1)

    def _newest(self, what: str) -> tuple[PublicGrid, int]:
        if not self._growing:
            raise UnexpectedMessage(f"a {what} came where no tree is grown; nothing was sent")
        return self._growing[-1]

    def _place(self, message: Place) -> None:
        if not isinstance(self._rows, PlacedHolder):
            raise UnexpectedMessage("the cells of this recipe stay where they are; nothing was sent")
        n_columns, n_cuts = len(self._columns.bounds), self._columns.n_cells - 1
        if message.cuts.shape != (n_columns, n_cuts) or not (np.diff(message.cuts) >= 0).all():
            raise UnexpectedMessage(f"new cells need {n_cuts} ascending cuts for each of {n_columns} columns")
        self._columns = replace(self._columns, given=tuple(message.cuts))
        self._rows.place(self._columns)

    def _finish_tree(self, message: FinishTree) -> None:
        parts = {name: getattr(message, name) for name in type(message).model_fields}
        zeros = np.zeros(len(message.columns))
        tree = Tree(**parts, gains=zeros, covers=zeros)
        self._newest("finished tree")
        columns, n_nodes = self._growing.popleft()
        if tree.n_nodes != n_nodes:
            raise UnexpectedMessage(f"a finished tree has {tree.n_nodes} nodes where {n_nodes} were grown")
        self._rows.finish_tree(tree)
        self.trees.append(columns.in_values(tree))

    def _want(self, message: WantTotals | WantHistograms) -> None:
        """Compute a part of the next answer, which nobody sees before it is masked."""
        nodes, (_, n_nodes) = message.nodes, self._newest("question")
        if self._n_started <= self._job.answered:
            raise UnexpectedMessage("an earlier process of this worker answered for this tree; nothing was sent")
        if len(nodes) == 0 or nodes.min() < 0 or nodes.max() >= n_nodes or len(np.unique(nodes)) < len(nodes):
            raise UnexpectedMessage("sums were asked of nodes that the tree does not have; nothing was sent")
        if isinstance(message, WantTotals):
            self._wanted.append(self._rows.totals(nodes))
        else:
            out = np.zeros((len(nodes), 2, self._n_bins), np.int64)
            self._rows.add_histograms(nodes, out)
            self._wanted.append(out)

    def _add_up(self, message: AddUp) -> None:
        """Send what was wanted, masked, and the parcel for the next round."""
        if not 0 < message.n_wanted <= len(self._wanted):
            raise UnexpectedMessage("a sum was asked for, but not of what; nothing was sent")
        # Before them may be questions of a round that went on without this worker.
        vector = np.concatenate([part.reshape(-1) for part in self._wanted[-message.n_wanted :]])
        self._wanted = []
        self._job.note_answer(self._n_started)
        masked = self._summed.mask(message.round, message.present, vector)
        parcel = self._summed.prepare(message.round + 1)
        self._channel.send(
            Masked(
                epoch=message.epoch, round=message.round, vector=masked,
                sealed=parcel.sealed, seeds=parcel.seeds, mark=parcel.mark,
            )
        )  # fmt: skip
