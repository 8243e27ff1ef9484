"""Oblivious pseudo-random function by Diffie-Hellman on P-256 (Jarecki and Liu, SCN 2010).

B's function of an id x is a hash of x and H(x)^b, where b is B's key. A sends H(x)^a under a fresh key a, B answers
with H(x)^ab, and A takes the a-th root. B sees random points; A learns the function of as many points as it sends, and
no other value of it differs from a random number to A (one-more gap Diffie-Hellman, hashes taken as random). Both hold
against a side that deviates.

A's points travel in a random order. In the order of the ids, a B that answers some of them wrongly would see by the ids
that are not common then where these stand, and so count A's other ids between them.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from protocols.alignment.blinding import POINT_BYTES, VALUE_BYTES, Cipher
from protocols.alignment.id_chunks import CHUNK_IDS, OnStep, chunks, comparing, receive
from protocols.alignment.sorted_rows import Ascending, ExternalSort, IdPositions, joined
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
    order = _random_order(len(ids))
    with Cipher() as cipher:
        answers = [receive(channel, len(ids), POINT_BYTES, ReblindedIds) for channel in channels]

        def take() -> None:
            for channel, answer, found in zip(channels, answers, values, strict=True):
                start, rows = next(answer)
                with comparing(channel):
                    points = cipher.unblind(rows)
                asked = order[start : start + len(rows)]
                found.put(asked, _values(points, _in_order(ids, asked)))

        for start, places in chunks(range(len(ids))):
            rows = cipher.blind(_in_order(ids, order[start : start + len(places)]))
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


def _random_order(n_ids: int) -> IdPositions:
    """A secret order of so many positions, drawn anew each time."""
    rows = ExternalSort(n_ids, VALUE_BYTES)
    for _, some in chunks(range(n_ids)):
        drawn = np.frombuffer(secrets.token_bytes(VALUE_BYTES * len(some)), np.uint8)
        rows.put(np.array(some), drawn.reshape(-1, VALUE_BYTES))
    return joined((positions for positions, _ in rows.ascending()), n_ids)


def _in_order(ids: Sequence[bytes], positions: IdPositions) -> list[bytes]:
    """Some ids, which are read one at a time, for they may be on disk."""
    return [ids[at] for at in positions.tolist()]


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
