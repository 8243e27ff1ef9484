"""Messages with a tree of a chain: all owners get each as it was sent, and too large ones are refused unread."""

from __future__ import annotations

import numpy as np
import pytest

from opboost.horizontal.inprivate.training import messages_of_round, run_chain
from parties.horizontal.chain.checkpoint import Turn
from parties.horizontal.chain.tree_messages import due_after, received_tree, tree_message
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
    found = received_tree(message(turn), OF, "north")
    for name in ("columns", "thresholds", "missing_left", "lefts", "rights", "values"):
        np.testing.assert_array_equal(getattr(found, name), getattr(TREES[turn], name))
    assert (message(turn).turn, message(turn).is_secure) == (turn, True)


def test_a_tree_of_more_nodes_than_were_agreed_on_is_refused_by_its_size_alone() -> None:
    large = message().model_copy(update={"columns": np.zeros(8, "<i4")})
    with pytest.raises(UnexpectedMessage, match="north sent a tree of 8 nodes where at most 7 were agreed on"):
        received_tree(large, OF, "north")


@pytest.mark.parametrize(
    "change", [{"columns": np.full(7, 99, "<i4")}, {"values": np.full(7, 1e9)}, {"lefts": np.zeros(6, "<i4")}]
)
def test_a_tree_that_no_owner_could_have_made_is_refused(change: dict[str, np.ndarray]) -> None:
    with pytest.raises(UnexpectedMessage, match="north sent a tree that no owner makes: "):
        received_tree(message().model_copy(update=change), OF, "north")


@pytest.mark.parametrize("n_owners", [2, 3, 5])
@pytest.mark.parametrize("n_rounds", [1, 3])
@pytest.mark.parametrize("broadcast", [True, False])
def test_every_owner_is_sent_every_tree_of_the_others_once_and_in_time(
    n_owners: int, n_rounds: int, broadcast: bool
) -> None:
    n_turns = n_owners * n_rounds
    holds = [set(range(place, n_turns, n_owners)) for place in range(n_owners)]
    sent = [[] for _ in range(n_owners)]
    n_messages = 0
    for turn in range(n_turns):
        place = turn % n_owners
        assert set(range(turn)) <= holds[place] | {one for one in sent[place]}
        for receiver, turns in due_after(turn, place=place, n_owners=n_owners, n_turns=n_turns, broadcast=broadcast):
            assert all(one <= turn for one in turns)
            sent[receiver] += turns
            n_messages += 1
    if not broadcast:
        # Whoever has all now hands on what the next one lacks.
        for place in range(n_owners - 1):
            for receiver, turns in due_after(
                n_turns - 1, place=place, n_owners=n_owners, n_turns=n_turns, broadcast=False
            ):
                assert set(turns) <= holds[place] | set(sent[place])
                sent[receiver] += turns
    for place in range(n_owners):
        assert sorted(sent[place]) == sorted(set(range(n_turns)) - holds[place])
        if not broadcast:
            assert sent[place] == sorted(sent[place])
    if broadcast:
        # The paper counts what goes to later owners only; here the earlier ones are told too, for the next round.
        assert n_messages == 2 * messages_of_round(n_owners, broadcast=True)[0] * n_rounds
