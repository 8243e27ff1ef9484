"""Private set intersection of record ids, for record alignment.

Private set intersection: every id becomes a point under the secret keys of both sides, and the points are compared
(`protocols.alignment.blinding`). With three parties or more A does this with each B, and only ids that all know take
part.

=====  =================================================  ====================================================
party  learns                                             does not learn
=====  =================================================  ====================================================
A      which of its ids each B knows, how many B has      any other id of B, their order in B's file
B      which of its ids *all* parties know, how many A    any other id of A, which ids A shares with another B
       has
=====  =================================================  ====================================================

The salted-hash join is weaker, for those who accept it: B sends HMAC-SHA256 of its ids under a secret that both hold
and the run's random bytes. Nobody else can do anything with them, but A can try out every id it can think of, after
the run too: short ids (numbers, birth dates) are as good as disclosed to A. B learns the same as above.

Neither side has to believe the other one's result. B refuses to be told of more common ids than A announced to have,
and before anything is drawn both prove to each other that they hold the very ids that they call common
(`id_proof`). What stays possible: a party that puts ids into its set which it has no business with learns
(as A) or is told (as B) whether the other side knows them; the other side sees only the size of the set.

Ranks later travel in an order that both make from the ids and random bytes of both, so the order of a file shows in
nothing that is sent. It makes the order neither side's choice alone, and is no secret between the two.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from protocols.alignment.blinding import HASH_BYTES, POINT_BYTES, Cipher, IdPositions, hashed, match
from protocols.errors import DecodeError, NothingInCommon, UnexpectedMessage
from protocols.messages.fields import ByteRows
from protocols.messages.id_alignment import BlindedIds, CommonIds, MoreIds, OrderShare, ReblindedIds
from protocols.transport.channel import Channel, expect

# Ids per message: a quarter of a second of work, so that a peer's end is noticed and progress is seen.
CHUNK_IDS = 1 << 12

# Chunks that B may send before A asks for more: whoever is slow, no more than these wait.
WINDOW = 4

# More ids than this are refused: bounds the memory that a peer can make us use.
MAX_IDS = 1 << 26

SHARE_BYTES = 32

OnStep = Callable[[str, int, int], None]
"""Called with the name of a step, how much of it is done, and how much there is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AlignmentTerms:
    """Inputs of an alignment beside the ids.

    Attributes
    ----------
    run_id : str
    secret : bytes or None
        For the salted-hash join, the same 32 bytes on all sides; None for private set intersection.
    share : bytes
        This side's 32 random bytes towards the order of the ranks.
    progress : callable
    """

    run_id: str
    secret: bytes | None = field(default=None, repr=False)
    share: bytes = field(default_factory=lambda: secrets.token_bytes(SHARE_BYTES))
    progress: OnStep = lambda step, done, total: None


@dataclass(frozen=True, slots=True)
class Common:
    """Result of an alignment at one party: the common ids, and the order of the ranks.

    Attributes
    ----------
    positions : ndarray of int64
        Of the common ids in this party's list, ascending.
    orders : dict of str to ndarray of int64
        By peer, the order in which ranks of the common ids travel: the first is that of id ``positions[order[0]]``.
    """

    positions: IdPositions
    orders: dict[str, IdPositions]


