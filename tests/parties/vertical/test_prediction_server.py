"""The passive party in prediction: refused records get no bits, and every record and bit that leaves is counted."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from opboost.desensitize import exact
from opboost.routing import PackedAnswers, Router, SplitTests
from parties.errors import OverBudget
from parties.session.session_log import Tally
from parties.vertical.prediction_server import AnswerableRecords, Answerer, answer_session, prediction_hello
from protocols.errors import UnexpectedMessage
from protocols.messages.prediction import Answers, Ask, RecordStatus
from protocols.messages.vertical import Done, Hello, Role, Task
from protocols.transport.channel import expect
from protocols.transport.memory import memory_pair
from tests.support.outcomes import outcomes_of
from tests.support.released_cells import IDS, mechanisms, table

ROUTER = Router(
    mechanisms()[:1], SplitTests((("spend", None), ("spend", None)), np.array([30.5, 60.5]), np.array([True, False]))
)
RECORDS = AnswerableRecords.of(ROUTER, IDS, table())


class Limits:
    """Takes three records and pays for two of those that are known."""

    n_asked = 0

    def take_records(self, n_rows: int) -> int:
        self.n_asked += n_rows
        return 3

    def take_bits(self, n_known: int, *, bits_each: int) -> int:
        return min(n_known, 2)


def answerer(**changes: Any) -> Answerer:
    def release(which: Any, columns: Any, ids: Any) -> list[Any]:
        return [exact(one, column) for one, column in zip(which, columns, strict=True)]

    return Answerer(ROUTER, RECORDS, **{"release": release, "may_route": True, **changes})


@pytest.mark.parametrize("desensitized", [False, True])
def test_known_records_are_answered_in_the_order_of_the_request(desensitized: bool) -> None:
    asked = (IDS[7], "unknown", IDS[3])
    found = answerer().answer(Ask(ids=asked, desensitized=desensitized))
    assert found.status.tolist() == [RecordStatus.ANSWERED, RecordStatus.UNKNOWN, RecordStatus.ANSWERED]
    coded = {m.schema.name: exact(m, column) for m, column in RECORDS.columns}
    bits = PackedAnswers(ROUTER).of(coded, len(IDS))
    np.testing.assert_array_equal(found.bits, [bits[7], np.zeros_like(bits[0]), bits[3]])


def test_exact_bits_that_may_not_leave_are_refused_for_known_and_unknown_records_alike() -> None:
    found = answerer(may_route=False).answer(Ask(ids=(IDS[1], "unknown"), desensitized=False))
    assert found.status.tolist() == [RecordStatus.REFUSED_ROUTED] * 2
    assert not found.bits.any()
    noised = answerer(may_route=False).answer(Ask(ids=(IDS[1],), desensitized=True))
    assert noised.status.tolist() == [RecordStatus.ANSWERED]


def test_records_beyond_a_limit_get_a_status_and_no_bits() -> None:
    asked = (*IDS[:3], "unknown", IDS[4])
    found = answerer(allowance=Limits()).answer(Ask(ids=asked, desensitized=False))
    assert found.status.tolist() == [
        RecordStatus.ANSWERED,
        RecordStatus.ANSWERED,
        RecordStatus.REFUSED_DAILY_LIMIT,
        RecordStatus.REFUSED_RATE_LIMIT,
        RecordStatus.REFUSED_RATE_LIMIT,
    ]
    assert not found.bits[2:].any()


class LookedUp:
    """The same records, and which were looked up."""

    def __init__(self) -> None:
        self.ids: list[str] = []

    def about(self, ids: Any) -> AnswerableRecords:
        self.ids.extend(ids)
        return RECORDS


@pytest.mark.parametrize("desensitized", [False, True])
def test_records_beyond_the_rate_limit_are_not_looked_up(desensitized: bool) -> None:
    """The time of the answer would tell of them. Those in a table in memory are not found in it either."""
    held, asked = LookedUp(), (IDS[2], "unknown", IDS[0], "other", IDS[4])
    limited = answerer(allowance=Limits(), trained=lambda ids: np.ones(len(ids), np.bool_))
    limited.records = held
    found = limited.answer(Ask(ids=asked, desensitized=desensitized))
    assert held.ids == list(asked[:3])
    known = RecordStatus.ANSWERED if desensitized else RecordStatus.REFUSED_TRAINING
    limit = RecordStatus.REFUSED_RATE_LIMIT
    assert found.status.tolist() == [known, RecordStatus.UNKNOWN, known, limit, limit]


def test_records_over_budget_are_refused_with_their_whole_request_where_that_is_noted() -> None:
    """In one status for known, unknown and further records; otherwise the error is raised."""
    asked = Ask(ids=(*IDS[:3], "unknown", IDS[4]), desensitized=True)
    error, noted = OverBudget("column 'spend' would have spent 2 of 1"), list[OverBudget]()

    def release(which: Any, columns: Any, ids: Any) -> list[Any]:
        raise error

    with pytest.raises(OverBudget):
        answerer(release=release).answer(asked)
    limits = Limits()
    found = answerer(release=release, allowance=limits, note_over_budget=noted.append).answer(asked)
    assert found.status.tolist() == [RecordStatus.REFUSED_BUDGET] * 5
    assert not found.bits.any()
    assert (noted, limits.n_asked) == ([error], 5)


def test_a_request_for_too_many_records_is_refused_as_a_whole() -> None:
    with pytest.raises(UnexpectedMessage, match="this party answers at most 2 per request"):
        answerer(max_rows=2).answer(Ask(ids=tuple(IDS[:3]), desensitized=True))


def test_a_conversation_is_counted_however_it_ends() -> None:
    here, there = memory_pair("shop", "bank")
    tally = Tally()

    def ask() -> None:
        expect(there, Hello)
        there.send(Hello(role=Role.ACTIVE, party="bank", run_id="r", task=Task.PREDICT, n_rows=0))
        for desensitized in (True, False):
            there.send(Ask(ids=(IDS[0], "unknown"), desensitized=desensitized))
            expect(there, Answers)
        there.send(Hello(role=Role.ACTIVE, party="bank", run_id="r", task=Task.PREDICT, n_rows=0))

    found = outcomes_of(
        {"bank": ask, "shop": lambda: answer_session(answerer(), here, prediction_hello("shop", "r"), tally=tally)}
    )
    assert found["bank"] is None
    assert "sent 'hello' where a request was due" in str(found["shop"])
    assert (tally.n_requests, tally.n_asked, tally.n_answered, tally.n_unknown) == (2, 4, 2, 2)
    assert (tally.n_routed_bits, tally.modes) == (2, {"desensitized", "routed"})


def test_a_request_that_ends_with_an_error_counts_as_refused() -> None:
    """Such as one that the budget does not allow, of which the log said that nothing was asked."""
    here, there = memory_pair("shop", "bank")
    tally = Tally()

    def ask() -> None:
        expect(there, Hello)
        there.send(Hello(role=Role.ACTIVE, party="bank", run_id="r", task=Task.PREDICT, n_rows=0))
        there.send(Ask(ids=tuple(IDS[:3]), desensitized=True))

    def release(*_: object) -> list[Any]:
        raise OverBudget("over budget. Nothing was released")

    refusing, hello = answerer(release=release), prediction_hello("shop", "r")
    found = outcomes_of({"bank": ask, "shop": lambda: answer_session(refusing, here, hello, tally=tally)})
    assert isinstance(found["shop"], OverBudget)
    assert (tally.n_requests, tally.n_asked, tally.n_answered, tally.n_unknown, tally.n_refused) == (1, 3, 0, 0, 3)
    assert (tally.n_routed_bits, tally.modes) == (0, {"desensitized"})


def test_answers_are_counted_before_they_leave() -> None:
    """A peer that is gone by then may have them nevertheless."""
    here, there = memory_pair("shop", "bank")
    tally, counted = Tally(), []
    here.traffic.on_send = lambda kind, frames: counted.append((kind, tally.n_answered))

    def ask() -> None:
        expect(there, Hello)
        there.send(Hello(role=Role.ACTIVE, party="bank", run_id="r", task=Task.PREDICT, n_rows=0))
        there.send(Ask(ids=tuple(IDS[:3]), desensitized=False))
        expect(there, Answers)
        there.send(Done())

    hello = prediction_hello("shop", "r")
    outcomes_of({"bank": ask, "shop": lambda: answer_session(answerer(), here, hello, tally=tally)})
    assert counted == [("hello", 0), ("answers", 3)]
