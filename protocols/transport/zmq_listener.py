"""The active party's end over ZeroMQ: one port (ROUTER) for all passive parties, and who may speak there.

CURVE proves both sides' keys before a byte of a message is read; a connection whose key is not on the list, that speaks
plain text or no ZeroMQ at all gets no answer and costs one line in the log. A peer's death shows as the end of its TCP
connection, its silence as a missed transport heartbeat, which ZeroMQ's own thread keeps up while Python is busy. A
listener and its channels are used by the thread that made them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import suppress

import zmq
from zmq.utils import z85

from protocols.errors import PeerLost
from protocols.messages.message import Message
from protocols.messages.vertical import Abort, Heartbeat
from protocols.transport.channel import Timing, Traffic
from protocols.transport.codec import Frame, encode
from protocols.transport.descriptors import raise_limit, shut
from protocols.transport.keys import KeyPair, check_loopback
from protocols.transport.liveness import HEARTBEAT, Blocked
from protocols.transport.notices import Notices
from protocols.transport.peers import Peers
from protocols.transport.receive_quota import MAX_AHEAD_BYTES, MAX_OUTSIDE_BYTES, MAX_OUTSIDERS, Arrivals, Outsiders
from protocols.transport.zmq_authenticator import Allowlist, authenticate
from protocols.transport.zmq_connections import FAILED, NO_PROOF, WatchedConnections, due_news
from protocols.transport.zmq_socket import FAREWELL_S, HIGH_WATER_MARK, POLL_S, drain, open_socket, receive_parts

# Connections that the system holds until they are accepted: a peer's has its place among many of strangers.
BACKLOG = 1024

NO_HANDSHAKE = "refused a connection: it did not speak this protocol with this party's key, or what it sent was altered"
FLOODING = "cut a connection off: it sent too much ahead of its turn"
CROWDED = "cut a connection off that no peer of the run speaks over: too many of them were open"
NOT_IN_RUN = "dropped a message from a party that is not in this run"


class Listener:
    """The active party's socket, from which one channel per passive party is had.

    Parameters
    ----------
    address : str
        ``tcp://host:port``; port ``*`` or 0 takes a free one, and `address` then tells which.
    peers : mapping of str to bytes or None
        Public key of every party that may connect; None only without `keys`.
    keys : KeyPair or None
        This party's keys; None for a plain-text connection, allowed on loopback only.
    timing : Timing
    on_event : callable
        Called with a sentence when a connection is refused or a message is dropped: once for every kind of event, and
        with their number when the listener closes.
    """

    def __init__(
        self,
        address: str,
        peers: Mapping[str, bytes | None],
        *,
        keys: KeyPair | None,
        timing: Timing,
        on_event: Callable[[str], None] = lambda event: None,
    ) -> None:
        check_loopback(address, keys)
        self._notices = Notices(on_event)
        self._n_failed = 0
        self._spoken: set[int] = set()
        self._news: list[dict[str, int]] = []
        self._peers = Peers(peers, timing=timing)
        self._traffic = {peer: Traffic() for peer in peers}
        self._names = {z85.encode(key).decode(): name for name, key in peers.items() if key is not None}
        self._is_encrypted = keys is not None
        self._timing = timing
        self._context = zmq.Context()
        self._allowlist = Allowlist(filter(None, peers.values()), on_event=self._notices.note)
        self._authenticator = None if keys is None else authenticate(self._allowlist, self._context)
        self._socket = self._open_router(keys)
        outsiders = Outsiders(min(MAX_OUTSIDERS, raise_limit() // 4), MAX_OUTSIDE_BYTES)
        arrivals = Arrivals(MAX_AHEAD_BYTES, n_peers=len(peers), outsiders=outsiders)
        self._connections = WatchedConnections(self._socket, arrivals)
        try:
            self._socket.bind(address)
        except zmq.ZMQError as error:
            self.close()
            raise PeerLost(f"cannot listen on {address}: {error.strerror}") from None
        self.address = self._socket.getsockopt_string(zmq.LAST_ENDPOINT)

    def channel(self, peer: str) -> ListenerChannel:
        """The channel to one of the peers; it need not have connected yet."""
        channel = ListenerChannel(self, peer, wait_s=self._timing.wait_s)
        self._traffic[peer] = channel.traffic
        return channel

    def close(self) -> None:
        """Deliver what was sent, then let go of all peers."""
        if self._socket.closed:
            return
        self._deliver()
        self._connections.close()
        drain(self._socket, self._socket.rcvhwm * (len(self._traffic) + 1))
        self._socket.close()
        if self._authenticator is not None:
            self._authenticator.stop()
        self._context.term()
        self._notices.note(NO_HANDSHAKE, self._connections.n_forgotten)
        self._notices.close()

    def _deliver(self) -> None:
        """Wait until the peers take what was sent to them, and cut those off who do not.

        libzmq reads no more from a connection that outlives its socket, which is what `open_socket` avoids.
        """
        deadline = time.monotonic() + int(self._socket.linger) / 1000
        while self._connections.cut_stuck(is_over=time.monotonic() >= deadline):
            self._pump(POLL_S)

    def _open_router(self, keys: KeyPair | None) -> zmq.Socket[bytes]:
        socket = open_socket(self._context, zmq.ROUTER, self._timing)
        socket.router_mandatory = True
        socket.backlog = BACKLOG
        if keys is not None:
            socket.curve_server = True
            socket.curve_secretkey = keys.secret
            socket.curve_publickey = keys.public
        return socket

    def _send(self, peer: str, frames: list[Frame], kind: str) -> None:
        blocked = Blocked(self._timing)
        while True:
            self._pump(0)
            route = self._peers.route(peer)
            if route is None:
                raise PeerLost(f"{peer} has not connected; a {kind!r} message was not sent")
            if self._peers.is_lost(peer):
                raise self._peers.lost(peer, "closed the connection")
            try:
                self._socket.send_multipart([route, *frames], flags=zmq.NOBLOCK, copy=False)
            except zmq.Again:
                blocked.listen()
                if blocked.is_stall:
                    self._peers.cut(peer, f"{blocked.reason}; a {kind!r} message was not sent")
                self._pump(POLL_S)
            except zmq.ZMQError as error:
                if error.errno != zmq.EHOSTUNREACH:
                    raise
                raise self._peers.lost(peer, f"is gone; a {kind!r} message was not sent") from None
            else:
                self._peers.sent(peer)
                if kind == Abort.kind:
                    self._socket.linger = int(FAREWELL_S * 1000)
                return

    def _receive(self, peer: str, deadline: float) -> list[Frame]:
        self._beat()
        while not self._peers.has_waiting(peer):
            self._pump(0)
            if self._peers.has_waiting(peer):
                break
            self._peers.check(peer)
            if not self._peers.has_spoken(peer) and time.monotonic() > deadline:
                raise PeerLost(f"{peer} did not connect to {self.address} within {self._timing.wait_s:g} s")
            self._pump(POLL_S)
        return self._peers.pop(peer)

    def _is_ready(self, peer: str) -> bool:
        self._beat()
        if not self._peers.has_waiting(peer):
            self._pump(0)
        return self._peers.has_waiting(peer) or self._peers.is_lost(peer)

    def _check(self, peer: str) -> None:
        self._pump(0)
        self._peers.check(peer)

    def _pump(self, wait_s: float) -> None:
        """Take what has arrived: messages, and the news of connections that began and ended.

        The end of a connection is not noted before the last message that came over it is taken in: it waits while
        messages wait, and what came between the last look at the messages and the news is taken in as well. What
        happened to other connections does not wait for it.
        """
        if wait_s:
            self._socket.poll(int(wait_s * 1000))
        for cut in self._connections.cut():
            self._notices.note(FLOODING if cut.is_flooding else CROWDED)
            if cut.is_flooding:
                self._peers.note_flood(cut.descriptor, f"{MAX_AHEAD_BYTES >> 20} MiB")
        arrived = self._arrived()
        self._news.extend(self._connections.news())
        arrived += self._arrived()
        # Of whoever spoke is known that it connected.
        self._news.extend(self._connections.news())
        is_all = not self._socket.poll(0)
        if is_all:
            self._allowlist.forget()
        self._follow({int(parts[-1].get(zmq.SRCFD)) for parts in arrived}, is_all=is_all)
        for parts in arrived:
            self._accept(parts)
        for descriptor in self._peers.listen():
            # Whoever comes to again learns that it was given up.
            shut(descriptor)
        self._connections.keep(self._peers.descriptors())
        self._beat()

    def _beat(self) -> None:
        """Let the peers know that this party goes on. Who has too much to read already is not told."""
        for peer, route in self._peers.beats():
            with suppress(zmq.ZMQError):
                self._socket.send_multipart([route, *HEARTBEAT], flags=zmq.NOBLOCK)
                self._traffic[peer].count_sent(Heartbeat(), HEARTBEAT)

    def _arrived(self) -> list[list[zmq.Frame]]:
        messages: list[list[zmq.Frame]] = []
        while len(messages) < HIGH_WATER_MARK and self._socket.poll(0):
            parts = receive_parts(self._socket, n_addresses=1)
            self._connections.take(int(parts[-1].get(zmq.SRCFD)), [len(part) for part in parts[1:]])
            messages.append(parts)
        return messages

    def _follow(self, speaking: set[int], *, is_all: bool) -> None:
        """Note which connections began and ended, and those that ended without having proved a key.

        A failed handshake is an event of its own, unless the other side does not speak ZeroMQ at all: then the
        connection just ends. A refused key was told by the authenticator.
        """
        due, self._news = due_news(self._news, is_all=is_all)
        for event in due:
            kind, descriptor = event["event"], event["value"]
            if kind & FAILED:
                self._n_failed += 1
                if kind & NO_PROOF:
                    self._notices.note(NO_HANDSHAKE)
                continue
            self._peers.note_event(descriptor, is_accepted=kind == zmq.Event.ACCEPTED)
            if kind == zmq.Event.DISCONNECTED:
                if self._n_failed:
                    self._n_failed -= 1
                elif not (event["was_cut"] or descriptor in self._spoken | speaking):
                    self._notices.note(NO_HANDSHAKE)
                self._spoken.discard(descriptor)
        self._spoken |= speaking

    def _accept(self, parts: list[zmq.Frame]) -> None:
        """Keep a message for the peer whose key, or without keys whose name, it came with."""
        route = bytes(parts[0].buffer)
        if len(parts) < 2:
            self._notices.note(NOT_IN_RUN)
            return
        peer = self._names[str(parts[1].get("User-Id"))] if self._is_encrypted else route.decode(errors="replace")
        if not self._peers.is_known(peer):
            self._notices.note(NOT_IN_RUN)
            return
        if not self._peers.take(peer, route, int(parts[1].get(zmq.SRCFD)), [part.buffer for part in parts[1:]]):
            self._turn_away(peer, route)

    def _turn_away(self, peer: str, route: bytes) -> None:
        """Tell a second connection with a peer's key that it comes too late."""
        self._notices.note(f"turned a connection away: {peer} is connected already")
        late = Abort(phase="greeting", reason="another connection with the same key is in use")
        with suppress(zmq.ZMQError):
            self._socket.send_multipart([route, *encode(late)], flags=zmq.NOBLOCK)


class ListenerChannel:
    """The active party's end of a conversation; see `Listener`."""

    def __init__(self, listener: Listener, peer: str, *, wait_s: float) -> None:
        self.peer = peer
        self.traffic = Traffic()
        self._listener = listener
        self._deadline = time.monotonic() + wait_s

    def send(self, message: Message) -> None:
        frames = encode(message)
        self._listener._send(self.peer, frames, message.kind)
        self.traffic.count_sent(message, frames)

    def receive(self) -> Message:
        return self.traffic.decode_received(self._listener._receive(self.peer, self._deadline))

    def is_ready(self) -> bool:
        return self._listener._is_ready(self.peer)

    def check(self) -> None:
        self._listener._check(self.peer)

    def begin_again(self) -> None:
        # The deadline stands: whoever comes again and again for another job must not make this party wait for ever.
        self._listener._peers.forget(self.peer)

    def close(self) -> None:
        """Expect nothing more of the peer; the listener's `close` lets go of it."""
        self._listener._peers.release(self.peer)
