"""A peer that breaks the sequence, lies about ranks or leaves: both sides end, and both know why."""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from opboost import rng
from opboost.errors import ParameterError
from opboost.routing import Router, SplitTests
from opboost.trees.boosting import BoostingParameters, RoundReport
from parties.errors import Disagreement
from parties.progress import no_progress
from parties.session import heartbeats
from parties.session.handshake import greet
from parties.session.termination import NO_REASON
from parties.vertical import party_a, party_b
from parties.vertical.party_a import train_jointly
from parties.vertical.simulation import serve
from protocols.alignment.id_proof import password_of
from protocols.errors import PeerAborted, PeerLost, UnexpectedMessage
from protocols.messages.message import Message
from protocols.messages.vertical import (
    Abort,
    Done,
    Hello,
    Offer,
    OfferedColumn,
    RankChunk,
    Role,
    SplitRanks,
    Task,
    Thresholds,
)
from protocols.transport.channel import Channel, expect
from tests.support.promises import promise_of

Together = Callable[..., dict[str, Any]]

N_ROWS = 300
SHOP = Hello(role=Role.PASSIVE, party="shop", run_id="spring", task=Task.TRAIN, n_rows=N_ROWS, names=("c0", "c1"))


# As of the trial's parties.
IDS = password_of("d")

DIGEST = hashlib.sha256((np.arange(N_ROWS) % 3).astype(np.uint8)).hexdigest()


def offer(n_columns: int = 2, *, n_ranks: int = 3, has_missing: bool = False) -> Offer:
    column = OfferedColumn(
        name="c",
        n_ranks=n_ranks,
        has_missing=has_missing,
        digest=DIGEST,
        mechanism="global",
        law="clamped",
        epsilon=0.1,
    )
    columns = tuple(column.model_copy(update={"name": f"c{k}"}) for k in range(n_columns))
    return Offer(columns=columns, guarantee=promise_of(n_columns))


def chunk(column: int = 0, start: int = 0, n_rows: int = N_ROWS, highest: int = 2) -> RankChunk:
    return RankChunk(column=column, start=start, ranks=(np.arange(n_rows) % (highest + 1)).astype(np.uint8))


def recite(channel: Channel, mine: Hello, script: Sequence[Message]) -> str:
    """Greet, send a script whatever the peer says, and return the reason with which the peer ends the run."""
    greet(channel, mine, password=IDS)
    try:
        for message in script:
            channel.send(message)
        while not isinstance(message := channel.receive(), Abort):
            pass
    except PeerAborted as error:
        return str(error).partition(": ")[2]
    return message.reason


WHOLE = (offer(), chunk(0), chunk(1))

BROKEN_RELEASES: dict[str, tuple[Sequence[Message], type[Exception], str]] = {
    "ranks before the offer": ([chunk()], UnexpectedMessage, "shop sent 'rank chunk' where 'offer' was due"),
    "no ranks": ([offer(), Done()], UnexpectedMessage, "shop sent 'done' where 'rank chunk' was due"),
    "second column first": (
        [offer(), chunk(1)],
        UnexpectedMessage,
        "sent rows 0.. of column 1 where rows 0.. of column 0 were due",
    ),
    "second chunk first": (
        [offer(), chunk(start=100, n_rows=200)],
        UnexpectedMessage,
        "sent rows 100.. of column 0 where rows 0..",
    ),
    "a chunk twice": (
        [offer(), chunk(n_rows=100), chunk(n_rows=100)],
        UnexpectedMessage,
        "rows 0.. of column 0 where rows 100..",
    ),
    "a gap": (
        [offer(), chunk(n_rows=100), chunk(start=101, n_rows=199)],
        UnexpectedMessage,
        "sent rows 101.. of column 0",
    ),
    "too many rows": ([offer(), chunk(n_rows=N_ROWS + 1)], UnexpectedMessage, "sent rows 0.. of column 0"),
    "an empty chunk": ([offer(), chunk(n_rows=0)], UnexpectedMessage, "sent rows 0.. of column 0"),
    "a rank above the offer": (
        [offer(), chunk(highest=3)],
        UnexpectedMessage,
        "sent a rank above 2 in column 0, which has 3 ranks",
    ),
    "more ranks than records": ([offer(n_ranks=1 << 31), chunk()], UnexpectedMessage, "more than the 300 records"),
    "ranks of a wider type": (
        [offer(), chunk().model_copy(update={"ranks": np.zeros(N_ROWS, "<u2")})],
        UnexpectedMessage,
        "sent column 0 in another type than its number of ranks needs",
    ),
    "other ranks than offered": (
        [offer(), chunk(highest=1)],
        UnexpectedMessage,
        "the ranks of column 0 of shop are not those that were offered",
    ),
    "a rank above missing": (
        [offer(has_missing=True), chunk(highest=4)],
        UnexpectedMessage,
        "sent a rank above 3 in column 0",
    ),
    "more columns than announced": ([offer(3)], UnexpectedMessage, "3 columns that are not the 2 of its greeting"),
    "fewer columns than announced": ([offer(1)], UnexpectedMessage, "1 columns that are not the 2 of its greeting"),
    "no thresholds": ([*WHOLE, Done()], UnexpectedMessage, "shop sent 'done' where 'thresholds' was due"),
    "too few resolved tests": (
        [*WHOLE, Thresholds(router={"columns": [], "tests": []})],
        UnexpectedMessage,
        "shop resolved 0 of ",
    ),
    "tests on no column": (
        [
            *WHOLE,
            Thresholds(
                router={
                    "columns": [],
                    "tests": [{"source": "x", "category": None, "threshold": 1.5, "missing_left": False}],
                }
            ),
        ],
        UnexpectedMessage,
        "names a column or category that the columns do not have",
    ),
    "no guarantee": ([offer().model_copy(update={"guarantee": {}})], UnexpectedMessage, "the guarantee is malformed"),
}


