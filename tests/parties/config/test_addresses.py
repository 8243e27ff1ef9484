"""Addresses: what ZeroMQ would take for another port or host is refused when the run file is read."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from parties.config.addresses import MAX_PORT, ConnectAddress, ListenAddress, SchedulerAddress

LISTEN, CONNECT, SCHEDULER = (TypeAdapter(kind) for kind in (ListenAddress, ConnectAddress, SchedulerAddress))


def is_taken(kind: TypeAdapter[str], address: str) -> bool:
    try:
        return kind.validate_python(address) == address
    except ValidationError:
        return False


@given(st.integers(0, 10**6))
def test_a_port_is_a_number_that_a_socket_has(port: int) -> None:
    assert is_taken(CONNECT, f"tcp://127.0.0.1:{port}") is (1 <= port <= MAX_PORT)


@pytest.mark.parametrize(
    ("address", "kinds"),
    [
        ("tcp://host-1.example:5555", "LCS"),
        ("tcp://[::1]:5555", "LCS"),
        ("tcp://*:5555", "L"),
        ("tls://host:8786", "S"),
        ("ipc:///run/opboost.sock", ""),
        ("tcp://host", ""),
        ("tcp://host:0", ""),
        ("tcp://ho st:1", ""),
        ("tcp://host:5555/path", ""),
        ("http://host:80", ""),
        ("host:80", ""),
        ("inproc://a", ""),
    ],
)
def test_each_kind_takes_its_schemes(address: str, kinds: str) -> None:
    found = {"L": LISTEN, "C": CONNECT, "S": SCHEDULER}
    assert "".join(name for name, kind in found.items() if is_taken(kind, address)) == kinds


@pytest.mark.parametrize("kind", [LISTEN, CONNECT], ids=["listen", "connect"])
@pytest.mark.parametrize("address", ["tcp://host:70000", "ipc:///run/opboost.sock"])
def test_the_refusal_says_what_is_allowed(kind: TypeAdapter[str], address: str) -> None:
    """Over a Unix socket no bytes are counted, so that a peer could fill the memory of a listening party."""
    with pytest.raises(ValidationError, match="must be tcp://host:port, with a port from 1 to 65535"):
        kind.validate_python(address)
