"""Oblivious pseudo-random function by Diffie-Hellman on P-256 (Jarecki and Liu, SCN 2010).

B's function of an id x is a hash of x and H(x)^b, where b is B's key. A sends H(x)^a under a fresh key a, B answers
with H(x)^ab, and A takes the a-th root. B sees random points; A learns the function of as many points as it sends, and
no other value of it differs from a random number to A (one-more gap Diffie-Hellman, hashes taken as random). Both hold
against a side that deviates.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from protocols.alignment.blinding import POINT_BYTES, VALUE_BYTES, Cipher
from protocols.alignment.id_chunks import CHUNK_IDS, OnStep, chunks, comparing, receive
from protocols.alignment.sorted_rows import Ascending, ExternalSort, IdPositions
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

    def ascending(self) -> Iterator[tuple[IdPositions, ByteRows]]:
        """The values in ascending order, some at a time, with the positions of their ids."""
        for start in range(0, len(self.order), CHUNK_IDS):
            positions = self.order[start : start + CHUNK_IDS]
            yield positions, self.values[positions]

    @classmethod
    def of(cls, ids: Sequence[bytes], progress: OnStep) -> PreparedIds:
        """Evaluate the function of all ids under a fresh key, which is nearly all of B's work."""
        with Cipher() as cipher:
            own = list(_own_values(cipher, ids, progress).ascending())
        order, rows = (np.concatenate(parts) for parts in zip(*own, strict=True))
        values = np.empty_like(rows)
        values[order] = rows
        return cls(cipher.key, values, order)


def query(channels: Sequence[Channel], ids: Sequence[bytes], progress: OnStep) -> list[ExternalSort]:
    """A's side: every peer's function of the ids. One chunk is in transit while the next is computed."""
    values = [ExternalSort(len(ids), VALUE_BYTES) for _ in channels]
    with Cipher() as cipher:
        answers = [receive(channel, len(ids), POINT_BYTES, ReblindedIds) for channel in channels]

        def take() -> None:
            for channel, answer, found in zip(channels, answers, values, strict=True):
                start, rows = next(answer)
                with comparing(channel):
                    points = cipher.unblind(rows)
                found.put(start + np.arange(len(rows)), _values(points, ids[start : start + len(rows)]))

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
) -> Ascending:
    """B's side: answers as many points as A announced to have ids, and returns the function of its own ids."""
    with Cipher(key=None if prepared is None else prepared.key) as cipher:
        for start, rows in receive(channel, size, POINT_BYTES):
            with comparing(channel):
                points = cipher.reblind(rows)
            channel.send(ReblindedIds(start=start, rows=points))
            progress(f"reblinding ids of {channel.peer}", start + len(rows), size)
        return _own_values(cipher, ids, progress) if prepared is None else prepared


def _own_values(cipher: Cipher, ids: Sequence[bytes], progress: OnStep) -> ExternalSort:
    """The function of ids for whoever has the key."""
    values = ExternalSort(len(ids), VALUE_BYTES)
    for start, some in chunks(ids):
        values.put(start + np.arange(len(some)), _values(cipher.blind(some), some))
        progress("blinding ids", start + len(some), len(ids))
    return values


def _values(points: ByteRows, ids: Sequence[bytes]) -> ByteRows:
    digests = b"".join(
        hashlib.blake2b(point.tobytes() + record_id, digest_size=VALUE_BYTES, person=b"opboost curve").digest()
        for point, record_id in zip(points, ids, strict=True)
    )
    return np.frombuffer(digests, np.uint8).reshape(-1, VALUE_BYTES)
