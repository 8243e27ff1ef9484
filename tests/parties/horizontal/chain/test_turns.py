"""Owners in a chain on small tables, over memory and over CURVE: the trees of a simulation, and what goes wrong."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from opboost.horizontal.inprivate.owners import InPrivateAmongOwners
from opboost.horizontal.inprivate.training import run_chain
from parties.errors import ChainBroken, Disagreement, OverBudget, TreesDiffer
from parties.horizontal.chain.checkpoint import ChainCheckpoint, trees_digest
from parties.horizontal.chain.turns import run_chain_owner
from protocols.errors import PeerAborted, PeerLost, UnexpectedMessage
from protocols.messages.horizontal import PassTree, TakeTurns
from protocols.messages.message import Message
from protocols.messages.vertical import Abort, Done
from protocols.transport.channel import Timing
from tests.support.chains import ORDER, TERMS, Chain, Change, owner_of, recipe, splitting
from tests.support.recital import Recital

TREE_ARRAYS = {
    "columns": "<i4",
    "thresholds": "<f8",
    "missing_left": "|b1",
    "lefts": "<i4",
    "rights": "<i4",
    "values": "<f8",
}


def simulated(of: InPrivateAmongOwners) -> list[list[float]]:
    owners = [owner_of(of, place) for place in range(3)]
    return leaves(of.ensemble(run_chain(owners, n_rounds=of.settings.n_rounds, epsilon=of.epsilon)))


def leaves(ensemble: Any) -> list[list[float]]:
    return [[*tree.thresholds.tolist(), *tree.values.tolist()] for tree in ensemble.trees]


@pytest.fixture(params=["memory", "curve"])
def chain(request: pytest.FixtureRequest, tmp_path: Path) -> Chain:
    return Chain(tmp_path, request.param)


@pytest.fixture
def memory(tmp_path: Path) -> Chain:
    return Chain(tmp_path, "memory")


@pytest.mark.parametrize("broadcast", [True, False])
def test_all_owners_end_with_the_trees_of_a_simulated_chain(chain: Chain, broadcast: bool) -> None:
    of = recipe()
    found = chain.run({name: chain.job(of, name, broadcast=broadcast) for name in ORDER})
    for name in ORDER:
        assert leaves(found[name].ensemble) == simulated(of), found
    promise = found["w0"].guarantee
    assert promise.epsilon <= 2.0
    assert not promise.is_secure


def test_numbers_are_predicted_as_in_a_simulation(memory: Chain) -> None:
    of = recipe(is_classification=False)
    found = memory.run({name: memory.job(of, name) for name in ORDER})
    assert leaves(found["w2"].ensemble) == simulated(of)


def test_an_interrupted_chain_goes_on_without_drawing_a_tree_twice(chain: Chain) -> None:
    of = recipe(n_rounds=3)

    def refuse() -> None:
        raise OverBudget("the account is full")

    first = simulated(recipe(n_rounds=3))
    n_drawn = [0]

    def once(turn: int, trees: str) -> None:
        n_drawn[0] += 1
        if n_drawn[0] == 2:
            refuse()

    jobs = {name: chain.job(of, name) for name in ORDER}
    found = chain.run({**jobs, "w1": replace(jobs["w1"], before_turn=once)})
    assert isinstance(found["w1"], OverBudget)
    assert all(isinstance(found[name], (PeerAborted, ChainBroken)) for name in ("w0", "w2")), found
    held = {name: ChainCheckpoint(chain.folder(name)).read(of, is_own=lambda turn: True) for name in ORDER}
    assert {len(turns) for turns in held.values()} <= {3, 4}

    counts = dict.fromkeys(ORDER, 0)

    def count(name: str) -> Callable[[int, str], None]:
        def add(turn: int, trees: str) -> None:
            counts[name] += 1

        return add

    found = chain.run({name: chain.job(of, name, before_turn=count(name)) for name in ORDER})
    models = [leaves(found[name].ensemble) for name in ORDER]
    assert models[0] == models[1] == models[2]
    assert models[0][:4] == first[:4]
    assert len(models[0]) == 9
    # The first process of w0 took two turns, those of the others one.
    assert counts == {"w0": 1, "w1": 2, "w2": 2}


def test_a_lost_run_folder_is_noticed_before_a_second_tree_is_drawn(memory: Chain) -> None:
    of = recipe(n_rounds=1)
    assert len(memory.run({name: memory.job(of, name) for name in ORDER})) == 3
    (memory.root / "run-w0").rename(memory.root / "away")
    # Who has heard that w0 has every tree does not meet it again.
    for name in ("w1", "w2"):
        (memory.root / f"run-{name}" / "confirmed.json").unlink()
    found = memory.run({name: memory.job(of, name) for name in ORDER})
    assert isinstance(found["w0"], Disagreement)
    assert "missing from this party's run folder; a second one is not drawn" in str(found["w0"])


def test_an_owner_that_has_lost_anothers_tree_asks_those_again_that_had_said_that_they_are_done(memory: Chain) -> None:
    of = recipe()
    before = memory.run({name: memory.job(of, name) for name in ORDER})["w0"]
    for kept in (memory.root / "run-w0" / "turns").glob("0005.*"):
        kept.unlink()
    for name in ("w1", "w2"):
        (memory.root / f"run-{name}" / "confirmed.json").unlink()
    after = memory.run({name: memory.job(of, name) for name in ORDER})["w0"]
    assert leaves(after.ensemble) == leaves(before.ensemble)


def test_an_owner_that_has_every_tree_is_done_whatever_another_one_says_at_the_end(memory: Chain) -> None:
    of = recipe()
    before = memory.run({name: memory.job(of, name) for name in ORDER})["w0"]
    (memory.root / "run-w0" / "confirmed.json").unlink()
    has_all = [TakeTurns(party=name, run_id="spring", terms=TERMS, n_held=6) for name in ORDER[1:]]
    last = Abort(phase="saving the model", reason="its disk is full"), has_all[0]
    others = {said.party: Recital(said.party, [said, word]) for said, word in zip(has_all, last, strict=True)}
    after = run_chain_owner(memory.job(of, "w0"), others)
    assert [tree.values.tolist() for tree in after.ensemble.trees] == [
        tree.values.tolist() for tree in before.ensemble.trees
    ]
    assert not (memory.root / "run-w0" / "confirmed.json").exists()


# Who splits the others, by whose trees, to whom; trees are handed on without `broadcast` only.
LIARS = [("w2", "w2", "w0", True), ("w0", "w0", "w2", True), ("w1", "w0", "w2", False)]


def is_split(found: dict[str, Any], *honest: str) -> bool:
    """Whether two owners have said of each other that their trees differ."""
    one, other = honest
    said = {name: f"the trees of {peer} are not those of {name}: " for name, peer in ((one, other), (other, one))}
    return all(isinstance(found[name], TreesDiffer) and str(found[name]).startswith(said[name]) for name in honest)


@pytest.mark.parametrize(("liar", "whose", "victim", "broadcast"), LIARS)
def test_owners_who_were_sent_different_trees_both_end_with_the_name_of_the_other(
    chain: Chain, liar: str, whose: str, victim: str, broadcast: bool
) -> None:
    """The liar says to everyone that it has the same trees."""
    of = recipe()
    through = {liar: splitting(victim, whose, ChainCheckpoint(chain.folder(liar)), of)}
    jobs = {name: chain.job(of, name, broadcast=broadcast) for name in ORDER}
    found = chain.run(jobs, through)
    honest = [name for name in ORDER if name != liar]
    assert is_split(found, *honest), found
    checkpoints = {name: ChainCheckpoint(chain.folder(name)) for name in honest}
    assert [one.differing for one in checkpoints.values()] == [{honest[1]}, {honest[0]}]
    assert "What was released stays released and paid for" in str(found[victim])
    # Begun again, they find so again, also where the liar is connected and does not say a word.
    for name in honest:
        (chain.folder(name).path / "confirmed.json").unlink()
    assert is_split(chain.run({name: replace(jobs[name], wait_s=2.0) for name in honest}), *honest)


@pytest.mark.parametrize(("liar", "whose", "victim", "broadcast"), LIARS)
def test_an_owner_that_leaves_before_the_end_does_not_keep_the_others_from_comparing(
    chain: Chain, liar: str, whose: str, victim: str, broadcast: bool
) -> None:
    of = recipe()
    split = splitting(victim, whose, ChainCheckpoint(chain.folder(liar)), of)

    def leave(peer: str, message: Message) -> Message:
        if isinstance(message, Done):
            raise OverBudget("no reason")
        return split(peer, message)

    def delay(peer: str, message: Message) -> Message:
        if isinstance(message, Done):
            time.sleep(0.3)
        return message

    honest = [name for name in ORDER if name != liar]
    jobs = {name: chain.job(of, name, broadcast=broadcast) for name in ORDER}
    # The one that listens for both others waits while it knows that one of them is gone.
    found = chain.run(jobs, {liar: leave, honest[0]: delay})
    assert is_split(found, *honest), found


def reciting(**words: Done) -> dict[str, Recital]:
    """The other owners of w0, which have all trees and say at the end what they are given; the others do not come."""
    greetings = {name: TakeTurns(party=name, run_id="spring", terms=TERMS, n_held=6) for name in ORDER[1:]}
    return {name: Recital(name, [greetings[name], words[name]] if name in words else []) for name in ORDER[1:]}


def test_trees_are_compared_with_those_of_an_owner_that_has_ended_meanwhile(memory: Chain) -> None:
    """It was stopped while this one was about to say the same."""
    of = recipe()
    memory.run({name: memory.job(of, name) for name in ORDER})
    (memory.root / "run-w0" / "confirmed.json").unlink()

    class Ended(Recital):
        def send(self, message: Message) -> None:
            if isinstance(message, Done):
                raise PeerLost(f"{self.peer} closed the channel")
            super().send(message)

    said = TakeTurns(party="w1", run_id="spring", terms=TERMS, n_held=6), Done(trees="0" * 64)
    with pytest.raises(TreesDiffer, match="the trees of w1 are not those of w0: "):
        run_chain_owner(memory.job(of, "w0"), {"w1": Ended("w1", said), "w2": Recital("w2", [])})


@pytest.mark.parametrize("other", [Done(), Done(trees="0" * 64)])
def test_all_hear_the_digest_before_an_owner_refuses_and_a_difference_is_remembered(memory: Chain, other: Done) -> None:
    of, saved = recipe(), []
    before = memory.run({name: memory.job(of, name) for name in ORDER})["w0"]
    (memory.root / "run-w0" / "confirmed.json").unlink()
    job, checkpoint = memory.job(of, "w0"), ChainCheckpoint(memory.folder("w0"))
    same = Done(trees=trees_digest(checkpoint.read(of, is_own=bool)))
    others = reciting(w1=other, w2=same)
    with pytest.raises(TreesDiffer, match="the trees of w1 are not those of w0: ") as refusal:
        run_chain_owner(job, others, save=saved.append)
    for one in others.values():
        assert [message.kind for message in one.heard] == ["take turns", "done", "abort"]
        assert (one.heard[1], one.aborts) == (same, [str(refusal.value)])
    # What the other one says does not change that, and is not waited for.
    assert (checkpoint.confirmed, checkpoint.differing) == (frozenset(), {"w1"})
    with pytest.raises(TreesDiffer, match="the trees of w1 are not those of w0: "):
        run_chain_owner(job, reciting(), save=saved.append)
    assert saved == []
    after = run_chain_owner(job, reciting(w1=same, w2=same), save=saved.append)
    assert leaves(after.ensemble) == leaves(before.ensemble)
    assert saved == [after]
    assert (checkpoint.confirmed, checkpoint.differing) == ({"w1", "w2"}, frozenset())


class Withholding(Recital):
    """Says nothing after its greeting, and stays."""

    def is_ready(self) -> bool:
        return bool(self._script)


@pytest.mark.parametrize("name", ["w1", "w2"])
def test_a_model_is_withdrawn_before_a_difference_is_noted_and_no_other_digest_is_waited_for(
    memory: Chain, name: str
) -> None:
    """Whoever is killed meanwhile does not take the other one's trees for the same when it is started again."""
    of, noted = recipe(), list[tuple[frozenset[str], frozenset[str]]]()
    memory.run({one: memory.job(of, one) for one in ORDER})
    checkpoint = ChainCheckpoint(memory.folder("w0"))
    memory.folder("w0").write_json("confirmed.json", {"names": [name], "differing": []})
    job = memory.job(of, "w0", withdraw=lambda: noted.append((checkpoint.confirmed, checkpoint.differing)))
    others = reciting(**{name: Done(trees="0" * 64)})
    (silent,) = set(ORDER) - {"w0", name}
    others[silent] = Withholding(silent, [TakeTurns(party=silent, run_id="spring", terms=TERMS, n_held=6)])
    with pytest.raises(TreesDiffer, match=f"the trees of {name} are not those of w0: "):
        run_chain_owner(job, others)
    assert (noted, checkpoint.differing) == ([(frozenset(), frozenset())], {name})
    assert [message.kind for message in others[silent].heard] == ["take turns", "done", "abort"]


