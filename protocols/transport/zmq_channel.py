"""ZeroMQ channel of a passive party, with CURVE: connects to the active party and waits for it.

Used by the thread that made it. Between two of its looks at the connection the active party is not held back, and an
active party that resets the connection while this end closes can end this process (`zmq_socket.open_socket`): no more
than its leaving does, since this end has no other peer.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress

import zmq

from protocols.errors import KeyFileError, PeerLost, UnexpectedMessage
from protocols.messages.message import Message
from protocols.messages.vertical import Abort, Heartbeat
from protocols.transport.channel import Timing, Traffic, farewell
from protocols.transport.codec import Frame, encode
from protocols.transport.keys import KeyPair, check_loopback
from protocols.transport.liveness import HEARTBEAT, BeatCount, Blocked, Pulse, Silence, is_heartbeat, stalled
from protocols.transport.receive_quota import MAX_AHEAD_BYTES, Arrivals
from protocols.transport.zmq_socket import FAREWELL_S, POLL_S, events, open_socket, receive_parts

# The server says what is wrong with a connection, or the two do not speak the same protocol.
_REFUSED = zmq.Event.HANDSHAKE_FAILED_PROTOCOL | zmq.Event.HANDSHAKE_FAILED_AUTH

# A connection that ended before both sides were known: a server with another key does that, and one that just stops.
_CUT = zmq.Event.HANDSHAKE_FAILED_NO_DETAIL

# After so many of those in a row, over more than the timeout, it is the key. A tunnel or a forwarder cuts connections
# off, too, until the peer behind it is there.
MAX_CUT = 3


class ConnectedChannel:
    """Channel of a passive party: connects to the active party and waits for it.

    Parameters
    ----------
    address : str
        Where the active party listens.
    name, peer : str
        This party's name and the active party's.
    keys : KeyPair or None
        This party's keys; None for a plain-text connection, allowed on loopback only.
    peer_key : bytes or None
        The active party's public key.
    timing : Timing
    """

    def __init__(
        self, address: str, *, name: str, peer: str, keys: KeyPair | None, peer_key: bytes | None, timing: Timing
    ) -> None:
        check_loopback(address, keys)
        if keys is not None and peer_key is None:
            raise KeyFileError(f"the public key of {peer} is needed to connect to it")
        self.peer = peer
        self.traffic = Traffic()
        self._address = address
        self._name = name
        self._keys = keys
        self._peer_key = peer_key
        self._timing = timing
        self._context = zmq.Context()
        self._connect()

    def send(self, message: Message) -> None:
        frames = encode(message)
        blocked = Blocked(self._timing)
        while True:
            self._follow_events()
            if self._is_lost and not self._is_flooding:
                raise farewell(self.peer, self._waiting(), "closed the connection")
            self._refuse_to_wait()
            try:
                self._socket.send_multipart(frames, flags=zmq.NOBLOCK, copy=False)
            except zmq.Again:
                self._wait_to_send(blocked, message.kind)
            else:
                break
        self._pulse.start()
        if isinstance(message, Abort):
            self._socket.linger = int(FAREWELL_S * 1000)
        self.traffic.count_sent(message, frames)

    def receive(self) -> Message:
        self._follow_events()
        while not self._listen():
            self.check()
            self._socket.poll(int(POLL_S * 1000))
        return self.traffic.decode_received(self._inbox.pop())

    def is_ready(self) -> bool:
        self._follow_events()
        return self._listen() or self._is_lost or self._is_flooding or self._silence.is_stall

    def check(self) -> None:
        self._follow_events()
        if not self._listen() and self._is_lost and not self._is_flooding:
            raise PeerLost(f"{self.peer} closed the connection or was silent for {self._timing.timeout_s:g} s")
        self._refuse_to_wait()

    def begin_again(self) -> None:
        self._disconnect()
        self._connect()

    def close(self) -> None:
        """Deliver what was sent if the peer is there, then let go of it."""
        if self._socket.closed:
            return
        self._disconnect()
        self._context.term()

    def _connect(self) -> None:
        self._deadline = time.monotonic() + self._timing.wait_s
        self._is_connected = self._is_lost = self._is_refused = self._is_flooding = False
        self._cuts: list[float] = []
        self._descriptor, self._arrivals = -1, Arrivals(MAX_AHEAD_BYTES)
        self._inbox: list[list[Frame]] = []
        self._silence = Silence(self._timing.stall_s)
        self._pulse, self._beats = Pulse(self._timing), BeatCount()
        self._socket = open_socket(self._context, zmq.DEALER, self._timing)
        if self._keys is None:
            # Without keys the name is all that tells who this is.
            self._socket.routing_id = self._name.encode()
        else:
            self._socket.curve_serverkey = self._peer_key
            self._socket.curve_secretkey = self._keys.secret
            self._socket.curve_publickey = self._keys.public
        watched = zmq.Event.CONNECTED | zmq.Event.HANDSHAKE_SUCCEEDED | zmq.Event.DISCONNECTED | _REFUSED | _CUT
        self._monitor = self._socket.get_monitor_socket(watched)
        try:
            self._socket.connect(self._address)
        except zmq.ZMQError as error:
            self.close()
            raise PeerLost(f"cannot connect to {self._address}: {error.strerror}") from None

    def _disconnect(self) -> None:
        self._follow_events()
        if self._is_lost or self._is_refused or self._silence.is_stall:
            self._socket.linger = 0
        elif not self._is_connected:
            self._socket.linger = int(FAREWELL_S * 1000)
        self._socket.disable_monitor()
        self._monitor.close(linger=0)
        self._socket.close()

    def _follow_events(self) -> None:
        for event in events(self._monitor):
            if event["event"] == zmq.Event.CONNECTED:
                self._descriptor = event["value"]
                self._arrivals.begin(self._descriptor)
            elif event["event"] == zmq.Event.HANDSHAKE_SUCCEEDED:
                self._is_connected = True
            elif event["event"] & _REFUSED:
                self._is_refused = True
            elif event["event"] == _CUT:
                self._cuts.append(time.monotonic())
                lasted_s = self._cuts[-1] - self._cuts[0]
                self._is_refused |= len(self._cuts) >= MAX_CUT and lasted_s > self._timing.timeout_s
            elif self._is_connected:
                self._is_lost = True
                self._arrivals.end(self._descriptor)
        self._is_flooding |= bool(self._arrivals.cut_off())
        self._beat()

    def _beat(self) -> None:
        """Let the peer know that this party goes on."""
        if not (self._pulse.is_due and self._is_connected) or self._is_lost:
            return
        self._pulse.start()
        with suppress(zmq.Again):
            self._socket.send_multipart(HEARTBEAT, flags=zmq.NOBLOCK)
            self.traffic.count_sent(Heartbeat(), HEARTBEAT)

    def _listen(self) -> bool:
        """Whether a message waits; takes no more than one of them: the others count as ahead of their turn."""
        while not (self._inbox or self._is_flooding) and self._socket.poll(0):
            frames = self._take()
            self._silence.end()
            if is_heartbeat(frames):
                self._is_flooding = self._beats.is_flood()
            else:
                self._inbox.append(frames)
        if self._inbox or not self._is_connected:
            self._silence.end()
        else:
            self._silence.listen()
        return bool(self._inbox)

    def _wait_to_send(self, blocked: Blocked, kind: str) -> None:
        """Listen until the peer may have read something, but not for ever."""
        if self._is_connected:
            blocked.listen()
        if blocked.is_stall:
            self._is_lost = True
            raise PeerLost(f"{self.peer} {blocked.reason}; a {kind!r} message was not sent")
        self._listen()
        self._socket.poll(int(POLL_S * 1000), zmq.POLLOUT)

    def _refuse_to_wait(self) -> None:
        """Raise if the peer refused the connection, timed out, stalled or exceeded its receive quota."""
        if self._is_flooding:
            raise UnexpectedMessage(
                f"{self.peer} sent more than {MAX_AHEAD_BYTES >> 20} MiB ahead of its turn, or heartbeats without "
                "end, and was cut off"
            )
        if self._is_refused:
            raise PeerLost(
                f"{self.peer} at {self._address} refused the connection: one side's public key is not the one that "
                "the other side expects"
            )
        if self._silence.is_stall:
            raise PeerLost(f"{self.peer} {stalled(self._timing.stall_s)}")
        if not self._is_connected and time.monotonic() > self._deadline:
            raise PeerLost(
                f"{self.peer} could not be reached at {self._address} within {self._timing.wait_s:g} s; it may not be "
                "running, or the keys do not match"
            )

    def _waiting(self) -> Iterator[list[Frame]]:
        """Messages that arrived and were not asked for."""
        yield from self._inbox
        while self._socket.poll(0):
            yield self._take()

    def _take(self) -> list[Frame]:
        frames: list[Frame] = [part.buffer for part in receive_parts(self._socket)]
        self._arrivals.take(self._descriptor, [len(frame) for frame in frames])
        return frames
