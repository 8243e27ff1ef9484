"""Sending of released ranks, column by column in chunks, from wherever a release is kept."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

from numpy.typing import NDArray

from opboost.desensitize import ColumnMechanism, ReleasedColumn
from opboost.preprocess import EncodedColumn
from parties.vertical.release_offer import PackedColumn
from protocols.messages.vertical import RankChunk
from protocols.transport.channel import Channel

# Rows per chunk of ranks: at most 1 MiB on the wire.
CHUNK_ROWS = 1 << 18

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


def send_ranks(channel: Channel, index: int, source: RankSource, number: int, *, rows: range) -> None:
    """Send some rows of a column in chunks."""
    for first in range(rows.start, rows.stop, CHUNK_ROWS):
        ranks = source.get(number, first, min(first + CHUNK_ROWS, rows.stop))
        channel.send(RankChunk(column=index, start=first, ranks=ranks))
