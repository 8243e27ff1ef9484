"""Private set intersection of record ids, for record alignment.

A learns a pseudo-random function of its ids whose key is B's, by oblivious transfers (`transfer_prf`) or by
Diffie-Hellman (`curve_prf`). B sends the function of its own ids, and A compares. With three parties or more A does
this with each B, and only ids that all know take part.

=====  =================================================  ====================================================
party  learns                                             does not learn
=====  =================================================  ====================================================
A      which of its ids each B knows, how many B has      any other id of B, their order in B's file
B      which of its ids *all* parties know, how many A    any other id of A, which ids A shares with another B
       has
=====  =================================================  ====================================================

The salted-hash join is weaker, for those who accept it: B sends HMAC-SHA256 of its ids, cut to 128 bits, under a secret
that both hold and the run's random bytes. Nobody else can do anything with them, but A can try out every id it can
think of, after the run too: short ids (numbers, birth dates) are as good as disclosed to A. B learns the same as above.

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
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from protocols.alignment import curve_prf, transfer_prf
from protocols.alignment.blinding import VALUE_BYTES, MatchedIds, hashed, match_ascending
from protocols.alignment.curve_prf import PreparedIds
from protocols.alignment.id_chunks import OnStep, chunks, digest_rows, receive_on_demand, send_on_demand
from protocols.alignment.sorted_rows import Ascending, ExternalSort, IdPositions, joined
from protocols.errors import NothingInCommon, UnexpectedMessage
from protocols.messages.id_alignment import CommonIds, OrderShare
from protocols.transport.channel import Channel, expect

SetMethod = Literal["psi", "psi-dh", "hashed"]

# More ids than this are refused, which bounds the time and the disk space that a peer can use up. In memory are no more
# of a peer's ids than one message brings.
MAX_IDS = 1 << 30

# Flags of common ids in a message: 8 MB.
FLAGS_IDS = 1 << 26

SHARE_BYTES = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class AlignmentTerms:
    """Inputs of an alignment beside the ids.

    Attributes
    ----------
    run_id : str
    method : str
        By oblivious transfers (``psi``), by Diffie-Hellman (``psi-dh``), or the salted-hash join (``hashed``).
    secret : bytes or None
        For the salted-hash join, the same 32 bytes on all sides.
    share : bytes
        This side's 32 random bytes towards the order of the ranks.
    prepared : PreparedIds, optional
        A passive party's ids under a key of several runs, for Diffie-Hellman.
    progress : callable
    """

    run_id: str
    method: SetMethod = "psi"
    secret: bytes | None = field(default=None, repr=False)
    share: bytes = field(default_factory=lambda: secrets.token_bytes(SHARE_BYTES))
    prepared: PreparedIds | None = None
    progress: OnStep = lambda step, done, total: None

    @property
    def shared_secret(self) -> bytes:
        """The secret, for the method `hashed`, which always has one."""
        assert self.secret is not None
        return self.secret


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
    channels: Sequence[Channel],
    ids: Sequence[bytes],
    *,
    sizes: Sequence[int],
    terms: AlignmentTerms,
    may_be_none: bool = False,
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
    may_be_none : bool
        Whether the parties go on where no id is common, as all of them know.

    Raises
    ------
    NothingInCommon
        If no id is common and `may_be_none` is false; the peers are told nothing then.
    ProtocolError
        If a peer is gone or does not keep to the protocol.
    """
    for channel, size in zip(channels, sizes, strict=True):
        _check_size(channel, size)
    seeds = [_exchange_shares(channel, terms, speaks_first=False) for channel in channels]
    match terms.method:
        case "psi":
            values = transfer_prf.query(channels, ids, seeds, terms.progress)
        case "psi-dh":
            values = curve_prf.query(channels, ids, terms.progress)
        case "hashed":
            values = [hashed(ids, terms.shared_secret, seed) for seed in seeds]
    n_holders, matches = np.zeros(len(ids), np.min_scalar_type(len(channels))), list[MatchedIds]()
    for channel, size in zip(channels, sizes, strict=True):
        peer_values = receive_on_demand(channel, size, VALUE_BYTES, terms.progress)
        matches.append(MatchedIds(match_ascending(values.pop(0), peer_values, channel.peer)))
        for own_positions, _ in matches[-1]:
            n_holders[own_positions] += 1
    is_common = n_holders == len(channels)
    if not is_common.any() and not may_be_none:
        raise NothingInCommon(f"not one id is common to all {1 + len(channels)} parties. Nothing was released")
    for channel, matched, size in zip(channels, matches, sizes, strict=True):
        for flags in matched.flags(is_common, size, FLAGS_IDS):
            channel.send(CommonIds(bits=np.packbits(flags)))
    positions = np.flatnonzero(is_common)
    orders = {channel.peer: keyed_order(ids, positions, seed) for channel, seed in zip(channels, seeds, strict=True)}
    return Common(positions, orders)


