"""Messages with a tree of a chain: it comes as it was sent, and one that is too large is refused before it is read."""

from __future__ import annotations

import numpy as np
import pytest

from opboost.errors import OpBoostError
from opboost.horizontal.inprivate.training import run_chain
from parties.horizontal.chain_checkpoint import Turn
from parties.horizontal.tree_messages import received_tree, tree_message
from protocols.errors import UnexpectedMessage
from protocols.messages.horizontal import PassTree
from protocols.transport.codec import decode, encode
from tests.support.chains import owner_of, recipe

OF = recipe(n_rounds=1)
TREES = run_chain([owner_of(OF, place) for place in range(3)], n_rounds=1, epsilon=OF.epsilon)


def message(turn: int = 0) -> PassTree:
    found = decode([bytes(frame) for frame in encode(tree_message(turn, Turn(tree=TREES[turn], is_secure=True), 2.0))])
    assert isinstance(found, PassTree)
    return found


@pytest.mark.parametrize("turn", range(3))
def test_a_tree_comes_as_it_was_sent(turn: int) -> None:
    found = received_tree(message(turn), OF)
    for name in ("columns", "thresholds", "missing_left", "lefts", "rights", "values"):
        np.testing.assert_array_equal(getattr(found, name), getattr(TREES[turn], name))
    assert (message(turn).turn, message(turn).is_secure) == (turn, True)


def test_a_tree_of_more_nodes_than_were_agreed_on_is_refused_by_its_size_alone() -> None:
    large = message().model_copy(update={"columns": np.zeros(8, "<i4")})
    with pytest.raises(UnexpectedMessage, match="8 nodes where at most 7 were agreed on"):
        received_tree(large, OF)


@pytest.mark.parametrize("change", [{"columns": np.full(7, 99, "<i4")}, {"values": np.full(7, 1e9)}])
def test_a_tree_that_no_owner_could_have_made_is_refused(change: dict[str, np.ndarray]) -> None:
    with pytest.raises(OpBoostError):
        received_tree(message().model_copy(update=change), OF)
