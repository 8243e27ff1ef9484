"""One owner's side of its exchanges with the others of a chain: greetings, trees that are due, digests of all trees.

An owner greets every other that connects, sends it the trees that it lacks and then the digest, even if it needs
nothing from it itself: so no connected owner is left waiting. It accepts messages in any order, and waits for a single
owner only while that owner's tree is due next.

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
from parties.horizontal.first_messages import checked_too_often, first_message, term_differences
from parties.session.handshake import MAX_CHECKS, Phase
from parties.session.termination import outlook_after, termination_message
from protocols.errors import PeerAborted, PeerLost, PeerRestarted, ProtocolError
from protocols.messages.horizontal import PassTree, TakeTurns
from protocols.messages.vertical import Done
from protocols.transport.channel import Channel, abort, expect

# Seconds between checks of a waiting owner whether the others are still connected.
TURN_POLL_S = 0.002


@dataclass(slots=True, kw_only=True)
class _OwnerState:
    """State of the exchange with another owner; `n_held` is None until it has greeted."""

    channel: Channel
    is_called: bool
    is_noted: bool
    is_told: bool = False
    n_checks: int = 0
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
        # Earlier confirmations do not count if trees were lost since.
        noted = job.checkpoint.confirmed if self._has_every_tree and not job.is_confirmed else frozenset()
        self._others = {
            name: _OwnerState(channel=channel, is_called=name in job.calls, is_noted=name in noted)
            for name, channel in sorted(channels.items())
        }

    def greet(self) -> None:
        """Compare terms with the others; every connected owner is sent this one's before a refusal.

        Raises
        ------
        Disagreement
        ProtocolError
            If another owner is gone or does not come, and this one lacks a tree.
        """
        self._phase.enter("greeting")
        deadline = time.monotonic() + self._job.wait_s
        try:
            while self._is_awaited(is_late := time.monotonic() >= deadline):
                self._step_with_all(partial(self._greet, is_late=is_late))
        except PeerRestarted:
            raise
        except ProtocolError:
            # A peer may have left because terms differ: read the greetings that have come.
            for owner in self._others.values():
                with suppress(ProtocolError):
                    self._greet(owner)
            self._refuse_differences()
            raise
        self._refuse_differences()

    def receive_tree(self, name: str) -> PassTree:
        """Wait for an owner's next tree, and meanwhile check the connections to all others."""
        channel = self._others[name].channel
        while not channel.is_ready():
            self._check_all()
        return expect(channel, PassTree)

    def send_due(self, turn: int, *, to: str | None = None) -> None:
        """Send one owner or all the trees that are due after a turn and that the receiver does not hold."""
        job = self._job
        due = due_after(turn, place=job.place, n_owners=len(job.order), n_turns=job.n_turns, broadcast=job.broadcast)
        for place, turns in due:
            owner = self._others[name := job.order[place]]
            if owner.is_gone or owner.n_held is None or to not in (None, name):
                continue
            with self._dropping_failed(owner):
                for due_turn in turns[max(0, owner.n_held - turns.start) :]:
                    owner.channel.send(tree_message(due_turn, self._turns[due_turn], job.recipe.epsilon))

    def compare_trees(self) -> None:
        """Compare digests of all trees; every connected owner is sent this one's before a refusal.

        Raises
        ------
        TreesDiffer
        """
        self._phase.enter("comparing the trees with the others'")
        self._trees = Done(trees=trees_digest(self._turns))
        for owner in self._others.values():
            if owner.n_held is not None and not owner.is_gone:
                self._tell_trees(owner)
        while any(
            owner.n_held is not None and not (owner.is_compared or owner.is_gone) for owner in self._others.values()
        ):
            self._step_with_all(self._compare)
        self._job.checkpoint.refuse_differing(self._job.party)

    @property
    def _has_every_tree(self) -> bool:
        return len(self._turns) == self._job.n_turns

    def _is_awaited(self, is_late: bool) -> bool:
        """Whether to wait for another owner's greeting; after the deadline, only if this owner lacks a tree."""
        missing = [owner for owner in self._others.values() if owner.n_held is None and not owner.is_gone]
        if not self._has_every_tree:
            return bool(missing)
        return not is_late and any(not owner.is_noted for owner in missing)

    def _step_with_all(self, step: Callable[[_OwnerState], None]) -> None:
        """Do a step with every owner that is not gone, then check all connections."""
        for owner in self._others.values():
            if not owner.is_gone:
                with self._dropping_failed(owner):
                    step(owner)
        self._check_all()

    def _check_all(self) -> None:
        """Check the connections to all owners, and pause before the next poll."""
        for owner in self._others.values():
            with self._tolerating():
                owner.channel.check()
        time.sleep(TURN_POLL_S)

    @contextmanager
    def _tolerating(self) -> Iterator[None]:
        """Ignore another owner's error if this one has every tree; a restarted owner is greeted again."""
        try:
            yield
        except PeerRestarted:
            raise
        except ProtocolError:
            if not self._has_every_tree:
                raise

    @contextmanager
    def _dropping_failed(self, owner: _OwnerState) -> Iterator[None]:
        """Continue without an owner that is gone or fails if this one has every tree; tell it if it is connected."""
        with self._tolerating():
            try:
                yield
            except ProtocolError as error:
                owner.is_gone = True
                if self._has_every_tree and not isinstance(error, PeerLost | PeerAborted):
                    reason = termination_message(error, peer=owner.channel.peer, others=self._others)
                    abort(owner.channel, self._phase.name, reason, outlook_after(error))
                raise

    def _greet(self, owner: _OwnerState, *, is_late: bool = False) -> None:
        """Greet an owner if it is there and has not greeted yet."""
        channel = owner.channel
        if owner.n_held is not None:
            return
        if owner.is_called and not owner.is_told and channel.has_come():
            self._tell_terms(owner)
        # An owner that this one calls and that does not come fails in `_check_all`; any other in `first_message`.
        is_missed = is_late and not (self._has_every_tree or owner.is_called or channel.has_come())
        if not (channel.is_ready() or is_missed):
            return
        if (greeting := first_message(channel, kind=TakeTurns, mine=self._terms, is_sent=owner.is_called)) is None:
            owner.is_told, owner.n_checks = False, owner.n_checks + 1
            if owner.n_checks == MAX_CHECKS:
                raise checked_too_often(channel.peer)
            return
        if not owner.is_told:
            self._tell_terms(owner)
        owner.n_held = greeting.n_held
        self._differences += self._differences_from(channel.peer, greeting)

    def _compare(self, owner: _OwnerState) -> None:
        """Compare an owner's digest; an owner that greets only now is first sent all trees that are due to it."""
        name = owner.channel.peer
        if owner.n_held is None:
            self._greet(owner)
            if owner.n_held is not None:
                self._refuse_differences()
                for turn in range(self._job.n_turns):
                    self.send_due(turn, to=name)
                self._tell_trees(owner)
        elif not owner.is_compared and owner.channel.is_ready():
            received, owner.is_compared = expect(owner.channel, Done), True
            if received == self._trees:
                self._job.checkpoint.note_confirmed(name)
            else:
                # At once, before a signal or a withheld digest can end the run. A kill between these steps leaves
                # neither a model beside the difference nor a confirmation by an owner with other trees.
                try:
                    self._job.checkpoint.note_unconfirmed(name)
                finally:
                    self._job.withdraw()
                self._job.checkpoint.note_differing(name)
                self._job.checkpoint.refuse_differing(self._job.party)

    def _tell_terms(self, owner: _OwnerState) -> None:
        owner.channel.send(self._terms)
        owner.is_told = True

    def _tell_trees(self, owner: _OwnerState) -> None:
        # An owner that has ended may have sent its digest before.
        with self._tolerating():
            owner.channel.send(self._trees)

    def _refuse_differences(self) -> None:
        if self._differences:
            raise Disagreement(f"the owners do not agree: {'; '.join(self._differences)}. Nothing was released")

    def _differences_from(self, name: str, greeting: TakeTurns) -> list[str]:
        job = self._job
        differences = term_differences(job.terms, greeting.terms, name)
        if greeting.party != name:
            differences.append(f"{name} calls itself {greeting.party!r}")
        if greeting.run_id != job.run_id:
            differences.append(f"the run of {name} is {greeting.run_id!r}, this party's is {job.run_id!r}")
        if greeting.n_held > job.n_turns:
            return [*differences, f"{name} says that it holds {greeting.n_held} turns of {job.n_turns}"]
        lost = [turn for turn in range(len(self._turns), greeting.n_held) if turn % len(job.order) == job.place]
        if lost and not differences:
            differences.append(
                f"{name} holds this party's tree of turn {lost[0] + 1}, which is missing from this party's run folder; "
                "a second one is not drawn. Bring the folder back or choose another run_id everywhere"
            )
        return differences
