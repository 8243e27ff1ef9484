"""Private set intersection by several keys in order of trust: what one key leaves over is compared by the next.

A record is common by the first key that all parties know it by, and takes no part in later comparisons. In each of
them a party brings as many values as it has records left, which its peers know already; a record without that key is
replaced by random bytes. So a comparison tells which records are common by its key, and nothing else.

Before the next one the active party proves to each other party that it holds the keys of the records that it calls
common: whoever could call others common would single out a record, and learn its further keys. The proof is a digest of
keys that its receiver holds as well. Neither side can be made to bring the keys that it has: whoever withholds the
first key of one record alone finds it among those left over.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from protocols.alignment.private_set_intersection import AlignmentTerms, Common, psi_initiate, psi_respond
from protocols.alignment.sorted_rows import IdPositions
from protocols.errors import UnexpectedMessage
from protocols.messages.id_alignment import IdConfirmation
from protocols.transport.channel import Channel, expect

_NOBODY_BYTES = 32

FindCommon = Callable[[Sequence[bytes], Sequence[int], AlignmentTerms, bool], Common]
"""Compares ids with peers that have so many, by terms, where perhaps none need be common."""


@dataclass(frozen=True, slots=True)
class CommonByKeys:
    """Common records in ascending order of the names that all parties call them by.

    Attributes
    ----------
    found : Common
        Positions in this party's list, in the order of `names`, and orders of them.
    names : tuple of bytes
    counts : tuple of int
        How many are common by each key.
    """

    found: Common
    names: tuple[bytes, ...]
    counts: tuple[int, ...]


def initiate_by_keys(
    channels: Sequence[Channel], keys: Sequence[Sequence[bytes]], *, sizes: Sequence[int], terms: AlignmentTerms
) -> CommonByKeys:
    """The active party's side.

    Parameters
    ----------
    channels : sequence of Channel
    keys : sequence of sequence of bytes
        Of each key, every record's value, all of them different; empty where a record has none.
    sizes : sequence of int
        How many records each peer announced.
    terms : AlignmentTerms

    Raises
    ------
    NothingInCommon, ProtocolError
        As for `psi_initiate`, if no record is common by any key; or more are than a peer announced.
    """

    def find(ids: Sequence[bytes], left: Sequence[int], terms: AlignmentTerms, may_be_none: bool) -> Common:
        common = psi_initiate(channels, ids, sizes=left, terms=terms, may_be_none=may_be_none)
        for channel in channels:
            channel.send(IdConfirmation(tag=_proof(ids, common, terms)))
        return common

    return _in_turns(keys, sizes, terms, find)


def respond_by_keys(
    channel: Channel, keys: Sequence[Sequence[bytes]], *, size: int, terms: AlignmentTerms
) -> CommonByKeys:
    """A passive party's side; see `initiate_by_keys`."""

    def find(ids: Sequence[bytes], left: Sequence[int], terms: AlignmentTerms, may_be_none: bool) -> Common:
        common = psi_respond(channel, ids, size=left[0], terms=terms, may_be_none=may_be_none)
        if not hmac.compare_digest(expect(channel, IdConfirmation).tag, _proof(ids, common, terms)):
            raise UnexpectedMessage(
                f"{channel.peer} calls records common whose keys it did not prove to hold. Nothing was released"
            )
        return common

    return _in_turns(keys, [size], terms, find)


def _in_turns(
    keys: Sequence[Sequence[bytes]], sizes: Sequence[int], terms: AlignmentTerms, find: FindCommon
) -> CommonByKeys:
    left = np.arange(len(keys[0]))
    turns: list[Common] = []
    names: list[bytes] = []
    for number, key in enumerate(keys, 1):
        # Whose records are all common brings one value all the same, since a peer may not know of it.
        ids = [key[row] or _nobody() for row in left.tolist()] or [_nobody()]
        theirs = [max(1, size - len(names)) for size in sizes]
        own_terms = replace(terms, run_id=f"{terms.run_id} key {number}")
        common = find(ids, theirs, own_terms, bool(names) or number < len(keys))
        turns.append(Common(left[common.positions], common.orders))
        names += [ids[place] for place in common.positions.tolist()]
        if len(names) > min(sizes):
            raise UnexpectedMessage(
                f"{len(names)} records are common by their keys, and {min(sizes)} was announced. Nothing was released"
            )
        left = np.delete(left, common.positions)
    return _joined(turns, names)


def _proof(ids: Sequence[bytes], common: Common, terms: AlignmentTerms) -> bytes:
    """Digest of the common values of a comparison, 32 bytes."""
    values = sorted(ids[place] for place in common.positions.tolist())
    text = b"".join(len(value).to_bytes(4, "little") + value for value in values)
    return hmac.digest(b"opboost keys " + terms.run_id.encode(), text, "sha256")


def _nobody() -> bytes:
    """A value that is no other party's; no text begins with its first byte."""
    return b"\xff" + secrets.token_bytes(_NOBODY_BYTES)


def _joined(turns: Sequence[Common], names: Sequence[bytes]) -> CommonByKeys:
    """All comparisons as one: records in the order of their names, and ranks in the order of the comparisons."""
    ascending = np.array(sorted(range(len(names)), key=names.__getitem__), np.int64)
    places = np.empty_like(ascending)
    places[ascending] = np.arange(len(ascending))
    counts = [len(turn.positions) for turn in turns]
    starts = np.cumsum([0, *counts[:-1]])
    orders: dict[str, IdPositions] = {
        peer: places[np.concatenate([start + turn.orders[peer] for start, turn in zip(starts, turns, strict=True)])]
        for peer in turns[0].orders
    }
    positions = np.concatenate([turn.positions for turn in turns])[ascending]
    return CommonByKeys(Common(positions, orders), tuple(names[i] for i in ascending.tolist()), tuple(counts))
