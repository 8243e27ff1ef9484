"""Commit-and-reveal of the public random bits: a worker's side. No coordinator may choose them alone.

Whoever is there at the beginning commits to random bytes and reveals them when it has seen everybody's commitments. A
worker that comes back takes the bits of its earlier process, and reveals the same bytes for the same commitments again
while others have not revealed theirs: for other commitments it has other bytes. One that comes for the first time when
the bits are drawn relies on the workers whose keys it knows: `threshold` of them must be named as having drawn the
bits. Each of these checked its own bytes, and secure aggregation works among workers with the same drawing alone
(`Epoch.drawing`). With
``2 threshold > n_workers + c``, for c workers that help the coordinator, every sum has one of them that is honest.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

from opboost.rng import BitSource
from parties.errors import Disagreement
from parties.horizontal.public_randomness import commitment, drawing_digest, public_bits
from protocols.messages.horizontal import Commitments, Reveal, Reveals
from protocols.transport.channel import Channel, expect


@dataclass(frozen=True, slots=True, kw_only=True)
class PublicDrawing:
    """A worker's part in drawing the public random bits.

    Attributes
    ----------
    party, run_id : str
    random : bytes
        Its random bytes, to which it is committed, and which it has revealed for no drawing.
    revealed : bytes
        Those that an earlier process of it may have revealed for the drawing `before`.
    threshold : int
        How many workers draw the bits at least.
    known : collection of str
        Workers whose lasting public keys it has.
    before : bytes
        Digest of the drawing for which an earlier process of this worker revealed its bytes; empty if there is none.
    note : callable
        Called with the digest of the drawing before the bytes are revealed for it.
    """

    party: str
    run_id: str
    random: bytes
    revealed: bytes
    threshold: int
    known: Collection[str]
    before: bytes
    note: Callable[[bytes], None]

    def take_part(self, channel: Channel) -> tuple[BitSource, bytes]:
        """Draw the public bits with the others, or receive those drawn before; returns them and the drawing's digest.

        Raises
        ------
        Disagreement
            If nobody vouches for the bits. Nothing was sent then, or nothing but random bytes.
        """
        committed = expect(channel, Commitments)
        drawing = drawing_digest(self.run_id, committed.names, committed.rows)
        if committed.is_open and drawing == self.before:
            channel.send(Reveal(random=self.revealed))
        elif committed.is_open:
            self._check_own(committed)
            self.note(drawing)
            channel.send(Reveal(random=self.random))
        elif self.party in committed.names:
            if drawing != self.before:
                raise Disagreement(
                    f"this worker did not reveal its bytes for the public bits that {channel.peer} shows. Nothing was "
                    "sent"
                )
        else:
            self._check_late(committed)
        bits = public_bits(self.run_id, committed.names, committed.rows, expect(channel, Reveals).rows)
        return bits, drawing

    def _check_own(self, committed: Commitments) -> None:
        mine = commitment(self.run_id, self.party, self.random)
        places = [place for place, name in enumerate(committed.names) if name == self.party]
        if len(places) != 1 or len(committed.rows) <= places[0] or committed.rows[places[0]].tobytes() != mine:
            raise Disagreement("this worker's own commitment is not in the list. Nothing was released")

    def _check_late(self, committed: Commitments) -> None:
        n = len(set(committed.names) & set(self.known))
        if n < self.threshold:
            raise Disagreement(
                f"the public bits were drawn by {n} of the workers whose keys this worker knows (`peers`), where a "
                f"worker that comes later needs {self.threshold} of them. Nothing was sent"
            )
