"""Sending of released ranks, column by column in chunks, from wherever a release is kept."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

from numpy.typing import NDArray

from opboost.desensitize import ColumnMechanism, ReleasedColumn
from opboost.preprocess import EncodedColumn
from parties.vertical.release_offer import PackedColumn
from protocols.messages.vertical import MoreRanks, RankChunk
from protocols.transport.channel import Channel, expect

# Rows per chunk of ranks: at most 1 MiB on the wire.
CHUNK_ROWS = 1 << 18

# Chunks that may be on their way or wait at the receiver, and how many it takes before it asks for as many more. With
# chunks of 256 KiB, 12 MiB are on their way when it asks: a second of 100 Mb/s.
WINDOW, MORE_EVERY = 64, 16

ReleaseColumns = Callable[[Sequence[ColumnMechanism], Sequence[EncodedColumn]], Iterator[ReleasedColumn]]
"""Makes the release of a training table, column by column; or refuses before the first."""


class RankSource(Protocol):
    """Where ranks wait to be sent; `parties.storage.spool.ArraySpool` is one."""

    def get(self, number: int, start: int = 0, end: int | None = None) -> NDArray[Any]:
        """Of the column of this number, the ranks from `start` to `end`."""
        ...


class MadeRelease(RankSource, Protocol):
    """A release that is charged, drawn, ranked and kept elsewhere: before the parties meet, or when it is packed."""

    @property
    def n_rows(self) -> int: ...
    @property
    def is_secure(self) -> bool: ...
    @property
    def mechanisms(self) -> tuple[ColumnMechanism, ...]: ...
    def packed(self) -> list[PackedColumn]:
        """The columns as they will travel, numbered for `get`; asked for once, when both sides have agreed."""
        ...


class RankWindow:
    """Flow control of ranks: no more than `WINDOW` chunks are ahead of what the receiver has taken.

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
        if self._n_ahead == WINDOW:
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


def send_ranks(window: RankWindow, index: int, source: RankSource, number: int, *, rows: range) -> None:
    """Send some rows of a column in chunks."""
    for first in range(rows.start, rows.stop, CHUNK_ROWS):
        ranks = source.get(number, first, min(first + CHUNK_ROWS, rows.stop))
        window.send(RankChunk(column=index, start=first, ranks=ranks))
