"""A bank and its passive parties on small tables, over either kind of channel or on disk; every wait is bounded."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml

from opboost import rng
from opboost.desensitize import ColumnMechanism
from opboost.mechanism_settings import MechanismSettings
from opboost.schema import ColumnSchema, Kind, Missing
from opboost.trees.boosting import BoostingParameters
from opboost.trees.losses import Logistic
from opboost.vertical import OwnColumn
from parties.vertical.party_b import PassiveJob
from parties.vertical.training_job import ActiveJob
from protocols.transport.channel import Channel, Timing
from protocols.transport.keys import generate, read_secret
from protocols.transport.memory import memory_pair
from protocols.transport.zmq_channel import ConnectedChannel
from protocols.transport.zmq_listener import Listener
from tests.support.addresses import free_addresses

TIMING = Timing(timeout_s=3, wait_s=10)
N_ROWS = 300
N_CUSTOMERS = 400


def _outcomes(seconds: float, calls: Mapping[str, Callable[[], Any]]) -> dict[str, Any]:
    """What each call returned or raised, all of them running at once, each in a thread of its own."""
    found: dict[str, Any] = {}

    def run(name: str, call: Callable[[], Any]) -> None:
        try:
            found[name] = call()
        except BaseException as error:
            found[name] = error

    threads = [threading.Thread(target=run, args=item, daemon=True) for item in calls.items()]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(seconds)
    assert sorted(found) == sorted(calls), f"still waiting after {seconds} s: {sorted(set(calls) - set(found))}"
    return found


@pytest.fixture(scope="session")
def outcomes() -> Callable[[float, Mapping[str, Callable[[], Any]]], dict[str, Any]]:
    """Run several parties at once, all of which must end within so many seconds."""
    return _outcomes


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
    return _outcomes(30, calls)


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
        return _outcomes(30, calls)

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


class Trial:
    """300 records: the bank's column and labels, three columns at the shop and one at the post.

    All numbers are integers in 1..33 and so is the mapped domain, so that a code without noise is the number itself
    (32 is a power of two: no rounding).
    """

    def __init__(self) -> None:
        draw = np.random.default_rng(5)
        numbers = {name: draw.integers(1, 34, N_ROWS).astype(float) for name in ("age", "spend", "visits", "parcels")}
        town = draw.choice(["north", "south", "east"], N_ROWS)
        score = sum(numbers.values()) / 33 + (town == "north") * 0.8 + draw.normal(0, 0.3, N_ROWS)
        self.labels = (score > np.median(score)).astype(float)
        self.age = numbers["age"]
        visits = pd.Series(numbers["visits"]).where(draw.random(N_ROWS) > 0.1)
        self.tables = {
            "shop": pd.DataFrame({"spend": numbers["spend"], "visits": visits, "town": town}),
            "post": pd.DataFrame({"parcels": numbers["parcels"]}),
        }
        self.ids = pd.Index([f"r{i:03}" for i in range(N_ROWS)], dtype=object)

    def schemas(self, party: str) -> tuple[ColumnSchema, ...]:
        if party == "post":
            return (ColumnSchema(name="parcels", lower=1, upper=33),)
        return (
            ColumnSchema(name="spend", lower=1, upper=33),
            ColumnSchema(name="visits", lower=1, upper=33, missing=Missing.CATEGORY),
            ColumnSchema(name="town", kind=Kind.UNORDERED, categories=("north", "south", "east")),
        )

    def active(self, **changes: Any) -> ActiveJob:
        job: dict[str, Any] = {
            "party": "bank",
            "run_id": "spring",
            "id_digest": "d",
            "own": (OwnColumn("age", self.age),),
            "labels": self.labels,
            "weights": np.ones(N_ROWS),
            "loss": Logistic(),
            "parameters": BoostingParameters(n_estimators=4, max_depth=3),
        }
        return ActiveJob(**{**job, **changes})

    def passive(self, party: str, *, epsilon: float = 0.5, **changes: Any) -> PassiveJob:
        settings = MechanismSettings(epsilon=epsilon, domain_size=33)
        job: dict[str, Any] = {
            "party": party,
            "run_id": "spring",
            "id_digest": "d",
            "features": self.tables[party],
            "mechanisms": tuple(ColumnMechanism(schema, settings) for schema in self.schemas(party)),
            "rng": rng.seeded(11),
        }
        return PassiveJob(**{**job, **changes})


@pytest.fixture(scope="session")
def trial() -> Trial:
    return Trial()


class Site:
    """One organisation's folder with everything a run needs."""

    def __init__(self, root: Path, party: str, peer: str, run: dict[str, Any], schema: dict[str, Any]) -> None:
        self.path = root / party
        self.path.mkdir()
        generate(self.path / "keys", party)
        self.party, self.peer = party, peer
        self.run = {
            "party": party,
            "run_id": "spring",
            "data": "data.csv",
            "schema": "schema.yaml",
            "align": {"method": "prealigned"},
            "secret_key": f"keys/{party}.secret",
            "timeout": 2,
            "wait": 20,
            "report": False,
            **run,
        }
        self.schema = schema
        self.table = pd.DataFrame()

    def write(self) -> Path:
        (self.path / "run.yaml").write_text(yaml.safe_dump(self.run))
        (self.path / "schema.yaml").write_text(yaml.safe_dump(self.schema, sort_keys=False))
        self.table.to_csv(self.path / "data.csv", index=False)
        return self.path / "run.yaml"

    @property
    def run_folder(self) -> Path:
        return self.path / "runs" / "spring"

    def start(self, command: str, *options: str) -> subprocess.Popen[str]:
        call = [sys.executable, "-m", "parties.cli", command, str(self.write()), *options]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        return subprocess.Popen(call, text=True, **pipes)


