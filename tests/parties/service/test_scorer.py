"""One conversation for all requests: what waits is asked for together, and nothing waits in vain."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from opboost.arrays import Values
from parties.errors import Unavailable
from parties.service.scorer import Scorer
from parties.service.waiting_queries import MOST_CHARACTERS, ScoreQuery
from parties.vertical.prediction_client import Session, Statuses
from protocols.errors import PeerLost
from protocols.messages.prediction import RecordStatus
from protocols.transport.channel import Channel

WAIT_S = 10


class Peer:
    """A passive party that is there or not, as the scorer sees it."""

    def __init__(self, peer: str) -> None:
        self.peer = peer
        self.is_there = threading.Event()

    def is_ready(self) -> bool:
        return self.is_there.is_set()


class Talk:
    """A conversation whose answers are the records' own column, given when `may_answer` is set."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, ...]] = []
        self.may_answer = threading.Event()
        self.may_answer.set()
        self.is_broken = threading.Event()
        self.breaks_before: tuple[str, ...] = ()
        self.over_budget: set[str] = set()
        self.on_asked: Callable[[Sequence[str]], object] = len

    def predict(self, ids: Sequence[str], own: dict[str, Values], **_: Any) -> tuple[Values, Statuses]:
        self.asked.append(tuple(ids))
        assert self.may_answer.wait(WAIT_S)
        self.on_asked(ids)
        if self.asked[-1] == self.breaks_before:
            self.is_broken.set()
        self.check()
        refused = RecordStatus.REFUSED_BUDGET if self.over_budget & set(ids) else RecordStatus.ANSWERED
        return own["x"], np.full(len(ids), refused, np.uint8)

    def check(self) -> None:
        if self.is_broken.is_set():
            self.is_broken.clear()
            raise PeerLost("shop closed the connection")


class Service:
    def __init__(self, **settings: Any) -> None:
        self.peers = [Peer("shop"), Peer("post")]
        self.talk = Talk()
        self.n_begun = 0
        self.batches: list[int] = []
        given = {"desensitized": False, "patience_s": 0.3, "max_waiting": 100, **settings}
        self.scorer = Scorer(self._connect, on_batch=self.batches.append, **given)

    @contextmanager
    def _connect(self, wait: Callable[[Sequence[Channel]], bool]) -> Iterator[Session | None]:
        if not wait(self.peers):  # type: ignore[arg-type]
            yield None
            return
        self.n_begun += 1
        yield self.talk  # type: ignore[misc]

    def come(self) -> None:
        for peer in self.peers:
            peer.is_there.set()
        until(lambda: not self.scorer.refusal)


@pytest.fixture
def service(request: pytest.FixtureRequest) -> Iterator[Service]:
    found = Service(**getattr(request, "param", {}))
    found.scorer.start()
    yield found
    found.talk.may_answer.set()
    found.scorer.stop()
    assert not found.scorer.is_alive


