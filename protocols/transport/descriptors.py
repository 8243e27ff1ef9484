"""File descriptors: their limit, and inspection of the TCP connections behind those that ZeroMQ owns.

A look takes no descriptor of its own, since it must be possible when none is left.
"""

from __future__ import annotations

import socket
import struct
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache

# Descriptors that a listening party asks for, where it may have so many: systems grant 1024 at first.
WANTED = 1 << 16

# Places of `tcpi_bytes_acked`, `tcpi_bytes_received` and `tcpi_notsent_bytes` in the kernel's `struct tcp_info`; Linux
# has them since versions 4.1 and 4.6.
_ACKED, _RECEIVED, _UNSENT = struct.Struct("<120x Q"), struct.Struct("<128x Q"), struct.Struct("<144x I")


def raise_limit() -> int:
    """Let this process have up to `WANTED` descriptors, as far as it may; returns how many it can have now."""
    try:
        import resource
    except ImportError:
        return WANTED
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    infinite = resource.RLIM_INFINITY
    wanted = WANTED if hard == infinite else min(WANTED, hard)
    if soft == infinite or soft >= wanted:
        return WANTED if soft == infinite else soft
    # A system may allow less than it says.
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        return wanted
    return soft


def remote(descriptor: int) -> object:
    """Remote address of a connection, which identifies it at this party; None if there is none."""
    with suppress(OSError), _borrowed(descriptor) as connection:
        return connection.getpeername()
    return None


def received_bytes(descriptor: int) -> int:
    """Bytes that came over a TCP connection; 0 if it is none, or the kernel does not tell."""
    return _counted(descriptor, _RECEIVED)


def acknowledged_bytes(descriptor: int) -> int:
    """Bytes that the other end of a TCP connection has acknowledged; 0 if it is none, or the kernel does not tell."""
    return _counted(descriptor, _ACKED)


def unsent_bytes(descriptor: int) -> int:
    """Bytes that wait in the kernel for the other end to have room; 0 if it is none, or the kernel does not tell."""
    return _counted(descriptor, _UNSENT)


@cache
def counts_bytes() -> bool:
    """Whether the kernel tells how much came over a connection: tried out, since a sandbox may keep it back."""
    with (
        suppress(OSError),
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname(), 5) as near,
        server.accept()[0] as far,
    ):
        near.sendall(b"x")
        return far.recv(1) == b"x" and received_bytes(far.fileno()) == 1
    return False


def shut(descriptor: int, *, delivers: bool = False) -> None:
    """End a connection; ZeroMQ notices, and lets go of the descriptor and of all that it kept.

    What was sent over it is lost, unless the system still `delivers` it.
    """
    with suppress(OSError), _borrowed(descriptor) as connection:
        if not delivers:
            # Whoever is in the middle of sending hears of it at once, too, when ZeroMQ closes its side.
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.shutdown(socket.SHUT_RDWR)


def _counted(descriptor: int, place: struct.Struct) -> int:
    if sys.platform != "linux":
        return 0
    with suppress(OSError, struct.error), _borrowed(descriptor) as connection:
        return int(place.unpack_from(connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, place.size))[0])
    return 0


@contextmanager
def _borrowed(descriptor: int) -> Iterator[socket.socket]:
    # The system is asked for the family: an IPv6 address, read as one of IPv4, would end in whatever lay in memory.
    connection = socket.socket(type=socket.SOCK_STREAM, proto=0, fileno=descriptor)
    try:
        yield connection
    finally:
        connection.detach()
