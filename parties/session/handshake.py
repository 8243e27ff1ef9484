"""The greeting: both sides compare what must be the same before anything is drawn or sent."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from parties.errors import Disagreement
from parties.session.termination import last_words
from protocols.errors import PeerLost
from protocols.messages.vertical import Hello, Role, Task
from protocols.transport.channel import Channel, abort, expect
from protocols.transport.sanitize import readable

# How long a peer that only looked may take to close its port.
_LOOKER_LEAVES_S = 1.0

_TERMS = {
    "objective": "objective",
    "columns": "number of columns",
    "mechanism": "mechanism",
    "law": "law",
    "epsilon": "epsilon",
    "total_epsilon": "epsilon of all columns",
    "share_thresholds": "sharing of thresholds",
    "reveal": "revealing of scores",
}


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

    What each may read is decided in `parties.session.termination`.
    """
    phase = Phase()
    try:
        yield phase
    except BaseException as error:
        names = {channel.peer for channel in channels}
        for channel in channels:
            abort(channel, phase.name, last_words(error, peer=channel.peer, others=names))
        if isinstance(error, PeerLost):
            raise PeerLost(f"{error}, while this party was {phase.name}") from None
        raise


def check_agreement(mine: Hello, theirs: Hello, peer: str) -> None:
    """Compare two greetings.

    Raises
    ------
    Disagreement
        With every difference, found and expected.
    """
    if found := differences(mine, theirs, peer):
        raise Disagreement(f"{peer} and this party do not agree: {'; '.join(found)}. Nothing was released")


def greet(channel: Channel, mine: Hello) -> Hello:
    """Exchange greetings, the passive party first, and compare them."""
    if mine.role is Role.ACTIVE:
        return greet_all([channel], {channel.peer: mine})[channel.peer]
    channel.send(mine)
    theirs = expect(channel, Hello)
    while _passes_by(theirs, mine):
        time.sleep(_LOOKER_LEAVES_S)
        channel.begin_again()
        channel.send(mine)
        theirs = expect(channel, Hello)
    check_agreement(mine, theirs, channel.peer)
    return theirs


def greet_all(
    channels: Sequence[Channel],
    mine: Mapping[str, Hello],
    *,
    accept: Callable[[Mapping[str, Hello]], None] = lambda theirs: None,
) -> dict[str, Hello]:
    """The active party's side: hears everybody before it answers anybody, so that nobody draws in vain.

    Parameters
    ----------
    channels : sequence of Channel
    mine : mapping of str to Hello
        The greeting for each peer.
    accept : callable
        Told what all peers said, where that agrees; may refuse by raising, before anybody is answered.

    Raises
    ------
    Disagreement
        After those concerned were told enough to see the differences themselves.
    """
    theirs = {channel.peer: _first_hello(channel, mine[channel.peer]) for channel in channels}
    refused: list[Disagreement] = []
    for channel in channels:
        try:
            check_agreement(mine[channel.peer], theirs[channel.peer], channel.peer)
        except Disagreement as error:
            channel.send(mine[channel.peer])
            refused.append(error)
    if refused:
        raise Disagreement(" ".join(map(str, refused)))
    accept(theirs)
    for channel in channels:
        channel.send(mine[channel.peer])
    return theirs


def _first_hello(channel: Channel, mine: Hello) -> Hello:
    theirs = expect(channel, Hello)
    while _passes_by(theirs, mine):
        channel.send(mine)
        channel.begin_again()
        theirs = expect(channel, Hello)
    return theirs


def _passes_by(theirs: Hello, mine: Hello) -> bool:
    """Whether one side only looks, or serves another job than the other side came for: then nobody has to stop."""
    if Task.CHECK in (theirs.task, mine.task):
        return mine.task is not Task.CHECK
    is_other_job = (theirs.task, theirs.run_id) != (mine.task, mine.run_id)
    return is_other_job and (theirs.comes_again or mine.comes_again)


def differences(mine: Hello, theirs: Hello, peer: str) -> list[str]:
    """What two greetings do not agree on, as sentences."""
    found = []
    if theirs.party != peer:
        found.append(f"it calls itself {theirs.party!r}, not {peer!r}")
    if theirs.role is mine.role:
        found.append(f"both sides are {mine.role.value}")
    if theirs.task is not mine.task and Task.CHECK not in (theirs.task, mine.task):
        found.append(f"it came to {theirs.task.value}, this party to {mine.task.value}")
    if theirs.run_id != mine.run_id:
        found.append(f"its run is {theirs.run_id!r}, this party's is {mine.run_id!r}")
    if Task.CHECK in (theirs.task, mine.task) and _purpose(theirs) is not _purpose(mine):
        # A party that predicts says nothing about what is agreed on for training.
        return found
    found += _record_differences(mine, theirs)
    if mine.has_label is not None and mine.has_label == theirs.has_label:
        found.append(f"{'both sides have' if mine.has_label else 'neither side has'} a label column")
    for name, words in _TERMS.items():
        for agreed, plan, who in (
            (mine.agreed, theirs.plan, "it plans"),
            (theirs.agreed, mine.plan, "this party plans"),
        ):
            wanted, planned = getattr(agreed, name), getattr(plan, name)
            if wanted is not None and not _is_same(wanted, planned):
                found.append(f"{words}: {who} {_shown(planned)} where {_shown(wanted)} was agreed on")
    return found + (_test_differences(mine, theirs) if {_purpose(mine), _purpose(theirs)} == {Task.TRAIN} else [])


def _purpose(hello: Hello) -> Task:
    return (hello.looks_for or Task.TRAIN) if hello.task is Task.CHECK else hello.task


def _test_differences(mine: Hello, theirs: Hello) -> list[str]:
    """Of the number of split tests a most is agreed on; that of a model that is trained must be known at all."""
    found = []
    for active, passive, who in ((theirs, mine, "it plans"), (mine, theirs, "this party plans")):
        if active.role is not Role.ACTIVE or passive.role is not Role.PASSIVE:
            continue
        planned, most = active.plan.tests, passive.agreed.tests
        if planned is None or (most is not None and planned > most):
            found.append(f"number of split tests: {who} {_shown(planned)} where {_at_most(most)} agreed on")
    return found


def _at_most(most: int | None) -> str:
    return "a number must be" if most is None else f"at most {most} was"


def _record_differences(mine: Hello, theirs: Hello) -> list[str]:
    """Ids are only comparable if they were made and aligned in one way."""
    if theirs.alignment != mine.alignment:
        return [f"its records are aligned so: {readable(theirs.alignment, 200)}; this party's so: {mine.alignment}"]
    if theirs.id_digest != mine.id_digest or (mine.id_digest and theirs.n_rows != mine.n_rows):
        return [
            f"the sets of ids differ: it has {theirs.n_rows} records, this party {mine.n_rows}; both need the same ids"
        ]
    return []


def _is_same(wanted: object, planned: object) -> bool:
    if isinstance(wanted, float) and isinstance(planned, float):
        return wanted == planned or abs(wanted - planned) <= 1e-9 * abs(wanted)
    return wanted == planned


def _shown(value: object) -> str:
    match value:
        case None:
            return "nothing"
        case bool():
            return "yes" if value else "no"
        case float():
            return f"{value:.6g}"
    return readable(str(value), 80)
