"""A coordinator with its workers on small tables, each in a thread, over memory and over CURVE."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from opboost.horizontal.noise.distributed_noise import shared_leaf_noise
from opboost.horizontal.noise.leaf_noise import leaf_noise
from opboost.horizontal.noise.leaf_sensitivity import leaf_clipping
from opboost.horizontal.public_task import PublicTask
from opboost.horizontal.rows.public_grid import PublicGrid
from opboost.horizontal.sgbdt.owners import SGBDTAmongOwners
from opboost.horizontal.sgbdt.training import SGBDTSettings
from opboost.rng import BitSource, seeded
from parties.horizontal.coordinator import SharedModel, run_coordinator
from parties.horizontal.public_randomness import commitment, public_bits
from parties.horizontal.worker import WorkerJob, run_worker
from parties.horizontal.worker_group import WorkerGroup
from protocols.messages.vertical import Message
from protocols.transport.channel import Channel, Timing
from protocols.transport.keys import generate, read_secret
from protocols.transport.memory import memory_pair
from protocols.transport.zmq_channel import ConnectedChannel
from protocols.transport.zmq_listener import Listener

N_ROWS, N_TREES = 240, 4
TERMS = {"recipe": "sgbdt", "epsilon": 2.0, "threshold": 2}
CLIPPING = leaf_clipping(0.5, 2.0, is_classification=True)
TIMING = Timing(timeout_s=3, wait_s=10)


def recipe(*, n_honest: int = 0, n_trees: int = N_TREES, epsilon: float = 2.0, **changes: Any) -> SGBDTAmongOwners:
    budget: dict[str, Any] = {"epsilon": epsilon, "delta": 1e-6, "n_trees": n_trees}
    noise = (
        shared_leaf_noise(CLIPPING, n_honest=n_honest, **budget)
        if n_honest
        else leaf_noise(CLIPPING, initial_share=0, has_filter=True, **budget)
    )
    task = PublicTask(("a", "b", "c"), PublicGrid([(0, 1)] * 3, 16), 0.0, 1.0, epsilon, True, True)
    settings = SGBDTSettings(max_depth=2, learning_rate=0.5, reg_lambda=1.0, noise_lambda=1.0, max_leaf=2.0)
    return SGBDTAmongOwners(task=task, settings=settings, noise=noise, n_trees=n_trees, delta=1e-6, **changes)


def rows(place: int, n_workers: int = 3) -> tuple[np.ndarray, np.ndarray]:
    draw = np.random.default_rng(4)
    X = draw.random((N_ROWS, 3))
    y = (X[:, 0] + 0.2 * draw.standard_normal(N_ROWS) > 0.5).astype(float)
    return X[place::n_workers], y[place::n_workers]


def job(of: SGBDTAmongOwners, place: int, *, n_workers: int = 3, **changes: Any) -> WorkerJob:
    """Worker w0, w1, ...: its coins and noise come from its number, so that a test can draw them again."""
    bits = seeded(100 + place)
    X, y = rows(place, n_workers)
    settings = {
        "party": f"w{place}",
        "run_id": "spring",
        "terms": TERMS,
        "threshold": 2,
        "recipe": of,
        "rng": bits,
        "make_rows": lambda: of.rows(X, y, rng=bits.fork("rows")),
    }
    return WorkerJob(**{**settings, **changes})


def shape_bits(n_workers: int = 3) -> BitSource:
    """The public bits of these workers."""
    random = [seeded(100 + place).fork("public").words(4).tobytes() for place in range(n_workers)]
    names = tuple(f"w{place}" for place in range(n_workers))
    committed = [commitment("spring", name, each) for name, each in zip(names, random, strict=True)]
    as_rows = [np.frombuffer(b"".join(parts), np.uint8).reshape(-1, 32) for parts in (committed, random)]
    return public_bits("spring", names, *as_rows)


def leaves(ensemble: Any) -> list[list[float]]:
    return [tree.values.tolist() for tree in ensemble.trees]


class BrieflyMissed(WorkerGroup):
    """Workers whose coming may take long on a busy machine, and who are waited for briefly when they are gone."""

    __slots__ = ()

    def gather(self) -> BitSource:
        bits = super().gather()
        self.wait_s = self._connections.return_s = min(self.wait_s, 0.5)
        return bits


class Run:
    """A coordinator with its workers, each in a thread; ends what it began."""

    def __init__(self, folder: Path, carrier: str) -> None:
        self.events: list[tuple[str, str]] = []
        self.found: dict[str, Any] = {}
        self._threads: dict[str, threading.Thread] = {}
        self._carrier = carrier
        self._near: list[Channel] = []
        self._far: dict[str, Channel] = {}
        names = [f"w{place}" for place in range(5)]
        if carrier == "curve":
            self._keys = {name: read_secret(generate(folder, name)[0]) for name in ("hub", *names)}
            self._folder = folder

    def lasting(self, place: int) -> dict[str, Any]:
        """What a worker's job has that knows the others' keys."""
        others = [f"w{other}" for other in range(3) if other != place]
        keys = {name: self._keys[name].public for name in others}
        return {"identity": self._keys[f"w{place}"], "lasting_keys": keys}

    def open(self, n_workers: int) -> None:
        names = [f"w{place}" for place in range(n_workers)]
        if self._carrier == "memory":
            for name in names:
                near, far = memory_pair("hub", name)
                self._near.append(near)
                self._far[name] = far
            self._close = lambda: [channel.close() for channel in self._near]
        else:
            peers = {name: self._keys[name].public for name in names}
            self._listener = Listener("tcp://127.0.0.1:*", peers, keys=self._keys["hub"], timing=TIMING)
            self._near = [self._listener.channel(name) for name in names]
            self._close = self._listener.close

    def late(self, seconds: float) -> Callable[[Message], Message]:
        """Lets a message wait so long; the coordinator waits for workers of which then too few are left."""

        def wait(message: Message) -> Message:
            self.group.wait_s = 30.0
            time.sleep(seconds)
            return message

        return wait

    def channel(self, name: str) -> Channel:
        """The end of a worker; over CURVE a new one each time."""
        if self._carrier == "memory":
            return self._far[name]
        return ConnectedChannel(
            self._listener.address,
            name=name,
            peer="hub",
            keys=self._keys[name],
            peer_key=self._keys["hub"].public,
            timing=TIMING,
        )

    def start(self, name: str, call: Callable[[], Any]) -> None:
        def run() -> None:
            try:
                self.found[name] = call()
            except BaseException as error:
                self.found[name] = error

        self._threads[name] = threading.Thread(target=run, daemon=True)
        self._threads[name].start()

    def start_hub(self, of: Any, n_workers: int = 3, **changes: Any) -> None:
        self.open(n_workers)
        self.group = BrieflyMissed(
            **{
                "channels": self._near,
                "run_id": "spring",
                "terms": TERMS,
                "threshold": 2,
                "wait_s": 30.0,
                "patience_s": 30.0,
                "note": lambda *event: self.events.append(event),
                **changes,
            }
        )

        def lead() -> SharedModel:
            try:
                return run_coordinator(of, self.group, rng=seeded(8))
            finally:
                self._close()

        self.start("hub", lead)

    def start_worker(
        self, a_job: WorkerJob, *, through: Callable[[Channel], Channel] = lambda channel: channel
    ) -> None:
        def take_part() -> Any:
            channel = through(self.channel(a_job.party))
            try:
                return run_worker(a_job, channel)
            finally:
                channel.close()

        self.start(a_job.party, take_part)

    def join(self, *names: str, seconds: float = 60.0) -> dict[str, Any]:
        for name in names or tuple(self._threads):
            self._threads[name].join(seconds)
            assert name in self.found, f"{name} still works after {seconds} s"
        return self.found


class Meddling:
    """A channel whose owner does something before a message of one kind leaves."""

    def __init__(self, channel: Channel, kind: str, act: Callable[[Message], Message | None], *, nth: int = 0) -> None:
        self._channel = channel
        self._kind, self._act, self._left = kind, act, nth

    def send(self, message: Message) -> None:
        if message.kind == self._kind:
            self._left -= 1
            if self._left == -1:
                changed = self._act(message)
                if changed is None:
                    return
                message = changed
        self._channel.send(message)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._channel, name)


def meddling(kind: str, act: Callable[[Message], Message | None], *, nth: int = 0) -> Callable[[Channel], Any]:
    return lambda channel: Meddling(channel, kind, act, nth=nth)


class Dies(Exception):
    pass


def die(message: Message) -> None:
    raise Dies