def psi_initiate(
    channels: Sequence[Channel], ids: Sequence[bytes], *, sizes: Sequence[int], terms: AlignmentTerms
) -> Common:
    """Active party's side of private set intersection: finds the common ids of all parties and tells the peers.

    Parameters
    ----------
    channels : sequence of Channel
    ids : sequence of bytes
        Distinct.
    sizes : sequence of int
        How many ids each peer announced.
    terms : AlignmentTerms

    Raises
    ------
    NothingInCommon
        If there is none; the peers were told nothing then.
    ProtocolError
        If a peer is gone or does not keep to the protocol.
    """
    for channel, size in zip(channels, sizes, strict=True):
        _check_size(channel, size)
    seeds = [_exchange_shares(channel, terms, speaks_first=False) for channel in channels]
    found = []
    with ExitStack() as stack:
        cipher = stack.enter_context(Cipher()) if terms.secret is None else None
        if cipher is None:
            assert terms.secret is not None
            mine = [hashed(ids, terms.secret, seed) for seed in seeds]
        else:
            mine = _blinded_by_all(channels, ids, cipher, terms.progress)
        for channel, own, size in zip(channels, mine, sizes, strict=True):
            found.append(match(own, _collect(channel, size, cipher, terms.progress), channel.peer))
    positions = np.flatnonzero(np.all([where >= 0 for where in found], axis=0))
    if len(positions) == 0:
        raise NothingInCommon(f"not one id is common to all {1 + len(channels)} parties. Nothing was released")
    for channel, where, size in zip(channels, found, sizes, strict=True):
        flags = np.zeros(size, dtype=np.bool_)
        flags[where[positions]] = True
        channel.send(CommonIds(bits=np.packbits(flags)))
    common = [ids[position] for position in positions.tolist()]
    return Common(positions, {c.peer: keyed_order(common, seed) for c, seed in zip(channels, seeds, strict=True)})


def psi_respond(channel: Channel, ids: Sequence[bytes], *, size: int, terms: AlignmentTerms) -> Common:
    """Passive party's side of private set intersection: answers A, and is told which ids are common.

    Parameters
    ----------
    channel : Channel
    ids : sequence of bytes
        Distinct.
    size : int
        How many ids A announced.
    terms : AlignmentTerms

    Notes
    -----
    Privacy: sends a point or a keyed hash per id, in random order.
    """
    _check_size(channel, size)
    seed = _exchange_shares(channel, terms, speaks_first=True)
    sent = keyed_order(ids, secrets.token_bytes(SHARE_BYTES))
    with ExitStack() as stack:
        if terms.secret is None:
            cipher = stack.enter_context(Cipher())
            _answer(channel, size, cipher, terms.progress)
            hidden: Callable[[Sequence[bytes]], ByteRows] = cipher.blind
        else:
            secret = terms.secret
            hidden = lambda some: hashed(some, secret, seed)  # noqa: E731
        for start in range(0, len(ids), CHUNK_IDS):
            if start >= WINDOW * CHUNK_IDS:
                expect(channel, MoreIds)
            some = [ids[position] for position in sent[start : start + CHUNK_IDS].tolist()]
            channel.send(BlindedIds(start=start, rows=hidden(some)))
            terms.progress("sending blinded ids", start + len(some), len(ids))
    positions = np.sort(sent[_read_flags(channel, len(ids), most=size)])
    common = [ids[position] for position in positions.tolist()]
    return Common(positions, {channel.peer: keyed_order(common, seed)})


def keyed_order(ids: Sequence[bytes], key: bytes) -> IdPositions:
    """A pseudo-random order that depends on the *set* of ids and the key alone: that of their keyed hashes."""
    digests = b"".join(hmac.digest(key, record_id, "sha256") for record_id in ids)
    return np.argsort(np.frombuffer(digests, f"S{HASH_BYTES}"), kind="stable")


def _exchange_shares(channel: Channel, terms: AlignmentTerms, *, speaks_first: bool) -> bytes:
    """Exchange random bytes; returns the seed made of both sides' bytes.

    Nobody commits to a share before seeing the other's: whoever speaks last could choose between orders, but every one
    of them is a function of ids that both know, so there is nothing to gain.
    """
    if speaks_first:
        channel.send(OrderShare(random=terms.share))
    theirs = expect(channel, OrderShare).random
    if not speaks_first:
        channel.send(OrderShare(random=terms.share))
    passive, active = (terms.share, theirs) if speaks_first else (theirs, terms.share)
    return hashlib.sha256(b"opboost order" + passive + active + terms.run_id.encode()).digest()


