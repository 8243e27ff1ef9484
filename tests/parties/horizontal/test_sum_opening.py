"""Opening of a sum: over one set of workers alone, and wrong confirmations keep no honest worker from it."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from parties.horizontal.round_journal import RoundJournal
from parties.horizontal.sum_opening import SumOpening
from parties.horizontal.worker_group import WorkerGroup
from protocols.errors import PeerAborted, TooFewWorkers
from protocols.messages.message import Message
from protocols.secure_aggregation.epochs import majority_threshold
from protocols.transport.channel import Channel
from tests.support.workers import N_TREES, Meddling, Run, job, meddling, recipe

ALL = ("w0", "w1", "w2")


@pytest.fixture
def memory(tmp_path: Path) -> Run:
    return Run(tmp_path, "memory")


def test_a_set_that_too_few_can_have_opened_is_given_up_and_who_gave_shares_is_asked_over_no_other() -> None:
    journal = RoundJournal()
    opening = SumOpening(journal, 0)
    opening.note_asked(["w0", "w1"], ["w0", "w1"])
    assert opening.before == {"w0", "w1"}
    opening.note_kept_back(["w0"], threshold=2)
    again = SumOpening(journal, 0)
    assert again.before == set()
    assert again.free(ALL, ALL) == ["w0", "w2"]
    assert again.free(["w0", "w1"], ["w1", "w0"]) == ["w0", "w1"]
    assert SumOpening(journal, 1).free(ALL, ALL) == list(ALL)


def test_who_was_asked_and_did_not_answer_keeps_the_set_and_a_later_word_frees_nobody() -> None:
    """A coordinator that was killed, and one that waits in vain, do not know who gave shares."""
    journal = RoundJournal()
    SumOpening(journal, 0).note_asked(["w0", "w1"], ["w0", "w1"])
    killed = SumOpening(journal, 0)
    killed.note_asked(["w0", "w1"], ["w0", "w1"])
    killed.note_kept_back(["w0", "w1"], threshold=2)
    assert SumOpening(journal, 0).before == {"w0", "w1"}
    assert SumOpening(journal, 0).free(ALL, ALL) == ["w2"]


def test_who_is_not_known_to_have_been_asked_may_have_been() -> None:
    """As in the journal of an earlier version, or of a coordinator that was killed between two notes."""
    journal = RoundJournal()
    journal.note_survivors(0, ["w0", "w1"])
    opening = SumOpening(journal, 0)
    opening.note_asked(["w0", "w1"], ["w0", "w1"])
    opening.note_kept_back(["w0", "w1"], threshold=2)
    assert SumOpening(journal, 0).before == {"w0", "w1"}
    assert SumOpening(journal, 0).free(ALL, ALL) == ["w2"]


def test_those_who_wait_with_a_stuck_sum_are_looked_after() -> None:
    """They heard nothing, gave the coordinator up, and one that was started again was not let in."""
    looks: Counter[str] = Counter()

    class Silent:
        def __init__(self, peer: str) -> None:
            self.peer = peer

        def is_ready(self) -> bool:
            looks[self.peer] += 1
            return False

    channels: Any = [Silent(name) for name in ALL]
    group = WorkerGroup(channels=channels, run_id="r", terms={}, threshold=3, wait_s=0.2, patience_s=1.0)
    for worker in group._connections.all.values():
        worker.is_in = group._is_stuck = True
    with pytest.raises(TooFewWorkers, match="cannot be opened over the workers that are there"):
        group._complete()
    assert min(looks[name] for name in ALL) > 1


def sets_opened(draw: random.Random, *, are_workers_strict: bool = True) -> set[frozenset[str]]:
    """Over whom one sum is opened in rounds with any answers, and a coordinator that may be killed after each."""
    names, journal, opened = ("w0", "w1", "w2", "w3"), RoundJournal(), set[frozenset[str]]()
    gave: dict[str, frozenset[str]] = {}
    for _ in range(12):
        some = draw.sample(names, draw.randint(2, 4))
        threshold, opening = majority_threshold(2, len(some)), SumOpening(journal, 0)
        asked = opening.free(some, some)
        if opening.before not in (frozenset(), frozenset(some)) or len(asked) < threshold:
            continue
        opening.note_asked(asked, some)
        fates = {name: draw.choice(("gives", "keeps back", "gives too late")) for name in asked}
        for name in (name for name, fate in fates.items() if fate != "keeps back"):
            is_same = gave.setdefault(name, frozenset(some)) == frozenset(some)
            assert is_same or not are_workers_strict
        if list(fates.values()).count("gives") >= threshold:
            opened.add(frozenset(some))
        elif draw.random() < 0.7:
            opening.note_kept_back([u for u, fate in fates.items() if fate == "keeps back"], threshold=threshold)
    return opened


def test_no_sum_is_opened_over_two_sets_whatever_workers_say_and_whenever_the_coordinator_is_killed() -> None:
    draw = random.Random(0)
    found = [len(sets_opened(draw)) for _ in range(300)]
    assert set(found) == {0, 1}


def test_a_coordinator_that_forgets_who_was_asked_opens_one_over_two(monkeypatch: pytest.MonkeyPatch) -> None:
    """The twin, of workers that would not keep to one set themselves."""
    monkeypatch.setattr(SumOpening, "before", frozenset())
    monkeypatch.setattr(SumOpening, "free", lambda self, names, survivors: list(names))
    draw = random.Random(0)
    assert max(len(sets_opened(draw, are_workers_strict=False)) for _ in range(300)) > 1


class Always(Meddling):
    """A channel that does something before every message of one kind."""

    def send(self, message: Message) -> None:
        self._left = 0
        super().send(message)


def wrong_to(*readers: int) -> Callable[[Channel], Any]:
    def spoil(message: Message) -> Message:
        rows = message.rows.copy()
        rows[list(readers), 0] ^= 1
        return message.model_copy(update={"rows": rows})

    return lambda channel: Always(channel, "confirmed", spoil)


def test_wrong_confirmations_where_only_a_threshold_is_left_end_nobody_and_the_sum_waits_for_a_third(
    memory: Run,
) -> None:
    """Of w0 and w1, who lies, there is no sum; w2, which was late, comes back, and both find w1's word wrong."""
    of = recipe()
    memory.start_hub(of, patience_s=1.5)

    memory.start_worker(job(of, 0))
    memory.start_worker(job(of, 1), through=wrong_to(0, 2))
    memory.start_worker(job(of, 2), through=meddling("masked", memory.late(3.0)))
    found = memory.join()
    assert len(found["hub"].ensemble.trees) == len(found["w0"]) == len(found["w2"]) == N_TREES
    assert "its confirmations to w0, w2 are wrong" in str(found["w1"])
    events = [event for event, _ in memory.events]
    assert events == ["dropped out", "wrong confirmation", "returned", "dropped out"]
    assert "w2 did not answer" in memory.events[0][1]
    assert "w1's confirmation to w0 is wrong, as w0 says" in memory.events[1][1]
    assert "w1 does not keep to the protocol" in memory.events[3][1]


