"""Channels in memory in place of sockets, under whole jobs of all parties, with all that each end received."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

from parties.jobs import answer_vertical, predict_vertical, train_vertical
from protocols.messages.message import Message
from protocols.transport.channel import Channel
from protocols.transport.codec import Frame, decode
from protocols.transport.memory import memory_pair


class MemoryWire:
    """Channels in memory in place of sockets, with everything that each end received, by sender.

    How the messages of several senders follow each other is a matter of time.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for module in (train_vertical, predict_vertical, answer_vertical):
            monkeypatch.setattr(module, "open_connections", self._opened)
        self.received: dict[str, dict[str, list[Message]]] = {}
        self._pairs: dict[str, tuple[Any, Any]] = {}

    def lay(self, names: Iterable[str]) -> None:
        """New channels between the bank and these."""
        self._pairs = {name: memory_pair("bank", name) for name in names}
        self.received = {}
        for name, (near, far) in self._pairs.items():
            near.traffic.on_receive = self._note("bank", name)
            far.traffic.on_receive = self._note(name)

    def end(self, party: str, peer: str) -> Channel:
        """A party's end, for whoever plays it."""
        near, far = self._pairs[peer if party == "bank" else party]
        channel: Channel = near if party == "bank" else far
        return channel

    def close(self, party: str) -> None:
        """What the end of a process does to its sockets."""
        for name, (near, far) in self._pairs.items():
            if party in ("bank", name):
                (near if party == "bank" else far).close()

    def drain(self) -> None:
        """Count what waits for a party that did not read it any more; how the other side ended may be told so."""
        for name, (near, far) in self._pairs.items():
            for party, end, sender in (("bank", near, name), (name, far, "bank")):
                for frames in end._incoming.queue:
                    self._note(party, sender)("", frames)

    def together(self, calls: Mapping[str, Callable[[], Any]]) -> dict[str, Any]:
        """What each call returned or raised, all at once; whoever ends closes its channels."""
        self.lay(name for name in calls if name != "bank")
        found: dict[str, Any] = {}

        def run(name: str, call: Callable[[], Any]) -> None:
            try:
                found[name] = call()
            except Exception as error:
                found[name] = error
            finally:
                self.close(name)

        threads = [threading.Thread(target=run, args=item, daemon=True) for item in calls.items()]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        assert sorted(found) == sorted(calls)
        self.drain()
        return found

    def _note(self, party: str, sender: str = "bank") -> Callable[[str, Sequence[Frame]], None]:
        def note(kind: str, frames: Sequence[Frame]) -> None:
            from_sender = self.received.setdefault(party, {}).setdefault(sender, [])
            from_sender.append(decode([bytes(frame) for frame in frames]))

        return note

    @contextmanager
    def _opened(self, run: Any, insecure: bool) -> Iterator[Callable[[Any], dict[str, Channel]]]:
        names = [peer.name for peer in run.wiring.peers]
        yield lambda log: {name: self.end(run.party, name) for name in names}