class Sites:
    """A bank and a shop that know the same 400 customers."""

    def __init__(self, root: Path) -> None:
        (address,) = free_addresses(1)
        self.bank = Site(
            root, "bank", "shop",
            {
                "role": "active", "listen": address, "model": {"n_estimators": 5, "max_depth": 3},
                "passive": [{"name": "shop", "public_key": "keys/shop.public"}],
            },
            {"id": "id", "label": "y", "columns": {"age": {"lower": 18, "upper": 90}}},
        )  # fmt: skip
        self.shop = Site(
            root, "shop", "bank",
            {
                "role": "passive", "connect": address, "desensitize": {"epsilon": 0.5, "theta": 50},
                "active": {"name": "bank", "public_key": "keys/bank.public"},
            },
            {
                "id": "id",
                "columns": {
                    "spend": {"lower": 0, "upper": 100},
                    "visits": {"lower": 0, "upper": 50, "missing": "category"},
                },
            },
        )  # fmt: skip
        for mine, theirs in ((self.bank, self.shop), (self.shop, self.bank)):
            key = f"keys/{mine.party}.public"
            (theirs.path / key).write_text((mine.path / key).read_text())
        draw = np.random.default_rng(2)
        ids = [f"k{i:04}" for i in draw.permutation(N_CUSTOMERS)]
        age, spend = draw.uniform(18, 90, N_CUSTOMERS).round(3), draw.uniform(0, 100, N_CUSTOMERS).round(3)
        visits = np.where(draw.random(N_CUSTOMERS) < 0.1, np.nan, draw.integers(0, 51, N_CUSTOMERS))
        y = (age / 90 + spend / 50 + draw.normal(0, 0.3, N_CUSTOMERS) > 1.6).astype(int)
        self.bank.table = pd.DataFrame({"id": ids, "age": age, "y": y})
        self.shop.table = pd.DataFrame({"id": ids, "spend": spend, "visits": visits}).sample(frac=1, random_state=1)


@pytest.fixture
def sites(tmp_path: Path) -> Sites:
    return Sites(tmp_path)


@pytest.fixture(scope="session")
def make_sites() -> type[Sites]:
    """Make a bank's and a shop's folders below a root."""
    return Sites
