"""Channels over ZeroMQ with CURVE: the only module that imports zmq.

The active party listens on one port (ROUTER), every passive party connects (DEALER). CURVE proves both sides' keys
before a byte of a message is read; a connection whose key is not on the list gets no answer. A peer's death shows as
the end of its TCP connection, its silence as a missed transport heartbeat, which ZeroMQ's own thread keeps up while
Python is busy. Sockets are used by the thread that made them.
"""

from __future__ import annotations

import ipaddress
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

import zmq
from zmq.auth.thread import ThreadAuthenticator
from zmq.utils import z85
from zmq.utils.monitor import recv_monitor_message

from protocols.channel import Traffic, farewell
from protocols.codec import MAX_ARRAY_BYTES, Frame, decode, encode
from protocols.errors import KeyFileError, PeerLost
from protocols.keys import KeyPair
from protocols.messages import Abort, Message

# Messages that ZeroMQ may hold per direction and peer: bounds the memory that a slow peer costs.
HIGH_WATER_MARK = 64

# The listener takes more: a full queue would stop the heartbeats too, and a peer that waits its turn would seem lost.
LISTENER_HIGH_WATER_MARK = 1000

# How long a party that ends a run, or could not connect yet, tries to deliver its last words.
FAREWELL_S = 1.0

# How often a waiting party looks whether its peer is still there.
POLL_S = 0.05

