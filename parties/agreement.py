"""The greeting: both sides compare what must be the same before anything is drawn or sent."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from opboost.errors import OpBoostError
from parties.errors import Disagreement, PartyError
from protocols.channel import Channel, abort, expect
from protocols.errors import PeerAborted, PeerLost, ProtocolError
from protocols.messages import Hello, Role


class Phase:
    """Where a party is in the protocol, in words, for messages to the peer and to the user."""

    def __init__(self) -> None:
        self.name = "starting"

    def enter(self, name: str) -> None:
        """Note that the next step began."""
        self.name = name


@contextmanager
def conversation(channels: Sequence[Channel]) -> Iterator[Phase]:
    """Tell every peer that is still there, in one sentence, when this party has to stop.

    Only sentences that this project wrote are passed on; they hold no value from the data.
    """
    phase = Phase()
    try:
        yield phase
    except (PeerAborted, PeerLost) as error:
        _abort_all(channels, phase, f"another party left: {type(error).__name__}")
        raise
    except PartyError as error:
        _abort_all(channels, phase, error.for_peer)
        raise
    except (OpBoostError, ProtocolError) as error:
        _abort_all(channels, phase, str(error))
        raise
    except BaseException as error:
        _abort_all(channels, phase, f"it stopped with {type(error).__name__}")
        raise


def check_agreement(mine: Hello, theirs: Hello, peer: str) -> None:
    """Compare two greetings.

    Raises
    ------
    Disagreement
        With every difference, found and expected.
    """
    differences = []
    if theirs.party != peer:
        differences.append(f"it calls itself {theirs.party!r}, not {peer!r}")
    if theirs.role is mine.role:
        differences.append(f"both sides are {mine.role.value}")
    if theirs.task is not mine.task:
        differences.append(f"it came to {theirs.task.value}, this party to {mine.task.value}")
    if theirs.run_id != mine.run_id:
        differences.append(f"its run is {theirs.run_id!r}, this party's is {mine.run_id!r}")
    if theirs.alignment != mine.alignment:
        differences.append(f"its records are aligned so: {theirs.alignment}; this party's so: {mine.alignment}")
    elif theirs.id_digest != mine.id_digest:
        differences.append(
            f"the sets of ids differ: it has {theirs.n_rows} records, this party {mine.n_rows}; both need the same ids"
        )
    if differences:
        raise Disagreement(f"{peer} and this party do not agree: {'; '.join(differences)}. Nothing was released")


def greet(channel: Channel, mine: Hello) -> Hello:
    """Exchange greetings, the passive party first, and compare them."""
    if mine.role is Role.PASSIVE:
        channel.send(mine)
        theirs = expect(channel, Hello)
    else:
        theirs = expect(channel, Hello)
        channel.send(mine)
    check_agreement(mine, theirs, channel.peer)
    return theirs


def _abort_all(channels: Sequence[Channel], phase: Phase, reason: str) -> None:
    for channel in channels:
        abort(channel, phase.name, reason)
