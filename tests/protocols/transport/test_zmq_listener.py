"""A listener outlives a peer that floods it and resets the connection: libzmq ends processes that stop reading."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
import zmq

from protocols.messages.vertical import Done
from protocols.transport import zmq_authenticator
from protocols.transport.zmq_authenticator import MAX_CONNECTIONS, Allowlist
from protocols.transport.zmq_listener import Listener

Within = Callable[[float, Callable[[], Any]], Any]

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells how much came over a connection")

# A peer that takes little, says what it is told to in turn, and then resets the connection.
HOSTILE = """
import socket, struct, sys, time
from protocols.messages.vertical import Done
from protocols.transport.codec import encode

peer = socket.socket()
peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
peer.connect(("127.0.0.1", int(sys.argv[1])))
peer.sendall(b"\\xff" + bytes(8) + b"\\x7f\\x03\\x00NULL" + bytes(16) + bytes(32))
body = b"\\x05READY"
for key, value in ((b"Socket-Type", b"DEALER"), (b"Identity", b"bad")):
    body += bytes([len(key)]) + key + len(value).to_bytes(4, "big") + value
peer.sendall(b"\\x04" + bytes([len(body)]) + body)
heard = b""
while b"READY" not in heard:
    heard += peer.recv(1 << 10)
done = bytes(encode(Done())[0])
for word in sys.argv[2:]:
    if word == "wait":
        sys.stdin.readline()
    else:
        peer.sendall((b"\\x00" + bytes([len(done)]) + done) * int(word))
time.sleep(0.3)
peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
peer.close()
"""

# The party that listens: it hears the hostile peer, is busy for some heartbeats, and hears the honest one afterwards.
LISTENING = """
import subprocess, sys, threading, time, zmq
from protocols.messages.vertical import Done
from protocols.transport import zmq_listener, zmq_socket
from protocols.transport.channel import Timing
from protocols.transport.codec import encode

hostile, case, is_broken = sys.argv[1:]
if is_broken == "bounded queue":
    zmq_socket.counts_bytes = lambda: False
elif is_broken == "closes at once":
    zmq_listener.Listener._deliver = lambda listener: None
    zmq_listener.WatchedConnections._end_all = lambda connections: False
listener = zmq_listener.Listener(
    "tcp://127.0.0.1:*", {"bad": None, "ok": None}, keys=None, timing=Timing(timeout_s=1, wait_s=30)
)
scripts = {"flood": ["1", "5000"], "beside answers": ["1", "5000", "wait"], "while it closes": ["1", "wait", "3"]}
port = listener.address.rpartition(":")[2]
peer = subprocess.Popen([sys.executable, "-c", hostile, port, *scripts[case]], stdin=subprocess.PIPE, text=True)
listener.channel("bad").receive()
for _ in range(0 if case == "flood" else 40):
    listener._socket.send_multipart([b"bad", bytes(1 << 18)], zmq.NOBLOCK)
if case == "while it closes":
    threading.Timer(0.3, peer.communicate, ["\\n"]).start()
else:
    peer.communicate("\\n")
    time.sleep(0.8)
    listener.channel("bad").close()
    context = zmq.Context()
    honest = context.socket(zmq.DEALER)
    honest.routing_id = b"ok"
    honest.connect(listener.address)
    honest.send_multipart(encode(Done()))
    print(listener.channel("ok").receive().kind)
    honest.send_multipart(encode(Done()))
    print(listener.channel("ok").receive().kind)
    context.destroy(0)
listener.close()
peer.wait()
print("closed")
"""


def listening(case: str, is_broken: str = "no") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", LISTENING, HOSTILE, case, is_broken]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize("case", ["flood", "beside answers", "while it closes"])
def test_a_listener_outlives_a_peer_that_floods_it_and_resets_the_connection(case: str) -> None:
    done = listening(case)
    heard = [] if case == "while it closes" else ["done", "done"]
    assert (done.returncode, done.stdout.split()) == (0, [*heard, "closed"]), done.stderr


@pytest.mark.parametrize(("case", "is_broken"), [("flood", "bounded queue"), ("while it closes", "closes at once")])
def test_libzmq_ends_a_process_that_stopped_reading(case: str, is_broken: str) -> None:
    """What the test above would show otherwise; a sound libzmq fails here, and needs none of it."""
    done = listening(case, is_broken)
    assert done.returncode < 0
    assert "_io_error" in done.stderr


def admitted(network: Any, listener: Listener, n_connections: int) -> int:
    """How many of a peer's connections are let in, one after the other; each leaves a message that nobody reads."""
    n_admitted = 0
    with zmq.Context() as context:
        for _ in range(n_connections):
            end, keys = context.socket(zmq.DEALER), network.keys
            end.linger, end.reconnect_ivl = 1000, -1
            end.curve_serverkey, end.curve_secretkey = keys["a"].public, keys["b"].secret
            end.curve_publickey = keys["b"].public
            monitor = end.get_monitor_socket(zmq.Event.HANDSHAKE_SUCCEEDED | zmq.Event.HANDSHAKE_FAILED_AUTH)
            end.connect(listener.address)
            # Who is refused before that has nowhere to send it to.
            with suppress(zmq.Again):
                end.send(b"unread", zmq.DONTWAIT)
            assert monitor.poll(5000)
            event = zmq.utils.monitor.recv_monitor_message(monitor)["event"]
            n_admitted += event == zmq.Event.HANDSHAKE_SUCCEEDED
            end.disable_monitor()
            monitor.close()
            end.close()
    return n_admitted


def test_a_peer_that_connects_again_and_again_leaves_a_bounded_number_of_messages(network: Any, within: Within) -> None:
    listener = network.listen("b", "c")
    assert admitted(network, listener, 3 * MAX_CONNECTIONS) == MAX_CONNECTIONS
    other = network.connect(listener.address, own="c")
    other.send(Done())
    assert within(5, listener.channel("c").receive) == Done()
    deadline = time.monotonic() + 5
    while listener._socket.poll(100) and time.monotonic() < deadline:
        listener.channel("c").is_ready()
    listener.channel("c").is_ready()
    assert admitted(network, listener, 2) == 2


def test_without_that_bound_all_of_them_stay(network: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zmq_authenticator, "MAX_CONNECTIONS", 1000)
    assert admitted(network, network.listen("b"), 3 * MAX_CONNECTIONS) == 3 * MAX_CONNECTIONS


def test_the_connections_of_one_key_do_not_count_for_another() -> None:
    allowlist = Allowlist([b"k" * 32, b"o" * 32])
    one, other, unknown = (zmq.utils.z85.encode(32 * letter) for letter in (b"k", b"o", b"u"))
    assert [allowlist.callback("", one) for _ in range(MAX_CONNECTIONS + 1)] == [True] * MAX_CONNECTIONS + [False]
    assert allowlist.callback("", other)
    assert not allowlist.callback("", unknown)
    assert allowlist.refused() == {zmq_authenticator.HASTY_KEY: 1, zmq_authenticator.UNKNOWN_KEY: 1}
    assert not allowlist.refused()
    allowlist.forget()
    assert allowlist.callback("", one)