@pytest.mark.parametrize(("script", "error", "words"), BROKEN_RELEASES.values(), ids=BROKEN_RELEASES)
def test_a_release_that_breaks_the_protocol_is_refused_and_its_sender_told(
    together: Together, trial: Any, script: Sequence[Message], error: type[Exception], words: str
) -> None:
    found = together(
        lambda channels: train_jointly(trial.active(), channels),
        {"shop": lambda channel: recite(channel, SHOP, script)},
    )
    assert type(found["bank"]) is error
    assert words in str(found["bank"])
    assert found["shop"] == str(found["bank"])


def test_of_a_message_that_cannot_be_read_no_other_peer_hears_more_than_that_it_was_anothers(
    together: Together, trial: Any
) -> None:
    def shop(channel: Channel) -> str:
        with pytest.raises(PeerAborted) as heard:
            party_b.train(trial.passive("shop"), channel)
        return str(heard.value)

    unreadable = SHOP.model_copy(update={"party": "post", "n_rows": -1})
    found = together(
        lambda channels: train_jointly(trial.active(), channels),
        {"shop": shop, "post": lambda channel: recite(channel, unreadable, [])},
    )
    assert str(found["bank"]).startswith("post sent a message that cannot be read: a 'hello' message has wrong")
    assert str(found["shop"]).endswith(": another party did not keep to the protocol")


def test_the_release_that_is_broken_above_is_sound(together: Together, trial: Any) -> None:
    def resolve_nothing(channel: Channel) -> str:
        greet(channel, SHOP, password=IDS)
        for message in WHOLE:
            channel.send(message)
        expect(channel, SplitRanks)
        channel.send(Thresholds(router=None))
        kind = expect(channel, Done).kind
        channel.send(Done())
        return kind

    found = together(lambda channels: train_jointly(trial.active(), channels), {"shop": resolve_nothing})
    assert found["shop"] == "done"
    assert found["bank"].ensemble.n_rounds == 4


def test_different_sets_of_ids_are_refused_with_the_counts_on_both_sides(together: Together, trial: Any) -> None:
    fewer = trial.passive("shop", features=trial.tables["shop"].iloc[:123], id_digest="other")
    sent: list[str] = []

    def take_part(channel: Channel) -> Any:
        channel.traffic.on_send = lambda kind, frames: sent.append(kind)
        return party_b.train(fewer, channel)

    found = together(lambda channels: train_jointly(trial.active(), channels), {"shop": take_part})
    assert {type(error) for error in found.values()} == {Disagreement}
    assert "it has 123 records, this party 300; both need the same ids" in str(found["bank"])
    assert "it has 300 records, this party 123; both need the same ids" in str(found["shop"])
    assert set(sent) <= {"hello", "abort"}


def test_nobody_draws_where_one_of_several_disagrees(together: Together, trial: Any) -> None:
    sent: dict[str, list[str]] = {"shop": [], "post": []}

    def take_part(party: str, channel: Channel) -> Any:
        channel.traffic.on_send = lambda kind, frames: sent[party].append(kind)
        return party_b.train(trial.passive(party, **({"run_id": "autumn"} if party == "post" else {})), channel)

    found = together(
        lambda channels: train_jointly(trial.active(), channels),
        {party: lambda channel, party=party: take_part(party, channel) for party in sent},
    )
    assert isinstance(found["bank"], Disagreement)
    assert isinstance(found["post"], Disagreement)
    assert isinstance(found["shop"], PeerAborted)
    assert "its run is 'autumn'" in str(found["bank"])
    assert str(found["shop"]).endswith("another party and this one do not agree. Nothing more was released")
    assert sent["shop"][0] == "hello"
    assert {*sent["shop"], *sent["post"]} <= {"hello", "abort"}


