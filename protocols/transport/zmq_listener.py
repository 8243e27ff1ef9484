"""The active party's end over ZeroMQ: one port (ROUTER) for all passive parties, and who may speak there.

CURVE proves both sides' keys before a byte of a message is read; a connection whose key is not on the list, that speaks
plain text or no ZeroMQ at all gets no answer and costs one line in the log. A peer's death shows as the end of its TCP
connection, its silence as a missed transport heartbeat, which ZeroMQ's own thread keeps up while Python is busy. A
listener and its channels are used by the thread that made them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial

import zmq
from zmq.utils import z85

from protocols.errors import PeerLost
from protocols.messages.liveness import Heartbeat, Received
from protocols.messages.vertical import Abort
from protocols.transport.channel import Timing, Traffic
from protocols.transport.codec import Frame, encode
from protocols.transport.conversation import Conversation, read_connection_id
from protocols.transport.descriptors import raise_limit, shut
from protocols.transport.keys import KeyPair, check_loopback
from protocols.transport.liveness import HEARTBEAT, BlockedSend
from protocols.transport.notices import Notices
from protocols.transport.peers import Peers
from protocols.transport.receive_quota import MAX_AHEAD_BYTES, MAX_OUTSIDERS, Outsiders, ReceiveQuotas
from protocols.transport.zmq_authenticator import Allowlist, authenticate
from protocols.transport.zmq_connections import FAILED, Unproven, WatchedConnections, bounded, due_events
from protocols.transport.zmq_listener_channel import ListenerChannel
from protocols.transport.zmq_socket import ABORT_TIMEOUT_S, CLOSING_S, POLL_S, TEND_S, drain, has_arrived, open_router

NO_HANDSHAKE = "refused a connection: it did not speak this protocol with this party's key, or what it sent was altered"
FLOODING = "cut a connection off: it sent too much ahead of its turn"
CROWDED = "cut a connection off that no peer of the run speaks over: too many of them were open"
NOT_IN_RUN = "dropped a message from a party that is not in this run"


class Listener:
    """The active party's socket, which provides one channel per passive party.

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
        self._unproven = Unproven()
        self._events: list[dict[str, int]] = []
        self._n_forgotten = 0
        self._peers = Peers(peers, timing=timing)
        self._traffic = {peer: Traffic() for peer in peers}
        self._names = {z85.encode(key).decode(): name for name, key in peers.items() if key is not None}
        self._is_encrypted, self._timing, self._context = keys is not None, timing, zmq.Context()
        self._looked = self._tended = 0.0
        self._allowlist = Allowlist(filter(None, peers.values()))
        self._authenticator = None if keys is None else authenticate(self._allowlist, self._context)
        self._socket = open_router(self._context, address, keys, timing)
        outsiders = Outsiders.of(min(MAX_OUTSIDERS, raise_limit() // 4), n_peers=len(peers))
        quotas = ReceiveQuotas(MAX_AHEAD_BYTES, n_peers=len(peers), outsiders=outsiders, beat_s=timing.beat_s)
        self._connections = WatchedConnections(self._socket, quotas)
        try:
            self._socket.bind(address)
        except zmq.ZMQError as error:
            self.close()
            raise PeerLost(f"cannot listen on {address}: {error.strerror}") from None
        self.address = self._socket.getsockopt_string(zmq.LAST_ENDPOINT)

    def channel(self, peer: str) -> ListenerChannel:
        """The channel to one of the peers; it need not have connected yet."""
        channel = ListenerChannel(self, self._peers, peer, wait_s=self._timing.wait_s)
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
        n_forgotten = self._n_forgotten + self._connections.n_forgotten
        self._notices.note_all({**self._allowlist.refused(), NO_HANDSHAKE: n_forgotten})
        self._notices.close()

    def _deliver(self) -> None:
        """Send the last acknowledgements; wait until the peers took what was sent, and cut off the others.

        libzmq reads no more from a connection that outlives its socket, which is what `open_socket` avoids.
        """
        confirm_by, deadline = time.monotonic() + CLOSING_S, time.monotonic() + int(self._socket.linger) / 1000
        self._acknowledge(self._peers.to_acknowledge(is_last=True), is_last=True)
        while not self._peers.are_confirmed() and time.monotonic() < confirm_by:
            self._pump(POLL_S)
            self._acknowledge(self._peers.to_acknowledge(is_last=True), is_last=True)
        is_over = False
        while not is_over and self._connections.cut_stuck(is_over=(is_over := time.monotonic() >= deadline)):
            self._pump(POLL_S)

    def send(self, peer: str, frames: list[Frame], kind: str) -> None:
        """Send a message; while the connection is broken, it waits for the next one with some others."""
        blocked, conversation, began = BlockedSend(self._timing), None, time.monotonic()
        while True:
            self._pump(0)
            if self._peers.route(peer) is None:
                raise PeerLost(f"{peer} has not connected; a {kind!r} message was not sent")
            if self._peers.is_lost(peer):
                raise self._peers.lost(peer, self._peers.ending(peer))
            if conversation is None:
                conversation = self._peers.conversation(peer)
                conversation.keep(frames)
                if kind == Abort.kind:
                    self._socket.linger = int(ABORT_TIMEOUT_S * 1000)
            self._transmit(peer)
            is_late = kind == Abort.kind and time.monotonic() > began + ABORT_TIMEOUT_S
            if not conversation.is_behind or is_late or (self._peers.is_away(peer) and conversation.has_room):
                return
            if not self._peers.is_away(peer):
                blocked.listen()
            if blocked.is_stall:
                self._peers.cut(peer, f"{blocked.reason}; a {kind!r} message was not sent")
            self._pump(POLL_S)

    def _transmit(self, peer: str) -> None:
        """Hand to ZeroMQ what it has room for of what the peer was not sent."""
        conversation, route = self._peers.conversation(peer), self._peers.route(peer)
        while route is not None and (frames := conversation.next_unsent()) and not self._peers.is_away(peer):
            try:
                self._socket.send_multipart([route, *frames], flags=zmq.NOBLOCK, copy=False)
            except zmq.ZMQError as error:
                # The event that the connection has ended may be on its way.
                if error.errno not in (zmq.EAGAIN, zmq.EHOSTUNREACH):
                    raise
                return
            conversation.sent()
            self._peers.sent(peer)

    def receive(self, peer: str, deadline: float) -> list[Frame]:
        """Wait for the next message of a peer; one that has not come yet has until the deadline."""
        self._send_heartbeat()
        if time.monotonic() > self._looked + POLL_S:
            self._pump(0)
        while not self._peers.has_waiting(peer):
            self._peers.check(peer)
            if self._peers.route(peer) is None and time.monotonic() > deadline:
                raise PeerLost(f"{peer} did not connect to {self.address} within {self._timing.wait_s:g} s")
            self._pump(POLL_S)
        return self._peers.pop(peer)

    def is_ready(self, peer: str) -> bool:
        """Whether `receive` would return or raise at once."""
        if not self._peers.has_waiting(peer):
            self._pump(0)
        return self._peers.has_waiting(peer) or self._peers.is_lost(peer)

    def check(self, peer: str) -> None:
        """Raise if this peer is gone, or any peer ended the run."""
        self._pump(0)
        self._peers.check(peer)

    def _pump(self, wait_s: float) -> None:
        """Take what has arrived: messages, and the events of connections that began and ended.

        The end of a connection is not noted before the last message that came over it is taken in: it waits while
        messages wait, and what came between the last look at the messages and at the events is taken in as well. Events
        of other connections do not wait for it.
        """
        if wait_s:
            self._socket.poll(int(wait_s * 1000))
        self._looked = time.monotonic()
        for cut in self._connections.cut():
            self._notices.note(FLOODING if cut.is_flooding else CROWDED)
            if cut.is_flooding:
                self._peers.note_flood(cut.descriptor, f"{MAX_AHEAD_BYTES >> 20} MiB")
        arrived = self._connections.arrived()
        self._events.extend(self._connections.new_events())
        arrived += self._connections.arrived()
        self._events.extend(self._connections.new_events())  # Whoever sent a message is now known to be connected.
        is_all = not has_arrived(self._socket)
        if is_all:
            self._allowlist.forget()
        else:
            self._events, n_forgotten = bounded(self._events)
            self._n_forgotten += n_forgotten
        self._follow({int(parts[-1].get(zmq.SRCFD)) for parts in arrived}, is_all=is_all)
        for parts in arrived:
            self._accept(parts)
        if arrived or wait_s or time.monotonic() > self._tended + TEND_S:
            self._tend(is_idle=bool(wait_s) and not arrived)

    def _tend(self, *, is_idle: bool) -> None:
        """Look after all peers: resume conversations, cut silent ones off, send heartbeats and acknowledgements."""
        self._tended = time.monotonic()
        self._resume()
        for descriptor in self._peers.listen():
            # A peer that hung and recovers learns so that it was given up.
            shut(descriptor)
        self._connections.keep(self._peers.descriptors())
        self._send_heartbeat()
        self._acknowledge(self._peers.to_acknowledge(is_idle=is_idle))

    def _resume(self) -> None:
        """Go on with the peers that came back, and refuse those that ask for an unknown conversation."""
        for peer, n_again in self._peers.resumed():
            self._acknowledge([(peer, self._peers.conversation(peer))])
            self._traffic[peer].on_return(f"{peer} came back over another connection; {n_again} messages go again")
        for route in self._peers.unknown():
            with suppress(zmq.ZMQError):
                self._socket.send_multipart([route, *encode(Received(count=None))], flags=zmq.NOBLOCK)
        for peer in self._traffic:
            self._transmit(peer)

    def _acknowledge(self, due: Iterable[tuple[str, Conversation]], *, is_last: bool = False) -> None:
        """Acknowledge the messages of these peers."""
        for peer, conversation in due:
            route = self._peers.route(peer) or b""
            with suppress(zmq.ZMQError):
                self._socket.send_multipart([route, *conversation.acknowledgement(is_last=is_last)], flags=zmq.NOBLOCK)

    def _send_heartbeat(self) -> None:
        """Send the heartbeats that are due, except to peers whose queue is full."""
        for peer, route in self._peers.heartbeats_due():
            with suppress(zmq.ZMQError):
                self._socket.send_multipart([route, *self._peers.conversation(peer).heartbeat()], flags=zmq.NOBLOCK)
                self._traffic[peer].count_sent(Heartbeat(), HEARTBEAT)

    def _follow(self, speaking: set[int], *, is_all: bool) -> None:
        """Note which connections were refused, began and ended, and those that ended without having proved a key."""
        self._notices.note_all(self._allowlist.refused())
        due, self._events = due_events(self._events, is_all=is_all)
        for event in due:
            if self._unproven.is_unproven_end(event, speaking):
                self._notices.note(NO_HANDSHAKE)
            if not event["event"] & FAILED:
                self._peers.note_event(event["value"], is_accepted=event["event"] == zmq.Event.ACCEPTED)
        self._unproven.spoken |= speaking

    def _accept(self, parts: list[zmq.Frame]) -> None:
        """Keep a message for its peer, who is told by key, or by name where there are no keys."""
        route = bytes(parts[0].buffer)
        if len(parts) < 2:
            self._notices.note(NOT_IN_RUN)
            return
        peer = self._names[str(parts[1].get("User-Id"))] if self._is_encrypted else read_connection_id(route)[0]
        if not self._peers.is_known(peer):
            self._notices.note(NOT_IN_RUN)
            return
        take = partial(self._peers.take, peer, route, int(parts[1].get(zmq.SRCFD)), [one.buffer for one in parts[1:]])
        # What tells connections apart is known late where a descriptor was used again at once.
        if not take() and (self._is_reached(peer) or not take()):
            self._turn_away(peer, route)

    def _is_reached(self, peer: str) -> bool:
        """Whether ZeroMQ still knows the connection over which a peer spoke; if not, that is noted."""
        try:
            self._socket.send_multipart([self._peers.route(peer) or b"", *HEARTBEAT], flags=zmq.NOBLOCK)
        except zmq.ZMQError as error:
            if error.errno != zmq.EAGAIN:
                self._peers.note_end(peer)
                return False
        return True

    def _turn_away(self, peer: str, route: bytes) -> None:
        """Refuse a second connection with a peer's key."""
        self._notices.note(f"turned a connection away: {peer} is connected already")
        refusal = Abort(phase="greeting", reason="another connection with the same key is in use")
        with suppress(zmq.ZMQError):
            self._socket.send_multipart([route, *encode(refusal)], flags=zmq.NOBLOCK)
