"""Sending of released ranks, column by column in chunks."""

from __future__ import annotations

import numpy as np

from parties.vertical.release_offer import OfferedRanks, rank_type
from protocols.messages.vertical import RankChunk
from protocols.transport.channel import Channel

# Rows per chunk of ranks: at most 1 MiB on the wire.
CHUNK_ROWS = 1 << 18


def send_ranks(channel: Channel, index: int, column: OfferedRanks, *, rows: range) -> None:
    """Send some rows of a column in chunks."""
    none = np.empty(0, rank_type(column.table.n_ranks))
    for first in range(rows.start, rows.stop, CHUNK_ROWS):
        ranks = np.concatenate([none, *column.ranks(first, min(first + CHUNK_ROWS, rows.stop))])
        channel.send(RankChunk(column=index, start=first, ranks=ranks))
