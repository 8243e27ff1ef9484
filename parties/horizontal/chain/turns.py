"""Chain training (InPrivate): owners grow trees in turn, and every tree is sent to all the others.

With `broadcast` an owner sends its tree to all others at once, and they bring their residuals up to date while they
wait for their turns. Without, trees go along the order from owner to owner, and each works through all that it lacks
when its turn has come. An owner may send or hand on other trees to some than to others, so at the end every two owners
compare digests of all trees, and keep no model where these differ.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from opboost.horizontal.inprivate.training import Owner
from opboost.trees.tree import Tree
from parties.errors import ChainBroken
from parties.horizontal.chain.checkpoint import Turn, trees_digest
from parties.horizontal.chain.job import ChainJob
from parties.horizontal.chain.other_owners import OtherOwners
from parties.horizontal.chain.tree_messages import received_tree
from parties.horizontal.coordinator import SharedModel
from parties.progress import Progress, no_progress
from parties.session.handshake import Phase, conversation
from protocols.errors import PeerLost, PeerRestarted, UnexpectedMessage
from protocols.transport.channel import Channel


def run_chain_owner(
    job: ChainJob,
    channels: Mapping[str, Channel],
    *,
    save: Callable[[SharedModel], None] = lambda model: None,
    progress: Progress = no_progress,
) -> SharedModel:
    """Run an owner's side of a chain, over a channel to every other owner.

    The model is saved once the others' digests of all trees were compared with this owner's. An owner that has every
    tree does not wait for those that have said before that they have the same; it finishes without those that are gone
    or do not greet it in time, and serves whoever comes while it is there, and again when it is started again. The
    first one that says that it has other trees ends the run.

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
        turns = job.checkpoint.read(job.recipe, is_own=lambda turn: turn % len(job.order) == job.place)
        others = OtherOwners(job, channels, phase, turns)
        try:
            others.greet()
            model = _Chain(job, others, phase, turns).run(progress)
            others.compare_trees()
            phase.enter("saving the model")
            save(model)
        except PeerRestarted:
            raise
        except PeerLost as error:
            raise ChainBroken(f"{error}, while this party was {phase.name}; the chain needs every owner") from None
        return model


class _Chain:
    """The turns of a chain as one owner takes part in them; `turns` are those that it has so far."""

    def __init__(self, job: ChainJob, others: OtherOwners, phase: Phase, turns: list[Turn]) -> None:
        self._job = job
        self._others = others
        self._phase = phase
        self._turns = turns
        self._owner: Owner = job.make_owner()

    def run(self, progress: Progress) -> SharedModel:
        """Run all turns in order; those of earlier processes are taken from the checkpoint."""
        job = self._job
        for turn in range(job.n_turns):
            name = job.order[turn % len(job.order)]
            if turn < len(self._turns):
                self._restore(name, self._turns[turn].tree)
            elif name == job.party:
                self._phase.enter(f"growing the tree of turn {turn + 1} of {job.n_turns}")
                self._keep(turn, self._own_turn(turn))
            else:
                self._phase.enter(f"waiting for the tree of {name}, turn {turn + 1} of {job.n_turns}")
                self._keep(turn, self._receive(turn))
            self._others.send_due(turn)
            progress("turns", turn + 1, job.n_turns)
        return SharedModel(
            ensemble=job.recipe.ensemble([turn.tree for turn in self._turns]),
            guarantee=job.recipe.guarantee(is_secure=all(turn.is_secure for turn in self._turns)),
        )

    def _restore(self, name: str, tree: Tree) -> None:
        if name == self._job.party:
            self._owner.take_back(tree)
        else:
            self._owner.receive(tree)

    def _own_turn(self, turn: int) -> Turn:
        self._job.before_turn(turn, trees_digest(self._turns))
        return Turn(tree=self._owner.take_turn(self._job.recipe.epsilon), is_secure=self._job.is_secure)

    def _keep(self, turn: int, finished: Turn) -> None:
        """Write a turn to the checkpoint before it is sent to anybody."""
        self._job.checkpoint.keep(turn, finished)
        self._turns.append(finished)

    def _receive(self, turn: int) -> Turn:
        """Receive the tree of another owner's turn, and update the residuals."""
        job = self._job
        sender = turn % len(job.order) if job.broadcast else job.place - 1
        name = job.order[sender]
        message = self._others.receive_tree(name)
        if message.turn != turn or message.epsilon != job.recipe.epsilon:
            raise UnexpectedMessage(
                f"{name} sent the tree of turn {message.turn + 1} with epsilon {message.epsilon:.6g} where "
                f"that of turn {turn + 1} with {job.recipe.epsilon:.6g} was due"
            )
        tree = received_tree(message, job.recipe, name)
        self._owner.receive(tree)
        return Turn(tree=tree, is_secure=message.is_secure)
