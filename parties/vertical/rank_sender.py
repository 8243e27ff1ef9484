"""Sending of released ranks, column by column in chunks."""

from __future__ import annotations

import numpy as np

from parties.vertical.release_offer import OfferedRanks, rank_type
from protocols.errors import UnexpectedMessage
from protocols.messages.vertical import MoreRanks, RankChunk
from protocols.transport.channel import Channel, expect

# Rows per chunk of ranks: at most 1 MiB on the wire.
CHUNK_ROWS = 1 << 18

# Chunks that may be on their way or wait at the receiver, and how many it takes before it asks for as many more. With
# chunks of 256 KiB, 12 MiB are on their way when it asks: a second of 100 Mb/s.
RANK_WINDOW, MORE_EVERY = 64, 16


# Most chunks with fewer rows than `CHUNK_ROWS` before a column's end: each costs a message and a log line.
MAX_SHORT = 10_000


class ShortChunks:
    """Counts a peer's chunks that have fewer rows than they should.

    Parameters
    ----------
    peer : str
    """

    def __init__(self, peer: str) -> None:
        self._peer = peer
        self._n = 0

    def count(self, n_rows: int, n_left: int) -> None:
        """Count a chunk of so many rows where so many are left.

        Raises
        ------
        UnexpectedMessage
            If that was too often.
        """
        self._n += n_rows < min(CHUNK_ROWS, n_left)
        if self._n > MAX_SHORT:
            raise UnexpectedMessage(f"{self._peer} sent more than {MAX_SHORT} chunks of fewer rows than were due")


class RankWindow:
    """Flow control of ranks: no more than `RANK_WINDOW` chunks are ahead of what the receiver has taken.

    Parameters
    ----------
    channel : Channel
        To the receiver of all columns, whose `MoreRanks` are read here.
    """

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._n_ahead = 0

    def send(self, chunk: RankChunk) -> None:
        """Send a chunk, after a wait if the window is full."""
        if self._n_ahead == RANK_WINDOW:
            self._wait()
        self._channel.send(chunk)
        self._n_ahead += 1

    def close(self) -> None:
        """Wait until the receiver has taken all chunks but the last few, of which it does not speak."""
        while self._n_ahead >= MORE_EVERY:
            self._wait()

    def _wait(self) -> None:
        expect(self._channel, MoreRanks)
        self._n_ahead -= MORE_EVERY


def send_ranks(window: RankWindow, index: int, column: OfferedRanks, *, rows: range) -> None:
    """Send some rows of a column in chunks."""
    none = np.empty(0, rank_type(column.ranking.table.n_ranks))
    for first in range(rows.start, rows.stop, CHUNK_ROWS):
        ranks = np.concatenate([none, *column.ranks(first, min(first + CHUNK_ROWS, rows.stop))])
        window.send(RankChunk(column=index, start=first, ranks=ranks))