def test_another_order_is_told_on_both_sides_and_nothing_is_trained(chain: Chain) -> None:
    of = recipe()
    other = {**TERMS, "order": ["w0", "w2", "w1"]}
    jobs = {name: chain.job(of, name) for name in ORDER}
    found = chain.run({**jobs, "w1": replace(jobs["w1"], order=("w0", "w2", "w1"), terms=other)})
    assert isinstance(found["w1"], Disagreement)
    # Both others differ from it; whichever it heard first is named.
    words = "has ['w0', 'w1', 'w2'], this party ['w0', 'w2', 'w1']"
    assert any(f"order: {name} {words}" in str(found["w1"]) for name in ("w0", "w2"))
    assert any("order: w1 has ['w0', 'w2', 'w1']" in str(found[name]) for name in ("w0", "w2"))
    assert not any(ChainCheckpoint(chain.folder(name)).count for name in ORDER)


@pytest.mark.parametrize("n_held", [7, 30_000_000, 2**32 - 1])
def test_an_owner_that_claims_more_turns_than_there_are_is_refused_at_once(memory: Chain, n_held: int) -> None:
    """Every turn that another owner claims to hold is looked for in this party's folder."""
    of = recipe()
    others = {
        name: Recital(name, [TakeTurns(party=name, run_id="spring", terms=TERMS, n_held=n_held)]) for name in ORDER[1:]
    }
    began = time.process_time()
    with pytest.raises(Disagreement, match=f"w1 says that it holds {n_held} turns of 6"):
        run_chain_owner(memory.job(of, "w0"), others)
    assert time.process_time() - began < 1


