"""Oblivious pseudo-random function by Diffie-Hellman on P-256 (Jarecki and Liu, SCN 2010).

B's function of an id x is a hash of x and H(x)^b, where b is B's key. A sends H(x)^a under a fresh key a, B answers
with H(x)^ab, and A takes the a-th root. B sees random points; A learns the function of as many points as it sends, and
no other value of it differs from a random number to A (one-more gap Diffie-Hellman, hashes taken as random). Both hold
against a side that deviates.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from protocols.alignment.blinding import POINT_BYTES, VALUE_BYTES, Cipher, IdPositions, ascending_order
from protocols.alignment.id_chunks import OnStep, chunks, comparing, receive
from protocols.messages.fields import ByteRows
from protocols.messages.id_alignment import BlindedIds, ReblindedIds
from protocols.transport.channel import Channel


@dataclass(frozen=True, slots=True)
class PreparedIds:
    """The function of B's ids under a key that several runs use.

    Attributes
    ----------
    key : bytes
    values : ndarray of uint8, shape (n_ids, VALUE_BYTES)
        In the order of the ids.
    order : ndarray of int64
        In which the values ascend.
    """

    key: bytes = field(repr=False)
    values: ByteRows
    order: IdPositions

    @classmethod
    def of(cls, ids: Sequence[bytes], progress: OnStep) -> PreparedIds:
        """Evaluate the function of all ids under a fresh key, which is nearly all of B's work."""
        with Cipher() as cipher:
            values = _own_values(cipher, ids, progress)
            return cls(cipher.key, values, ascending_order(values))


def query(channels: Sequence[Channel], ids: Sequence[bytes], progress: OnStep) -> list[ByteRows]:
    """A's side: every peer's function of the ids. One chunk is in transit while the next is computed."""
    values = [np.empty((len(ids), VALUE_BYTES), np.uint8) for _ in channels]
    with Cipher() as cipher:
        answers = [receive(channel, len(ids), POINT_BYTES, ReblindedIds) for channel in channels]

        def take() -> None:
            for channel, answer, found in zip(channels, answers, values, strict=True):
                start, rows = next(answer)
                with comparing(channel):
                    points = cipher.unblind(rows)
                found[start : start + len(rows)] = _values(points, ids[start : start + len(rows)])

        for start, some in chunks(ids):
            rows = cipher.blind(some)
            for channel in channels:
                channel.send(BlindedIds(start=start, rows=rows))
            if start > 0:
                take()
            progress("blinding ids", start + len(rows), len(ids))
        take()
    return values


def evaluate(
    channel: Channel, ids: Sequence[bytes], *, size: int, prepared: PreparedIds | None, progress: OnStep
) -> ByteRows:
    """B's side: answers as many points as A announced to have ids, and returns the function of its own ids."""
    with Cipher(key=None if prepared is None else prepared.key) as cipher:
        for start, rows in receive(channel, size, POINT_BYTES):
            with comparing(channel):
                points = cipher.reblind(rows)
            channel.send(ReblindedIds(start=start, rows=points))
            progress(f"reblinding ids of {channel.peer}", start + len(rows), size)
        return _own_values(cipher, ids, progress) if prepared is None else prepared.values


def _own_values(cipher: Cipher, ids: Sequence[bytes], progress: OnStep) -> ByteRows:
    """The function of ids for whoever has the key."""
    values = np.empty((len(ids), VALUE_BYTES), np.uint8)
    for start, some in chunks(ids):
        values[start : start + len(some)] = _values(cipher.blind(some), some)
        progress("blinding ids", start + len(some), len(ids))
    return values


def _values(points: ByteRows, ids: Sequence[bytes]) -> ByteRows:
    digests = b"".join(
        hashlib.blake2b(point.tobytes() + record_id, digest_size=VALUE_BYTES, person=b"opboost curve").digest()
        for point, record_id in zip(points, ids, strict=True)
    )
    return np.frombuffer(digests, np.uint8).reshape(-1, VALUE_BYTES)
