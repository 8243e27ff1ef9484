"""Messages of horizontal training, in the order of the protocol: a coordinator, and workers that talk to it alone.

::

    worker                              coordinator
    │ ───────────── Join ─────────────► │   who, which run, its terms, a key, a commitment to random bytes
    │ ◄────────── Welcome ───────────── │   the coordinator's terms; both compare, and nothing was asked yet
    │ ◄───────── Commitments ────────── │   everybody's
    │ ──────────── Reveal ────────────► │   the random bytes
    │ ◄────────── Reveals ───────────── │   everybody's: the public bits, from which random trees come
    │ ◄────────── Members ───────────── │   who takes part in secure aggregation; again when somebody comes back
    │ ──────────── Parcel ────────────► │   ahead of the first round (`protocols.secure_aggregation.sum`)
    │ ◄── StartTree, Divide, Place ──── │   any number, none of which is answered
    │ ◄── WantTotals, WantHistograms ── │   what the next sum is of; those of several trees may be asked together
    │ ◄─────────── AddUp ────────────── │   a round of secure aggregation
    │ ──────────── Masked ────────────► │   the masked vector, and the parcel for the next round
    │ ◄───────── Survivors ──────────── │   whose vectors came
    │ ────────── Confirmed ───────────► │   for every worker a MAC of who was present and who survived
    │ ◄────────── Unmask ────────────── │   the MACs and the sealed shares that are for the receiver
    │ ──────────── Shares ────────────► │
    │ ◄───────── FinishTree ─────────── │
    │              · · ·                │
    │ ◄──────────── Done ────────────── │   the coordinator has saved the model
    │ ───────────── Done ─────────────► │

A worker that was lost may come again with a new `Join`: it hears `Welcome`, `Commitments` with `is_open` false,
`Reveals`, all of `StartTree`, `Divide`, `Place` and `FinishTree` so far, and the questions about the trees that are
grown. It takes no bits but those that it revealed its own bytes for, or that workers whose keys it knows have drawn. A
coordinator that was started again asks for the sums that it lacks; a round that failed is followed by another one, with
the same questions. Either side may send `Abort` at any time. A `Compare` in place of a `Join` or a `TakeTurns` only
looks, and is answered by one. Messages have no numbers of children and finished trees: a worker derives both.

A chain has no coordinator; every two owners talk to each other::

    owner                               owner
    │ ─────────── TakeTurns ──────────► │   who, which run, its terms, how many trees of the run it holds
    │ ◄────────── TakeTurns ─────────── │   both compare, and nothing was trained yet
    │ ◄────────── PassTree ─── · · · ─► │   to all others as soon as it is grown, or along the order to the next one
    │ ◄──────────── Done ─────────────► │   every tree is stored; both compare digests of all before they save a model
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import FailFast, Field, model_validator

from protocols.messages.fields import ByteRows, Count, Document, FlagArray, Name, PrivacyLoss, RandomBytes, array_of
from protocols.messages.message import Message
from protocols.secure_aggregation.epochs import MAX_WORKERS
from protocols.secure_aggregation.masking import CONFIRMATION_BYTES, SEED_BYTES, TAG_BYTES

NodeArray = Annotated[NDArray[np.int32], array_of("<i4")]
NumberArray = Annotated[NDArray[np.float64], array_of("<f8")]
VectorArray = Annotated[NDArray[np.uint64], array_of("<u8")]
NumberRows = Annotated[NDArray[np.float64], array_of("<f8", ndim=2)]
WorkerFlags = Annotated[NDArray[np.bool_], array_of("|b1", max_rows=MAX_WORKERS)]
Confirmations = Annotated[NDArray[np.uint8], array_of("|u1", ndim=2, width=CONFIRMATION_BYTES, max_rows=MAX_WORKERS)]
WorkerNames = Annotated[tuple[Name, ...], FailFast(), Field(strict=False, max_length=MAX_WORKERS)]
# What nonces have room for, and one more.
EpochNumber = Annotated[int, Field(ge=0, lt=1 << 32)]
RoundNumber = Annotated[int, Field(ge=0, lt=1 << 63)]
SealedSeeds = Annotated[bytes, Field(max_length=MAX_WORKERS * SEED_BYTES + TAG_BYTES)]


class Join(Message):
    """Handshake of a worker. `answered` is the number of trees that an earlier process of it answered for."""

    kind: ClassVar[str] = "join"
    party: Name
    run_id: Name
    terms: Document
    key: RandomBytes
    commitment: RandomBytes
    answered: Count
    is_secure: bool


class Welcome(Message):
    """The coordinator's terms."""

    kind: ClassVar[str] = "welcome"
    terms: Document


class Commitments(Message):
    """One row per worker that was there at the beginning; while it `is_open`, each of them reveals its bytes now."""

    kind: ClassVar[str] = "commitments"
    names: WorkerNames
    rows: ByteRows
    is_open: bool


