"""What only a network has: strangers, wrong keys, eavesdroppers, parties that never come."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from protocols.errors import KeyFileError, PeerLost
from protocols.messages.message import Message
from protocols.messages.prediction import Ask
from protocols.messages.vertical import Abort, Done, RankChunk
from protocols.transport.channel import Timing, abort
from protocols.transport.keys import check_loopback
from protocols.transport.zmq_channel import ConnectedChannel
from protocols.transport.zmq_listener import Listener
from tests.support.addresses import has_ipv6

Within = Callable[[float, Callable[[], Any]], Any]

PATIENT = Timing(timeout_s=10, wait_s=10)
HASTY = Timing(timeout_s=1, wait_s=0.6)

needs_ipv6 = pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6 on loopback")


def call_in(channel: ConnectedChannel) -> Message:
    """Say something and wait for an answer; a refusal may come before either."""
    channel.send(Done())
    return channel.receive()


def test_a_client_whose_key_is_not_listed_gets_no_answer_and_no_hearing(network: Any, within: Within) -> None:
    listener = network.listen("b", timing=HASTY)
    stranger = network.connect(listener.address, own="stranger")
    with pytest.raises(PeerLost, match="refused the connection: one side's public key"):
        within(5, lambda: call_in(stranger))
    within(0.5, lambda: abort(stranger, "greeting", "refused"))
    with pytest.raises(PeerLost, match=r"b did not connect .* within 0\.6 s"):
        within(5, listener.channel("b").receive)
    assert network.events[0] == "refused a connection: its key is not on the list of peers"


def test_both_ends_know_without_waiting_whether_the_other_has_come(network: Any, within: Within) -> None:
    assert not network.connect("tcp://127.0.0.1:9").has_come()
    listener = network.listen("b")
    here, there = listener.channel("b"), network.connect(listener.address)
    assert not here.has_come()

    def until_they_meet() -> None:
        while not there.has_come():
            assert not here.is_ready()
        there.send(Done())
        while not here.is_ready():
            there.check()

    within(10, until_they_meet)
    assert here.has_come()


@pytest.mark.parametrize("wait", [call_in, ConnectedChannel.receive])
def test_whoever_waits_for_a_peer_is_told_so_many_times_a_second(
    network: Any, within: Within, wait: Callable[[ConnectedChannel], Message]
) -> None:
    channel, told = network.connect("tcp://127.0.0.1:9", timing=HASTY), []
    channel.traffic.on_wait = lambda: told.append(time.monotonic())
    with pytest.raises(PeerLost, match=r"could not be reached .* within 0\.6 s"):
        within(5, lambda: wait(channel))
    assert len(told) > 5


def test_a_client_that_expects_another_servers_key_does_not_connect(network: Any, within: Within) -> None:
    listener = network.listen("b", timing=HASTY)
    misled = network.connect(listener.address, server="stranger", timing=HASTY)
    with pytest.raises(PeerLost, match="ended before both sides were known: the keys do not match, or a forwarder"):
        within(5, lambda: call_in(misled))
    with pytest.raises(PeerLost, match="b did not connect"):
        within(5, listener.channel("b").receive)


@pytest.mark.parametrize(("listener_encrypted", "client_key"), [(True, None), (False, "b")])
def test_plain_text_and_curve_never_meet(
    network: Any, within: Within, listener_encrypted: bool, client_key: str | None
) -> None:
    listener = network.listen("b", encrypted=listener_encrypted, timing=HASTY)
    client = network.connect(
        listener.address, own=client_key, server="a" if client_key else None, timing=Timing(timeout_s=10, wait_s=0.6)
    )
    with pytest.raises(PeerLost):
        within(5, lambda: call_in(client))
    with pytest.raises(PeerLost, match="b did not connect"):
        within(5, listener.channel("b").receive)


@pytest.mark.parametrize("host", ["0.0.0.0", "192.0.2.1", "*", "example.org", "[2001:db8::1]", "localhost.example.org"])
def test_a_connection_without_keys_is_refused_off_loopback(network: Any, host: str) -> None:
    address = f"tcp://{host}:5555"
    with pytest.raises(KeyFileError, match="is not on loopback; a connection without keys is refused there"):
        Listener(address, {"b": None}, keys=None, timing=HASTY)
    with pytest.raises(KeyFileError, match="not on loopback"):
        ConnectedChannel(address, name="b", peer="a", keys=None, peer_key=None, timing=HASTY)
    check_loopback(address, network.keys["a"])


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]", "127.9.9.9"])
def test_a_connection_without_keys_is_allowed_on_loopback(host: str) -> None:
    check_loopback(f"tcp://{host}:5555", None)


def test_a_connection_with_keys_needs_the_other_sides_public_key(network: Any) -> None:
    with pytest.raises(KeyFileError, match="the public key of a is needed"):
        network.connect("tcp://127.0.0.1:9", server=None)


def test_a_peer_that_never_comes_is_given_up_on(network: Any, within: Within) -> None:
    listener = network.listen("b", timing=HASTY)
    address = listener.address
    with pytest.raises(PeerLost, match=rf"b did not connect to {address} within 0\.6 s"):
        within(5, listener.channel("b").receive)
    network.leave(listener)
    with pytest.raises(PeerLost, match=rf"a could not be reached at {address} within 0\.6 s"):
        within(5, network.connect(address, timing=HASTY).receive)


def test_a_passive_party_may_start_before_the_active_one(network: Any, within: Within) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"tcp://127.0.0.1:{probe.getsockname()[1]}"
    early = ConnectedChannel(address, name="b", peer="a", keys=None, peer_key=None, timing=PATIENT)
    saying = threading.Thread(target=early.send, args=(Done(),), daemon=True)
    saying.start()
    time.sleep(0.2)
    listener = Listener(address, {"b": None}, keys=None, timing=PATIENT)
    try:
        assert within(5, listener.channel("b").receive) == Done()
        saying.join(5)
    finally:
        early.close()
        listener.close()


@needs_ipv6
def test_parties_meet_at_an_address_in_brackets(network: Any, within: Within) -> None:
    listener = network.listen("b", host="[::1]")
    client = network.connect(listener.address)
    client.send(Done())
    assert within(5, listener.channel("b").receive) == Done()
    listener.channel("b").send(Done())
    assert within(5, client.receive) == Done()
    assert listener.address.startswith("tcp://[::1]:")


def test_a_name_means_a_listener_by_ipv4(network: Any, within: Within) -> None:
    """Of a name that has addresses of both kinds, ZeroMQ would look up those of IPv6 alone."""
    listener = network.listen("b")
    network.connect(f"tcp://localhost:{listener.address.rpartition(':')[2]}").send(Done())
    assert within(5, listener.channel("b").receive) == Done()


def test_a_name_that_is_not_in_the_run_is_dropped(network: Any, within: Within) -> None:
    listener = network.listen("b", encrypted=False)
    for name in ("stranger", "b"):
        network.connect(listener.address, name, own=None, server=None).send(Ask(ids=(name,), desensitized=False))
    assert within(5, listener.channel("b").receive) == Ask(ids=("b",), desensitized=False)
    time.sleep(0.3)
    listener.channel("b").check()
    assert network.events == ["dropped a message from a party that is not in this run"]


def test_the_end_of_a_strangers_connection_is_not_taken_for_a_peers(network: Any, within: Within) -> None:
    listener = network.listen("b", encrypted=False)
    for name in ("stranger", "b"):
        # The listener looks at neither before both have come, so that b may get the stranger's descriptor.
        channel = network.connect(listener.address, name, own=None, server=None)
        channel.send(Done())
        time.sleep(0.2)
        if name == "stranger":
            channel.check()
            network.leave(channel)
            time.sleep(0.2)
    assert within(5, listener.channel("b").receive) == Done()
    listener.channel("b").check()


def test_last_words_arrive_even_before_the_handshake_is_over(network: Any, within: Within) -> None:
    listener = network.listen("b")
    hasty = network.connect(listener.address)
    abort(hasty, "encoding its columns", "3 cells are missing")
    network.leave(hasty)
    assert within(5, listener.channel("b").receive) == Abort(phase="encoding its columns", reason="3 cells are missing")


def test_a_listener_that_pauses_longer_than_the_timeout_loses_no_sender(network: Any, within: Within) -> None:
    timing = Timing(timeout_s=0.5, wait_s=5)
    listener = network.listen("b", timing=timing)
    sender = network.connect(listener.address, timing=timing)
    ranks = np.zeros(1 << 16, np.uint8)
    thread = threading.Thread(
        target=lambda: [sender.send(RankChunk(column=0, start=i, ranks=ranks)) for i in range(400)], daemon=True
    )
    thread.start()
    time.sleep(1.5)
    found = within(20, lambda: [listener.channel("b").receive().start for _ in range(400)])
    assert found == list(range(400))
    thread.join(5)


def test_an_address_in_use_is_refused_in_one_sentence(network: Any, within: Within) -> None:
    address = network.listen("b").address
    with pytest.raises(PeerLost, match=rf"cannot listen on {address}: Address already in use"):
        Listener(address, {"b": network.keys["b"].public}, keys=network.keys["a"], timing=HASTY)


@pytest.mark.parametrize("encrypted", [True, False])
def test_a_tapped_line_shows_words_only_without_keys(network: Any, within: Within, encrypted: bool) -> None:
    listener = network.listen("b", encrypted=encrypted)
    address, seen = network.relay(listener.address)
    spoken = "customer-4711"
    channel = network.connect(address, own="b" if encrypted else None, server="a" if encrypted else None)
    channel.send(Ask(ids=(spoken,), desensitized=False))
    message = within(5, listener.channel("b").receive)
    assert message == Ask(ids=(spoken,), desensitized=False)
    assert min(map(len, seen.values())) > 0
    assert (spoken.encode() in seen["there"]) is not encrypted
