"""Owners that meet again after a stop: whatever each of them has and has noted, none waits for ever."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from itertools import chain as joined
from itertools import combinations, product
from pathlib import Path

import pytest

from parties.errors import Disagreement
from parties.horizontal.chain.checkpoint import ChainCheckpoint, trees_digest
from parties.horizontal.chain.turns import run_chain_owner
from parties.horizontal.coordinator import SharedModel
from parties.session.handshake import MAX_CHECKS
from protocols.errors import UnexpectedMessage
from protocols.messages.comparison import Compare
from protocols.messages.horizontal import TakeTurns
from protocols.messages.message import Message
from protocols.messages.vertical import Done
from tests.support.chains import ORDER, TERMS, Chain, recipe
from tests.support.recital import Recital

# Who drew the last tree, and whom each owner that has every tree has noted as having the same; the others lack it.
State = tuple[str, dict[str, tuple[str, ...]]]


def subsets(names: tuple[str, ...]) -> list[tuple[str, ...]]:
    return list(joined.from_iterable(combinations(names, n) for n in range(len(names) + 1)))


def states(names: tuple[str, ...]) -> Iterator[State]:
    """All that a stop can leave: whoever was noted has every tree, and so has the owner that drew the last one."""
    yield names[-1], {}
    for complete in subsets(names)[1:]:
        # Where all have it, it does not matter who drew it.
        for last in complete if len(complete) < len(names) else names[-1:]:
            others = [subsets(tuple(one for one in complete if one != name)) for name in complete]
            yield from ((last, dict(zip(complete, noted, strict=True))) for noted in product(*others))


@pytest.mark.parametrize("are_finished", [False, True])
@pytest.mark.parametrize(("names", "n_states"), [(ORDER[:2], 7), (ORDER, 92)])
def test_owners_meet_again_whatever_each_has_and_has_noted(
    tmp_path: Path, names: tuple[str, ...], n_states: int, are_finished: bool
) -> None:
    """Also where those that have noted all others had finished: then they serve all."""
    of, found = recipe(n_rounds=1), list(states(names))
    assert len(found) == n_states
    for k, (last, noted) in enumerate(found):
        order = (*(name for name in names if name != last), last)
        chain = Chain(tmp_path / f"{k}", "memory")
        finished = {name for name in noted if are_finished and len(noted[name]) == len(names) - 1}
        jobs = {name: chain.job(of, name, order=order, is_confirmed=name in finished) for name in names}
        kept = tmp_path / "-".join(order)
        if not kept.exists():
            chain.run(jobs)
            shutil.copytree(chain.root, kept)
        shutil.rmtree(chain.root)
        shutil.copytree(kept, chain.root)
        for name in names:
            lay_out(chain, name, noted.get(name), n_turns=len(names))
        ends = chain.run(jobs)
        assert all(isinstance(ends[name], SharedModel) for name in names), (last, noted, ends)
        for name in names:
            # Whoever has every tree and has noted one that has not noted it may leave before that one comes.
            early = {one for one in noted if name in noted[one]} - finished
            assert ChainCheckpoint(chain.folder(name)).confirmed >= set(names) - {name} - early, (last, noted)


def lay_out(chain: Chain, name: str, noted: tuple[str, ...] | None, *, n_turns: int) -> None:
    """Leave an owner's folder with every tree and whom it has noted, or without the last tree."""
    folder = chain.folder(name)
    if noted is None:
        for one in (folder.path / "turns").glob(f"{n_turns - 1:04}.*"):
            one.unlink()
    folder.write_json("confirmed.json", {"names": list(noted or ()), "differing": []})


class Latecomer(Recital):
    """Comes when another owner was told the digest, which goes on once this one has heard it, too."""

    def __init__(self, peer: str, script: list[Message], other: Waiting) -> None:
        super().__init__(peer, script)
        self._other = other

    def has_come(self) -> bool:
        return "done" in [message.kind for message in self._other.heard]

    def is_ready(self) -> bool:
        return self.has_come() and bool(self._script)