def psi_respond(
    channel: Channel, ids: Sequence[bytes], *, size: int, terms: AlignmentTerms, may_be_none: bool = False
) -> Common:
    """Passive party's side of private set intersection: answers A, and is told which ids are common.

    Parameters
    ----------
    channel : Channel
    ids : sequence of bytes
        Distinct.
    size : int
        How many ids A announced.
    terms : AlignmentTerms
    may_be_none : bool
        As for `psi_initiate`.

    Notes
    -----
    Privacy: sends a random number per id, in an order that depends on these numbers alone.
    """
    _check_size(channel, size)
    seed = _exchange_shares(channel, terms, speaks_first=True)
    match terms.method:
        case "psi":
            values: Ascending = transfer_prf.evaluate(channel, ids, seed, size=size, progress=terms.progress)
        case "psi-dh":
            values = curve_prf.evaluate(channel, ids, size=size, prepared=terms.prepared, progress=terms.progress)
        case "hashed":
            values = hashed(ids, terms.shared_secret, seed)
    send_on_demand(channel, (rows for _, rows in values.ascending()), len(ids), terms.progress)
    positions = _flagged(values, _read_flags(channel, len(ids), most=size, may_be_none=may_be_none))
    return Common(positions, {channel.peer: keyed_order(ids, positions, seed)})


def keyed_order(ids: Sequence[bytes], positions: IdPositions, key: bytes) -> IdPositions:
    """A pseudo-random order of the ids at ascending positions: that of their keyed hashes.

    It depends on the key and the *set* of these ids alone.
    """
    rows = ExternalSort(len(positions), VALUE_BYTES)
    for start, chunk in chunks(ids):
        first, end = np.searchsorted(positions, [start, start + len(chunk)])
        ordered = [chunk[place] for place in (positions[first:end] - start).tolist()]
        hashes = digest_rows(ordered, lambda record_id: hmac.digest(key, record_id, "sha256"), VALUE_BYTES)
        rows.put(np.arange(first, end), hashes)
    return joined((places for places, _ in rows.ascending()), len(positions))


def _exchange_shares(channel: Channel, terms: AlignmentTerms, *, speaks_first: bool) -> bytes:
    """Exchange random bytes; returns the seed made of both sides' bytes.

    Nobody commits to a share before seeing the other's: whoever speaks last could choose between orders, but every one
    of them is a function of ids that both know, so there is nothing to gain.
    """
    if speaks_first:
        channel.send(OrderShare(random=terms.share))
    peer_share = expect(channel, OrderShare).random
    if not speaks_first:
        channel.send(OrderShare(random=terms.share))
    passive, active = (terms.share, peer_share) if speaks_first else (peer_share, terms.share)
    return hashlib.sha256(b"opboost order" + passive + active + terms.run_id.encode()).digest()


def _read_flags(channel: Channel, size: int, *, most: int, may_be_none: bool) -> NDArray[np.uint8]:
    """Receive the flags of common ids, packed; refuses more of them than the peer has ids."""
    pieces = []
    for start in range(0, size, FLAGS_IDS):
        bits, n_due = expect(channel, CommonIds).bits, min(FLAGS_IDS, size - start)
        if len(bits) != -(-n_due // 8) or np.unpackbits(bits[-1:])[(n_due - 1) % 8 + 1 :].any():
            sent = f"{channel.peer} sent {8 * len(bits)} bits about {n_due} ids, or bits beyond the last"
            raise UnexpectedMessage(sent)
        pieces.append(bits)
    n_flagged = sum(int(np.bitwise_count(bits).sum()) for bits in pieces)
    if not n_flagged and not may_be_none:
        raise UnexpectedMessage(f"{channel.peer} says that no id is common and goes on all the same")
    if n_flagged > most:
        raise UnexpectedMessage(
            f"{channel.peer} says that {n_flagged} ids are common and announced to have {most}. Nothing was released"
        )
    return np.concatenate(pieces)


def _flagged(values: Ascending, flags: NDArray[np.uint8]) -> IdPositions:
    """Positions of the ids whose values are flagged in their ascending order, ascending themselves."""

    def pieces() -> Iterator[IdPositions]:
        start = 0
        for positions, _ in values.ascending():
            end = start + len(positions)
            is_flagged = np.unpackbits(flags[start // 8 : -(-end // 8)])[start % 8 :][: len(positions)]
            yield positions[is_flagged.astype(np.bool_)]
            start = end

    flagged = joined(pieces(), int(np.bitwise_count(flags).sum()))
    flagged.sort()
    return flagged


def _check_size(channel: Channel, size: int) -> None:
    if not 0 < size <= MAX_IDS:
        raise UnexpectedMessage(f"{channel.peer} announced {size} ids; 1 to {MAX_IDS} can be aligned")
