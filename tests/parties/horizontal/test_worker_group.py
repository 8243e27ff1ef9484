"""Worker group: how many workers a run has, and what those who come back are told."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest

from parties.errors import Disagreement, RunFolderError
from parties.horizontal.round_journal import RoundJournal
from parties.horizontal.worker_connections import MAX_RETURNS
from parties.horizontal.worker_group import WorkerGroup
from protocols.errors import TooFewWorkers
from protocols.messages.horizontal import Join, StartTree, WantTotals
from protocols.messages.vertical import Done
from protocols.secure_aggregation.epochs import MAX_WORKERS
from protocols.secure_aggregation.masking import OwnKey
from protocols.transport.memory import MemoryChannel, memory_pair


def group(n_workers: int, **changes: Any) -> tuple[WorkerGroup, list[MemoryChannel]]:
    pairs = [memory_pair("hub", f"w{i}") for i in range(n_workers)]
    settings: dict[str, Any] = {"run_id": "spring", "terms": {}, "threshold": 2, "wait_s": 0.05, "patience_s": 0.05}
    return WorkerGroup(channels=[near for near, _ in pairs], **{**settings, **changes}), [far for _, far in pairs]


def joining(name: str, key: bytes | None = None) -> Join:
    settings: dict[str, Any] = {"run_id": "spring", "terms": {}, "commitment": bytes(32), "answered": 0}
    return Join(party=name, key=key or OwnKey().public, is_secure=True, **settings)


@pytest.mark.parametrize("n_workers", [0, 1, MAX_WORKERS + 1])
def test_a_run_has_at_least_two_workers_and_at_most_as_many_as_a_sum(n_workers: int) -> None:
    with pytest.raises(Disagreement, match=f"a run has 2 to {MAX_WORKERS} workers; found {n_workers}"):
        group(n_workers)


def test_a_worker_that_comes_later_is_told_what_the_others_were() -> None:
    seen: list[tuple[str, int, int]] = []
    made, far = group(2, n_trees=3, progress=lambda *step: seen.append(step))
    first, second = made._connections.all.values()
    first.is_in = True
    made.tell(StartTree(output=0))
    assert far[0].receive() == StartTree(output=0)
    assert not far[1].is_ready()
    second.is_in = True
    made.tell(StartTree(output=1))
    assert [far[1].receive() for _ in range(2)] == [StartTree(output=0), StartTree(output=1)]
    assert seen == [("training steps", 0, 3), ("training steps", 1, 3)]


def test_without_enough_workers_there_is_no_sum() -> None:
    made, _ = group(3)
    with pytest.raises(Exception, match="are there"):
        made.total(4)
    assert made.n_rounds == 0


def test_the_end_is_told_to_those_who_are_there_and_a_silent_one_is_not_waited_for() -> None:
    made, far = group(2)
    for worker in made._connections.all.values():
        worker.is_in = True
    far[0].send(Done())
    assert made.finish() == ["w1"]
    assert made.journal.done == {"w0"}
    assert [channel.receive() for channel in far] == [Done(), Done()]
    assert [worker.is_over for worker in made._connections.all.values()] == [True, False]


def test_one_worker_with_seeded_bits_makes_the_run_insecure() -> None:
    made, _ = group(2)
    assert made.is_secure
    made._connections.all["w1"].is_secure = False
    assert not made.is_secure


def test_sums_that_are_known_are_not_asked_for_and_those_of_other_questions_refused() -> None:
    journal = RoundJournal()
    journal.note_sum(0, np.arange(4))
    made, far = group(2, journal=journal)
    for worker in made._connections.all.values():
        worker.is_in = True
    made.want(WantTotals(nodes=np.zeros(1, "<i4")))
    assert made.total(4).tolist() == [0, 1, 2, 3]
    assert [channel.receive().kind for channel in far] == ["want totals"] * 2
    assert not any(channel.is_ready() for channel in far)
    journal.note_sum(1, np.arange(3))
    with pytest.raises(RunFolderError, match="has sums of other questions"):
        made.total(4)


def test_a_sum_that_may_have_been_opened_waits_for_the_workers_that_were_in_it() -> None:
    journal = RoundJournal()
    journal.note_survivors(0, ["w0", "w2", "w3"])
    made, _ = group(4, journal=journal)
    for name in ("w0", "w1", "w2"):
        made._connections.all[name].is_in = True
    words = "w3 is lacking where a sum may have been opened over w0, w2, w3 before: it is opened over no other workers"
    with pytest.raises(TooFewWorkers, match=words):
        made.total(4)


@pytest.mark.parametrize("is_bound", [True, False])
def test_where_too_many_were_expelled_for_a_sum_nobody_is_waited_for(is_bound: bool) -> None:
    journal = RoundJournal()
    made, _ = group(4, journal=journal, wait_s=60.0, threshold=2 if is_bound else 4)
    if is_bound:
        journal.note_survivors(0, ["w0", "w1", "w2"])
    for worker in made._connections.all.values():
        worker.is_in = True
    made._connections.expel(made._connections.all["w2"], "it sent nonsense")
    words = "w2 is lacking where a sum may have been opened over w0, w1, w2" if is_bound else "3 of 4 workers are there"
    begun = time.monotonic()
    with pytest.raises(TooFewWorkers, match=words):
        made.total(4)
    assert time.monotonic() - begun < 30


def test_a_worker_that_was_expelled_before_it_joined_is_not_waited_for() -> None:
    made, far = group(3)
    made._connections.expel(made._connections.all["w2"], "it sent nonsense")
    for number in range(2):
        far[number].send(joining(f"w{number}"))
    begun = time.monotonic()
    assert set(made._admission._joined(60.0)) == {"w0", "w1"}
    assert time.monotonic() - begun < 30


def test_those_who_wait_for_another_worker_are_looked_after() -> None:
    """One that was started again meanwhile is let in, and told what it has missed."""
    journal = RoundJournal()
    journal.note_survivors(0, ["w0", "w1", "w2"])
    made, far = group(4, journal=journal, wait_s=0.5)
    for name in ("w0", "w1", "w3"):
        made._connections.all[name].is_in = True
    made.tell(StartTree(output=0))
    for number in (1, 3):
        assert far[number].receive() == StartTree(output=0)
        far[number].send(joining(f"w{number}"))
    with pytest.raises(TooFewWorkers, match="w2 is lacking"):
        made.total(4)
    for number in (1, 3):
        assert [far[number].receive().kind for _ in range(2)] == ["welcome", "start tree"]


def test_a_worker_that_joins_and_is_gone_before_it_is_answered_ends_nothing() -> None:
    made, far = group(2)
    far[1].send(joining("w1"))
    far[1].close()
    made._readmit()
    assert not made._connections.all["w1"].is_in


def test_a_worker_that_comes_back_with_the_key_of_another_one_ends_its_own_part_alone() -> None:
    made, far = group(3)
    for number in range(2):
        far[number].send(joining(f"w{number}"))
    made._readmit()
    far[2].send(joining("w2", made._connections.all["w0"].key))
    made._readmit()
    assert [worker.is_in for worker in made._connections.all.values()] == [True, True, False]
    assert made._connections.all["w2"].is_over


def test_a_worker_that_comes_back_without_end_is_expelled_and_the_others_get_their_sum() -> None:
    made, far = group(2)
    bad = made._connections.all["w1"]
    anew = joining("w1")
    for number in range(2 * MAX_RETURNS):
        if not bad.is_over:
            bad.is_in = number % 2 == 1
            far[1].send(anew)
            if bad.is_in:
                made._ignore_or_expel(bad, bad.channel.receive())
            made._readmit()
            assert bad.is_over or bad.is_in
    assert bad.is_over
    assert not bad.is_in
    assert not made._connections.awaited()


def test_a_worker_that_comes_back_more_than_once_for_every_sum_is_expelled() -> None:
    """Each return may be followed by `patience` in which nothing comes."""
    journal = RoundJournal()
    made, _ = group(2, journal=journal)
    once, often = made._connections.all.values()
    for number in range(4 * MAX_RETURNS):
        journal.note_sum(number, np.zeros(1, np.int64))
        for worker in (once, often, often)[: 2 if often.is_over else 3]:
            made._let_in(worker.name)
        made.total(1)
    assert often.is_over
    assert once.is_in


def test_only_the_questions_about_the_trees_that_are_grown_are_told_again() -> None:
    made, far = group(2)
    for number in range(2):
        made.tell(StartTree(output=0))
        made.want(WantTotals(nodes=np.array([number], "<i4")))
    made._connections.all["w1"].is_in = True
    made._let_in("w1")
    assert [far[1].receive().kind for _ in range(3)] == ["start tree", "start tree", "want totals"]
    assert not far[1].is_ready()