def until(holds: Callable[[], object]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def query(*numbers: float) -> ScoreQuery:
    return ScoreQuery(tuple(f"k{number:g}" for number in numbers), {"x": np.array(numbers, np.float64)})


def scores(found: ScoreQuery) -> list[float]:
    values: list[float] = found.scored.result(WAIT_S)[0].tolist()
    return values


def asked_together(service: Service, first: ScoreQuery, *waiting: ScoreQuery) -> tuple[ScoreQuery, ...]:
    """Have requests wait until the first one, which is asked for alone, may be answered; returns all of them."""
    service.come()
    service.talk.may_answer.clear()
    service.scorer.submit(first)
    until(lambda: service.talk.asked)
    for one in waiting:
        service.scorer.submit(one)
    service.talk.may_answer.set()
    return first, *waiting


def test_requests_that_wait_are_asked_for_in_one_message_and_each_gets_its_own_scores(service: Service) -> None:
    first, *waiting = asked_together(service, query(1, 2), query(3), query(4, 5, 6), query(7))
    assert [scores(one) for one in (first, *waiting)] == [[1, 2], [3], [4, 5, 6], [7]]
    assert service.talk.asked == [("k1", "k2"), ("k3", "k4", "k5", "k6", "k7")]
    until(lambda: service.batches == [2, 5])


def test_a_request_over_budget_does_not_keep_scores_from_those_that_are_asked_for_with_it(service: Service) -> None:
    service.talk.over_budget = {"k4"}
    first, *waiting = asked_together(service, query(1), query(2, 3), query(4, 5), query(6))
    ok, refused = RecordStatus.ANSWERED, RecordStatus.REFUSED_BUDGET
    found = [one.scored.result(WAIT_S)[1].tolist() for one in (first, *waiting)]
    assert found == [[ok], [ok, ok], [refused, refused], [ok]]
    assert scores(waiting[0]) == [2, 3]
    assert service.talk.asked == [("k1",), ("k2", "k3", "k4", "k5", "k6"), ("k2", "k3"), ("k4", "k5"), ("k6",)]
    assert service.n_begun == 1


def test_a_request_that_was_given_up_while_its_message_was_refused_is_not_asked_for_again(service: Service) -> None:
    service.talk.over_budget = {"k4"}
    waiting = [query(2, 3), query(4, 5), query(6)]
    service.talk.on_asked = lambda ids: len(ids) == 5 and waiting[0].scored.cancel()
    asked_together(service, query(1), *waiting)
    assert [scores(one) for one in waiting[1:]] == [[4, 5], [6]]
    assert service.talk.asked == [("k1",), ("k2", "k3", "k4", "k5", "k6"), ("k4", "k5"), ("k6",)]


def test_long_ids_do_not_make_a_message_that_no_passive_party_reads(service: Service) -> None:
    long = [ScoreQuery((f"{i}" * (MOST_CHARACTERS // 2),), {"x": np.array([1.0 * i])}) for i in range(1, 6)]
    asked_together(service, query(0), *long)
    assert [scores(one) for one in long] == [[i] for i in range(1, 6)]
    assert [len(ids) for ids in service.talk.asked] == [1, 2, 2, 1]


def test_a_request_that_was_given_up_before_its_turn_is_not_asked_for(service: Service) -> None:
    service.come()
    service.talk.may_answer.clear()
    first, gone, last = query(1), query(2), query(3)
    service.scorer.submit(first)
    until(lambda: service.talk.asked)
    service.scorer.submit(gone)
    service.scorer.submit(last)
    assert gone.scored.cancel()
    service.talk.may_answer.set()
    assert scores(last) == [3]
    assert service.talk.asked == [("k1",), ("k3",)]


def test_nothing_waits_while_a_passive_party_is_away(service: Service) -> None:
    until(lambda: service.scorer.refusal == "waiting for shop, post")
    service.peers[0].is_there.set()
    until(lambda: service.scorer.refusal == "waiting for post")
    with pytest.raises(Unavailable, match="waiting for post"):
        service.scorer.submit(query(1))
    service.come()
    found = query(1)
    service.scorer.submit(found)
    assert scores(found) == [1]


def test_an_answer_that_is_overdue_opens_the_circuit_and_closes_it_when_it_comes(service: Service) -> None:
    service.come()
    service.talk.may_answer.clear()
    late = query(1)
    service.scorer.submit(late)
    until(lambda: service.scorer.refusal == "a passive party has not answered for more than 0.3 s")
    with pytest.raises(Unavailable, match="has not answered"):
        service.scorer.submit(query(2))
    service.talk.may_answer.set()
    assert scores(late) == [1]
    until(lambda: not service.scorer.refusal)


def test_what_waits_when_a_conversation_breaks_is_refused_and_another_is_begun(service: Service) -> None:
    service.come()
    service.talk.may_answer.clear()
    asked, waiting = query(1), query(2)
    service.scorer.submit(asked)
    until(lambda: service.talk.asked)
    service.scorer.submit(waiting)
    service.talk.is_broken.set()
    service.talk.may_answer.set()
    for one in (asked, waiting):
        with pytest.raises(Unavailable):
            one.scored.result(WAIT_S)
    until(lambda: service.n_begun == 2 and not service.scorer.refusal)
    # While nothing is asked, the connections are looked after, too.
    service.talk.is_broken.set()
    until(lambda: service.n_begun == 3 and not service.scorer.refusal)
    found = query(3)
    service.scorer.submit(found)
    assert scores(found) == [3]


def test_a_request_with_reasons_is_refused_with_those_without_that_were_asked_before_it(service: Service) -> None:
    """They wait together, and are asked for one after the other."""
    service.come()
    service.talk.may_answer.clear()
    first, plain = query(1), query(2)
    explained = ScoreQuery(("k3",), {"x": np.array([3.0])}, explains=True)
    service.scorer.submit(first)
    until(lambda: service.talk.asked)
    service.scorer.submit(plain)
    service.scorer.submit(explained)
    service.talk.breaks_before = ("k2",)
    service.talk.may_answer.set()
    assert scores(first) == [1]
    for one, why in ((plain, "a passive party did not answer"), (explained, "broke and is made again")):
        with pytest.raises(Unavailable, match=why):
            one.scored.result(WAIT_S)
    assert service.talk.asked == [("k1",), ("k2",)]


@pytest.mark.parametrize("service", [{"max_waiting": 2, "patience_s": 60}], indirect=True)
def test_more_requests_than_may_wait_are_refused(service: Service) -> None:
    service.come()
    service.talk.may_answer.clear()
    taken = [query(1)]
    service.scorer.submit(taken[0])
    until(lambda: service.talk.asked)
    for number in (2, 3):
        taken.append(query(number))
        service.scorer.submit(taken[-1])
    with pytest.raises(Unavailable, match="2 requests wait already"):
        service.scorer.submit(query(4))
    service.talk.may_answer.set()
    assert [scores(one) for one in taken] == [[1], [2], [3]]


def test_a_service_that_stops_refuses_what_waits(service: Service) -> None:
    service.come()
    service.scorer.stop()
    assert not service.scorer.is_alive
    with pytest.raises(Unavailable):
        service.scorer.submit(query(1))


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_defect_ends_the_scorer_and_is_told(service: Service) -> None:
    service.come()
    broken = ScoreQuery(("k1",), {"y": np.zeros(1)})
    service.scorer.submit(broken)
    with pytest.raises(Unavailable):
        broken.scored.result(WAIT_S)
    until(lambda: not service.scorer.is_alive)
    assert service.scorer.refusal == "the scorer has stopped with KeyError"


def test_scores_of_a_batch_are_set_in_one_call_of_whoever_delivers_them() -> None:
    """The event loop is woken once for a batch, not once for a request."""
    found, calls = Service(), list[Callable[[], None]]()
    found.scorer.start(calls.append)
    found.come()
    asked = query(1, 2)
    found.scorer.submit(asked)
    until(lambda: calls)
    assert not asked.scored.done()
    calls[0]()
    assert scores(asked) == [1.0, 2.0]
    found.scorer.stop()