def _blinded_by_all(
    channels: Sequence[Channel], ids: Sequence[bytes], cipher: Cipher, progress: OnStep
) -> list[ByteRows]:
    """Own ids blinded with both keys, per peer. One chunk is in transit while the next is computed."""
    answers: list[list[ByteRows]] = [[] for _ in channels]
    starts = range(0, len(ids), CHUNK_IDS)
    for start in starts:
        rows = cipher.blind(ids[start : start + CHUNK_IDS])
        for channel in channels:
            channel.send(BlindedIds(start=start, rows=rows))
        if start > 0:
            _read_answers(channels, answers, start - CHUNK_IDS, CHUNK_IDS)
        progress("blinding ids", start + len(rows), len(ids))
    _read_answers(channels, answers, starts[-1], len(ids) - starts[-1])
    return [np.concatenate(chunks) for chunks in answers]


def _read_answers(channels: Sequence[Channel], answers: Sequence[list[ByteRows]], start: int, n_rows: int) -> None:
    for channel, chunks in zip(channels, answers, strict=True):
        answer = expect(channel, ReblindedIds)
        if answer.start != start or answer.rows.shape != (n_rows, POINT_BYTES):
            raise UnexpectedMessage(
                f"{channel.peer} sent {answer.rows.shape[0]} ids from {answer.start} on, {answer.rows.shape[1]} bytes "
                f"each, where {n_rows} from {start} on with {POINT_BYTES} bytes each were due"
            )
        chunks.append(answer.rows)


def _answer(channel: Channel, size: int, cipher: Cipher, progress: OnStep) -> None:
    """Blind the peer's ids with the own key too, and send them back."""
    for start, rows in _receive(channel, size, POINT_BYTES):
        channel.send(ReblindedIds(start=start, rows=_reblind(channel, cipher, rows)))
        progress(f"reblinding ids of {channel.peer}", start + len(rows), size)


def _collect(channel: Channel, size: int, cipher: Cipher | None, progress: OnStep) -> ByteRows:
    """Receive the peer's ids, blinded for comparison with the own ones."""
    collected = []
    for start, rows in _receive(channel, size, POINT_BYTES if cipher else HASH_BYTES):
        if start + WINDOW * CHUNK_IDS < size:
            channel.send(MoreIds())
        collected.append(rows if cipher is None else _reblind(channel, cipher, rows))
        progress(f"comparing ids with {channel.peer}", start + len(rows), size)
    return np.concatenate(collected)


def _receive(channel: Channel, size: int, n_bytes: int) -> Iterator[tuple[int, ByteRows]]:
    """Receive a peer's blinded ids by chunks, in order, with the position of each chunk."""
    start = 0
    while start < size:
        chunk = expect(channel, BlindedIds)
        due = min(CHUNK_IDS, size - start), n_bytes
        if chunk.start != start or chunk.rows.shape != due:
            raise UnexpectedMessage(
                f"{channel.peer} sent {chunk.rows.shape[0]} ids from {chunk.start} on, {chunk.rows.shape[1]} bytes "
                f"each, where {due[0]} from {start} on with {n_bytes} bytes each were due"
            )
        yield start, chunk.rows
        start += due[0]


def _reblind(channel: Channel, cipher: Cipher, rows: ByteRows) -> ByteRows:
    try:
        return cipher.reblind(rows)
    except DecodeError as error:
        raise DecodeError(f"{channel.peer} sent ids that cannot be compared: {error}") from None


def _read_flags(channel: Channel, size: int, *, most: int) -> NDArray[np.bool_]:
    """Receive the flags of common ids; refuses more of them than the peer has ids."""
    bits = expect(channel, CommonIds).bits
    if len(bits) != -(-size // 8) or np.unpackbits(bits)[size:].any():
        raise UnexpectedMessage(f"{channel.peer} sent {8 * len(bits)} bits about {size} ids, or bits beyond the last")
    flags = np.unpackbits(bits, count=size).astype(np.bool_)
    if not flags.any():
        raise UnexpectedMessage(f"{channel.peer} says that no id is common and goes on all the same")
    if (n_flagged := int(flags.sum())) > most:
        raise UnexpectedMessage(
            f"{channel.peer} says that {n_flagged} ids are common and announced to have {most}. Nothing was released"
        )
    return flags


def _check_size(channel: Channel, size: int) -> None:
    if not 0 < size <= MAX_IDS:
        raise UnexpectedMessage(f"{channel.peer} announced {size} ids; 1 to {MAX_IDS} can be aligned")
