"""A bank and its passive parties on small tables, over either kind of channel or on disk; every wait is bounded."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from protocols.transport.channel import Channel, Timing
from protocols.transport.keys import generate, read_secret
from protocols.transport.memory import memory_pair
from protocols.transport.zmq_channel import ConnectedChannel
from protocols.transport.zmq_listener import Listener
from tests.support.few_fits import few_fits, few_fits_in_every_test
from tests.support.kept_runs import run_file, tuned_bank
from tests.support.outcomes import outcomes, outcomes_of
from tests.support.remote_places import bucket, postgres
from tests.support.sites import Sites, sites
from tests.support.trial import trial

__all__ = [
    "bucket",
    "few_fits",
    "few_fits_in_every_test",
    "outcomes",
    "postgres",
    "run_file",
    "sites",
    "trial",
    "tuned_bank",
]

TIMING = Timing(timeout_s=3, wait_s=10)

Active = Callable[[Sequence[Channel]], Any]
Passive = Mapping[str, Callable[[Channel], Any]]


def _and_close(call: Callable[[], Any], close: Callable[[], None]) -> Callable[[], Any]:
    def run() -> Any:
        try:
            return call()
        finally:
            close()

    return run


def _over_memory(active: Active, passive: Passive) -> dict[str, Any]:
    pairs = {name: memory_pair("bank", name) for name in passive}
    near = [pair[0] for pair in pairs.values()]

    def close_all() -> None:
        for channel in near:
            channel.close()

    calls = {"bank": _and_close(lambda: active(near), close_all)}
    for name, party in passive.items():
        far = pairs[name][1]
        calls[name] = _and_close(lambda party=party, far=far: party(far), far.close)
    return outcomes_of(calls)


class Curve:
    """Runs parties over ZeroMQ with CURVE on loopback."""

    def __init__(self, folder: Path) -> None:
        self.keys = {name: read_secret(generate(folder, name)[0]) for name in ("bank", "shop", "post")}

    def __call__(self, active: Active, passive: Passive) -> dict[str, Any]:
        peers = {name: self.keys[name].public for name in passive}
        listener = Listener("tcp://127.0.0.1:*", peers, keys=self.keys["bank"], timing=TIMING)
        near = [listener.channel(name) for name in passive]
        calls = {"bank": _and_close(lambda: active(near), listener.close)}
        for name, party in passive.items():
            calls[name] = lambda name=name, party=party: self._connected(listener.address, name, party)
        return outcomes_of(calls)

    def _connected(self, address: str, name: str, party: Callable[[Channel], Any]) -> Any:
        channel = ConnectedChannel(
            address, name=name, peer="bank", keys=self.keys[name], peer_key=self.keys["bank"].public, timing=TIMING
        )
        return _and_close(lambda: party(channel), channel.close)()


@pytest.fixture(scope="session")
def carriers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Callable[[Active, Passive], dict[str, Any]]]:
    """By carrier: run the bank with its passive parties, and tell what every side returned or raised."""
    return {"memory": _over_memory, "curve": Curve(tmp_path_factory.mktemp("keys"))}


@pytest.fixture(params=["memory", "curve"])
def together(request: pytest.FixtureRequest, carriers: dict[str, Any]) -> Any:
    """One of `carriers` after the other."""
    return carriers[request.param]


@pytest.fixture(scope="session")
def make_sites() -> type[Sites]:
    """Make a bank's and a shop's folders below a root."""
    return Sites