class Waiting(Recital):
    """Says nothing after its greeting before another owner has heard a digest, as one that needs its tree."""

    late: Recital

    def is_ready(self) -> bool:
        return len(self._script) == 2 or "done" in [message.kind for message in self.late.heard]


def greeting(name: str, *, n_held: int, **changes: object) -> TakeTurns:
    return TakeTurns(party=name, run_id="spring", terms=TERMS, n_held=n_held).model_copy(update=changes)


@pytest.mark.parametrize("is_noted", [True, False])
def test_whoever_comes_after_the_others_have_greeted_hears_what_it_lacks_and_the_digest(
    tmp_path: Path, is_noted: bool
) -> None:
    """Those that have all trees, and need nothing of it or have given it up, kept silent until they ended."""
    chain, of = Chain(tmp_path, "memory"), recipe(n_rounds=1)
    chain.run({name: chain.job(of, name) for name in ORDER})
    checkpoint = ChainCheckpoint(chain.folder("w0"))
    chain.folder("w0").write_json("confirmed.json", {"names": ["w1"] if is_noted else [], "differing": []})
    same = Done(trees=trees_digest(checkpoint.read(of, is_own=bool)))
    one = Waiting("w2", [greeting("w2", n_held=3), same])
    late = one.late = Latecomer("w1", [greeting("w1", n_held=0), same], one)
    run_chain_owner(chain.job(of, "w0", wait_s=0.05), {"w1": late, "w2": one})
    assert [message.kind for message in late.heard] == ["take turns", "pass tree", "done"]
    assert late.heard[-1] == one.heard[-1] == same
    assert checkpoint.confirmed == {"w1", "w2"}


def test_a_latecomer_that_does_not_agree_ends_the_run_as_one_that_comes_first(tmp_path: Path) -> None:
    chain, of = Chain(tmp_path, "memory"), recipe(n_rounds=1)
    chain.run({name: chain.job(of, name) for name in ORDER})
    one = Waiting("w2", [greeting("w2", n_held=3), Done()])
    late = one.late = Latecomer("w1", [greeting("w1", n_held=3, run_id="autumn")], one)
    chain.folder("w0").write_json("confirmed.json", {"names": ["w1"], "differing": []})
    with pytest.raises(Disagreement, match="the run of w1 is 'autumn', this party's is 'spring'"):
        run_chain_owner(chain.job(of, "w0"), {"w1": late, "w2": one})


def test_an_owner_that_breaks_the_protocol_is_told_so_by_those_that_go_on_without_it(tmp_path: Path) -> None:
    chain, of = Chain(tmp_path, "memory"), recipe(n_rounds=1)
    chain.run({name: chain.job(of, name) for name in ORDER})
    (chain.folder("w0").path / "confirmed.json").unlink()
    same = Done(trees=trees_digest(ChainCheckpoint(chain.folder("w0")).read(of, is_own=bool)))
    others = {"w1": Recital("w1", [same]), "w2": Recital("w2", [greeting("w2", n_held=3), same])}
    run_chain_owner(chain.job(of, "w0"), others)
    assert others["w1"].aborts == ["w1 sent 'done' where 'take turns' was due"]
    assert others["w2"].aborts == []


def test_a_doctor_that_looks_without_end_is_left_and_one_that_looks_once_is_answered(tmp_path: Path) -> None:
    chain, of = Chain(tmp_path, "memory"), recipe(n_rounds=1)
    job, look = chain.job(of, "w2"), Compare(party="w0", run_id="spring", terms={})
    others = {"w0": Recital("w0", [look] * MAX_CHECKS), "w1": Recital("w1", [greeting("w1", n_held=0)])}
    with pytest.raises(UnexpectedMessage, match="w0 only looked, 8 times; nothing was sent"):
        run_chain_owner(job, others)
    others = {name: Recital(name, [greeting(name, n_held=9)]) for name in ORDER[:2]}
    others["w0"] = Recital("w0", [look, greeting("w0", n_held=9)])
    with pytest.raises(Disagreement, match="w0 says that it holds 9 turns of 3"):
        run_chain_owner(job, others)
    assert [message.kind for message in others["w0"].heard] == ["compare", "take turns", "abort"]
