"""Order of queries: who was refused by a budget is asked apart from the others, and never twice before them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from parties.errors import Unavailable
from parties.service.waiting_queries import MOST_REMEMBERED, REMEMBERED_S, ScoreQuery, WaitingQueries


def untimed(most: int = 100) -> WaitingQueries:
    """Whose messages take no time: those of usual queries all come first."""
    return WaitingQueries(most, clock=lambda: 0.0)


def query(name: str, caller: str = "one", *, explains: bool = False) -> ScoreQuery:
    return ScoreQuery((name,), {}, explains, caller)


def names(queries: Sequence[ScoreQuery]) -> str:
    return " ".join(one.ids[0] for one in queries)


def asked(waiting: WaitingQueries, is_refused: Callable[[ScoreQuery], bool]) -> list[str]:
    """The messages until nothing waits, where one query over budget has all of its message refused."""
    messages = []
    while batch := waiting.take(0):
        messages.append(names(batch))
        waiting.note(batch, batch if any(map(is_refused, batch)) else [])
    return messages


def put(waiting: WaitingQueries, *queries: ScoreQuery) -> None:
    for one in queries:
        waiting.put(one)


def is_bad(one: ScoreQuery) -> bool:
    return one.ids[0].startswith("bad")


def refused_alone(waiting: WaitingQueries, name: str, caller: str) -> None:
    put(waiting, query(name, caller))
    assert asked(waiting, is_bad) == [name]


def test_of_a_refused_message_of_one_caller_each_query_is_asked_for_alone() -> None:
    waiting = untimed()
    put(waiting, *(query(name) for name in ("a", "b", "bad", "d")))
    assert asked(waiting, is_bad) == ["a b bad d", "a", "b", "bad", "d"]
    put(waiting, *(query(name) for name in ("a", "b", "bad", "d")))
    assert asked(waiting, is_bad) == ["a b d", "bad"]


def test_a_query_that_was_refused_is_asked_for_alone_when_it_comes_again_and_the_others_before_it() -> None:
    waiting = untimed()
    refused_alone(waiting, "bad", "one")
    put(waiting, query("bad", "one"), query("a", "two"), query("b", "three"))
    assert asked(waiting, is_bad) == ["a b", "bad"]


def test_what_a_caller_over_budget_asks_for_besides_is_not_held_against_others_who_ask_for_it() -> None:
    """A batch job and an application score the same customers; or a caller asks for those of others on purpose."""
    waiting = untimed()
    put(waiting, query("a", "one"), query("bad", "one"), query("b", "one"))
    waiting.note(batch := waiting.take(0), batch)
    put(waiting, query("a", "two"), query("b", "three"), query("c", "three"))
    assert asked(waiting, is_bad) == ["a b c", "a", "bad", "b"]


def test_a_query_that_is_given_up_while_it_is_suspected_poisons_no_other_message_when_it_comes_again() -> None:
    """Callers wait less long than it takes to find the one over budget, and ask again."""
    waiting = untimed()
    first = [query(name) for name in ("a", "b", "bad", "d")]
    put(waiting, *first)
    waiting.note(batch := waiting.take(0), batch)
    for one in first:
        one.scored.cancel()
    put(waiting, query("e"), query("bad"), query("f"), query("a"))
    assert asked(waiting, is_bad) == ["e f", "bad", "a"]


def test_a_caller_that_was_refused_shares_no_message_with_other_callers() -> None:
    """Also where it asks for other records each time."""
    waiting = untimed()
    for number in range(3):
        refused_alone(waiting, f"bad{number}", "one")
        put(waiting, query("a", "two"), query(f"bad{number + 1}", "one"), query("b", "three"), query("c", "one"))
        assert "a b" in asked(waiting, is_bad)


def test_of_a_refused_message_about_several_callers_each_half_is_asked_for_until_one_is_found() -> None:
    waiting = untimed()
    put(waiting, *(query(name, name) for name in ("a", "b", "c", "bad")), query("a2", "a"))
    assert asked(waiting, is_bad) == ["a b c bad a2", "a b a2", "c bad", "c", "bad"]
    put(waiting, *(query(name, name[:3]) for name in ("a", "b", "c", "bad2", "d", "bad3")))
    assert asked(waiting, is_bad) == ["a b c d", "bad2 bad3", "bad2", "bad3"]


def test_a_caller_that_gives_up_while_it_is_suspected_is_found_by_what_it_asks_for_next() -> None:
    now, messages = [0.0], list[str]()
    waiting = WaitingQueries(100, clock=lambda: now[0])
    for number in range(12):
        last = [query(f"{name}{number}", name) for name in ("a", "b", "c", "bad")]
        put(waiting, *last)
        batch = waiting.take(0)
        messages.append(names(batch))
        now[0] += 1
        waiting.note(batch, batch if any(map(is_bad, batch)) else [])
        for one in last:
            one.scored.cancel()
    assert messages[0] == "a0 b0 c0 bad0"
    assert len([one for one in messages[1:] if "bad" in one and " " in one]) == 1
    assert messages[6::2] == [f"bad{number}" for number in (6, 8, 10)]
    assert messages[7::2] == [f"a{number} b{number} c{number}" for number in (7, 9, 11)]


def test_no_caller_waits_for_all_that_another_one_over_budget_asks_for() -> None:
    """Queries are given up after 2 s and asked for again; each message takes 0.25 s."""
    now, answered_at = [0.0], dict.fromkeys(["a", "b", "c", "d"], 0.0)
    waiting = WaitingQueries(100, clock=lambda: now[0])
    given_up_at = dict[ScoreQuery, float]()

    def ask(name: str, caller: str) -> None:
        one = query(name, caller)
        given_up_at[one] = now[0] + 2
        waiting.put(one)

    for number in range(30):
        ask(f"bad{number}", "bad")
    for caller in answered_at:
        ask(caller, caller)
    while now[0] < 60:
        batch = waiting.take(0)
        now[0] += 0.25
        again = waiting.note(batch, batch if any(map(is_bad, batch)) else [])
        for one in set(batch) - set(again):
            del given_up_at[one]
            if not is_bad(one):
                assert now[0] - answered_at[one.caller] < 5
                answered_at[one.caller] = now[0]
            ask(one.ids[0], one.caller)
        for one in [one for one, at in given_up_at.items() if at <= now[0]]:
            one.scored.cancel()
            del given_up_at[one]
            ask(one.ids[0], one.caller)
    assert min(answered_at.values()) > 55


def test_a_caller_that_was_refused_waits_for_one_message_of_another_one_and_has_places_of_its_own() -> None:
    waiting = untimed(3)
    for caller in ("one", "two"):
        refused_alone(waiting, f"bad {caller}", caller)
    put(waiting, *(query(f"bad{number}", "one") for number in range(3)), query("a", "two"), query("b", "two"))
    with pytest.raises(Unavailable, match="3 requests wait already"):
        waiting.put(query("bad3", "one"))
    assert asked(waiting, is_bad) == ["bad0 bad1 bad2", "a b", "bad0", "bad1", "bad2"]


@pytest.mark.parametrize(("usual_s", "refused_s"), [(0.45, 0.1), (0.05, 0.45), (0.2, 0.2)])
def test_while_others_wait_messages_about_those_refused_lately_take_half_of_the_time(
    usual_s: float, refused_s: float
) -> None:
    now, taken_s = [0.0], {True: 0.0, False: 0.0}
    waiting = WaitingQueries(10_000, clock=lambda: now[0])
    for caller in ("one", "two"):
        refused_alone(waiting, f"bad {caller}", caller)
    for number in range(400):
        put(waiting, query("bad one", "one"), query(f"a{number}", "one"), query(f"b{number}", "two"))
        put(waiting, query(f"d{number}", "three"))
        batch = waiting.take(0)
        is_usual = {one.caller for one in batch} == {"three"}
        took_s = usual_s if is_usual else refused_s
        taken_s[is_usual] += took_s
        now[0] += took_s
        waiting.note(batch, batch if any(map(is_bad, batch)) else [])
    assert taken_s[True] == pytest.approx(taken_s[False], abs=2 * max(usual_s, refused_s))


def test_those_refused_lately_go_on_where_nobody_else_waits() -> None:
    now = [0.0]
    waiting = WaitingQueries(1000, clock=lambda: now[0])
    refused_alone(waiting, "bad", "one")
    for number in range(5):
        put(waiting, query(f"a{number}", "one"))
        batch = waiting.take(0)
        now[0] += 10
        waiting.note(batch, [])
        assert names(batch) == f"a{number}"
    # It is not held against them when others come.
    put(waiting, query("c", "two"), query("d", "one"))
    assert names(waiting.take(0)) == "c"
    now[0] += 1
    waiting.note([query("c", "two")], [])
    put(waiting, query("e", "two"))
    assert names(waiting.take(0)) == "d"


def test_queries_with_reasons_are_asked_for_in_messages_of_their_own() -> None:
    waiting = untimed()
    put(waiting, query("a"), query("b", explains=True), query("c"), query("d", explains=True))
    assert asked(waiting, is_bad) == ["a c", "b d"]


def test_what_was_answered_or_refused_long_ago_is_as_any_other() -> None:
    now = [0.0]
    waiting = WaitingQueries(100, clock=lambda: now[0])
    refused_alone(waiting, "bad", "one")
    now[0] = REMEMBERED_S
    put(waiting, query("bad", "one"), query("a", "two"))
    assert names(waiting.take(0)) == "bad a"
    refused_alone(waiting, "bad", "one")
    put(waiting, query("bad", "one"))
    waiting.note(waiting.take(0), [])
    now[0] *= 2
    put(waiting, query("bad", "one"), query("a", "two"))
    assert names(waiting.take(0)) == "bad a"


def test_what_is_remembered_and_what_waits_is_bounded() -> None:
    waiting = untimed(2)
    for number in range(MOST_REMEMBERED):
        refused_alone(waiting, f"bad{number}", "one")
    assert len(waiting._refused) == MOST_REMEMBERED
    given_up, *others = query("bad4000"), query("bad4001"), query("bad4002")
    put(waiting, given_up, others[0])
    with pytest.raises(Unavailable, match="2 requests wait already"):
        waiting.put(query("bad4003"))
    # The others have places of their own.
    put(waiting, query("a", "two"), query("b", "two"))
    with pytest.raises(Unavailable, match="2 requests wait already"):
        waiting.put(query("c", "two"))
    given_up.scored.cancel()
    waiting.put(others[1])
    assert names(waiting.take_all()) == "bad4001 a b bad4002"
    assert not waiting


def test_a_query_that_was_given_up_gets_neither_scores_nor_an_error() -> None:
    for end in (lambda one: one.answer(((), ())), lambda one: one.refuse("shop is away")):
        gone, there = query("a"), query("b")
        assert gone.scored.cancel()
        for one in (gone, there):
            end(one)
        assert gone.scored.cancelled()
        assert there.scored.done()
