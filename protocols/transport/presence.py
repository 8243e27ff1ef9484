"""State of the peer of a party that connects: joined, away, left, lost, busy, refusing or cut off."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence

from protocols.errors import PeerLost, PeerRefused, PeerRestarted, ProtocolError, UnexpectedMessage
from protocols.transport.channel import Timing, loss_of_peer
from protocols.transport.codec import Frame
from protocols.transport.conversation import FORGOTTEN
from protocols.transport.liveness import Silence, stalled
from protocols.transport.receive_quota import MAX_AHEAD_BYTES
from protocols.transport.zmq_attempt import Attempt


class Presence:
    """State of a peer since its conversation began.

    Parameters
    ----------
    peer : str
        Its name.
    address : str
        Where it listens.
    timing : Timing

    Attributes
    ----------
    was_joined : bool
        Whether both ends have known each other.
    has_left : bool
        Whether it said that it leaves.
    is_forgotten : bool
        Whether it said that it knows nothing of the conversation.
    is_given_up : bool
        Whether a message waited for too long.
    is_busy : bool
        Whether it knows the key and turns the connection away for now, so that its program is waited for: until an
        attempt meets it, or ends without a word.
    is_cut : bool
        Whether it was cut off.
    silence : Silence
        Of its program.
    """

    def __init__(self, peer: str, address: str, timing: Timing) -> None:
        self._peer, self._address, self._timing = peer, address, timing
        self._deadline = time.monotonic() + timing.wait_s
        self.was_joined = self.has_left = self.is_forgotten = self.is_given_up = self.is_busy = self.is_cut = False
        self._is_refused = False
        self._failure = self._fault = ""
        self.silence, self._away = Silence(timing.stall_s), Silence(timing.away_s)

    @property
    def is_lost(self) -> bool:
        """Whether nothing more will come of it."""
        return self.has_left or self.is_forgotten or self.is_given_up or self._away.is_stall

    @property
    def is_beyond_reach(self) -> bool:
        """Whether it is lost, refused this party, stalls or was cut off: nothing is sent to it any more."""
        return self._is_refused or self.is_lost or self.is_cut or self.silence.is_stall

    def note_attempt(self, attempt: Attempt) -> None:
        """Note what became of an attempt to connect."""
        self.is_cut |= attempt.is_flooding
        self._failure = attempt.failure or self._failure
        self.is_busy = attempt.is_refused or (self.is_busy and not (attempt.is_met or attempt.is_over))
        self._is_refused = attempt.is_refused and not self.was_joined

    def note_connection(self, *, stands: bool) -> None:
        """Count how long the peer has been away since a connection stood.

        A peer that knows the key and refuses it now is there, and has not read what came over earlier connections
        (`zmq_authenticator.HASTY_KEY`): then its program is waited for, not the connection. Whoever is on the line may
        say so, too, between connections that it breaks: these count all the same.
        """
        if self.is_busy:
            self.silence.listen()
        if stands or not self.was_joined:
            self._away.end()
        elif not self.is_busy:
            self._away.listen()

    def note_silence(self, *, is_awaited: bool) -> None:
        """Count how long the peer, from whom something `is_awaited` or not, has been silent."""
        if is_awaited:
            self.silence.listen()
        else:
            self.silence.end()

    def cut(self, fault: str) -> None:
        """Cut it off for what it did."""
        self.is_cut, self._fault = True, fault

    def lost(self, waiting: Iterable[Sequence[Frame]]) -> ProtocolError:
        """Exception for a lost peer, whose last messages may be among those that wait."""
        if self.is_forgotten:
            return PeerRestarted(f"{self._peer} {FORGOTTEN}")
        silent = f" or was silent for {self._timing.timeout_s:g} s, and could not be reached again within"
        ending = "" if self.has_left else f"{silent} {self._timing.away_s:g} s"
        return loss_of_peer(self._peer, waiting, f"closed the connection{ending}")

    def refuse_to_wait(self) -> None:
        """Raise if nothing of the peer is to be waited for.

        Raises
        ------
        UnexpectedMessage
            If it was cut off.
        PeerRefused
        PeerLost
            If it stalls, or never came.
        """
        if self.is_cut:
            amount = f"{MAX_AHEAD_BYTES >> 20} MiB ahead of its turn, or heartbeats without end"
            raise UnexpectedMessage(f"{self._peer} {self._fault or f'sent more than {amount}'}, and was cut off")
        if self._is_refused:
            raise PeerRefused(f"{self._peer} at {self._address} {self._failure}")
        if self.silence.is_stall:
            raise PeerLost(f"{self._peer} {stalled(self._timing.stall_s)}")
        if not self.was_joined and time.monotonic() > self._deadline:
            raise PeerLost(
                f"{self._peer} could not be reached at {self._address} within {self._timing.wait_s:g} s; "
                f"{self._failure or 'it may not be running, or the keys do not match'}"
            )