_HANDSHAKE_FAILED = (
    zmq.Event.HANDSHAKE_FAILED_NO_DETAIL | zmq.Event.HANDSHAKE_FAILED_PROTOCOL | zmq.Event.HANDSHAKE_FAILED_AUTH
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """How patient a party is.

    Attributes
    ----------
    timeout_s : float
        Silence after which a connected peer counts as lost.
    wait_s : float
        How long to wait for a peer to appear at all.
    """

    timeout_s: float = 10.0
    wait_s: float = 60.0


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
        Called with a sentence when a connection is refused or a message is dropped.
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
        self._on_event = on_event
        self._states = {name: _PeerState() for name in peers}
        self._connections: dict[int, _Connection] = {}
        self._user_ids = {name: z85.encode(key).decode() if key else None for name, key in peers.items()}
        self._timing = timing
        self._context = zmq.Context()
        self._authenticator: ThreadAuthenticator | None = None
        if keys is not None:
            self._authenticator = ThreadAuthenticator(self._context)
            self._authenticator.start()
            allowed = {key: name for name, key in peers.items() if key is not None}
            provider = _Allowlist(allowed, on_event)
            self._authenticator.configure_curve_callback(domain="*", credentials_provider=provider)
        self._socket = _socket(self._context, zmq.ROUTER, timing)
        self._socket.router_mandatory = True
        self._socket.rcvhwm = LISTENER_HIGH_WATER_MARK
        if keys is not None:
            self._socket.curve_server = True
            self._socket.curve_secretkey = keys.secret
            self._socket.curve_publickey = keys.public
        self._monitor = self._socket.get_monitor_socket(zmq.Event.ACCEPTED | zmq.Event.DISCONNECTED)
        try:
            self._socket.bind(address)
        except zmq.ZMQError as error:
            self.close()
            raise PeerLost(f"cannot listen on {address}: {error.strerror}") from None
        self.address = self._socket.getsockopt_string(zmq.LAST_ENDPOINT)

    def channel(self, peer: str) -> ListenerChannel:
        """The channel to one of the peers; it need not have connected yet."""
        return ListenerChannel(self, peer, deadline=time.monotonic() + self._timing.wait_s)

    def close(self) -> None:
        """Deliver what was sent, then let go of all peers."""
        if self._socket.closed:
            return
        self._socket.disable_monitor()
        self._monitor.close(linger=0)
        self._socket.close()
        if self._authenticator is not None:
            self._authenticator.stop()
        self._context.term()

    def _send(self, peer: str, frames: list[Frame], kind: str) -> None:
        while True:
            self._pump(0)
            state = self._states[peer]
            if self._is_lost(state):
                raise farewell(peer, state.inbox, "closed the connection")
            try:
                self._socket.send_multipart([peer.encode(), *frames], flags=zmq.NOBLOCK, copy=False)
            except zmq.Again:
                self._pump(POLL_S)
            except zmq.ZMQError as error:
                if error.errno != zmq.EHOSTUNREACH:
                    raise
                raise farewell(peer, state.inbox, f"is gone; a {kind!r} message was not sent") from None
            else:
                if kind == Abort.kind:
                    self._socket.linger = int(FAREWELL_S * 1000)
                return

    def _receive(self, peer: str, deadline: float) -> list[Frame]:
        state = self._states[peer]
        while not state.inbox:
            self._check(peer)
            if state.connection is None and time.monotonic() > deadline:
                raise PeerLost(f"{peer} did not connect to {self.address} within {self._timing.wait_s:g} s")
            self._pump(POLL_S)
        return state.inbox.popleft()

    def _check(self, peer: str) -> None:
        self._pump(0)
        state = self._states[peer]
        if self._is_lost(state) and not state.inbox:
            raise PeerLost(f"{peer} closed the connection or was silent for {self._timing.timeout_s:g} s")

    def _pump(self, wait_s: float) -> None:
        """Take what has arrived: messages, then the news of connections that began and ended, in their order.

        A descriptor is used again after its connection ended, so every connection has a serial number.
        """
        if wait_s:
            self._socket.poll(int(wait_s * 1000))
        arrived: list[tuple[_PeerState, int] | None] = []
        while len(arrived) < HIGH_WATER_MARK and self._socket.poll(0):
            arrived.append(self._accept(self._socket.recv_multipart(copy=False)))
        for event in _events(self._monitor):
            known = self._connections.setdefault(event["value"], _Connection())
            known.is_open = event["event"] == zmq.Event.ACCEPTED
            known.serial += known.is_open
        for state, descriptor in filter(None, arrived):
            state.connection = descriptor, self._connections.setdefault(descriptor, _Connection()).serial

    def _is_lost(self, state: _PeerState) -> bool:
        if state.connection is None:
            return False
        descriptor, serial = state.connection
        known = self._connections[descriptor]
        return not known.is_open or known.serial != serial

    def _accept(self, parts: list[zmq.Frame]) -> tuple[_PeerState, int] | None:
        """Put a message into its sender's inbox; returns whose it is and over which connection it came."""
        peer = bytes(parts[0].buffer).decode(errors="replace")
        state = self._states.get(peer)
        if state is None or len(parts) < 2:
            self._on_event("dropped a message from a party that is not in this run")
            return None
        if self._user_ids[peer] is not None and parts[1].get("User-Id") != self._user_ids[peer]:
            self._on_event(f"dropped a message that came under the name {peer!r} with another party's key")
            return None
        state.inbox.append([part.buffer for part in parts[1:]])
        return state, int(parts[1].get(zmq.SRCFD))


class ListenerChannel:
    """The active party's end of a conversation; see `Listener`."""

    def __init__(self, listener: Listener, peer: str, *, deadline: float) -> None:
        self.peer = peer
        self.traffic = Traffic()
        self._listener = listener
        self._deadline = deadline

    def send(self, message: Message) -> None:
        frames = encode(message)
        self._listener._send(self.peer, frames, message.kind)
        self.traffic.count_sent(message, frames)

    def receive(self) -> Message:
        frames = self._listener._receive(self.peer, self._deadline)
        self.traffic.count_received(frames)
        return decode(frames)

    def check(self) -> None:
        self._listener._check(self.peer)

    def close(self) -> None:
        """Nothing to do: the listener's `close` lets go of all peers."""


class ConnectedChannel:
    """A passive party's end: connects to the active party and waits for it to appear.

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
        self,
        address: str,
        *,
        name: str,
        peer: str,
        keys: KeyPair | None,
        peer_key: bytes | None,
        timing: Timing,
    ) -> None:
        check_loopback(address, keys)
        if keys is not None and peer_key is None:
            raise KeyFileError(f"the public key of {peer} is needed to connect to it")
        self.peer = peer
        self.traffic = Traffic()
        self._address = address
        self._timing = timing
        self._deadline = time.monotonic() + timing.wait_s
        self._is_connected = False
        self._is_lost = False
        self._is_refused = False
        self._context = zmq.Context()
        self._socket = _socket(self._context, zmq.DEALER, timing)
        self._socket.routing_id = name.encode()
        if keys is not None:
            self._socket.curve_serverkey = peer_key
            self._socket.curve_secretkey = keys.secret
            self._socket.curve_publickey = keys.public
        watched = zmq.Event.HANDSHAKE_SUCCEEDED | zmq.Event.DISCONNECTED | _HANDSHAKE_FAILED
        self._monitor = self._socket.get_monitor_socket(watched)
        try:
            self._socket.connect(address)
        except zmq.ZMQError as error:
            self.close()
            raise PeerLost(f"cannot connect to {address}: {error.strerror}") from None

    def send(self, message: Message) -> None:
        frames = encode(message)
        while True:
            self._follow_events()
            if self._is_lost:
                raise farewell(self.peer, self._waiting(), "closed the connection")
            self._refuse_to_wait()
            try:
                self._socket.send_multipart(frames, flags=zmq.NOBLOCK, copy=False)
            except zmq.Again:
                self._socket.poll(int(POLL_S * 1000), zmq.POLLOUT)
            else:
                break
        if isinstance(message, Abort):
            self._socket.linger = int(FAREWELL_S * 1000)
        self.traffic.count_sent(message, frames)

    def receive(self) -> Message:
        while not self._socket.poll(int(POLL_S * 1000)):
            self.check()
        frames: list[Frame] = [part.buffer for part in self._socket.recv_multipart(copy=False)]
        self.traffic.count_received(frames)
        return decode(frames)

    def check(self) -> None:
        self._follow_events()
        if self._is_lost and not self._socket.poll(0):
            raise PeerLost(f"{self.peer} closed the connection or was silent for {self._timing.timeout_s:g} s")
        self._refuse_to_wait()

    def close(self) -> None:
        """Deliver what was sent if the peer is there, then let go of it."""
        if self._socket.closed:
            return
        self._follow_events()
        if self._is_lost or self._is_refused:
            self._socket.linger = 0
        elif not self._is_connected:
            self._socket.linger = int(FAREWELL_S * 1000)
        self._socket.disable_monitor()
        self._monitor.close(linger=0)
        self._socket.close()
        self._context.term()

    def _follow_events(self) -> None:
        for event in _events(self._monitor):
            if event["event"] == zmq.Event.HANDSHAKE_SUCCEEDED:
                self._is_connected = True
            elif event["event"] & _HANDSHAKE_FAILED:
                self._is_refused = True
            elif self._is_connected:
                self._is_lost = True

    def _refuse_to_wait(self) -> None:
        """Raise if the peer will not come, or did not come in time."""
        if self._is_refused:
            raise PeerLost(
                f"{self.peer} at {self._address} refused the connection: one side's public key is not the one that "
                "the other side expects"
            )
        if not self._is_connected and time.monotonic() > self._deadline:
            raise PeerLost(
                f"{self.peer} could not be reached at {self._address} within {self._timing.wait_s:g} s; it may not be "
                "running, or the keys do not match"
            )

    def _waiting(self) -> Iterator[list[Frame]]:
        """Messages that arrived and were not asked for."""
        while self._socket.poll(0):
            yield [part.buffer for part in self._socket.recv_multipart(copy=False)]


def check_loopback(address: str, keys: KeyPair | None) -> None:
    """Refuse a connection without keys that could leave this machine.

    Raises
    ------
    KeyFileError
    """
    if keys is not None:
        return
    host = address.removeprefix("tcp://").rpartition(":")[0].strip("[]")
    try:
        is_loopback = host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        is_loopback = False
    if not is_loopback:
        raise KeyFileError(f"{address} is not on loopback; a connection without keys is refused there")


@dataclass(slots=True)
class _PeerState:
    """What the listener knows of a peer: its connection (descriptor, serial), and messages not yet asked for."""

    connection: tuple[int, int] | None = None
    inbox: deque[list[Frame]] = field(default_factory=deque)


@dataclass(slots=True)
class _Connection:
    """The latest connection on a descriptor."""

    serial: int = 0
    is_open: bool = True


@dataclass(frozen=True, slots=True)
class _Allowlist:
    """ZAP's question "may this key connect?", answered from the list of peers."""

    names: Mapping[bytes, str]
    on_event: Callable[[str], None]

    def callback(self, domain: str, key: bytes) -> bool:
        is_known = z85.decode(key) in self.names
        if not is_known:
            self.on_event("refused a connection: its key is not on the list of peers")
        return is_known


def _socket(context: zmq.Context[zmq.Socket[bytes]], kind: int, timing: Timing) -> zmq.Socket[bytes]:
    """A socket with bounded queues, bounded messages and transport heartbeats."""
    socket = context.socket(kind)
    timeout_ms = int(timing.timeout_s * 1000)
    socket.linger = timeout_ms
    socket.sndhwm = socket.rcvhwm = HIGH_WATER_MARK
    socket.maxmsgsize = MAX_ARRAY_BYTES
    socket.heartbeat_ivl = max(1, timeout_ms // 4)
    socket.heartbeat_timeout = timeout_ms
    socket.handshake_ivl = timeout_ms
    socket.reconnect_ivl = 50
    socket.reconnect_ivl_max = 1000
    return socket


def _events(monitor: zmq.Socket[bytes]) -> list[dict[str, int]]:
    events = []
    while monitor.poll(0):
        events.append(recv_monitor_message(monitor))
    return events  # type: ignore[return-value]