def change(**update: Any) -> Change:
    return lambda peer, message: message.model_copy(update=update) if isinstance(message, PassTree) else message


@pytest.mark.parametrize(
    ("update", "words"),
    [
        ({"turn": 1}, "sent the tree of turn 2"),
        ({"epsilon": 0.5}, "with epsilon 0.5 where"),
        ({"values": np.full(7, 9.0)}, "does not fit the columns, the grid or the settings"),
        (
            {
                "columns": np.array([3, -1, -1], "<i4"),
                "thresholds": np.zeros(3),
                "missing_left": np.zeros(3, bool),
                "lefts": np.array([1, 0, 0], "<i4"),
                "rights": np.array([2, 0, 0], "<i4"),
                "values": np.zeros(3),
            },
            "does not fit the columns",
        ),
        ({"thresholds": np.full(7, 15.0)}, "does not fit the columns"),
        ({"thresholds": np.full(7, 0.5)}, "does not fit the columns"),
        ({"lefts": np.zeros(7, "<i4")}, "children must come after"),
        ({name: np.zeros(100_000, dtype) for name, dtype in TREE_ARRAYS.items()}, "100000 nodes where at most 7"),
    ],
)
def test_a_tree_that_was_not_agreed_on_ends_the_run(memory: Chain, update: dict[str, Any], words: str) -> None:
    of = recipe()
    found = memory.run({name: memory.job(of, name) for name in ORDER}, {"w0": change(**update)})
    assert any(words in str(found[name]) for name in ("w1", "w2")), found
    assert not isinstance(found["w0"], UnexpectedMessage)


@pytest.mark.parametrize("n_held", [7, 2**32 - 1])
def test_an_owner_that_holds_more_trees_than_there_are_is_refused_at_once(tmp_path: Path, n_held: int) -> None:
    chain, of = Chain(tmp_path, "memory"), recipe(n_rounds=2)
    said = {name: TakeTurns(party=name, run_id="spring", terms=TERMS, n_held=n_held) for name in ("w1", "w2")}
    channels = {name: Recital(name, [message]) for name, message in said.items()}
    with pytest.raises(Disagreement, match=f"w1 says that it holds {n_held} turns of 6"):
        run_chain_owner(chain.job(of, "w0"), channels)


def test_an_owner_that_does_not_come_is_named(tmp_path: Path) -> None:
    chain, of = Chain(tmp_path, "curve"), recipe()
    chain.timing = Timing(timeout_s=3, wait_s=1)
    found = chain.run({name: chain.job(of, name) for name in ("w1", "w2")})
    assert any(
        "w0 did not connect" in str(one) and "while this party was greeting" in str(one) for one in found.values()
    )
