"""How much has come over each TCP connection and was not taken yet: what a peer makes this party hold in memory.

ZeroMQ bounds the size of a frame and the number of *whole* messages in a queue. It bounds neither the number of frames
of a message, which it keeps from the first to the last, nor the bytes of a queue. The kernel counts the bytes of every
connection; what was taken is subtracted, and a connection that is too far ahead is cut off, upon which ZeroMQ lets go
of all that it kept of it. The count is had on Linux alone; elsewhere nothing is cut off.
"""

from __future__ import annotations

import socket
import struct
import sys
import time
from collections.abc import Sequence
from contextlib import suppress

# Bytes of a frame on the wire beyond its content, at most: ZMTP's and CURVE's headers.
FRAME_BYTES = 42

# How often to look: asking the kernel costs some microseconds per connection.
LOOK_S = 0.05

# Place of `tcpi_bytes_received` in the kernel's `struct tcp_info`; Linux has it since version 4.1.
_RECEIVED = struct.Struct("<120x8x Q")


class Arrivals:
    """The connections of one socket, by file descriptor.

    Parameters
    ----------
    limit_bytes : int
        The most that may be ahead on one connection.
    n_peers : int
        The most on all connections is so many times that; a peer may have several.
    """

    def __init__(self, limit_bytes: int, *, n_peers: int = 1) -> None:
        self.limit_bytes = limit_bytes
        self._total_bytes = limit_bytes * n_peers
        self._taken: dict[int, int] = {}
        self._next_look = 0.0

    def begin(self, descriptor: int) -> None:
        """A connection began."""
        self._taken[descriptor] = 0

    def end(self, descriptor: int) -> None:
        """A connection ended."""
        self._taken.pop(descriptor, None)

    def take(self, descriptor: int, sizes: Sequence[int]) -> None:
        """Frames of these sizes were taken from a connection."""
        if descriptor in self._taken:
            self._taken[descriptor] += sum(sizes) + FRAME_BYTES * len(sizes)

    def cut_off(self) -> list[int]:
        """End the connections that are too far ahead; returns their descriptors."""
        if time.monotonic() < self._next_look:
            return []
        self._next_look = time.monotonic() + LOOK_S
        ahead = {descriptor: _received(descriptor) - taken for descriptor, taken in self._taken.items()}
        total, found = sum(ahead.values()), []
        for descriptor, n_bytes in sorted(ahead.items(), key=lambda item: -item[1]):
            if n_bytes > self.limit_bytes or total > self._total_bytes:
                found.append(descriptor)
                total -= n_bytes
                self.end(descriptor)
                _shut(descriptor)
        return found


def _received(descriptor: int) -> int:
    """Bytes that came over a TCP connection; 0 if it is none, or the kernel does not tell."""
    if sys.platform != "linux":
        return 0
    with suppress(OSError, struct.error), socket.fromfd(descriptor, socket.AF_INET, socket.SOCK_STREAM) as same:
        return int(_RECEIVED.unpack_from(same.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _RECEIVED.size))[0])
    return 0


def _shut(descriptor: int) -> None:
    with suppress(OSError), socket.fromfd(descriptor, socket.AF_INET, socket.SOCK_STREAM) as same:
        # Whoever is in the middle of sending hears of it at once, too, when ZeroMQ closes its side.
        same.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        same.shutdown(socket.SHUT_RDWR)
