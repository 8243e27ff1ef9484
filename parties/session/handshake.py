"""Handshake: both sides compare versions, roles, terms and ids before anything is drawn or sent."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress

from parties.errors import Disagreement, as_stopped
from parties.session.differences import check_agreement, differences, set_difference
from parties.session.termination import outlook_after, termination_message
from protocols.alignment.id_proof import IdProof, id_proof, is_same
from protocols.errors import PeerLost, ProtocolError, UnexpectedMessage
from protocols.messages.id_alignment import IdConfirmation
from protocols.messages.vertical import Hello, Role, Task
from protocols.transport.channel import Channel, abort, expect

# Seconds that a peer that only checked agreement may take to close its port.
CHECK_GRACE_S = 1.0

# Checks that a peer may make within one run: each lets it test whether the ids are a set of its choice.
MAX_CHECKS = 8

# Checks after which a job ends, over all its attempts: each costs a few lines of the log.
MAX_JOB_CHECKS = 10_000


class Phase:
    """The current step of the protocol, in words, for messages to the peer and to the user."""

    def __init__(self) -> None:
        self.name = "starting"

    def enter(self, name: str) -> None:
        """Note that the next step began."""
        self.name = name


@contextmanager
def conversation(channels: Sequence[Channel]) -> Iterator[Phase]:
    """Send every connected peer a termination message if the block fails.

    `parties.session.termination` decides what each peer may read.
    """
    phase = Phase()
    try:
        yield phase
    except BaseException as raised:
        error = as_stopped(raised)
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
        Made of the records' ids (`id_proof.password_of`): each side proves that it holds them. None before records
        are aligned, and where none are compared.

    Raises
    ------
    Disagreement
    """
    if mine.role is Role.ACTIVE:
        passwords = {} if password is None else {channel.peer: password}
        return greet_all([channel], {channel.peer: mine}, passwords=passwords)[channel.peer]
    while True:
        with id_proof(password) as proof:
            greeting = with_point(mine, proof)
            channel.send(greeting)
            theirs = expect(channel, Hello)
            if not _is_unrelated(theirs, mine):
                check_agreement(greeting, theirs, channel.peer)
                if proof is not None and not prove_ids(channel, proof, greeting, theirs):
                    raise _ids_differ(greeting, theirs, channel.peer)
                return theirs
            _count_check(channel)
            _answer_check(channel, proof, greeting, theirs)
        time.sleep(CHECK_GRACE_S)
        channel.reset()


def greet_all(
    channels: Sequence[Channel],
    mine: Mapping[str, Hello],
    *,
    passwords: Mapping[str, bytes] | None = None,
    accept: Callable[[Mapping[str, Hello]], None] = lambda theirs: None,
) -> dict[str, Hello]:
    """The active party's side: reads all greetings before it answers any, so that no peer draws in vain.

    Parameters
    ----------
    channels : sequence of Channel
    mine : mapping of str to Hello
        The greeting for each peer.
    passwords : mapping of str to bytes, optional
        For each peer, as for `greet`.
    accept : callable
        Takes all peers' greetings, once they agree with this party's; may refuse by raising, before any is answered.

    Raises
    ------
    Disagreement
        After the peers concerned were sent this party's greeting, which shows them the differences.
    """
    with ExitStack() as stack:
        passwords_by_peer = passwords or {}
        theirs = {
            channel.peer: _first_hello(channel, mine[channel.peer], passwords_by_peer.get(channel.peer))
            for channel in channels
        }
        proofs = {
            channel.peer: stack.enter_context(id_proof(passwords_by_peer.get(channel.peer))) for channel in channels
        }
        greetings = {peer: with_point(mine[peer], proof) for peer, proof in proofs.items()}
        refused: list[Disagreement] = []
        for channel in channels:
            try:
                check_agreement(greetings[channel.peer], theirs[channel.peer], channel.peer)
            except Disagreement as error:
                channel.send(greetings[channel.peer])
                refused.append(error)
        if refused:
            raise Disagreement(" ".join(map(str, refused)))
        accept(theirs)
        for channel in channels:
            channel.send(greetings[channel.peer])
        _prove_to_all(channels, proofs, greetings, theirs)
        return theirs


