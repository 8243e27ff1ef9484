"""A peer that recites a script, and the proof of ids that the script's party owes."""

from __future__ import annotations

from collections.abc import Sequence

from protocols.alignment.blinding import Cipher
from protocols.alignment.id_proof import IdProof, password_of
from protocols.errors import PeerLost
from protocols.messages.id_alignment import IdConfirmation
from protocols.messages.message import Message
from protocols.messages.vertical import Abort, Hello
from protocols.transport.channel import Traffic
from protocols.transport.codec import Frame, encode

# What proves the ids of the trial's parties, with one key for all scripts; the message stands for what is then due.
PROOF = IdProof(password_of("d"), Cipher(n_workers=1))
PROVED = IdConfirmation(tag=bytes(32))


class Recital:
    """A channel to a peer that sends a script, whatever it hears, and leaves."""

    def __init__(self, peer: str, script: Sequence[Message | list[Frame]]) -> None:
        self.peer = peer
        self.traffic = Traffic()
        self.heard: list[Message] = []
        self._script = list(script)
        self._said: Hello | None = None

    def send(self, message: Message) -> None:
        self.traffic.count_sent(message, encode(message))
        self.heard.append(message)

    def receive(self) -> Message:
        if not self._script:
            raise PeerLost(f"{self.peer} closed the channel")
        item = self._script.pop(0)
        frames = encode(self._proved(item)) if isinstance(item, Message) else item
        return self.traffic.decode_received([bytes(frame) for frame in frames], self.peer)

    def _proved(self, item: Message) -> Message:
        """The message; in place of `PROVED`, the proof that the last greetings of both sides call for."""
        if isinstance(item, Hello):
            self._said = item
        heard = [message for message in self.heard if isinstance(message, Hello) and message.id_point is not None]
        if item != PROVED or self._said is None or not heard:
            return item
        return PROOF.confirmations(self._said, heard[-1])[0]

    def is_ready(self) -> bool:
        return True

    def has_come(self) -> bool:
        return True

    def check(self) -> None:
        """The peer does not leave before its script is over."""

    def reset(self) -> None:
        """Whoever comes next recites the same script."""

    def close(self) -> None:
        """Nothing is open."""

    @property
    def aborts(self) -> list[str]:
        """The reasons that the peer was given for the end."""
        return [message.reason for message in self.heard if isinstance(message, Abort)]
