"""What the passive party refuses of an active one, and that no threshold is told then."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from opboost.errors import ParameterError, RankError
from parties.errors import Disagreement
from parties.session.handshake import greet
from parties.vertical import party_b
from protocols.alignment.id_proof import password_of
from protocols.errors import DecodeError, PeerAborted, PeerLost, UnexpectedMessage
from protocols.messages.message import Message
from protocols.messages.prediction import Ask
from protocols.messages.vertical import Abort, Done, Hello, Role, SplitRanks, Task, Terms
from protocols.transport.channel import Channel, expect

Together = Callable[..., dict[str, Any]]


N_ROWS = 300


SHOP = Hello(role=Role.PASSIVE, party="shop", run_id="spring", task=Task.TRAIN, n_rows=N_ROWS, names=("c0", "c1"))


BANK = SHOP.model_copy(update={"names": (), "role": Role.ACTIVE, "party": "bank", "plan": Terms(tests=2)})


# As of the trial's parties.
IDS = password_of("d")


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


def splits(column: int, rank: int, *, missing_left: bool = False) -> SplitRanks:
    return SplitRanks(
        columns=np.array([0, column], np.uint32),
        ranks=np.array([0, rank], np.uint32),
        missing_left=np.array([False, missing_left]),
    )


# Columns 0 and 1 of the shop have 33 ranks, the latter with missing cells; columns 2 to 4 are indicators.
BROKEN_REQUESTS: dict[str, tuple[Message, type[Exception], str]] = {
    "a column too many": (splits(5, 0), RankError, "split on column 5, but only columns 0..4 were released"),
    "the last rank": (splits(0, 32), RankError, "rank 32 has no right neighbour; a split needs a rank in 0..31"),
    "a rank beyond": (splits(2, 4_000_000_000), RankError, "rank 4000000000 has no right neighbour"),
    "presence with missing left": (splits(1, 32, missing_left=True), RankError, "rank 32 has no right neighbour"),
    "done too early": (Done(), UnexpectedMessage, "bank sent 'done' where 'split ranks' was due"),
    "a request to score": (Ask(ids=("r001",), desensitized=False), UnexpectedMessage, "bank sent 'ask' where"),
}


@pytest.mark.parametrize(("request_", "error", "words"), BROKEN_REQUESTS.values(), ids=BROKEN_REQUESTS)
def test_a_request_that_breaks_the_protocol_is_refused_and_reveals_no_threshold(
    together: Together, trial: Any, request_: Message, error: type[Exception], words: str
) -> None:
    sent: list[str] = []

    def audited(channel: Channel) -> Channel:
        channel.traffic.on_send = lambda kind, frames: sent.append(kind)
        return channel

    found = together(
        lambda channels: recite(channels[0], BANK, [request_]),
        {"shop": lambda channel: party_b.train(trial.passive("shop", epsilon=float("inf")), audited(channel))},
    )
    assert type(found["shop"]) is error
    assert words in str(found["shop"])
    assert found["bank"] == str(found["shop"])
    assert "thresholds" not in sent


def asking_for(*ranks: int, missing_left: bool = False) -> SplitRanks:
    """Tests on the first column."""
    flags = np.full(len(ranks), missing_left)
    return SplitRanks(columns=np.zeros(len(ranks), np.uint32), ranks=np.array(ranks, np.uint32), missing_left=flags)


@pytest.mark.parametrize(("planned", "agreed"), [(20, None), (1000, 20)])
@pytest.mark.parametrize("n_asked", [20, 21])
def test_no_more_tests_are_resolved_than_the_model_can_make(
    together: Together, trial: Any, planned: int, agreed: int | None, n_asked: int
) -> None:
    sent: list[str] = []

    def take_part(channel: Channel) -> Any:
        channel.traffic.on_send = lambda kind, frames: sent.append(kind)
        return party_b.train(trial.passive("shop", agreed=Terms(tests=agreed), epsilon=float("inf")), channel)

    bank = BANK.model_copy(update={"plan": Terms(tests=min(planned, agreed or planned))})
    found = together(
        lambda channels: recite(channels[0], bank, [asking_for(*range(n_asked)), Done()]), {"shop": take_part}
    )
    assert ("thresholds" in sent) is (n_asked == 20)
    if n_asked > 20:
        assert isinstance(found["shop"], UnexpectedMessage)
        assert (
            found["bank"]
            == str(found["shop"])
            == (
                "bank asked for 21 split tests in this run; the model that was agreed on makes at most 20. No "
                "threshold was sent"
            )
        )


@pytest.mark.parametrize(
    ("planned", "agreed", "words"),
    [
        (None, None, "it plans nothing where a number must be agreed on"),
        (None, 20, "it plans nothing where at most 20 was agreed on"),
        (21, 20, "it plans 21 where at most 20 was agreed on"),
    ],
)
def test_a_model_of_more_tests_than_agreed_or_of_who_knows_how_many_is_refused_before_anything_is_drawn(
    together: Together, trial: Any, planned: int | None, agreed: int | None, words: str
) -> None:
    bank = BANK.model_copy(update={"plan": Terms(tests=planned)})
    shop = trial.passive("shop", agreed=Terms(tests=agreed), rng=_DrySource())

    def greet_alone(channels: Sequence[Channel]) -> None:
        expect(channels[0], Hello)
        channels[0].send(bank.model_copy(update={"id_point": bytes(33)}))
        expect(channels[0], Done)

    found = together(greet_alone, {"shop": lambda channel: party_b.train(shop, channel)})
    assert isinstance(found["shop"], Disagreement)
    assert f"number of split tests: {words}" in str(found["shop"])


def test_split_ranks_of_unequal_lengths_are_refused(together: Together, trial: Any) -> None:
    uneven = SplitRanks.model_construct(
        columns=np.zeros(2, np.uint32), ranks=np.zeros(1, np.uint32), missing_left=np.zeros(2, np.bool_)
    )
    found = together(
        lambda channels: recite(channels[0], BANK, [uneven]),
        {"shop": lambda channel: party_b.train(trial.passive("shop"), channel)},
    )
    assert type(found["shop"]) is DecodeError
    assert found["bank"] == str(found["shop"])


def test_presence_may_be_asked_of_a_column_with_missing_cells(together: Together, trial: Any) -> None:
    def ask_and_end(channels: Sequence[Channel]) -> str:
        return recite(channels[0], BANK, [splits(1, 32), Done()])

    found = together(
        ask_and_end, {"shop": lambda channel: party_b.train(trial.passive("shop", epsilon=float("inf")), channel)}
    )
    assert found["shop"].router.tests.thresholds.tolist() == [1.5, np.inf]
    assert isinstance(found["bank"], PeerLost)


class _DrySource:
    """A bit source that has no bits."""

    is_secure = True

    def fork(self, label: str) -> None:
        raise ParameterError("the source of bits is dry")