def test_where_all_are_needed_the_run_ends_with_the_name_of_who_lies_and_goes_on_when_it_does_so_no_more(
    tmp_path: Path,
) -> None:
    """The honest ones are told that too few are there, as they were if it had left; no set is kept."""
    of, journal = recipe(), RoundJournal()
    first = Run(tmp_path, "memory")
    first.start_hub(of, threshold=3, journal=journal)
    notes: dict[int, list[Any]] = {place: [] for place in range(3)}
    drawn: dict[int, list[bytes]] = {place: [] for place in range(3)}
    for place in range(3):
        a_job = job(of, place, threshold=3, note_answer=notes[place].append, note_drawing=drawn[place].append)
        first.start_worker(a_job, through=wrong_to(0, 2) if place == 1 else lambda channel: channel)
    found = first.join()
    assert isinstance(found["hub"], TooFewWorkers)
    assert "w1's confirmation to w0 is wrong, as w0 says, w1's confirmation to w2 is wrong" in str(found["hub"])
    assert all(isinstance(found[name], PeerAborted) for name in ("w0", "w2"))
    assert [event for event, _ in first.events] == ["wrong confirmation"] * 2
    assert journal.survivors(0) == set()
    assert set(journal.bound(0)) == {"w1"}
    # Shares were given by w1 alone.
    assert [notes[place][-1].survivors for place in range(3)] == [(), ALL, ()]

    second = Run(tmp_path, "memory")
    second.start_hub(of, threshold=3, journal=journal)
    for place in range(3):
        settings = {"answered": notes[place][-1], "drawing": drawn[place][-1], "n_drawings": 1}
        second.start_worker(job(of, place, threshold=3, **settings))
    assert len(second.join()["hub"].ensemble.trees) == N_TREES
