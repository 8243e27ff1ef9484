"""Chunked transfer of rows, one per id, with flow control and checks of what a peer sends."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

import numpy as np

from protocols.alignment.sorted_rows import ExternalSort
from protocols.errors import DecodeError, UnexpectedMessage
from protocols.messages.fields import ByteRows
from protocols.messages.id_alignment import BlindedIds, MoreIds, ReblindedIds
from protocols.transport.channel import Channel, expect

# Ids per message: a quarter of a second of work on points, so that a peer's end is noticed and progress is seen.
CHUNK_IDS = 1 << 12

# Messages that may be sent before more are asked for: whoever is slow, no more than these wait.
WINDOW = 4

T = TypeVar("T")

OnStep = Callable[[str, int, int], None]
"""Called with the name of a step, how much of it is done, and how much there is."""


@contextmanager
def comparing(channel: Channel) -> Iterator[None]:
    """Say whose message it was that nothing can be computed with."""
    try:
        yield
    except DecodeError as error:
        raise DecodeError(f"{channel.peer} sent ids that cannot be compared: {error}") from None


def chunks(ids: Sequence[T]) -> Iterator[tuple[int, Sequence[T]]]:
    """Ids, or their positions, by chunks, with the position of each."""
    for start in range(0, len(ids), CHUNK_IDS):
        yield start, ids[start : start + CHUNK_IDS]


def digest_rows(ids: Sequence[bytes], digest: Callable[[bytes], bytes], n_bytes: int) -> ByteRows:
    """The first bytes of every id's digest."""
    joined = b"".join([digest(record_id)[:n_bytes] for record_id in ids])
    return np.frombuffer(joined, np.uint8).reshape(-1, n_bytes)


def sorted_digests(ids: Sequence[bytes], digest: Callable[[bytes], bytes], n_bytes: int) -> ExternalSort:
    """The first bytes of every id's digest, sorted on disk."""
    found = ExternalSort(len(ids), n_bytes)
    for start, some in chunks(ids):
        found.put(start + np.arange(len(some)), digest_rows(some, digest, n_bytes))
    return found


def send_on_demand(channel: Channel, pieces: Iterable[ByteRows], size: int, progress: OnStep) -> None:
    """Send so many rows, which come in pieces, by chunks, no more of them than are asked for."""
    start, waiting = 0, list[ByteRows]()
    for piece in pieces:
        rows = np.concatenate([*waiting, piece])
        while len(rows) >= CHUNK_IDS or len(rows) == size - start > 0:
            if start >= WINDOW * CHUNK_IDS:
                expect(channel, MoreIds)
            some, rows = rows[:CHUNK_IDS], rows[CHUNK_IDS:]
            channel.send(BlindedIds(start=start, rows=some))
            start += len(some)
            progress("sending blinded ids", start, size)
        waiting = [rows]


def receive_on_demand(channel: Channel, size: int, n_bytes: int, progress: OnStep) -> Iterator[tuple[int, ByteRows]]:
    """Receive a peer's rows by chunks, in order, with the position of each chunk."""
    for start, rows in receive(channel, size, n_bytes):
        if start + WINDOW * CHUNK_IDS < size:
            channel.send(MoreIds())
        yield start, rows
        progress(f"comparing ids with {channel.peer}", start + len(rows), size)


def receive(
    channel: Channel, size: int, n_bytes: int, kind: type[BlindedIds] | type[ReblindedIds] = BlindedIds
) -> Iterator[tuple[int, ByteRows]]:
    """Receive so many rows by chunks, in order, with the position of each chunk."""
    for start in range(0, size, CHUNK_IDS):
        chunk, n_due = expect(channel, kind), min(CHUNK_IDS, size - start)
        if chunk.start != start or chunk.rows.shape != (n_due, n_bytes):
            raise UnexpectedMessage(
                f"{channel.peer} sent {chunk.rows.shape[0]} ids from {chunk.start} on, {chunk.rows.shape[1]} bytes "
                f"each, where {n_due} from {start} on with {n_bytes} bytes each were due"
            )
        yield start, chunk.rows
