"""One connection of a party that connects, or the attempt at one: its socket, what became of it, its receive quota.

Every connection has a socket of its own, which never connects again by itself: nothing goes over a new connection
before both ends know from where on.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import zmq

from protocols.errors import PeerLost
from protocols.transport.channel import Timing
from protocols.transport.codec import Frame
from protocols.transport.keys import KeyPair
from protocols.transport.receive_quota import MAX_AHEAD_BYTES, ReceiveQuotas
from protocols.transport.zmq_socket import has_arrived, monitor_events, open_socket, receive_parts

# A handshake that failed, by what ZeroMQ tells of it: the other end does not list this party's key, or does not let it
# in now (`zmq_authenticator.HASTY_KEY`); or the connection just ended, as it does where the other end has another key
# than is expected, and where a tunnel or a forwarder finds nobody behind it.
FAILURES = {
    zmq.Event.HANDSHAKE_FAILED_AUTH: (
        "refused the connection: one side's public key is not the one that the other side expects, or this party "
        "connected again and again before it was heard"
    ),
    zmq.Event.HANDSHAKE_FAILED_NO_DETAIL: (
        "its connections ended before both sides were known: the keys do not match, or a forwarder reaches nobody"
    ),
}

# What came cannot be read, as when bytes were altered: then ZeroMQ tells the end alone (`zmq_socket.open_socket`).
_DAMAGED = "a handshake was damaged, or what answers there is not this program"

_WATCHED = zmq.Event.CONNECTED | zmq.Event.HANDSHAKE_SUCCEEDED | zmq.Event.DISCONNECTED | zmq.Event.CLOSED

# Seconds between two attempts: at first, and at most.
RETRY_S, LONGEST_RETRY_S = 0.05, 1.0

# ZeroMQ would drop what came and was not read if it were told not to connect again at all.
_NEVER_MS = 10**8


class Attempt:
    """A connection to an address.

    Parameters
    ----------
    context : zmq.Context
    address : str
    name : bytes
        What the connection goes by.
    keys : KeyPair or None
    peer_key : bytes or None
    timing : Timing

    Attributes
    ----------
    is_met : bool
        Whether both sides are known.
    is_over : bool
        Whether it has ended, or took too long.
    is_refused : bool
        Whether the other end refused the key.
    failure : str
        What ZeroMQ tells of a handshake that failed.
    is_flooding : bool
        Whether more came than its quota allows.
    """

    def __init__(
        self,
        context: zmq.Context[zmq.Socket[bytes]],
        address: str,
        *,
        name: bytes,
        keys: KeyPair | None,
        peer_key: bytes | None,
        timing: Timing,
    ) -> None:
        self.is_met = self.is_over = self.is_refused = self.is_flooding = False
        self.failure = ""
        self._deadline = time.monotonic() + timing.timeout_s
        self._descriptor, self._quotas = -1, ReceiveQuotas(MAX_AHEAD_BYTES, beat_s=timing.beat_s)
        self.socket = open_socket(context, zmq.DEALER, address, timing)
        self.socket.reconnect_ivl, self.socket.reconnect_ivl_max = _NEVER_MS, 0
        self.socket.routing_id = name
        if keys is not None:
            self.socket.curve_serverkey = peer_key
            self.socket.curve_secretkey = keys.secret
            self.socket.curve_publickey = keys.public
        self.monitor = self.socket.get_monitor_socket(_WATCHED | sum(FAILURES))
        try:
            self.socket.connect(address)
        except zmq.ZMQError as error:
            self.close(is_lost=True)
            raise PeerLost(f"cannot connect to {address}: {error.strerror}") from None

    def follow(self) -> None:
        """Note what has happened since the last look.

        Raises
        ------
        PeerLost
            If it was closed here.
        """
        if self.socket.closed:
            raise PeerLost("the connection was closed")
        for event in monitor_events(self.monitor):
            kind = event["event"]
            if kind == zmq.Event.CONNECTED:
                self._descriptor = event["value"]
                self._quotas.begin(self._descriptor)
            elif kind == zmq.Event.HANDSHAKE_SUCCEEDED:
                self.is_met = True
            elif kind in FAILURES:
                self.failure = FAILURES[zmq.Event(kind)]
                self.is_refused = kind == zmq.Event.HANDSHAKE_FAILED_AUTH
            else:
                if kind == zmq.Event.DISCONNECTED and not self.is_met:
                    self.failure = self.failure or _DAMAGED
                self.is_over = True
                self._quotas.end(self._descriptor)
        self.is_over |= not self.is_met and time.monotonic() >= self._deadline
        self.is_flooding |= bool(self._quotas.cut_off())

    def take(self) -> list[Frame]:
        """The next message, which is there already."""
        frames: list[Frame] = [part.buffer for part in receive_parts(self.socket)]
        self._quotas.take(self._descriptor, [len(frame) for frame in frames])
        return frames

    def waiting(self) -> Iterator[list[Frame]]:
        """First frames of what has arrived, each message of which is taken; last words have no more but a mark."""
        while has_arrived(self.socket):
            yield self.take()[:1]

    def close(self, *, is_lost: bool) -> None:
        """Close the socket; what was sent is still delivered, unless the connection is lost."""
        if is_lost:
            self.socket.linger = 0
        self.socket.disable_monitor()
        self.monitor.close(linger=0)
        self.socket.close()
