"""Messages of vertical training, in the order of the protocol. A is the active party; each passive party B talks to A.

Training; what is in brackets is left out where the files are aligned already (`protocols.alignment`)::

    A                                    B
    │ ◄─────────── [Hello] ───────────── │   sizes of both sets, how they are to be aligned, what each will do
    │ ──────────── [Hello] ────────────► │
    │ ◄───────── [OrderShare] ────────── │   random bytes of both, from which the order of the ranks is made
    │ ────────── [OrderShare] ─────────► │
    │ ◄─────── [TransferPoints] ──────── │   private set intersection: random oblivious transfers,
    │ ──────── [TransferAnswer] ───────► │
    │ ─────────── [HiddenIds] ─ · · · ─► │   by which A hides its ids, a bucket at a time
    │ ────────── [BlindedIds] ─ · · · ─► │   in place of these three by Diffie-Hellman: A's ids under A's key;
    │ ◄──────── [ReblindedIds] ─ · · · ─ │   each chunk comes back under both keys
    │ ◄───────── [BlindedIds] ─ · · · ── │   values of B's ids under a keyed function, in ascending order
    │ ◄─────────── [MoreIds] ─ · · · ──► │   one per table or chunk that was taken, so that few wait
    │ ─────────── [CommonIds] ─────────► │   which of these are common to all parties, one bit each
    │ ──────── [IdConfirmation] ───────► │   of several keys: A holds what it calls common; then the next
    │ ◄──────────── Hello ────────────── │   who, which run, how many rows, a point that hides the ids, what it will do
    │ ───────────── Hello ─────────────► │   both compare before anything is drawn; which ranks A holds already
    │ ◄──────── IdConfirmation ───────── │   each proves that it holds the same ids (`protocols.alignment.id_proof`)
    │ ───────── IdConfirmation ────────► │
    │ ◄──────── [HeldOutShares] ─ · · · ►│   which records are held out; then greetings and proofs about the others
    │ ◄──────────── Offer ────────────── │   columns: opaque names, number of ranks, digest, mechanism, guarantee
    │ ◄────────── RankChunk ─ · · · ──── │   per column the ranks of its desensitized codes, from where A stopped
    │ ──────────── [MoreRanks] ─ · · · ► │   one per so many chunks that were taken, so that few wait
    │              (A grows trees)       │
    │ ────────── [SplitRanks] ─────────► │   "rank <= r", all trees at once; these two not where B answers with cells
    │ ◄───────── [Thresholds] ────────── │   their thresholds, or that B keeps them
    │ ◄─ · · · ─ [Ask], [Answers] ─ · ·► │   about the held-out records; with cells, before A grows trees
    │ ───────────── Done ──────────────► │   A has saved the model
    │ ◄──────────── Done ─────────────── │   B has saved its share

A run in which a party was started again goes through the same sequence: the same records are found and held out, in the
same order; B sends the same release, without the ranks that A holds; A trains the same trees, or, where it has saved
the model, asks for the same tests. A `Hello` for the task ``check`` only looks: it is answered with a `Hello`, and
whoever was waiting waits on.

Prediction is in `protocols.messages.prediction`. Either side may send `Abort` at any time. No channel hands on a
`Heartbeat` (`protocols.transport.liveness`) or a `Received`, by which a conversation outlives a connection
(`protocols.transport.conversation`). Two round trips in all train a model, whatever the number of trees, once it is
clear which records are trained on.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, ClassVar, Self

from pydantic import FailFast, Field, model_validator

from protocols.errors import Outlook
from protocols.messages.fields import (
    MAX_CODE_BYTES,
    MAX_COLUMNS,
    MAX_COUNT,
    MAX_REASON,
    ColumnNames,
    Count,
    CurvePoint,
    CutRanks,
    Digest,
    Document,
    IndexArray,
    Name,
    PrivacyLoss,
    RankArray,
    TestFlags,
    Word,
)
from protocols.messages.id_alignment import (
    BlindedIds,
    CommonIds,
    HeldOutShares,
    HiddenIds,
    IdConfirmation,
    MoreIds,
    OrderShare,
    ReblindedIds,
    TransferAnswer,
    TransferPoints,
)
from protocols.messages.liveness import Heartbeat, Received
from protocols.messages.message import Message
from protocols.messages.prediction import Answers, Ask


class Role(StrEnum):
    """What a party does in a run."""

    ACTIVE = "active"
    PASSIVE = "passive"


class Task(StrEnum):
    """What a run is for."""

    TRAIN = "train"
    PREDICT = "predict"
    CHECK = "check"


class Terms(Message):
    """Terms of one party in a run: what it will do, or what both agreed that it does; None where nothing is stated.

    The active party states its `objective`; `tests`, the most distinct split tests that its model can make; and, for
    prediction, `reveal`, how coarse the scores are that it publishes. Both parties state `held_out`, a share of the
    records; `most_records`, the most of the other records that are released; and `by_cells`, whether answers are cells
    in place of split tests. The other fields are the passive party's: the number of its columns, its mechanisms and
    laws, whether it shares thresholds, the largest budget of a column per point of its mapped domain (`epsilon`), and
    the largest one of all columns between records one step apart in each (`total_epsilon`).
    """

    kind: ClassVar[str] = "terms"
    objective: Name | None = None
    tests: Count | None = None
    columns: Count | None = None
    mechanism: Name | None = None
    law: Name | None = None
    epsilon: PrivacyLoss | None = None
    total_epsilon: PrivacyLoss | None = None
    share_thresholds: bool | None = None
    by_cells: bool = False
    reveal: Annotated[str, Field(max_length=1000)] | None = None
    held_out: Annotated[float, Field(ge=0, lt=1)] | None = None
    most_records: Count | None = None


class Held(Message):
    """Ranks that the active party holds from an earlier attempt: the offer's digest, and the column and row reached."""

    kind: ClassVar[str] = "held"
    offer: Digest
    column: Count
    row: Count


