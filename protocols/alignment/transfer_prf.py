"""Oblivious pseudo-random function by oblivious transfer extension (Pinkas, Rosulek, Trieu and Yanai, EUROCRYPT 2020).

A hides its ids in oblivious key-value stores (`key_value_store`), one per bucket of ids, and these in matrices of the
transfer extension (`transfer_extension`). Sums of rows keep their form, so what an id's entries add up to is t at A and
q = t + C(value) * s at B if the id was hidden, and something unknown to A otherwise. The function of an id is a hash of
t, which B computes for any id as q + C(value) * s.

B sees one-time pads. A learns the function of as many ids as it can hide: at most the entries of its tables, 1.8 times
the ids that it announced (and 6,454 where it announced up to 4,096). Every other value of the function is random
to A. Both hold against a side that deviates: the base transfers, the check of the transfer extension and the store are
secure against those, if ristretto255 is as hard as it seems and hashes are random.

Which bucket an id belongs to is public, given the id. All buckets' tables have the same room, beyond which a bucket's
ids grow with a chance below 2^-40 (Bernstein's inequality), so A's sizes show nothing but the number that it announced.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Sequence

import numpy as np

from protocols.alignment.bit_matrices import BitMatrix
from protocols.alignment.blinding import VALUE_BYTES
from protocols.alignment.id_chunks import OnStep, chunks, comparing, digest_rows
from protocols.alignment.key_value_store import (
    DIGEST_BYTES,
    N_DENSE,
    make_table,
    n_sparse_entries,
    read_table,
    values_of,
)
from protocols.alignment.random_transfers import ELEMENT_BYTES, Chooser, answer_points
from protocols.alignment.sorted_rows import ExternalSort, IdPositions, first_bits
from protocols.alignment.transfer_extension import (
    CHECK_BYTES,
    N_TRANSFERS,
    N_VALUE_COLUMNS,
    ROW_BYTES,
    Encoder,
    Keeper,
    n_all_rows,
)
from protocols.errors import ProtocolError, UnexpectedMessage
from protocols.messages.fields import ByteRows
from protocols.messages.id_alignment import HiddenIds, MoreIds, TransferAnswer, TransferPoints
from protocols.transport.channel import Channel, expect

# Ids of a bucket, on average at most: a table of them is a message of 1.8 MB.
BUCKET_BITS = 14

# Tables that may be on the way.
TABLE_WINDOW = 2

# Of an id's digest the fields that a key-value store reads, and two bytes that name its bucket.
_BUCKET = slice(DIGEST_BYTES, DIGEST_BYTES + 2)
_DIGEST_BYTES = 32
_SESSION_BYTES = 32


def query(
    channels: Sequence[Channel], ids: Sequence[bytes], seeds: Sequence[bytes], progress: OnStep
) -> list[ExternalSort]:
    """A's side: values of the ids under every peer's function; `seeds` are those of the peers' hashes."""
    sizes = _TableSizes(len(ids))
    queries = [_Query(channel, ids, seed, sizes) for channel, seed in zip(channels, seeds, strict=True)]
    for number in range(sizes.n_buckets):
        for peer_query in queries:
            peer_query.hide(number)
        progress("hiding ids", number + 1, sizes.n_buckets)
    return [peer_query.values for peer_query in queries]


def evaluate(channel: Channel, ids: Sequence[bytes], seed: bytes, *, size: int, progress: OnStep) -> ExternalSort:
    """B's side: receives the tables of A's announced number of ids, and returns the values of its own ids.

    Raises
    ------
    ProtocolError
        If A does not keep to the protocol.
    """
    sizes = _TableSizes(size)
    chooser = Chooser(N_TRANSFERS, seed)
    channel.send(TransferPoints(rows=np.frombuffer(b"".join(chooser.points), np.uint8).reshape(-1, ELEMENT_BYTES)))
    answer = expect(channel, TransferAnswer).point
    session = _session(seed, chooser.points, answer)
    with comparing(channel):
        keeper = Keeper(chooser.choices, chooser.keys(answer))
    values = ExternalSort(len(ids), VALUE_BYTES)
    buckets = _Buckets(ids, seed, sizes.n_bits)
    for number in range(sizes.n_buckets):
        hidden = sizes.receive(channel, number)
        with comparing(channel):
            rows = keeper.extend(*hidden, _context(session, number))
        # A bucket may have many of B's ids, however few A has announced; each step costs as much as hundreds of ids.
        for positions, digests in buckets.pieces(number):
            sums = read_table(rows, digests, sizes.n_sparse) ^ keeper.codewords(values_of(digests))
            values.put(positions, _hashes(sums, digests, session))
        progress(f"comparing with hidden ids of {channel.peer}", number + 1, sizes.n_buckets)
    return values


