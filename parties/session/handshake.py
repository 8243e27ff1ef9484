"""The greeting: both sides compare what must be the same before anything is drawn or sent."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress

from parties.errors import Disagreement, as_told
from parties.session.differences import check_agreement, differences, set_difference
from parties.session.termination import outlook_after, termination_message
from protocols.alignment.id_proof import IdProof, id_proof, is_same
from protocols.errors import PeerLost, ProtocolError
from protocols.messages.id_alignment import IdConfirmation
from protocols.messages.vertical import Hello, Role, Task
from protocols.transport.channel import Channel, abort, expect

# How long a peer that only looked may take to close its port.
LOOKER_LEAVES_S = 1.0

# Each look lets a peer find out whether the ids are those that it has in mind: so often it may within one run.
MAX_LOOKS = 8


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
    except BaseException as raised:
        error = as_told(raised)
        names, outlook = {channel.peer for channel in channels}, outlook_after(error)
        for channel in channels:
            reason = termination_message(error, peer=channel.peer, others=names)
            abort(channel, phase.name, reason, outlook)
        if isinstance(error, PeerLost):
            raise type(error)(f"{error}, while this party was {phase.name}") from None
        if error is not raised:
            raise error from None
        raise


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
        time.sleep(LOOKER_LEAVES_S)
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
    channel.traffic.n_compared += 1
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
    for channel, _ in compared:
        channel.traffic.n_compared += 1
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
        # While others were waited for, whoever looked may have left.
        with id_proof(password) as proof, suppress(ProtocolError):
            said = with_point(mine, proof)
            channel.send(said)
            _be_looked_at(channel, proof, said, theirs)
        channel.begin_again()
        theirs = expect(channel, Hello)
    return theirs


def _be_looked_at(channel: Channel, proof: IdProof | None, mine: Hello, theirs: Hello) -> None:
    """Let a peer that only looks compare the ids too, but not too often. It may be gone, or not want to know."""
    traffic = channel.traffic
    traffic.n_looks += 1
    traffic.on_look(f"{channel.peer} only looked whether both sides agree, {traffic.n_looks} times so far")
    if proof is None or differences(mine, theirs, channel.peer):
        return
    if traffic.n_looks > MAX_LOOKS:
        abort(channel, "greeting", f"a peer may look {MAX_LOOKS} times in one run; the ids were not compared")
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