def prove_ids(channel: Channel, proof: IdProof, mine: Hello, theirs: Hello) -> bool:
    """Exchange proofs with one peer, the passive party first; whether the peer holds the same ids."""
    sent, due = proof.confirmations(mine, theirs)
    channel.traffic.n_compared += 1
    if mine.role is Role.PASSIVE:
        channel.send(sent)
        return is_same(expect(channel, IdConfirmation), due)
    received = expect(channel, IdConfirmation)
    channel.send(sent)
    return is_same(received, due)


def _prove_to_all(
    channels: Sequence[Channel],
    proofs: Mapping[str, IdProof | None],
    mine: Mapping[str, Hello],
    theirs: Mapping[str, Hello],
) -> None:
    """The active party's side of `prove_ids` with all peers: none may continue before all have proved their ids."""
    compared = [(channel, proof) for channel in channels if (proof := proofs[channel.peer]) is not None]
    for channel, _ in compared:
        channel.traffic.n_compared += 1
    expected = [proof.confirmations(mine[channel.peer], theirs[channel.peer]) for channel, proof in compared]
    are_held = [
        is_same(expect(channel, IdConfirmation), due) for (channel, _), (_, due) in zip(compared, expected, strict=True)
    ]
    refused = []
    for (channel, _), (sent, _), is_held in zip(compared, expected, are_held, strict=True):
        if all(are_held) or not is_held:
            channel.send(sent)
        if not is_held:
            refused.append(str(_ids_differ(mine[channel.peer], theirs[channel.peer], channel.peer)))
    if refused:
        raise Disagreement(" ".join(refused))


def _first_hello(channel: Channel, mine: Hello, password: bytes | None) -> Hello:
    theirs = expect(channel, Hello)
    while _is_unrelated(theirs, mine):
        _count_check(channel)
        # The peer that checked may have left while this party waited for others.
        with id_proof(password) as proof, suppress(ProtocolError):
            greeting = with_point(mine, proof)
            channel.send(greeting)
            _answer_check(channel, proof, greeting, theirs)
        channel.reset()
        theirs = expect(channel, Hello)
    return theirs


def _count_check(channel: Channel) -> None:
    """Count and log a check.

    Raises
    ------
    UnexpectedMessage
        After `MAX_JOB_CHECKS`.
    """
    traffic = channel.traffic
    traffic.n_checks += 1
    traffic.on_check(f"{channel.peer} only looked whether both sides agree, {traffic.n_checks} times so far")
    if traffic.n_checks > MAX_JOB_CHECKS:
        raise UnexpectedMessage(f"{channel.peer} only looked, {MAX_JOB_CHECKS} times; nothing was released")


def _answer_check(channel: Channel, proof: IdProof | None, mine: Hello, theirs: Hello) -> None:
    """Let a peer that only checks agreement compare the ids too, `MAX_CHECKS` times at most; it may have left."""
    if proof is None or differences(mine, theirs, channel.peer):
        return
    if channel.traffic.n_checks > MAX_CHECKS:
        abort(channel, "greeting", f"a peer may look {MAX_CHECKS} times in one run; the ids were not compared")
        return
    with suppress(ProtocolError):
        prove_ids(channel, proof, mine, theirs)


def with_point(mine: Hello, proof: IdProof | None) -> Hello:
    """The greeting with the point of the proof of ids, if there is a proof."""
    return mine if proof is None else mine.model_copy(update={"id_point": proof.point})


def _ids_differ(mine: Hello, theirs: Hello, peer: str) -> Disagreement:
    return Disagreement(f"{peer} and this party do not agree: {set_difference(mine, theirs)}. Nothing was released")


def _is_unrelated(theirs: Hello, mine: Hello) -> bool:
    """Whether one side only checks agreement, or is there for another job: then neither has to stop."""
    if Task.CHECK in (theirs.task, mine.task):
        return mine.task is not Task.CHECK
    is_other_job = (theirs.task, theirs.run_id) != (mine.task, mine.run_id)
    return is_other_job and (theirs.comes_again or mine.comes_again)
