"""The greeting: both sides compare what must be the same before anything is drawn or sent."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress

from parties.errors import Disagreement
from parties.session.termination import termination_message
from protocols.alignment.id_proof import IdProof, id_proof, is_same
from protocols.errors import PeerLost, ProtocolError
from protocols.messages.id_alignment import IdConfirmation
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
            abort(channel, phase.name, termination_message(error, peer=channel.peer, others=names))
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


def greet(channel: Channel, mine: Hello, *, password: bytes | None = None) -> Hello:
    """Exchange greetings, the passive party first, and compare them.

    Parameters
    ----------
    channel : Channel
    mine : Hello
    password : bytes, optional
        Made of the records' ids (`id_proof.password_of`): then each side proves that it holds them. None
        before records are aligned, and where none are compared.

    Raises
    ------
    Disagreement
    """
    if mine.role is Role.ACTIVE:
        passwords = {} if password is None else {channel.peer: password}
        return greet_all([channel], {channel.peer: mine}, passwords=passwords)[channel.peer]
    while True:
        with id_proof(password) as proof:
            said = with_point(mine, proof)
            channel.send(said)
            theirs = expect(channel, Hello)
            if not _passes_by(theirs, mine):
                check_agreement(said, theirs, channel.peer)
                if proof is not None and not prove_ids(channel, proof, said, theirs):
                    raise _other_ids(said, theirs, channel.peer)
                return theirs
            _be_looked_at(channel, proof, said, theirs)
        time.sleep(_LOOKER_LEAVES_S)
        channel.begin_again()


def greet_all(
    channels: Sequence[Channel],
    mine: Mapping[str, Hello],
    *,
    passwords: Mapping[str, bytes] | None = None,
    accept: Callable[[Mapping[str, Hello]], None] = lambda theirs: None,
) -> dict[str, Hello]:
    """The active party's side: hears everybody before it answers anybody, so that nobody draws in vain.

    Parameters
    ----------
    channels : sequence of Channel
    mine : mapping of str to Hello
        The greeting for each peer.
    passwords : mapping of str to bytes, optional
        For each peer, as for `greet`.
    accept : callable
        Told what all peers said, where that agrees; may refuse by raising, before anybody is answered.

    Raises
    ------
    Disagreement
        After those concerned were told enough to see the differences themselves.
    """
    with ExitStack() as stack:
        known = passwords or {}
        theirs = {one.peer: _first_hello(one, mine[one.peer], known.get(one.peer)) for one in channels}
        proofs = {one.peer: stack.enter_context(id_proof(known.get(one.peer))) for one in channels}
        said = {peer: with_point(mine[peer], proof) for peer, proof in proofs.items()}
        refused: list[Disagreement] = []
        for channel in channels:
            try:
                check_agreement(said[channel.peer], theirs[channel.peer], channel.peer)
            except Disagreement as error:
                channel.send(said[channel.peer])
                refused.append(error)
        if refused:
            raise Disagreement(" ".join(map(str, refused)))
        accept(theirs)
        for channel in channels:
            channel.send(said[channel.peer])
        _prove_to_all(channels, proofs, said, theirs)
        return theirs


def prove_ids(channel: Channel, proof: IdProof, mine: Hello, theirs: Hello) -> bool:
    """Exchange proofs with one peer, the passive party first; whether the peer holds the same ids."""
    sent, due = proof.confirmations(mine, theirs)
    if mine.role is Role.PASSIVE:
        channel.send(sent)
        return is_same(expect(channel, IdConfirmation), due)
    found = expect(channel, IdConfirmation)
    channel.send(sent)
    return is_same(found, due)


def _prove_to_all(
    channels: Sequence[Channel],
    proofs: Mapping[str, IdProof | None],
    mine: Mapping[str, Hello],
    theirs: Mapping[str, Hello],
) -> None:
    """The active party's side of `prove_ids`: nobody may go on before everybody has proved what it holds."""
    compared = [(one, proof) for one in channels if (proof := proofs[one.peer]) is not None]
    expected = [proof.confirmations(mine[one.peer], theirs[one.peer]) for one, proof in compared]
    holds = [is_same(expect(one, IdConfirmation), due) for (one, _), (_, due) in zip(compared, expected, strict=True)]
    refused = []
    for (channel, _), (sent, _), is_held in zip(compared, expected, holds, strict=True):
        if all(holds) or not is_held:
            channel.send(sent)
        if not is_held:
            refused.append(str(_other_ids(mine[channel.peer], theirs[channel.peer], channel.peer)))
    if refused:
        raise Disagreement(" ".join(refused))


def _first_hello(channel: Channel, mine: Hello, password: bytes | None) -> Hello:
    theirs = expect(channel, Hello)
    while _passes_by(theirs, mine):
        with id_proof(password) as proof:
            said = with_point(mine, proof)
            channel.send(said)
            _be_looked_at(channel, proof, said, theirs)
        channel.begin_again()
        theirs = expect(channel, Hello)
    return theirs


def _be_looked_at(channel: Channel, proof: IdProof | None, mine: Hello, theirs: Hello) -> None:
    """Let a peer that only looks compare the ids too. It may be gone, or not want to know."""
    if proof is None or differences(mine, theirs, channel.peer):
        return
    with suppress(ProtocolError):
        prove_ids(channel, proof, mine, theirs)


def with_point(mine: Hello, proof: IdProof | None) -> Hello:
    """The greeting with what proves the ids, if anything does."""
    return mine if proof is None else mine.model_copy(update={"id_point": proof.point})


def _other_ids(mine: Hello, theirs: Hello, peer: str) -> Disagreement:
    return Disagreement(f"{peer} and this party do not agree: {set_difference(mine, theirs)}. Nothing was released")


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
    if (theirs.id_point is None) is not (mine.id_point is None):
        return ["the records of one side are aligned, those of the other side are not"]
    if mine.id_point is not None and theirs.n_rows != mine.n_rows:
        return [set_difference(mine, theirs)]
    return []


def set_difference(mine: Hello, theirs: Hello) -> str:
    """What is told of other ids, of which nobody sees more than how many there are."""
    return f"the sets of ids differ: it has {theirs.n_rows} records, this party {mine.n_rows}; both need the same ids"


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
