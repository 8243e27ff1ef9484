"""The other owners of a chain as one of them meets them: greetings, trees that are due, and digests of all trees.

An owner greets whoever comes, sends it what it lacks and tells it the digest, also where it needs nothing of that one
itself: so no owner waits for another that is there and will not speak. It takes what comes in any order, and waits for
a single owner only where that one's tree is due next.

======================  ===================================================================================
this owner              waits for
======================  ===================================================================================
lacks a tree            every other owner, which it needs
has every tree          those that have not said yet that they have the same, up to `wait_s` for their
                        greetings, connected or not: one that says nothing keeps no two others from comparing;
                        and for the digest of whoever has greeted. Without those that are gone it ends
finished before, with   every other owner, up to `wait_s` for their greetings: one that was stopped before it read
the word of all         this owner's digest, or has lost trees since, needs it
======================  ===================================================================================
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial

from parties.errors import Disagreement
from parties.horizontal.chain.checkpoint import Turn, trees_digest
from parties.horizontal.chain.job import ChainJob
from parties.horizontal.chain.tree_messages import due_after, tree_message
from parties.horizontal.first_messages import first_message, looked_too_often, term_differences
from parties.session.handshake import MAX_LOOKS, Phase
from parties.session.termination import outlook_after, termination_message
from protocols.errors import PeerAborted, PeerLost, PeerRestarted, ProtocolError
from protocols.messages.horizontal import PassTree, TakeTurns
from protocols.messages.vertical import Done
from protocols.transport.channel import Channel, abort, expect

# Seconds between checks of a waiting owner whether the others are still connected.
TURN_POLL_S = 0.002


@dataclass(slots=True, kw_only=True)
class _Other:
    """What is known of another owner since the greeting began; `n_held` is None until it has greeted."""

    channel: Channel
    is_called: bool
    is_noted: bool
    is_told: bool = False
    n_looks: int = 0
    n_held: int | None = None
    is_compared: bool = False
    is_gone: bool = False


class OtherOwners:
    """The other owners of a chain.

    Parameters
    ----------
    job : ChainJob
    channels : mapping of str to Channel
    phase : Phase
    turns : sequence of Turn
        The trees that this owner has, to which it adds while the chain goes on.
    """

    def __init__(self, job: ChainJob, channels: Mapping[str, Channel], phase: Phase, turns: Sequence[Turn]) -> None:
        self._job = job
        self._phase = phase
        self._turns = turns
        self._terms = TakeTurns(party=job.party, run_id=job.run_id, terms=dict(job.terms), n_held=len(turns))
        self._trees = Done()
        self._differences: list[str] = []
        # What they said before about trees that are not all there any more does not count.
        noted = job.checkpoint.confirmed if self._has_every_tree and not job.is_confirmed else frozenset()
        self._others = {
            name: _Other(channel=one, is_called=name in job.calls, is_noted=name in noted)
            for name, one in sorted(channels.items())
        }

    def greet(self) -> None:
        """Compare terms with the others; all that are there are sent this party's before it refuses.

        Raises
        ------
        Disagreement
        ProtocolError
            If one is gone or does not come, and this owner lacks a tree.
        """
        self._phase.enter("greeting")
        deadline = time.monotonic() + self._job.wait_s
        try:
            while self._is_awaited(is_late := time.monotonic() >= deadline):
                self._hear_all(partial(self._greet, is_late=is_late))
        except PeerRestarted:
            raise
        except ProtocolError:
            # Perhaps it left because terms differ, which it has told before.
            for other in self._others.values():
                with suppress(ProtocolError):
                    self._greet(other)
            self._refuse_differences()
            raise
        self._refuse_differences()

    def receive_tree(self, name: str) -> PassTree:
        """Wait for the next tree of an owner, while the others are looked after."""
        channel = self._others[name].channel
        while not channel.is_ready():
            self._look_around()
        return expect(channel, PassTree)

    def send_due(self, turn: int, *, to: str | None = None) -> None:
        """Send the trees that are due after a turn, to one owner or all, but for those that the receiver holds."""
        job = self._job
        due = due_after(turn, place=job.place, n_owners=len(job.order), n_turns=job.n_turns, broadcast=job.broadcast)
        for place, turns in due:
            other = self._others[name := job.order[place]]
            if other.is_gone or other.n_held is None or to not in (None, name):
                continue
            with self._going_on(other):
                for one in turns[max(0, other.n_held - turns.start) :]:
                    other.channel.send(tree_message(one, self._turns[one], job.recipe.epsilon))

    def compare_trees(self) -> None:
        """Compare digests of all trees; all that are there are sent this owner's before it refuses.

        Raises
        ------
        TreesDiffer
        """
        self._phase.enter("comparing the trees with the others'")
        self._trees = Done(trees=trees_digest(self._turns))
        for other in self._others.values():
            if other.n_held is not None and not other.is_gone:
                self._tell_trees(other)
        while any(one.n_held is not None and not (one.is_compared or one.is_gone) for one in self._others.values()):
            self._hear_all(self._compare)
        self._job.checkpoint.refuse_differing(self._job.party)

    @property
    def _has_every_tree(self) -> bool:
        return len(self._turns) == self._job.n_turns

    def _is_awaited(self, is_late: bool) -> bool:
        """Whether the greeting of another owner is waited for: of one that `is_late` only if it is needed."""
        missing = [one for one in self._others.values() if one.n_held is None and not one.is_gone]
        if not self._has_every_tree:
            return bool(missing)
        return not is_late and any(not one.is_noted for one in missing)

    def _hear_all(self, step: Callable[[_Other], None]) -> None:
        """Do a step with every owner that is not gone, then look around."""
        for other in self._others.values():
            if not other.is_gone:
                with self._going_on(other):
                    step(other)
        self._look_around()

    def _look_around(self) -> None:
        """Notice who is gone or begins again, between two looks at whoever is waited for."""
        for other in self._others.values():
            # Perhaps another owner is gone than the one that is looked at.
            with self._passing_over():
                other.channel.check()
        time.sleep(TURN_POLL_S)

    @contextmanager
    def _passing_over(self) -> Iterator[None]:
        """Pass over the error of an owner if this one has every tree; one that begins again is met again."""
        try:
            yield
        except PeerRestarted:
            raise
        except ProtocolError:
            if not self._has_every_tree:
                raise

    @contextmanager
    def _going_on(self, other: _Other) -> Iterator[None]:
        """Go on without an owner that is gone or errs if this one has every tree; it is told if it is there."""
        with self._passing_over():
            try:
                yield
            except ProtocolError as error:
                other.is_gone = True
                if self._has_every_tree and not isinstance(error, PeerLost | PeerAborted):
                    said = termination_message(error, peer=other.channel.peer, others=self._others)
                    abort(other.channel, self._phase.name, said, outlook_after(error))
                raise

    def _greet(self, other: _Other, *, is_late: bool = False) -> None:
        """Greet an owner if it is there and has not greeted yet."""
        channel = other.channel
        if other.n_held is not None:
            return
        if other.is_called and not other.is_told and channel.has_come():
            self._tell_terms(other)
        # One that is called and does not come is an error of `_look_around`, another one that of its first word.
        is_missed = is_late and not (self._has_every_tree or other.is_called or channel.has_come())
        if not (channel.is_ready() or is_missed):
            return
        if (said := first_message(channel, kind=TakeTurns, mine=self._terms, is_sent=other.is_called)) is None:
            other.is_told, other.n_looks = False, other.n_looks + 1
            if other.n_looks == MAX_LOOKS:
                raise looked_too_often(channel.peer)
            return
        if not other.is_told:
            self._tell_terms(other)
        other.n_held = said.n_held
        self._differences += self._found_differences(channel.peer, said)

    def _compare(self, other: _Other) -> None:
        """Compare the digest of an owner that has greeted; one that comes now hears all that is due to it."""
        name = other.channel.peer
        if other.n_held is None:
            self._greet(other)
            if other.n_held is not None:
                self._refuse_differences()
                for turn in range(self._job.n_turns):
                    self.send_due(turn, to=name)
                self._tell_trees(other)
        elif not other.is_compared and other.channel.is_ready():
            said, other.is_compared = expect(other.channel, Done), True
            if said == self._trees:
                self._job.checkpoint.note_confirmed(name)
            else:
                # Before anything else can end the run, such as a signal, or an owner that withholds its digest. A kill
                # in between leaves no model beside the difference, and no confirmation of an owner that has others.
                try:
                    self._job.checkpoint.note_unconfirmed(name)
                finally:
                    self._job.withdraw()
                self._job.checkpoint.note_differing(name)
                self._job.checkpoint.refuse_differing(self._job.party)

    def _tell_terms(self, other: _Other) -> None:
        other.channel.send(self._terms)
        other.is_told = True

    def _tell_trees(self, other: _Other) -> None:
        # Whoever has ended may have said before which trees it has.
        with self._passing_over():
            other.channel.send(self._trees)

    def _refuse_differences(self) -> None:
        if self._differences:
            raise Disagreement(f"the owners do not agree: {'; '.join(self._differences)}. Nothing was released")

    def _found_differences(self, name: str, said: TakeTurns) -> list[str]:
        job = self._job
        found = term_differences(job.terms, said.terms, name)
        if said.party != name:
            found.append(f"{name} calls itself {said.party!r}")
        if said.run_id != job.run_id:
            found.append(f"the run of {name} is {said.run_id!r}, this party's is {job.run_id!r}")
        if said.n_held > job.n_turns:
            return [*found, f"{name} says that it holds {said.n_held} turns of {job.n_turns}"]
        lost = [turn for turn in range(len(self._turns), said.n_held) if turn % len(job.order) == job.place]
        if lost and not found:
            found.append(
                f"{name} holds this party's tree of turn {lost[0] + 1}, which is missing from this party's run folder; "
                "a second one is not drawn. Bring the folder back or choose another run_id everywhere"
            )
        return found