class _TableSizes:
    """Sizes of what A sends, which follow from how many ids it announced."""

    def __init__(self, size: int) -> None:
        self.n_bits = ((size - 1) >> BUCKET_BITS).bit_length()
        self.n_buckets = 1 << self.n_bits
        mean = size / self.n_buckets
        # Of 2^16 buckets, those of MAX_IDS ids, none has more but for a chance of 2^16 exp(-39) < 2^-40.
        self.capacity = min(size, math.ceil(mean + math.sqrt(78 * mean)) + 26)
        self.n_sparse = n_sparse_entries(self.capacity)

    def receive(self, channel: Channel, number: int) -> tuple[BitMatrix, BitMatrix]:
        """Receive the table of a bucket, and ask for another one."""
        hidden = expect(channel, HiddenIds)
        found = hidden.number, hidden.columns.shape, hidden.tags.shape
        n_bytes = n_all_rows(self.n_sparse + N_DENSE) // 8
        due = number, (N_TRANSFERS, n_bytes), (N_TRANSFERS + N_VALUE_COLUMNS, CHECK_BYTES)
        if found != due:
            raise UnexpectedMessage(f"{channel.peer} sent table {found} of hidden ids where {due} was due")
        if number + TABLE_WINDOW < self.n_buckets:
            channel.send(MoreIds())
        return hidden.columns, hidden.tags


class _Buckets:
    """Digests of ids by buckets, on disk where they are many; ids are read once, in chunks."""

    def __init__(self, ids: Sequence[bytes], seed: bytes, n_bits: int) -> None:
        self._n_bits, self._rows = n_bits, ExternalSort(len(ids), _DIGEST_BYTES, key=_BUCKET)
        for start, chunk in chunks(ids):
            self._rows.put(start + np.arange(len(chunk)), _digests(chunk, seed))
        self._range: tuple[int, IdPositions, BitMatrix] | None = None

    def pieces(self, number: int) -> Iterator[tuple[IdPositions, BitMatrix]]:
        """Positions and digests of a bucket's ids; where they are many, a range of the sorted ones at a time."""
        n_more = self._rows.n_range_bits - self._n_bits
        if n_more > 0:
            yield from map(self._rows.range, range(number << n_more, (number + 1) << n_more))
            return
        if self._range is None or self._range[0] != number >> -n_more:
            self._range = number >> -n_more, *self._rows.range(number >> -n_more)
        _, positions, digests = self._range
        buckets = first_bits(digests[:, _BUCKET], self._n_bits)
        bucket = slice(*np.searchsorted(buckets, [number, number + 1]).tolist())
        yield positions[bucket], digests[bucket]


class _Query:
    """A's conversation with one peer."""

    def __init__(self, channel: Channel, ids: Sequence[bytes], seed: bytes, sizes: _TableSizes) -> None:
        self._channel, self._sizes = channel, sizes
        rows = expect(channel, TransferPoints).rows
        if rows.shape != (2 * N_TRANSFERS, ELEMENT_BYTES):
            raise UnexpectedMessage(f"{channel.peer} sent {rows.shape} bytes of points; {2 * N_TRANSFERS} were due")
        points = [row.tobytes() for row in rows]
        with comparing(channel):
            answer, keys = answer_points(points, seed)
        channel.send(TransferAnswer(point=answer))
        self._session = _session(seed, points, answer)
        self._encoder = Encoder(keys)
        self._buckets = _Buckets(ids, seed, sizes.n_bits)
        self.values = ExternalSort(len(ids), VALUE_BYTES)

    def hide(self, number: int) -> None:
        """Send a bucket's ids, and keep their values."""
        if number >= TABLE_WINDOW:
            expect(self._channel, MoreIds)
        members, digests = (np.concatenate(parts) for parts in zip(*self._buckets.pieces(number), strict=True))
        if len(members) > self._sizes.capacity:
            raise ProtocolError("these ids fall into buckets too unevenly, which hardly ever happens. Try again")
        table = make_table(digests, self._sizes.n_sparse)
        rows, columns, tags = self._encoder.extend(table, _context(self._session, number))
        self._channel.send(HiddenIds(number=number, columns=columns, tags=tags))
        sums = read_table(rows, digests, self._sizes.n_sparse)
        self.values.put(members, _hashes(sums, digests, self._session))


def _session(seed: bytes, points: Sequence[bytes], answer: bytes) -> bytes:
    return hashlib.blake2b(b"".join([seed, *points, answer]), digest_size=_SESSION_BYTES, person=b"session").digest()


def _context(session: bytes, number: int) -> bytes:
    return session + number.to_bytes(4, "little")


def _digests(ids: Sequence[bytes], seed: bytes) -> BitMatrix:
    """Digests of ids."""

    def digest(record_id: bytes) -> bytes:
        return hashlib.blake2b(seed + record_id, digest_size=_DIGEST_BYTES, person=b"hidden id").digest()

    return digest_rows(ids, digest, _DIGEST_BYTES)


def _hashes(sums: BitMatrix, digests: BitMatrix, session: bytes) -> ByteRows:
    """Values of the function: hashes of one block of BLAKE2b each."""
    ends = np.broadcast_to(np.frombuffer(session, np.uint8), (len(sums), _SESSION_BYTES))
    blocks = np.concatenate([sums, digests, ends], axis=1).reshape(-1).data
    width = ROW_BYTES + _DIGEST_BYTES + _SESSION_BYTES
    joined = b"".join(
        hashlib.blake2b(blocks[at : at + width], digest_size=VALUE_BYTES).digest()
        for at in range(0, len(blocks), width)
    )
    return np.frombuffer(joined, np.uint8).reshape(-1, VALUE_BYTES)
