"""Chain training (InPrivate): owners grow trees in turn, and every tree is sent to all the others.

With `broadcast` an owner sends its tree to all others at once, and they bring their residuals up to date while they
wait for their turns. Without, trees go along the order from owner to owner, and each works through all that it lacks
when its turn has come. An owner may send or hand on other trees to some than to others, so at the end every two owners
compare digests of all trees, and keep no model where these differ.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from pydantic import JsonValue

from opboost.horizontal.inprivate.owners import InPrivateAmongOwners
from opboost.horizontal.inprivate.training import Owner
from opboost.trees.tree import Tree
from parties.errors import ChainBroken, Disagreement
from parties.horizontal.chain_checkpoint import ChainCheckpoint, Turn, trees_digest
from parties.horizontal.coordinator import SharedModel
from parties.horizontal.public_randomness import after_looks, term_differences
from parties.horizontal.tree_messages import due_after, received_tree, tree_message
from parties.progress import Progress, no_progress
from parties.session.handshake import Phase, conversation
from protocols.errors import PeerLost, PeerRestarted, ProtocolError, UnexpectedMessage
from protocols.messages.horizontal import PassTree, TakeTurns
from protocols.messages.message import Message
from protocols.messages.vertical import Done
from protocols.transport.channel import Channel, expect

T = TypeVar("T")

# Seconds between checks of a waiting owner whether the others are still connected.
TURN_POLL_S = 0.002


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainJob:
    """Inputs of an owner to a chain training run.

    Attributes
    ----------
    party, run_id : str
    order : tuple of str
        All owners, in the order of their turns.
    terms : mapping of str to plain values
        What was agreed; the same at everybody's.
    broadcast : bool
    recipe : InPrivateAmongOwners
    make_owner : callable
        Makes the owner with its records, once all have agreed.
    is_secure : bool
        Whether the owner's random bits are.
    checkpoint : ChainCheckpoint
        The trees of earlier processes of this run, and where further ones are kept.
    calls : frozenset of str
        The others that this party connects to, and to which it sends its terms first.
    before_turn : callable
        Called before a tree is drawn; may refuse by raising.
    wait_s : float
        How long the greetings of all owners are waited for while they are looked after.
    """

    party: str
    run_id: str
    order: tuple[str, ...]
    terms: Mapping[str, JsonValue]
    broadcast: bool
    recipe: InPrivateAmongOwners
    make_owner: Callable[[], Owner]
    is_secure: bool
    checkpoint: ChainCheckpoint
    calls: frozenset[str]
    before_turn: Callable[[], None] = lambda: None
    wait_s: float = 0.0

    @property
    def n_turns(self) -> int:
        """Number of turns of all owners together."""
        return self.recipe.settings.n_rounds * len(self.order)

    @property
    def place(self) -> int:
        """Position of this party in the order."""
        return self.order.index(self.party)


def run_chain_owner(
    job: ChainJob,
    channels: Mapping[str, Channel],
    *,
    save: Callable[[SharedModel], None] = lambda model: None,
    progress: Progress = no_progress,
) -> SharedModel:
    """Run an owner's side of a chain, over a channel to every other owner.

    The model is saved once the others' digests of all trees were compared with this owner's. Whoever has said that it
    has the same trees is not met again; an owner that has every tree finishes without those that are gone, and serves
    them when it is started again.

    Raises
    ------
    ChainBroken
        If an owner is gone, or does not come.
    Disagreement
        If an owner has other terms. Nothing was released.
    TreesDiffer
        If an owner has other trees. The model was not saved.

    Notes
    -----
    Privacy: the outgoing messages hold this owner's trees, each stored before it is sent. A turn's tree is drawn
    once, and its records are in no other. The promise is the recipe's, to this owner's records, against all others.
    """
    with conversation(list(channels.values())) as phase:
        chain = _Chain(job, channels, phase, progress)
        try:
            chain.handshake()
            model = chain.run()
            chain.compare_trees()
            phase.enter("saving the model")
            save(model)
        except PeerRestarted:
            raise
        except PeerLost as error:
            raise ChainBroken(f"{error}, while this party was {phase.name}; the chain needs every owner") from None
        return model


class _Chain:
    """Protocol state of one owner; others that were done are met again where a tree was lost since."""

    def __init__(self, job: ChainJob, channels: Mapping[str, Channel], phase: Phase, progress: Progress) -> None:
        self._job = job
        self._phase = phase
        self._progress = progress
        self._turns = job.checkpoint.read(job.recipe, is_own=lambda turn: turn % len(job.order) == job.place)
        done = job.checkpoint.confirmed if self._has_every_tree else ()
        self._channels = {name: one for name, one in channels.items() if name not in done}
        self._held: dict[str, int] = {}
        self._owner: Owner

    def handshake(self) -> None:
        """Handshake: compare terms with every owner; all are sent this party's terms before it refuses."""
        job = self._job
        self._phase.enter("greeting")
        mine = TakeTurns(party=job.party, run_id=job.run_id, terms=dict(job.terms), n_held=len(self._turns))
        theirs: dict[str, TakeTurns] = {}
        first_word = partial(after_looks, kind=TakeTurns, mine=mine, callees=job.calls)
        for name in sorted(self._channels, key=lambda name: name not in job.calls):
            if name in job.calls:
                self._send(name, mine)
        deadline = time.monotonic() + job.wait_s
        for name in sorted(self._channels, key=lambda name: name in job.calls):
            while (one := self._channels.get(name)) and not one.is_ready() and time.monotonic() < deadline:
                self._look_around()
            if one and (said := self._meet(name, first_word)) is not None:
                theirs[name] = said
                if name not in job.calls:
                    self._send(name, mine)
        found = [sentence for name in sorted(theirs) for sentence in self._differences(name, theirs[name])]
        if found:
            raise Disagreement(f"the owners do not agree: {'; '.join(found)}. Nothing was released")
        self._held = {name: said.n_held for name, said in theirs.items()}

    def run(self) -> SharedModel:
        """Run all turns in order; those of earlier processes are taken from the checkpoint."""
        job, self._owner = self._job, self._job.make_owner()
        for turn in range(job.n_turns):
            name = job.order[turn % len(job.order)]
            if turn < len(self._turns):
                self._restore(name, self._turns[turn].tree)
            elif name == job.party:
                self._phase.enter(f"growing the tree of turn {turn + 1} of {job.n_turns}")
                self._keep(turn, self._own_turn())
            else:
                self._phase.enter(f"waiting for the tree of {name}, turn {turn + 1} of {job.n_turns}")
                self._keep(turn, self._receive(turn))
            self._send_due(turn)
            self._progress("turns", turn + 1, job.n_turns)
        return SharedModel(
            ensemble=job.recipe.ensemble([one.tree for one in self._turns]),
            guarantee=job.recipe.guarantee(is_secure=all(one.is_secure for one in self._turns)),
        )

    def compare_trees(self) -> None:
        """Compare digests of all trees with every owner; all are sent this owner's before it refuses."""
        checkpoint, mine = self._job.checkpoint, Done(trees=trees_digest(self._turns))
        self._phase.enter("comparing the trees with the others'")
        for channel in self._channels.values():
            # Whoever has ended may have said before which trees it has.
            with self._going_on():
                channel.send(mine)
        for name in sorted(self._channels):
            while not self._channels[name].is_ready():
                self._look_around()
            said = self._meet(name, lambda channel: expect(channel, Done))
            if said == mine:
                checkpoint.note_confirmed(name)
                self._channels[name].close()
            elif said is not None:
                checkpoint.note_differing(name)
        checkpoint.refuse_differing(self._job.party)

    @property
    def _has_every_tree(self) -> bool:
        return len(self._turns) == self._job.n_turns

    def _look_around(self) -> None:
        """Notice who is gone or begins again, between two looks at whoever is waited for."""
        for channel in self._channels.values():
            # Perhaps another owner is gone than the one that is looked at.
            with self._going_on():
                channel.check()
        time.sleep(TURN_POLL_S)

    def _send(self, name: str, message: Message) -> None:
        self._meet(name, lambda channel: channel.send(message))

    def _meet(self, name: str, step: Callable[[Channel], T]) -> T | None:
        """Do a step with an owner; one that is gone or errs is not met again."""
        with self._going_on():
            return step(self._channels[name])
        del self._channels[name]
        return None

    @contextmanager
    def _going_on(self) -> Iterator[None]:
        """Go on without an owner that is gone or errs if this one has every tree."""
        try:
            yield
        except PeerRestarted:
            raise
        except ProtocolError:
            if not self._has_every_tree:
                raise

    def _differences(self, name: str, said: TakeTurns) -> list[str]:
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

    def _restore(self, name: str, tree: Tree) -> None:
        if name == self._job.party:
            self._owner.take_back(tree)
        else:
            self._owner.receive(tree)

    def _own_turn(self) -> Turn:
        self._job.before_turn()
        return Turn(tree=self._owner.take_turn(self._job.recipe.epsilon), is_secure=self._job.is_secure)

    def _keep(self, turn: int, one: Turn) -> None:
        """Write a turn to the checkpoint before it is sent to anybody."""
        self._job.checkpoint.keep(turn, one)
        self._turns.append(one)

    def _receive(self, turn: int) -> Turn:
        """Receive the tree of another owner's turn, and update the residuals."""
        job = self._job
        sender = turn % len(job.order) if job.broadcast else job.place - 1
        channel = self._channels[job.order[sender]]
        while not channel.is_ready():
            self._look_around()
        message = expect(channel, PassTree)
        if message.turn != turn or message.epsilon != job.recipe.epsilon:
            raise UnexpectedMessage(
                f"{channel.peer} sent the tree of turn {message.turn + 1} with epsilon {message.epsilon:.6g} where "
                f"that of turn {turn + 1} with {job.recipe.epsilon:.6g} was due"
            )
        tree = received_tree(message, job.recipe)
        self._owner.receive(tree)
        return Turn(tree=tree, is_secure=message.is_secure)

    def _send_due(self, turn: int) -> None:
        """Send the trees that are due, except those that the receiver's checkpoint holds."""
        job = self._job
        due = due_after(turn, place=job.place, n_owners=len(job.order), n_turns=job.n_turns, broadcast=job.broadcast)
        for place, turns in due:
            name = job.order[place]
            for one in turns:
                if name in self._channels and one >= self._held[name]:
                    self._send(name, tree_message(one, self._turns[one], job.recipe.epsilon))
