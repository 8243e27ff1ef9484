"""Ranks in windows: a slow receiver bounds what is on its way, and nobody waits for ever."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from parties.vertical import party_b, rank_sender
from parties.vertical.party_a import train_jointly
from parties.vertical.rank_sender import MORE_EVERY, RANK_WINDOW, RankWindow, send_ranks
from protocols.errors import PeerLost, UnexpectedMessage
from protocols.messages.message import Message
from protocols.messages.vertical import Done, MoreRanks, RankChunk, SplitRanks
from protocols.transport.channel import Channel
from protocols.transport.memory import memory_pair


class Lazy:
    """A receiver that takes nothing before the sender waits for it, and no more than it must."""

    peer = "bank"

    def __init__(self) -> None:
        self.chunks: list[RankChunk] = []
        self.n_taken = 0
        self.most_ahead = 0

    def send(self, chunk: RankChunk) -> None:
        self.chunks.append(chunk)
        self.most_ahead = max(self.most_ahead, len(self.chunks) - self.n_taken)

    def receive(self) -> MoreRanks:
        self.n_taken += MORE_EVERY
        assert self.n_taken <= len(self.chunks), "the sender waits for ever"
        return MoreRanks()


class Ranks:
    """A column whose ranks are their places."""

    ranking = SimpleNamespace(table=SimpleNamespace(n_ranks=1 << 20))

    def ranks(self, start: int, end: int) -> Any:
        yield np.arange(start, end, dtype=np.uint32)


sizes = st.lists(st.tuples(st.integers(0, 400), st.integers(0, 400)), max_size=6)


@given(columns=sizes, chunk_rows=st.integers(1, 500))
def test_no_more_than_a_window_is_ahead_and_all_ranks_are_sent_in_order(
    columns: list[tuple[int, int]], chunk_rows: int
) -> None:
    """Whatever the rows of the columns, of which some came in an earlier attempt, and of the chunks."""
    channel: Any = Lazy()
    column: Any = Ranks()
    window = RankWindow(channel)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rank_sender, "CHUNK_ROWS", chunk_rows)
        for c, (first, n_rows) in enumerate(columns):
            send_ranks(window, c, column, rows=range(first, first + n_rows))
        window.close()
    assert channel.most_ahead <= RANK_WINDOW
    assert channel.n_taken == len(channel.chunks) // MORE_EVERY * MORE_EVERY
    for c, (first, n_rows) in enumerate(columns):
        ranks = [chunk.ranks for chunk in channel.chunks if chunk.column == c]
        assert np.array_equal(np.concatenate([[], *ranks]), np.arange(first, first + n_rows))


Audit = Callable[[str, Sequence[Any]], None]


class Crossing:
    """Chunks that a passive party has sent and the active one has not taken."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.n_sent: dict[str, int] = {"shop": 0, "post": 0}
        self.n_taken: dict[str, int] = {"shop": 0, "post": 0}
        self.most_ahead = 0
        monkeypatch.setattr(rank_sender, "CHUNK_ROWS", 1)

    def sender(self, party: str, channel: Channel) -> Channel:
        def note(kind: str, frames: Sequence[Any]) -> None:
            self.n_sent[party] += kind == "rank chunk"
            self.most_ahead = max(self.most_ahead, self.n_sent[party] - self.n_taken[party])

        channel.traffic.on_send = note
        return channel

    def receiver(self, channel: Channel) -> Channel:
        def note(kind: str, frames: Sequence[Any]) -> None:
            if kind == "rank chunk":
                # Slower than any sender, for a while.
                time.sleep(0.001 if self.n_taken[channel.peer] < 3 * RANK_WINDOW else 0)
                self.n_taken[channel.peer] += 1

        channel.traffic.on_receive = note
        return channel


def train_all(together: Any, trial: Any, crossing: Crossing) -> dict[str, Any]:
    return together(
        lambda channels: train_jointly(trial.active(), list(map(crossing.receiver, channels))),
        {
            party: lambda channel, party=party: party_b.train(trial.passive(party), crossing.sender(party, channel))
            for party in ("shop", "post")
        },
    )


def test_a_slow_receiver_bounds_what_each_of_its_peers_has_on_its_way(
    together: Any, trial: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    crossing = Crossing(monkeypatch)
    train_all(together, trial, crossing)
    assert crossing.n_taken == crossing.n_sent
    assert min(crossing.n_sent.values()) > 4 * RANK_WINDOW
    # One more was taken and is not noted yet.
    assert RANK_WINDOW / 2 < crossing.most_ahead <= RANK_WINDOW + 1


def test_without_windows_much_more_is_on_its_way(carriers: Any, trial: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the test above would show if the sender did not wait."""
    monkeypatch.setattr(rank_sender, "RANK_WINDOW", 1 << 30)
    monkeypatch.setattr("protocols.transport.peers.MAX_WAITING", 1 << 30)
    crossing = Crossing(monkeypatch)
    train_all(carriers["curve"], trial, crossing)
    assert crossing.most_ahead > 2 * RANK_WINDOW


@pytest.mark.parametrize("answer", [SplitRanks, Done])
def test_a_receiver_that_says_something_else_meanwhile_is_refused(answer: type[Message]) -> None:
    none = np.empty(0, np.uint32)
    said = Done() if answer is Done else SplitRanks(columns=none, ranks=none, missing_left=np.empty(0, np.bool_))
    near, far = memory_pair("shop", "bank")
    column: Any = Ranks()
    window = RankWindow(near)
    far.send(said)
    send_ranks(window, 0, column, rows=range(MORE_EVERY * rank_sender.CHUNK_ROWS))
    with pytest.raises(UnexpectedMessage, match=f"^bank sent '{said.kind}' where 'more ranks' was due$"):
        window.close()


def test_a_sender_whose_window_is_full_hears_that_its_receiver_is_gone() -> None:
    near, far = memory_pair("shop", "bank")
    threading.Timer(0.2, far.close).start()
    window = RankWindow(near)
    chunk = RankChunk(column=0, start=0, ranks=np.zeros(3, np.uint8))
    for _ in range(RANK_WINDOW):
        window.send(chunk)
    with pytest.raises(PeerLost, match=r"^bank closed the channel$"):
        window.send(chunk)
