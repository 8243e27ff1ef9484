"""Inputs of an owner to a chain training run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from pydantic import JsonValue

from opboost.horizontal.inprivate.owners import InPrivateAmongOwners
from opboost.horizontal.inprivate.training import Owner
from parties.horizontal.chain.checkpoint import ChainCheckpoint


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
        Called with a turn of this owner and a digest of the trees before it, before its tree is drawn; may refuse by
        raising.
    withdraw : callable
        Called before it is noted that an owner has other trees; removes what an earlier process kept of the model.
    wait_s : float
        How long the greetings of all owners are waited for while they are looked after.
    is_confirmed : bool
        Whether an earlier process finished the run, and all owners had said that they have the same trees. Then it was
        started again for those that still need this one, and waits for all of them.
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
    before_turn: Callable[[int, str], None] = lambda turn, trees: None
    withdraw: Callable[[], None] = lambda: None
    wait_s: float = 0.0
    is_confirmed: bool = False

    @property
    def n_turns(self) -> int:
        """Number of turns of all owners together."""
        return self.recipe.settings.n_rounds * len(self.order)

    @property
    def place(self) -> int:
        """Position of this party in the order."""
        return self.order.index(self.party)
