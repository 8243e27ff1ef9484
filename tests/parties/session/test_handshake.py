"""The greeting and the goodbye: both sides compare first, and whoever stops says why, without showing a value."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from opboost.errors import DataError
from parties.errors import Disagreement, RunFolderError, Stopped, TableError
from parties.session import handshake
from parties.session.handshake import MAX_CHECKS, conversation, greet, greet_all, prove_ids, with_point
from parties.session.termination import NO_REASON
from protocols.alignment.id_proof import id_proof, password_of
from protocols.errors import Outlook, PeerAborted, PeerLost, ProtocolError, UnexpectedMessage
from protocols.messages.vertical import Abort, Done, Hello, Role, Task, Terms
from protocols.transport.channel import Timing, expect
from protocols.transport.memory import MemoryChannel, memory_pair
from protocols.transport.zmq_channel import ConnectedChannel
from protocols.transport.zmq_listener import Listener

Outcomes = Callable[..., dict[str, Any]]

BANK = Hello(
    role=Role.ACTIVE, party="bank", run_id="r", task=Task.TRAIN, n_rows=14, id_point=bytes(33), plan=Terms(tests=1)
)
SHOP = BANK.model_copy(update={"role": Role.PASSIVE, "party": "shop", "plan": Terms()})


def greet_both(outcomes: Outcomes, bank: str | None, shop: str | None, **changes: Any) -> dict[str, Any]:
    """What both sides get or raise when each brings a password made of these ids, if any."""
    a, b = memory_pair("bank", "shop")
    passwords = [None if ids is None else password_of(ids) for ids in (bank, shop)]
    mine, theirs = (hello.model_copy(update={"id_point": None}) for hello in (BANK, SHOP.model_copy(update=changes)))
    return outcomes(
        {"bank": lambda: greet(a, mine, password=passwords[0]), "shop": lambda: greet(b, theirs, password=passwords[1])}
    )


@pytest.mark.parametrize("ids", [None, "d1"])
def test_both_sides_get_the_others_greeting(outcomes: Outcomes, ids: str | None) -> None:
    found = greet_both(outcomes, ids, ids)
    points = [hello.id_point for hello in found.values()]
    assert (points == [None, None]) is (ids is None)
    plain = {name: hello.model_copy(update={"id_point": None}) for name, hello in found.items()}
    assert plain == {
        name: hello.model_copy(update={"id_point": None}) for name, hello in (("bank", SHOP), ("shop", BANK))
    }


def test_other_ids_are_told_by_their_counts_on_both_sides(outcomes: Outcomes) -> None:
    found = greet_both(outcomes, "d1", "d2")
    for peer, name in (("shop", "bank"), ("bank", "shop")):
        assert isinstance(found[name], Disagreement)
        assert str(found[name]) == (
            f"{peer} and this party do not agree: the sets of ids differ: it has 14 records, this party 14; both need "
            "the same ids. Nothing was released"
        )


@pytest.mark.parametrize("passwords", [("d1", None), (None, "d1")])
def test_whoever_shows_no_proof_is_refused(outcomes: Outcomes, passwords: tuple[str | None, str | None]) -> None:
    assert {type(error) for error in greet_both(outcomes, *passwords).values()} == {Disagreement}


def test_both_sides_learn_of_a_disagreement(outcomes: Outcomes) -> None:
    a, b = memory_pair("bank", "shop")
    other = SHOP.model_copy(update={"run_id": "autumn"})
    found = outcomes({"bank": lambda: greet(a, BANK), "shop": lambda: greet(b, other)})
    assert "its run is 'autumn', this party's is 'r'" in str(found["bank"])
    assert "its run is 'r', this party's is 'autumn'" in str(found["shop"])
    assert {type(error) for error in found.values()} == {Disagreement}


def test_the_active_party_tells_nothing_before_it_was_greeted() -> None:
    a, b = memory_pair("bank", "shop")
    b.send(Done())
    with pytest.raises(UnexpectedMessage, match="shop sent 'done' where 'hello' was due"):
        greet(a, BANK)
    assert a.traffic.sent_bytes == 0


def stop(channels: list[MemoryChannel], step: str, error: BaseException) -> None:
    with conversation(channels) as phase:
        phase.enter(step)
        raise error


def two_peers() -> tuple[list[MemoryChannel], list[MemoryChannel]]:
    pairs = [memory_pair("bank", peer) for peer in ("shop", "post")]
    return [near for near, _ in pairs], [far for _, far in pairs]


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (DataError("column 'x' has 3 missing cells"), NO_REASON),
        (TableError("/home/x.csv: no rows"), NO_REASON),
        (RunFolderError("/home/runs cannot be written: No space left on device"), NO_REASON),
        (UnexpectedMessage("too early"), "too early"),
    ],
)
def test_a_party_that_must_stop_tells_every_peer_where_and_why(error: Exception, reason: str) -> None:
    near, far = two_peers()
    with pytest.raises(type(error)):
        stop(near, "encoding its columns", error)
    outlook = Outlook.UNSURE if reason == NO_REASON else Outlook.OVER
    told = Abort(phase="encoding its columns", reason=reason, outlook=outlook)
    assert [channel.receive() for channel in far] == [told] * 2


@pytest.mark.parametrize("error", [ImportError("81726354"), UnexpectedMessage("cut off"), PeerLost("shop is silent")])
def test_a_party_that_was_told_to_stop_tells_that_whatever_becomes_of_the_signal(
    error: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Stopped, "received", 15)
    near, far = two_peers()
    with pytest.raises(Stopped):
        stop(near, "drawing", error)
    told = Abort(phase="drawing", reason="it was told to stop", outlook=Outlook.LATER)
    assert [channel.receive() for channel in far] == [told] * 2


@pytest.mark.parametrize("error", [ValueError("salary 81726354"), KeyError("81726354"), KeyboardInterrupt("81726354")])
def test_of_a_foreign_error_the_peers_learn_nothing(error: BaseException) -> None:
    near, far = two_peers()
    with pytest.raises(type(error)):
        stop(near, "saving the model", error)
    told = Abort(phase="saving the model", reason=NO_REASON, outlook=Outlook.UNSURE)
    assert [channel.receive() for channel in far] == [told] * 2


@pytest.mark.parametrize("error", [PeerLost("shop is silent"), PeerAborted("shop: salary 81726354")])
def test_of_a_peers_end_the_others_learn_no_words(error: ProtocolError) -> None:
    near, far = two_peers()
    with pytest.raises(type(error)):
        stop(near, "growing trees", error)
    with pytest.raises(PeerAborted, match=f"while growing trees: another party left: {type(error).__name__}$"):
        expect(far[1], Done)


def test_a_peer_that_has_left_does_not_keep_the_others_from_being_told() -> None:
    near, far = two_peers()
    far[0].close()
    with pytest.raises(TableError):
        stop(near, "greeting", TableError("no rows"))
    assert far[1].receive() == Abort(phase="greeting", reason=NO_REASON, outlook=Outlook.UNSURE)


def test_a_conversation_that_ends_well_sends_nothing() -> None:
    near, _ = two_peers()
    with conversation(near) as phase:
        phase.enter("greeting")
    assert [channel.traffic.sent_bytes for channel in near] == [0, 0]


@pytest.mark.parametrize("looker", [Role.ACTIVE, Role.PASSIVE])
def test_a_peer_that_only_looks_compares_ids_a_few_times_in_one_run(
    outcomes: Outcomes, looker: Role, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handshake, "CHECK_GRACE_S", 0.0)
    a, b = memory_pair("bank", "shop")
    password = password_of("ids")
    notes: list[str] = []
    refused: list[str] = []
    near, far, mine, theirs = (a, b, BANK, SHOP) if looker is Role.ACTIVE else (b, a, SHOP, BANK)
    far.traffic.on_check = notes.append
    looks = mine.model_copy(update={"task": Task.CHECK})

    def look() -> int:
        n_compared = 0
        for _ in range(MAX_CHECKS + 1):
            with id_proof(password) as proof:
                said = with_point(looks, proof)
                if looker is Role.PASSIVE:
                    near.send(said)
                answer = expect(near, Hello)
                if looker is Role.ACTIVE:
                    near.send(said)
                assert proof is not None
                try:
                    n_compared += prove_ids(near, proof, said, answer)
                except PeerAborted as error:
                    refused.append(str(error))
        near.close()
        return n_compared

    found = outcomes({"looks": look, "waits": lambda: greet(far, theirs, password=password)})
    assert found["looks"] == MAX_CHECKS
    assert len(refused) == 1
    assert f"a peer may look {MAX_CHECKS} times in one run; the ids were not compared" in refused[0]
    assert isinstance(found["waits"], ProtocolError)
    assert len(notes) == MAX_CHECKS + 1
    assert notes[-1].endswith(" only looked whether both sides agree, 9 times so far")


@pytest.mark.parametrize("looker", [Role.ACTIVE, Role.PASSIVE])
def test_a_peer_that_only_looks_without_end_ends_the_job_before_its_log_fills_a_disk(
    outcomes: Outcomes, looker: Role, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handshake, "CHECK_GRACE_S", 0.0)
    monkeypatch.setattr(handshake, "MAX_JOB_CHECKS", 5)
    a, b = memory_pair("bank", "shop")
    near, far, mine, theirs = (a, b, BANK, SHOP) if looker is Role.ACTIVE else (b, a, SHOP, BANK)
    looks = mine.model_copy(update={"task": Task.CHECK})

    def look() -> None:
        for _ in range(5):
            near.send(looks)
            expect(near, Hello)
        near.send(looks)

    found = outcomes({"looks": look, "waits": lambda: greet(far, theirs)})
    assert isinstance(found["waits"], UnexpectedMessage)
    assert "only looked, 5 times; nothing was released" in str(found["waits"])


def test_a_peer_that_looked_and_left_while_another_one_was_waited_for_may_come_afterwards(outcomes: Outcomes) -> None:
    timing, hellos = Timing(timeout_s=5, wait_s=20), {}
    listener = Listener("tcp://127.0.0.1:*", {"post": None, "shop": None}, keys=None, timing=timing)

    def connected(name: str) -> ConnectedChannel:
        hellos[name] = SHOP.model_copy(update={"party": name, "id_point": None})
        return ConnectedChannel(listener.address, name=name, peer="bank", keys=None, peer_key=None, timing=timing)

    near = [listener.channel(name) for name in ("post", "shop")]
    looks = connected("shop")
    looks.send(hellos["shop"].model_copy(update={"task": Task.CHECK}))
    deadline = time.monotonic() + 5
    while not near[1].is_ready():
        assert time.monotonic() < deadline
    looking = threading.Thread(target=looks.close)
    looking.start()
    while looking.is_alive() or not listener._peers.is_lost("shop"):
        near[0].is_ready()
        assert time.monotonic() < deadline

    def comes(name: str) -> Hello:
        # The other one is there first, so that the doctor's greeting is read.
        time.sleep(0.5 if name == "shop" else 0)
        channel = connected(name)
        try:
            return greet(channel, hellos[name])
        finally:
            channel.close()

    mine = BANK.model_copy(update={"id_point": None})
    found = outcomes(
        {"bank": lambda: greet_all(near, dict.fromkeys(("post", "shop"), mine))}
        | {name: lambda name=name: comes(name) for name in ("post", "shop")}
    )
    listener.close()
    assert set(found["bank"]) == {"post", "shop"}
    assert found["post"] == found["shop"] == mine