class Reveal(Message):
    """The random bytes that a worker was committed to."""

    kind: ClassVar[str] = "reveal"
    random: RandomBytes


class Reveals(Message):
    """Everybody's random bytes, in the order of the commitments."""

    kind: ClassVar[str] = "reveals"
    rows: ByteRows


class Members(Message):
    """Members of secure aggregation from now on, their keys of 32 bytes, and the number of the next round."""

    kind: ClassVar[str] = "members"
    epoch: EpochNumber
    names: WorkerNames
    keys: ByteRows
    round: RoundNumber

    @model_validator(mode="after")
    def _check_keys(self) -> Self:
        if self.keys.shape != (len(self.names), 32):
            raise ValueError("every worker needs a key of 32 bytes")
        return self


class ParcelFor(Message):
    """A worker's parcel for a round."""

    kind: ClassVar[str] = "parcel"
    epoch: EpochNumber
    round: RoundNumber
    sealed: ByteRows
    seeds: SealedSeeds
    mark: RandomBytes
    digests: ByteRows


class StartTree(Message):
    """Begin a tree for an output."""

    kind: ClassVar[str] = "start tree"
    output: Count


class Divide(Message):
    """Splits of one or several levels, one after the other; `levels` has how many each level has.

    Nodes are numbered level by level, siblings side by side, in the order of their parents.
    """

    kind: ClassVar[str] = "divide"
    levels: NodeArray
    nodes: NodeArray
    columns: NodeArray
    cuts: NodeArray
    missing_left: FlagArray


class FinishTree(Message):
    """The values of the leaves of the oldest tree that is not finished, in the order of their numbers."""

    kind: ClassVar[str] = "finish tree"
    values: NumberArray


class Place(Message):
    """Where columns may be cut from the next tree on, one row per column, ascending."""

    kind: ClassVar[str] = "place"
    cuts: NumberRows


class WantTotals(Message):
    """The next sum has the totals of these nodes of the tree that is being grown."""

    kind: ClassVar[str] = "want totals"
    nodes: NodeArray


class WantHistograms(Message):
    """The next sum has the histograms of these nodes."""

    kind: ClassVar[str] = "want histograms"
    nodes: NodeArray


class AddUp(Message):
    """Send the answers to the last `n_wanted` questions, masked among those who are present."""

    kind: ClassVar[str] = "add up"
    n_wanted: Count
    epoch: EpochNumber
    round: RoundNumber
    present: FlagArray


class Masked(Message):
    """A masked vector, and the parcel for the round after this one."""

    kind: ClassVar[str] = "masked"
    epoch: EpochNumber
    round: RoundNumber
    vector: VectorArray
    sealed: ByteRows
    seeds: SealedSeeds
    mark: RandomBytes
    digests: ByteRows


class Survivors(Message):
    """Survivors of a round: the workers whose masked vectors arrived."""

    kind: ClassVar[str] = "survivors"
    epoch: EpochNumber
    round: RoundNumber
    survivors: WorkerFlags


class Confirmed(Message):
    """Confirmation of who was present and who survived, as the sender was told: one MAC per worker."""

    kind: ClassVar[str] = "confirmed"
    epoch: EpochNumber
    round: RoundNumber
    rows: Confirmations


class Unmask(Message):
    """What everybody sealed for the receiver, and what everybody confirmed to it."""

    kind: ClassVar[str] = "unmask"
    epoch: EpochNumber
    round: RoundNumber
    sealed: ByteRows
    confirmations: Confirmations


class Shares(Message):
    """The sender's shares, one row per worker, and whose confirmations it found right."""

    kind: ClassVar[str] = "shares"
    epoch: EpochNumber
    round: RoundNumber
    rows: ByteRows
    confirmed: WorkerFlags


class TakeTurns(Message):
    """Handshake of a chain owner, which holds the trees of the first `n_held` turns."""

    kind: ClassVar[str] = "take turns"
    party: Name
    run_id: Name
    terms: Document
    n_held: Count


class PassTree(Message):
    """The tree of a turn, in bins of the public grid, and what it promises to each of its owner's records."""

    kind: ClassVar[str] = "pass tree"
    turn: Count
    epsilon: PrivacyLoss
    is_secure: bool
    columns: NodeArray
    thresholds: NumberArray
    missing_left: FlagArray
    lefts: NodeArray
    rights: NodeArray
    values: NumberArray


HORIZONTAL_MESSAGES: dict[str, type[Message]] = {
    message.kind: message
    for message in (
        Join,
        Welcome,
        Commitments,
        Reveal,
        Reveals,
        Members,
        ParcelFor,
        StartTree,
        Divide,
        Place,
        WantTotals,
        WantHistograms,
        AddUp,
        Masked,
        Survivors,
        Confirmed,
        Unmask,
        Shares,
        FinishTree,
        TakeTurns,
        PassTree,
    )
}
