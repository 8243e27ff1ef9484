"""Owners in a chain on small tables, each in a thread, over memory and over CURVE."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from opboost.horizontal.inprivate.owners import InPrivateAmongOwners
from opboost.horizontal.inprivate.settings import InPrivateSettings
from opboost.horizontal.public_task import PublicTask
from opboost.horizontal.rows.public_grid import PublicGrid
from opboost.rng import seeded
from parties.horizontal.chain.checkpoint import ChainCheckpoint, trees_digest
from parties.horizontal.chain.job import ChainJob
from parties.horizontal.chain.turns import run_chain_owner
from parties.runs.run_folder import RunFolder
from protocols.messages.horizontal import PassTree
from protocols.messages.message import Message
from protocols.messages.vertical import Done
from protocols.transport.channel import Channel, Timing
from protocols.transport.keys import generate, read_secret
from protocols.transport.memory import memory_pair
from protocols.transport.zmq_channel import ConnectedChannel
from protocols.transport.zmq_listener import Listener

ORDER = ("w0", "w1", "w2")
# Longer than any training here takes, whatever else the machine does.
JOIN_S = 60

TERMS = {"recipe": "inprivate", "epsilon": 2.0, "order": list(ORDER)}


def recipe(*, is_classification: bool = True, n_rounds: int = 2, epsilon: float = 2.0) -> InPrivateAmongOwners:
    task = PublicTask(("a", "b", "c"), PublicGrid([(0, 1)] * 3, 16), 0.5, 0.5, epsilon, True, is_classification)
    settings = InPrivateSettings(n_rounds=n_rounds, max_depth=2, learning_rate=0.5, reg_lambda=1.0, noise_lambda=2.0)
    return InPrivateAmongOwners(task=task, settings=settings)


def rows(place: int) -> tuple[np.ndarray, np.ndarray]:
    draw = np.random.default_rng(4)
    X = draw.random((240, 3))
    y = (X[:, 0] + 0.2 * draw.standard_normal(240) > 0.5).astype(float)
    return X[place::3], y[place::3]


def owner_of(of: InPrivateAmongOwners, place: int) -> Any:
    return of.owner(*rows(place), coins=seeded(50 + place), rng=seeded(100 + place))


# What becomes of a message to an owner on the way out.
Change = Callable[[str, Message], Message]


def splitting(victim: str, whose: str, checkpoint: ChainCheckpoint, of: InPrivateAmongOwners) -> Change:
    """An owner's words, of which one other owner hears negated trees of an owner, and a digest that fits them."""

    def negated(turn: int) -> bool:
        return ORDER[turn % len(ORDER)] == whose

    def change(peer: str, message: Message) -> Message:
        if peer == victim and isinstance(message, PassTree) and negated(message.turn):
            return message.model_copy(update={"values": -message.values})
        if peer == victim and isinstance(message, Done):
            turns = enumerate(checkpoint.read(of, is_own=lambda turn: True))
            told = [
                replace(one, tree=replace(one.tree, values=-one.tree.values)) if negated(k) else one for k, one in turns
            ]
            return Done(trees=trees_digest(told))
        return message

    return change


class Meddling:
    """A channel whose messages are changed on the way out."""

    def __init__(self, channel: Channel, change: Change) -> None:
        self._channel = channel
        self._change = change

    def __getattr__(self, name: str) -> Any:
        return getattr(self._channel, name)

    def send(self, message: Message) -> None:
        self._channel.send(self._change(self._channel.peer, message))


class Chain:
    """Three owners, each in a thread with a run folder; ends what it began."""

    def __init__(self, root: Path, carrier: str) -> None:
        self.carrier, self.root, self.timing = carrier, root, Timing(timeout_s=3, wait_s=20)
        if carrier == "curve":
            self._keys = {name: read_secret(generate(root, name)[0]) for name in ORDER}

    def folder(self, name: str) -> RunFolder:
        folder = RunFolder(self.root / f"run-{name}")
        if not (folder.path / "meta.json").exists():
            folder.path.mkdir(parents=True)
            folder.write_json("meta.json", {"released": False})
        return folder

    def job(self, of: InPrivateAmongOwners, name: str, **changes: Any) -> ChainJob:
        place, checkpoint = ORDER.index(name), ChainCheckpoint(self.folder(name))

        def make_owner() -> Any:
            checkpoint.coins("rows", rng=seeded(place))
            fresh = seeded(100 + place).fork(str(checkpoint.count)) if checkpoint.count else seeded(100 + place)
            return of.owner(*rows(place), coins=seeded(50 + place), rng=fresh)

        settings: dict[str, Any] = {
            "party": name,
            "run_id": "spring",
            "order": ORDER,
            "terms": TERMS,
            "broadcast": True,
            "recipe": of,
            "make_owner": make_owner,
            "is_secure": False,
            "checkpoint": checkpoint,
            "calls": frozenset(ORDER[place + 1 :]),
            "wait_s": self.timing.wait_s,
        }
        return ChainJob(**{**settings, **changes})

    def channels(self) -> tuple[dict[str, Callable[[], dict[str, Any]]], dict[str, Callable[[], None]]]:
        """How each owner comes by its channels, and what closes them."""
        ends: dict[str, dict[str, Any]] = {name: {} for name in ORDER}
        pairs = [(a, b) for i, a in enumerate(ORDER) for b in ORDER[i + 1 :]]
        if self.carrier == "curve":
            return self._over_curve(ends, pairs)
        for a, b in pairs:
            ends[a][b], ends[b][a] = memory_pair(a, b)
        made = {name: (lambda name=name: ends[name]) for name in ORDER}
        closes = {name: (lambda name=name: [one.close() for one in ends[name].values()]) for name in ORDER}
        return made, closes  # type: ignore[return-value]

    def _over_curve(self, ends: dict[str, dict[str, Any]], pairs: list[tuple[str, str]]) -> Any:
        listeners = {
            name: Listener(
                "tcp://127.0.0.1:*",
                {a: self._keys[a].public for a, b in pairs if b == name},
                keys=self._keys[name],
                timing=self.timing,
            )
            for name in ORDER[1:]
        }

        def open_all(name: str) -> dict[str, Any]:
            ends[name] |= {a: listeners[name].channel(a) for a, b in pairs if b == name}
            ends[name] |= {
                b: ConnectedChannel(
                    listeners[b].address,
                    name=name,
                    peer=b,
                    keys=self._keys[name],
                    peer_key=self._keys[b].public,
                    timing=self.timing,
                )
                for a, b in pairs
                if a == name
            }
            return ends[name]

        def close_all(name: str) -> None:
            for channel in ends[name].values():
                channel.close()
            if name in listeners:
                listeners[name].close()

        return (
            {name: (lambda name=name: open_all(name)) for name in ORDER},
            {name: (lambda name=name: close_all(name)) for name in ORDER},
        )

    def run(self, jobs: dict[str, ChainJob], through: dict[str, Change] | None = None) -> dict[str, Any]:
        """What every owner returned or raised."""
        found: dict[str, Any] = {}
        opens, closes = self.channels()

        def be(name: str) -> None:
            try:
                channels = {peer: one for peer, one in opens[name]().items() if peer in jobs[name].order}
                if name in (through or {}):
                    channels = {peer: Meddling(channel, through[name]) for peer, channel in channels.items()}
                found[name] = run_chain_owner(jobs[name], channels)
            except BaseException as error:
                found[name] = error
            finally:
                closes[name]()

        threads = [threading.Thread(target=be, args=(name,), daemon=True) for name in jobs]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(JOIN_S)
            assert not thread.is_alive()
        return found
