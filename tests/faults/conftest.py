"""Parties on small tables, as in the tests of the parties; peers that recite a script; what no fault may leave."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from protocols.errors import PeerLost
from protocols.messages.vertical import Abort, Message
from protocols.transport.channel import Traffic
from protocols.transport.codec import Frame, encode
from tests.parties.conftest import outcomes, sites, trial

__all__ = ["outcomes", "sites", "trial"]


class Recital:
    """A channel to a peer that sends a script, whatever it hears, and leaves."""

    def __init__(self, peer: str, script: Sequence[Message | list[Frame]]) -> None:
        self.peer = peer
        self.traffic = Traffic()
        self.heard: list[Message] = []
        self._script = [encode(item) if isinstance(item, Message) else item for item in script]

    def send(self, message: Message) -> None:
        self.traffic.count_sent(message, encode(message))
        self.heard.append(message)

    def receive(self) -> Message:
        if not self._script:
            raise PeerLost(f"{self.peer} closed the channel")
        return self.traffic.decode_received([bytes(frame) for frame in self._script.pop(0)])

    def is_ready(self) -> bool:
        return True

    def check(self) -> None:
        """The peer does not leave before its script is over."""

    def begin_again(self) -> None:
        """Whoever comes next recites the same script."""

    def close(self) -> None:
        """Nothing is open."""

    @property
    def aborts(self) -> list[str]:
        """The reasons that the peer was given for the end."""
        return [message.reason for message in self.heard if isinstance(message, Abort)]


@pytest.fixture(scope="session")
def recital() -> Callable[[str, Sequence[Message | list[Frame]]], Recital]:
    """Make a channel to a peer that recites."""
    return Recital