class Hello(Message):
    """Handshake message: who speaks, what must agree on both sides, and what each expects the other to do.

    For prediction, a passive party states `max_rows`, the records that it answers per request, and `comes_again`,
    whether it serves: then it connects again whatever becomes of this conversation. `training` identifies the training
    that a share of a model comes from; None for models of earlier versions.

    A party with the task ``check`` states in `looks_for` the task that it will come for; None stands for training.
    `names` are the names of the columns that the passive party will offer, in their order.
    `id_point` hides the ids of the aligned records; it is None before alignment, and where no ids are compared.
    """

    kind: ClassVar[str] = "hello"
    role: Annotated[Role, Field(strict=False)]
    party: Name
    run_id: Name
    task: Annotated[Task, Field(strict=False)]
    n_rows: Count
    id_point: CurvePoint | None = None
    alignment: Word = "prealigned"
    has_label: bool | None = None
    plan: Terms = Terms()
    agreed: Terms = Terms()
    held: Held | None = None
    max_rows: Annotated[int, Field(ge=1, lt=MAX_COUNT)] | None = None
    comes_again: bool = False
    looks_for: Annotated[Task | None, Field(strict=False)] = None
    names: ColumnNames = ()
    training: Digest | None = None


class OfferedColumn(Message):
    """One column of ranks that B releases: how they will look as bytes, never bounds; categories only in names.

    `codes` says which codes of the mapped domain occur among the released ones, one bit each, packed: rank r stands for
    the r-th of them. None if B does not share them, or there is no noise. `cuts` is the agreed grid, the ranks behind
    which alone trees cut: a function of the release. None where B answers split tests.
    """

    kind: ClassVar[str] = "offered column"
    name: Name
    n_ranks: Count
    has_missing: bool
    digest: Digest
    mechanism: Word
    law: Word
    epsilon: PrivacyLoss
    codes: Annotated[bytes, Field(max_length=MAX_CODE_BYTES)] | None = None
    cuts: CutRanks | None = None


class Offer(Message):
    """Columns that B is about to release, and their guarantee; `router` has a grid's thresholds if B shares them."""

    kind: ClassVar[str] = "offer"
    columns: Annotated[tuple[OfferedColumn, ...], FailFast(), Field(strict=False, max_length=MAX_COLUMNS)]
    guarantee: Document
    router: Document | None = None


class RankChunk(Message):
    """Ranks of some consecutive rows of a column; a missing row holds the column's number of ranks."""

    kind: ClassVar[str] = "rank chunk"
    column: Count
    start: Count
    ranks: RankArray


class MoreRanks(Message):
    """Flow control: A has taken a window of chunks (`parties.vertical.rank_sender`), and B may send another one."""

    kind: ClassVar[str] = "more ranks"


class SplitRanks(Message):
    """Tests that the trees make on B's columns: "rank <= r", with the way a missing cell goes."""

    kind: ClassVar[str] = "split ranks"
    columns: IndexArray
    ranks: IndexArray
    missing_left: TestFlags

    @model_validator(mode="after")
    def _check_lengths(self) -> Self:
        if not len(self.columns) == len(self.ranks) == len(self.missing_left):
            raise ValueError("columns, ranks and missing_left must have one length")
        return self


class Thresholds(Message):
    """The router that answers the tests (thresholds in the mapped domain, public encoding), or None if B keeps it."""

    kind: ClassVar[str] = "thresholds"
    router: Document | None


class Done(Message):
    """The job is done and saved. Between owners of a chain: every tree is stored, and `trees` is a digest of all."""

    kind: ClassVar[str] = "done"
    trees: Digest | None = None


class Abort(Message):
    """Termination message: the run is over, or begins again; `reason` is a sentence without any value of the data."""

    kind: ClassVar[str] = "abort"
    phase: Name
    reason: Annotated[str, Field(max_length=MAX_REASON)]
    outlook: Annotated[Outlook, Field(strict=False)] = Outlook.OVER


MESSAGES: dict[str, type[Message]] = {
    message.kind: message
    for message in (
        Hello,
        IdConfirmation,
        OrderShare,
        TransferPoints,
        TransferAnswer,
        HiddenIds,
        BlindedIds,
        ReblindedIds,
        MoreIds,
        CommonIds,
        HeldOutShares,
        Offer,
        RankChunk,
        MoreRanks,
        SplitRanks,
        Thresholds,
        Ask,
        Answers,
        Heartbeat,
        Received,
        Done,
        Abort,
    )
}
