"""Messages with a tree of a chain: made, checked when they come, and to whom they go."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from opboost.errors import DataError, ModelFileError
from opboost.horizontal.inprivate.owners import InPrivateAmongOwners
from opboost.trees.tree import Tree
from parties.horizontal.chain.checkpoint import Turn
from protocols.errors import UnexpectedMessage
from protocols.messages.horizontal import PassTree


def tree_message(turn: int, finished: Turn, epsilon: float) -> PassTree:
    """Message with the tree of a turn."""
    tree = finished.tree
    return PassTree(
        turn=turn, epsilon=epsilon, is_secure=finished.is_secure,
        columns=tree.columns.astype("<i4"), thresholds=tree.thresholds.astype("<f8"), missing_left=tree.missing_left,
        lefts=tree.lefts.astype("<i4"), rights=tree.rights.astype("<i4"), values=tree.values.astype("<f8"),
    )  # fmt: skip


def received_tree(message: PassTree, recipe: InPrivateAmongOwners, sender: str) -> Tree:
    """Decode and check the tree of a message.

    Raises
    ------
    UnexpectedMessage
        If no owner could have made it by these settings. Its size is looked at before anything else.
    """
    n_nodes, most = len(message.columns), 2 ** (recipe.settings.max_depth + 1) - 1
    if n_nodes > most:
        raise UnexpectedMessage(f"{sender} sent a tree of {n_nodes} nodes where at most {most} were agreed on")
    zeros = np.zeros(n_nodes)
    try:
        return recipe.checked(Tree(
            columns=message.columns, thresholds=message.thresholds, missing_left=message.missing_left,
            lefts=message.lefts, rights=message.rights, values=message.values, gains=zeros, covers=zeros,
        ))  # fmt: skip
    except (DataError, ModelFileError) as error:
        raise UnexpectedMessage(f"{sender} sent a tree that no owner makes: {error}") from None


def due_after(turn: int, *, place: int, n_owners: int, n_turns: int, broadcast: bool) -> Iterator[tuple[int, range]]:
    """Routing of trees: the receivers, and the turns whose trees an owner sends them once it holds those up to `turn`.

    Parameters
    ----------
    turn, place, n_owners, n_turns : int
        Turns are those of all owners together, from 0 on; the place is the owner's in the order.
    broadcast : bool

    Yields
    ------
    receiver, turns : int, range
        Along the order every owner is sent what it lacks since its own last turn; after the last turn of all, the trees
        go on until everybody has them.
    """
    if broadcast:
        if turn % n_owners == place:
            yield from ((owner, range(turn, turn + 1)) for owner in range(n_owners) if owner != place)
        return
    step = turn if turn % n_owners == place else n_turns + place if turn == n_turns - 1 else None
    if step is not None and step <= n_turns + n_owners - 3:
        yield (place + 1) % n_owners, range(max(0, step - n_owners + 2), min(step + 1, n_turns))
