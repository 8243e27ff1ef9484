"""ZeroMQ channel of a passive party, with CURVE: connects to the active party and waits for it.

Used by the thread that made it. Between two of its checks the active party is not held back, and one that resets the
connection while this end closes can end this process (`zmq_socket.open_socket`): no more than its leaving does.
"""

from __future__ import annotations

import math
import time
from collections import deque
from contextlib import suppress
from functools import partial
from itertools import chain

import zmq

from protocols.errors import KeyFileError, PeerLost, ProtocolError, UnexpectedMessage
from protocols.messages.liveness import Heartbeat, Received
from protocols.messages.message import Message
from protocols.messages.vertical import Abort
from protocols.transport.channel import Timing, Traffic, ends_with_abort
from protocols.transport.codec import Frame, encode
from protocols.transport.conversation import Conversation, connection_id, is_any_heartbeat, new_token, read_received
from protocols.transport.keys import KeyPair, check_loopback
from protocols.transport.liveness import HEARTBEAT, BlockedSend, HeartbeatCount, HeartbeatTimer
from protocols.transport.presence import Presence
from protocols.transport.zmq_attempt import LONGEST_RETRY_S, RETRY_S, Attempt
from protocols.transport.zmq_socket import ABORT_TIMEOUT_S, CLOSING_S, POLL_S, has_arrived


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
        self._name, self._timing = name, timing
        self._context = zmq.Context()
        self._new_presence = partial(Presence, peer, address, timing)
        self._attempt_as = partial(Attempt, self._context, address, keys=keys, peer_key=peer_key, timing=timing)
        self._begin()

    def send(self, message: Message) -> None:
        frames = encode(message)
        blocked, is_kept = BlockedSend(self._timing), False
        deadline = time.monotonic() + (ABORT_TIMEOUT_S if isinstance(message, Abort) else math.inf)
        while True:
            self._follow_events()
            if self._presence.is_lost:
                raise self._lost()
            self._presence.refuse_to_wait()
            if not is_kept:
                self._conversation.keep(frames)
                is_kept = True
            self._transmit()
            may_wait = self._presence.was_joined and not self._is_open and self._conversation.has_room
            if not self._conversation.is_behind or may_wait or time.monotonic() >= deadline:
                break
            if self._is_open:
                blocked.listen()
            if blocked.is_stall:
                self._presence.is_given_up = True
                raise PeerLost(f"{self.peer} {blocked.reason}; a {message.kind!r} message was not sent")
            self.traffic.on_wait()
            self._poll()
        self.traffic.count_sent(message, frames)

    def receive(self) -> Message:
        self._follow_events()
        while not self._listen():
            self.check()
            self.traffic.on_wait()
            if (
                not self._attempt.socket.poll(int(POLL_S * 1000))
                and self._is_open
                and self._conversation.has_unacknowledged
            ):
                self._acknowledge()
        return self.traffic.decode_received(self._inbox.popleft(), self.peer)

    def is_ready(self) -> bool:
        self._follow_events()
        return self._listen() or self._presence.is_lost or self._presence.is_cut or self._presence.silence.is_stall

    def has_come(self) -> bool:
        self._follow_events()
        return self._presence.was_joined

    def check(self) -> None:
        self._follow_events()
        if (not self._listen() and self._presence.is_lost) or ends_with_abort(self._inbox):
            raise self._lost()
        self._presence.refuse_to_wait()

    def isolate(self) -> None:
        """Nothing to do: there is no other peer here."""

    def reset(self, *, renews_deadline: bool = False) -> None:
        if not self._attempt.socket.closed:
            self._leave()
            self._begin()

    def close(self) -> None:
        """Deliver what was sent if the peer is there, then let go of it."""
        if not self._attempt.socket.closed:
            self._leave()
            self._context.term()

    @property
    def _is_open(self) -> bool:
        """Whether messages can be sent: the connection stands, and both ends know from where on."""
        return self._is_joined and not self._attempt.is_over

    def _lost(self) -> ProtocolError:
        return self._presence.lost(chain(self._inbox, self._attempt.waiting()))

    def _begin(self) -> None:
        """Begin a conversation."""
        self._presence = self._new_presence()
        self._token, self._number, self._retry_s = new_token(), 0, RETRY_S
        self._conversation, self._inbox = Conversation(), deque[list[Frame]]()
        self._heartbeat_timer, self._heartbeat_count = HeartbeatTimer(self._timing), HeartbeatCount()
        self._connect()

    def _connect(self) -> None:
        """Try to connect, once."""
        self._is_joined, self._is_greeted, self._next_try = False, False, math.inf
        self._attempt = self._attempt_as(name=connection_id(self._name, self._token, self._number))
        self._number += 1

    def _leave(self) -> None:
        """Send the last acknowledgement, and wait a moment until the peer has acknowledged what was sent."""
        deadline, is_last_sent = time.monotonic() + CLOSING_S, False
        self._follow_events()
        while not self._presence.is_beyond_reach and time.monotonic() < deadline:
            if self._is_open and not is_last_sent and not self._conversation.n_unsent:
                is_last_sent = self._acknowledge(is_last=True)
            if self._conversation.is_confirmed and (is_last_sent or not self._is_open):
                break
            self._poll()
            self._inbox.clear()
            self._follow_events()
        self._attempt.close(is_lost=not self._is_open or self._presence.is_beyond_reach)

    def _follow_events(self) -> None:
        attempt = self._attempt
        attempt.follow()
        self._presence.note_attempt(attempt)
        if (
            attempt.is_met
            and not (attempt.is_over or self._is_joined)
            and (self._heartbeat_timer.is_due or not self._is_greeted)
        ):
            self._greet()
        self._reconnect()
        self._transmit()
        self._send_heartbeat()

    def _greet(self) -> None:
        """Begin the conversation on its first connection; on another one, acknowledge what was received so far."""
        self._is_greeted, self._retry_s = True, RETRY_S
        self._is_joined = not self._presence.was_joined
        self._presence.was_joined = True
        if not self._is_joined:
            self._heartbeat_timer.start()  # Sent again if no answer comes: somebody may have left it out.
            self._acknowledge()

    def _reconnect(self) -> None:
        """Connect again, after everything was taken that came over the connection that has ended."""
        self._presence.note_connection(stands=self._is_greeted and not self._attempt.is_over)
        if not self._attempt.is_over or self._presence.is_beyond_reach:
            return
        if self._next_try == math.inf:
            self._next_try = time.monotonic() + self._retry_s
            self._retry_s = min(2 * self._retry_s, LONGEST_RETRY_S)
        if time.monotonic() >= self._next_try:
            while has_arrived(self._attempt.socket):
                self._take_next()
            if not self._presence.is_lost:
                self._attempt.close(is_lost=True)
                self._connect()

    def _transmit(self) -> None:
        """Hand to ZeroMQ what it has room for of what was not sent."""
        with suppress(zmq.Again):
            while self._is_open and (frames := self._conversation.next_unsent()) is not None:
                self._attempt.socket.send_multipart(frames, flags=zmq.NOBLOCK, copy=False)
                self._conversation.sent()
                self._heartbeat_timer.start()

    def _acknowledge(self, *, is_last: bool = False) -> bool:
        """Acknowledge the peer's messages; returns whether there was room for the acknowledgement."""
        with suppress(zmq.Again):
            self._attempt.socket.send_multipart(self._conversation.acknowledgement(is_last=is_last), flags=zmq.NOBLOCK)
            return True
        return False

    def _send_heartbeat(self) -> None:
        """Send a heartbeat if one is due."""
        if self._heartbeat_timer.is_due and self._is_open:
            self._heartbeat_timer.start()
            with suppress(zmq.Again):
                self._attempt.socket.send_multipart(self._conversation.heartbeat(), flags=zmq.NOBLOCK)
                self.traffic.count_sent(Heartbeat(), HEARTBEAT)

    def _listen(self) -> bool:
        """Whether a message waits; takes no more than one of them: the others count as ahead of their turn."""
        while not (self._inbox or self._presence.is_cut) and has_arrived(self._attempt.socket):
            self._take_next()
        is_there = self._presence.is_busy or (self._is_greeted and not self._attempt.is_over)
        self._presence.note_silence(is_awaited=is_there and not self._inbox)
        return bool(self._inbox)

    def _take_next(self) -> None:
        """Take the next message. After one that is out of turn the connection is given up; its messages come again."""
        frames = self._attempt.take()
        self._presence.silence.end()
        received, is_heartbeat = read_received(frames), is_any_heartbeat(frames)
        self._presence.is_cut |= (is_heartbeat or received is not None) and self._heartbeat_count.is_flood()
        if received is not None:
            try:
                self._note_received(received)
            except UnexpectedMessage as error:
                # No error is raised here: leaving and beginning again take messages, too, and must be completed.
                self._presence.cut(str(error))
        elif is_heartbeat:
            self._attempt.is_over |= self._conversation.misses(frames) or (len(frames) > 1 and not self._is_joined)
        elif self._is_joined and self._conversation.received(frames):
            self._inbox.append(frames)
            if self._conversation.is_acknowledgement_due and self._is_open:
                self._acknowledge()
        else:
            self._attempt.is_over = True

    def _note_received(self, received: Received) -> None:
        """Note what the peer has received, and go on from there if that was asked for."""
        if received.count is None:
            self._presence.is_forgotten = True
        elif self._is_joined:
            self._conversation.confirm(received.count)
            self._presence.has_left |= received.is_last
            if received.is_last:
                self._acknowledge()
        else:
            again = f"{self._conversation.resume(received.count)} messages are sent again"
            self._is_joined = True
            self._transmit()
            self.traffic.on_return(f"{self.peer} was reached over another connection; {again}")

    def _poll(self) -> None:
        """Wait a moment for room to send or for news of the connection; then listen."""
        if self._is_open and self._conversation.n_unsent:
            self._attempt.socket.poll(int(POLL_S * 1000), zmq.POLLOUT)
        else:
            self._attempt.monitor.poll(int(POLL_S * 1000))
        self._listen()
