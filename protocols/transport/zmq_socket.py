"""Sockets of both kinds of ZeroMQ channel: bounds, heartbeats, and events of their connections."""

from __future__ import annotations

import zmq
from zmq.utils.monitor import recv_monitor_message

from protocols.transport.channel import Timing
from protocols.transport.codec import MAX_ARRAY_BYTES, MAX_ARRAYS
from protocols.transport.descriptors import counts_bytes
from protocols.transport.keys import KeyPair
from protocols.transport.receive_quota import FRAME_BYTES

# Messages that ZeroMQ may hold for a slow peer, and that are read in one go.
HIGH_WATER_MARK = 64

# Incoming messages that ZeroMQ holds where the system does not count bytes. A full queue stops the heartbeats, too, and
# a peer that waits its turn would seem lost.
MAX_UNREAD = 1000

# Connections that the system holds until they are accepted: a peer's has its place among many of strangers.
BACKLOG = 1024

# Seconds that a party that ends a run, or could not connect yet, tries to deliver its termination message.
ABORT_TIMEOUT_S = 1.0

# How long a party that leaves waits until its peers say that they have what was sent.
CLOSING_S = 0.5

# Seconds between a waiting party's checks whether its peer is still there.
POLL_S = 0.05

# Seconds between a listener's checks of all its peers while it asks for messages without a pause.
TEND_S = 0.005


def open_socket(context: zmq.Context[zmq.Socket[bytes]], kind: int, address: str, timing: Timing) -> zmq.Socket[bytes]:
    """A socket for this address with bounded messages, a bounded queue of outgoing ones, and transport heartbeats.

    libzmq stops to read from a connection when the queue of incoming messages is full, and ends the process (assertion
    of `out_event`) when it beats over such a connection after its peer has reset it. So that queue has no bound of its
    own where `receive_quota` bounds its bytes. Elsewhere, as on macOS and Windows, it is bounded by messages, and a
    listed peer can end this process.

    Nor may a monitor ask for `HANDSHAKE_FAILED_PROTOCOL`. libzmq tells it of bytes altered afterwards, too, and
    in telling loses the reason (`errno`): it takes the queue for full, and whoever altered a byte on the way and then
    reset the connection would end the process. Without that event such a connection ends at once.
    """
    socket = context.socket(kind)
    timeout_ms = int(timing.timeout_s * 1000)
    # For addresses in brackets alone: of a name, ZeroMQ would look up those of IPv6 in place of those of IPv4.
    socket.ipv6 = "[" in address
    socket.linger = timeout_ms
    socket.sndhwm = HIGH_WATER_MARK
    socket.rcvhwm = 0 if counts_bytes() else MAX_UNREAD
    # ZeroMQ measures a frame as it is on the wire, with what CURVE adds.
    socket.maxmsgsize = MAX_ARRAY_BYTES + FRAME_BYTES
    socket.heartbeat_ivl = int(timing.beat_s * 1000)
    socket.heartbeat_timeout = timeout_ms
    socket.handshake_ivl = timeout_ms
    return socket


def open_router(
    context: zmq.Context[zmq.Socket[bytes]], address: str, keys: KeyPair | None, timing: Timing
) -> zmq.Socket[bytes]:
    """The socket of a party that listens."""
    socket = open_socket(context, zmq.ROUTER, address, timing)
    socket.router_mandatory = True
    socket.backlog = BACKLOG
    if keys is not None:
        socket.curve_server = True
        socket.curve_secretkey = keys.secret
        socket.curve_publickey = keys.public
    return socket


def has_arrived(socket: zmq.Socket[bytes]) -> bool:
    """Whether a message waits; a fifth of what `poll(0)` takes, which each request asks a dozen times."""
    return bool(int(socket.getsockopt(zmq.EVENTS)) & zmq.POLLIN)


def receive_parts(socket: zmq.Socket[bytes], n_addresses: int = 0) -> list[zmq.Frame]:
    """The next message, which is there already, behind so many frames with addresses.

    Of one that has more frames than any message of this protocol only the first too many is kept, so that it is refused
    when it is read.
    """
    parts: list[zmq.Frame] = [socket.recv(copy=False)]
    while parts[-1].more and len(parts) < n_addresses + 2 + MAX_ARRAYS:
        parts.append(socket.recv(copy=False))
    rest = parts[-1]
    while rest.more:
        rest = socket.recv(copy=False)
    return parts


def drain(socket: zmq.Socket[bytes], most: int) -> None:
    """Drop the messages that wait, so many at most, before a socket is closed.

    libzmq ends the process when it beats over a dead connection of which it has stopped reading, as from a full queue.
    """
    for _ in range(most):
        if not has_arrived(socket):
            return
        receive_parts(socket)


def monitor_events(monitor: zmq.Socket[bytes]) -> list[dict[str, int]]:
    """Events of a socket's connections since the last call."""
    found = []
    while has_arrived(monitor):
        found.append(recv_monitor_message(monitor))
    return found  # type: ignore[return-value]
