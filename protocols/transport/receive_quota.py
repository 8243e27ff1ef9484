"""Receive quotas per connection: unread bytes and file descriptors; connections that exceed them are cut off.

ZeroMQ bounds the size of a frame. It bounds neither the number of frames of a message, which it keeps from the first to
the last, nor the bytes of a queue, nor the number of connections; and its bound on the messages of a queue is no good
(`zmq_socket.open_socket`). The kernel counts the bytes of every connection; what was taken is subtracted, and a
connection that is too far ahead is cut off. Honest peers never are: whoever sends more than a few messages waits until
it is asked for more (`MoreIds`, `MoreRanks`). Heartbeats of the transport, which nobody takes, are allowed for by the
age of a connection; not in what all connections together may have that no peer speaks over: they may be many.

A frame takes at least 35 bytes of the wire under CURVE, and at most 160 of memory where it takes up to 69: an entry of
64 in the queue, and its content. So what a peer has sent costs at most 2.4 times `MAX_AHEAD_BYTES`, 614 MiB, and what
comes between two checks, and 16 MiB a day at the usual heartbeat; what was taken is bounded by `peer_state`. The count
is had on Linux alone; elsewhere bytes are not bounded.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Self

from protocols.transport.descriptors import acknowledged_bytes, received_bytes, remote, shut, unsent_bytes

# What a connection may have sent that is not read yet. The most that honest peers do: two messages with an array of
# `codec.MAX_ARRAY_BYTES`, or a window of chunks of ranks, 1 MiB each.
MAX_AHEAD_BYTES = 256 << 20

# Connections that no peer speaks over, such as those of scanners or of peers that have just connected; and what may
# have come over all of them: a peer says no more than its greeting before it is answered.
MAX_OUTSIDERS = 512
MAX_OUTSIDE_BYTES = 64 << 20

# Bytes of a frame on the wire beyond its content, at most: ZMTP's and CURVE's headers.
FRAME_BYTES = 42

# Bytes of the transport's heartbeats in the time of one: a PING and a PONG of 46 each, of a peer that beats twice as
# often at most.
BEAT_BYTES = 200

# The most that a listener sends where no listed key is proved to it: 64 bytes of greeting, 170 of WELCOME, 12 of ERROR,
# and a SYN that counts as one. Else READY follows, of 60 bytes at least.
UNPROVED_BYTES = 247

# Seconds between checks: asking the kernel costs some microseconds per connection.
QUOTA_CHECK_S = 0.05


@dataclass(frozen=True, slots=True)
class Outsiders:
    """Quota of all connections that belong to no peer.

    Attributes
    ----------
    most : int
        Connections.
    most_proved : int
        Connections among them over which a listed key was proved. The key cannot be told until a message is read over
        them, so without this bound one peer could fill `most` with connections that are spared.
    most_bytes : int
        Bytes that were not taken: a peer's first message, before which it proves its key, and no more.
    """

    most: int
    most_proved: int
    most_bytes: int

    @classmethod
    def of(cls, most: int, *, n_peers: int) -> Self:
        """The quota of a listener: a quarter of the connections, and one per peer, may be proved and silent."""
        return cls(most, most // 4 + n_peers, MAX_OUTSIDE_BYTES)


@dataclass(frozen=True, slots=True)
class Cut:
    """A connection that was cut off.

    Attributes
    ----------
    descriptor : int
    is_flooding : bool
        Whether it sent too much, or was only one of too many.
    """

    descriptor: int
    is_flooding: bool


@dataclass(slots=True)
class _Connection:
    remote: object
    began: float
    taken: int = 0
    received: int = 0


class ReceiveQuotas:
    """Receive quotas of one socket's connections, by file descriptor.

    Parameters
    ----------
    limit_bytes : int
        The most that may be ahead on one connection.
    n_peers : int
        The most on all connections is so many times that; a peer may have several.
    outsiders : Outsiders, optional
        What all connections but those of `keep` may have; not bounded where none is given.
    beat_s : float
        Time between two heartbeats of the transport; infinite for none.
    """

    def __init__(
        self, limit_bytes: int, *, n_peers: int = 1, outsiders: Outsiders | None = None, beat_s: float = math.inf
    ) -> None:
        self.limit_bytes = limit_bytes
        self._beat_rate = BEAT_BYTES / beat_s
        self._total_bytes = limit_bytes * n_peers
        self._outsiders = outsiders
        # In the order in which they began.
        self._open: dict[int, _Connection] = {}
        self._kept: frozenset[int] = frozenset()
        self._next_check = 0.0

    def begin(self, descriptor: int) -> None:
        """A connection began."""
        self.end(descriptor)
        self._open[descriptor] = _Connection(remote(descriptor), time.monotonic())

    def end(self, descriptor: int) -> bool:
        """A connection ended; returns whether it did so by itself, and was not cut off."""
        return self._open.pop(descriptor, None) is not None

    def take(self, descriptor: int, sizes: Sequence[int]) -> None:
        """Frames of these sizes were taken from a connection."""
        if descriptor in self._open:
            self._open[descriptor].taken += sum(sizes) + FRAME_BYTES * len(sizes)

    def keep(self, descriptors: Iterable[int]) -> None:
        """Peers speak over these connections and no others."""
        self._kept = frozenset(descriptors)

    def cut_off(self) -> list[Cut]:
        """End the connections that are too far ahead, and some of those that no peer speaks over, if too many."""
        if time.monotonic() < self._next_check:
            return []
        self._next_check = time.monotonic() + QUOTA_CHECK_S
        for descriptor, connection in self._open.items():
            connection.received = received_bytes(descriptor)
            # What was taken may have come over an earlier connection on this descriptor.
            connection.taken = min(connection.taken, connection.received)
        too_far = set(self._too_far_ahead(self._open, self._total_bytes, self._beat_rate))
        cuts = [Cut(descriptor, is_flooding=True) for descriptor in too_far]
        if self._outsiders is not None:
            others = self._open.keys() - self._kept - too_far
            too_far = set(self._too_far_ahead(others, self._outsiders.most_bytes, 0.0))
            cuts += [Cut(descriptor, is_flooding=True) for descriptor in too_far]
            others -= too_far
            cuts += [Cut(outsider, is_flooding=False) for outsider in self._too_many(others, self._outsiders)]
        for cut in cuts:
            self._shut(cut.descriptor)
        return cuts

    def cut_stuck(self, *, is_over: bool) -> bool:
        """Whether connections that peers speak over have no room for what is sent; when time is over, end these."""
        stuck = [one for one in self._open if one in self._kept and unsent_bytes(one)]
        for descriptor in stuck if is_over else ():
            self._shut(descriptor)
        return bool(stuck)

    def cut_all(self) -> None:
        """End all connections; what was sent to peers is still delivered."""
        for descriptor in list(self._open):
            self._shut(descriptor, delivers=descriptor in self._kept)

    def _too_far_ahead(self, descriptors: Collection[int], most_bytes: int, beat_rate: float) -> Iterator[int]:
        ahead = {descriptor: self._ahead(self._open[descriptor], beat_rate) for descriptor in descriptors}
        total = sum(ahead.values())
        for descriptor in sorted(ahead, key=lambda one: -ahead[one]):
            if ahead[descriptor] > self.limit_bytes or total > most_bytes:
                total -= ahead[descriptor]
                yield descriptor

    def _ahead(self, connection: _Connection, beat_rate: float) -> float:
        """Bytes that were not taken, and that heartbeats of so many bytes a second do not account for."""
        beats = beat_rate * (time.monotonic() - connection.began)
        return max(0.0, connection.received - connection.taken - beats)

    def _too_many(self, descriptors: Collection[int], outsiders: Outsiders) -> list[int]:
        """Choose by chance among those over which a key was proved, if these are too many; then among the others first.

        By age or by what they sent, strangers could have a peer's connection cut whose handshake takes a while.
        """
        if len(descriptors) <= outsiders.most_proved:
            return []
        shuffled = random.sample(sorted(descriptors), len(descriptors))
        is_proved = {descriptor: acknowledged_bytes(descriptor) > UNPROVED_BYTES for descriptor in shuffled}
        proved = [descriptor for descriptor in shuffled if is_proved[descriptor]]
        unproved = [descriptor for descriptor in shuffled if not is_proved[descriptor]]
        spared, surplus = proved[: outsiders.most_proved], proved[outsiders.most_proved :]
        n_more = max(0, len(unproved) + len(spared) - outsiders.most)
        return surplus + [*unproved, *spared][:n_more]

    def _shut(self, descriptor: int, *, delivers: bool = False) -> None:
        """End a connection, unless its descriptor is another one's by now."""
        connection = self._open.pop(descriptor)
        if remote(descriptor) == connection.remote:
            shut(descriptor, delivers=delivers)