def test_nobody_draws_where_one_of_several_holds_other_ids(together: Together, trial: Any) -> None:
    """The numbers agree, so it shows in the proofs alone; the shop's is sound, and it hears no proof of the bank."""
    sent: dict[str, list[str]] = {"shop": [], "post": []}

    def take_part(party: str, channel: Channel) -> Any:
        channel.traffic.on_send = lambda kind, frames: sent[party].append(kind)
        changes = {"id_digest": "other"} if party == "post" else {"rng": _DrySource()}
        return party_b.train(trial.passive(party, **changes), channel)

    found = together(
        lambda channels: train_jointly(trial.active(), channels),
        {party: lambda channel, party=party: take_part(party, channel) for party in sent},
    )
    for name, peer in (("bank", "post"), ("post", "bank")):
        assert isinstance(found[name], Disagreement)
        assert str(found[name]).startswith(f"{peer} and this party do not agree: the sets of ids differ: it has 300")
    assert isinstance(found["shop"], PeerAborted)
    assert str(found["shop"]).endswith("another party and this one do not agree. Nothing more was released")
    assert {*sent["shop"], *sent["post"]} <= {"hello", "id confirmation", "abort"}


def test_records_that_were_not_aligned_are_not_released(together: Together, trial: Any) -> None:
    found = together(
        lambda channels: train_jointly(trial.active(id_digest=None), channels),
        {"shop": lambda channel: party_b.train(trial.passive("shop", id_digest=None, rng=_DrySource()), channel)},
    )
    assert isinstance(found["shop"], ParameterError)
    assert "records are released after they were aligned" in str(found["shop"])


def test_different_runs_do_not_meet(together: Together, trial: Any) -> None:
    found = together(
        lambda channels: train_jointly(trial.active(), channels),
        {"shop": lambda channel: party_b.train(trial.passive("shop", run_id="autumn"), channel)},
    )
    assert {type(error) for error in found.values()} == {Disagreement}
    assert all("'spring'" in str(error) and "'autumn'" in str(error) for error in found.values())


def test_a_party_that_came_to_predict_does_not_train(together: Together, trial: Any) -> None:
    def answer(channel: Channel) -> int:
        return serve(
            Router((), SplitTests((), np.empty(0), np.empty(0, np.bool_))),
            trial.ids,
            trial.tables["shop"],
            channel,
            party="shop",
            run_id="spring",
            rng=rng.seeded(3),
            may_route=True,
        )

    found = together(lambda channels: train_jointly(trial.active(), channels), {"shop": answer})
    assert {type(error) for error in found.values()} == {Disagreement}
    assert "it came to predict, this party to train" in str(found["bank"])
    assert "it came to train, this party to predict" in str(found["shop"])


class _DrySource:
    """A bit source that has no bits."""

    is_secure = True

    def fork(self, label: str) -> None:
        raise ParameterError("the source of bits is dry")


def test_one_party_that_cannot_go_on_ends_the_run_for_all(together: Together, trial: Any) -> None:
    found = together(
        lambda channels: train_jointly(trial.active(), channels),
        {
            "shop": lambda channel: party_b.train(trial.passive("shop"), channel),
            "post": lambda channel: party_b.train(trial.passive("post", rng=_DrySource()), channel),
        },
    )
    assert isinstance(found["post"], ParameterError)
    assert isinstance(found["bank"], PeerAborted)
    assert str(found["bank"]) == f"post ended the run while desensitizing: {NO_REASON}"
    assert str(found["post"]) == "the source of bits is dry"
    assert isinstance(found["shop"], PeerAborted)


def test_a_party_that_leaves_while_trees_grow_is_noticed_before_they_are_grown(together: Together, trial: Any) -> None:
    def release_and_leave(channel: Channel) -> None:
        greet(channel, SHOP, password=IDS)
        for message in WHOLE:
            channel.send(message)

    endless = trial.active(parameters=BoostingParameters(n_estimators=1_000_000, max_depth=6))
    found = together(lambda channels: train_jointly(endless, channels), {"shop": release_and_leave})
    assert isinstance(found["bank"], PeerLost)
    assert "shop closed the c" in str(found["bank"])


def test_heartbeats_go_out_until_the_first_round_and_by_its_thread_from_then_on(
    trial: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The fit of noise correction takes minutes on many columns, and a peer that hears nothing takes A for hung."""
    looks = list[str]()
    channel = SimpleNamespace(peer="shop", check=lambda: looks.append(threading.current_thread().name))

    def slowly(*_: Any, on_round: Callable[[RoundReport], object], **__: Any) -> tuple[set[str], int]:
        time.sleep(0.1)
        before = set(looks)
        on_round(RoundReport(1, 2, {}))
        n_looks = len(looks)
        time.sleep(0.05)
        return before, len(looks) - n_looks

    monkeypatch.setattr(heartbeats, "HEARTBEAT_S", 0.01)
    monkeypatch.setattr(party_a, "train", slowly)
    found: Any = party_a.grow_trees(trial.active(), [cast(Channel, channel)], [], no_progress)
    assert found == ({"opboost heartbeats"}, 0)
