"""All parties in one process: the cause of a failure is told, not its echo, and every thread has ended."""

from __future__ import annotations

import threading

import pytest

from opboost.errors import DataError
from parties.vertical.simulation import simulate
from protocols.errors import ProtocolError
from protocols.messages.vertical import Done
from protocols.transport.channel import Channel, expect


def answer(channel: Channel) -> None:
    expect(channel, Done)
    channel.send(Done())


def fail(channel: Channel) -> None:
    raise DataError("the cause")


def test_the_active_party_has_a_channel_to_each_in_order_and_its_result_is_returned() -> None:
    def active(channels: object) -> list[str]:
        assert isinstance(channels, list)
        for channel in channels:
            channel.send(Done())
        for channel in channels:
            expect(channel, Done)
        return [channel.peer for channel in channels]

    before = threading.active_count()
    assert simulate(active, {"shop": answer, "post": answer}, name="bank") == ["shop", "post"]
    assert threading.active_count() == before


def test_what_a_passive_party_raised_is_told_in_place_of_the_loss_of_it() -> None:
    with pytest.raises(DataError, match="the cause"):
        simulate(lambda channels: expect(channels[0], Done), {"shop": fail, "post": answer}, name="bank")


def test_an_error_of_the_active_party_is_its_own() -> None:
    def active(channels: object) -> None:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        simulate(active, {"shop": answer}, name="bank")


def test_a_peer_that_just_leaves_is_a_protocol_error() -> None:
    with pytest.raises(ProtocolError):
        simulate(lambda channels: expect(channels[0], Done), {"shop": lambda channel: None}, name="bank")
