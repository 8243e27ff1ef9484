"""Time, bytes and memory of alignment: two processes over ZeroMQ with CURVE on loopback, one JSON line per measurement.

Each party brings as many ids as given (100,000 by default), half of which the other one knows, and the result is
checked against the truth. Seconds count from the moment that both are connected; memory is by how much the process's
peak rose, imports and the ids themselves aside.

    python scripts/bench/alignment.py [--ids N] [--of-a N] [--method psi|psi-dh|hashed]

`--of-a` gives A another number of ids than B, and measures `psi-dh` with B's ids prepared. Of these only the common
ones are: the others have random values, since their preparation, minutes per million, is not what is measured.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import get_args

import numpy as np
from measuring import peak_bytes, say

from protocols.alignment.curve_prf import PreparedIds
from protocols.alignment.private_set_intersection import AlignmentTerms, Common, SetMethod, psi_initiate, psi_respond
from protocols.alignment.random_transfers import Chooser
from protocols.alignment.sorted_rows import as_words
from protocols.messages.vertical import Done
from protocols.transport.channel import Channel, Timing, expect
from protocols.transport.keys import generate, read_secret
from protocols.transport.zmq_channel import ConnectedChannel
from protocols.transport.zmq_listener import Listener

SECRET = bytes(range(32))


def main() -> None:
    """Measure the methods and print them."""
    parser = argparse.ArgumentParser(description="Measure the alignment of two parties' record ids.")
    parser.add_argument("--ids", type=int, default=100_000, help="ids per party")
    parser.add_argument("--of-a", type=int, help="ids of A, against B's prepared ones")
    parser.add_argument("--method", choices=get_args(SetMethod), help="one method only")
    options = parser.parse_args()
    if options.of_a:
        measure("psi-dh", options.ids, options.of_a)
        return
    for method in (options.method,) if options.method else get_args(SetMethod):
        measure(method, options.ids)


def measure(method: SetMethod, n_ids: int, n_of_a: int | None = None) -> None:
    """Run both parties once; print a line per party."""
    spawn = multiprocessing.get_context("spawn")
    case = Case(method, n_ids, n_of_a)
    with tempfile.TemporaryDirectory() as folder:
        for name in ("a", "b"):
            generate(Path(folder), name)
        mine, theirs = spawn.Pipe(), spawn.Pipe()
        a = spawn.Process(target=lead, args=(folder, case, mine[1]))
        b = spawn.Process(target=follow, args=(folder, case, theirs[1]))
        a.start()
        address = mine[0].recv()
        b.start()
        theirs[0].send(address)
        for party, pipe in (("a", mine[0]), ("b", theirs[0])):
            say(bench="alignment", method=method, party=party, cores=os.cpu_count(), **pipe.recv())
        a.join()
        b.join()


@dataclass(frozen=True)
class Case:
    """What is measured."""

    method: SetMethod
    n_ids: int
    n_of_a: int | None

    def ids_of(self, party: str) -> list[bytes]:
        """Ids of one party: the other one knows the last half of A's, which are B's first ones."""
        n_of_a = self.n_of_a or self.n_ids
        start, count = (0, n_of_a) if party == "a" else (n_of_a // 2, self.n_ids)
        return [b"customer-%012d" % number for number in range(start, start + count)]

    def prepared(self, ids: Sequence[bytes]) -> PreparedIds | None:
        """B's ids under a key, as it were."""
        if self.n_of_a is None:
            return None
        some = PreparedIds.of(ids[: self.n_of_a - self.n_of_a // 2], lambda step, done, total: None)
        values = np.frombuffer(bytearray(os.urandom(len(ids) * some.values.shape[1])), np.uint8)
        values = values.reshape(len(ids), -1)
        values[: len(some.values)] = some.values
        return PreparedIds(some.key, values, np.argsort(as_words(values)))


def lead(folder: str, case: Case, pipe: Connection) -> None:
    """The active party's process."""
    keys = {name: read_secret(Path(folder) / f"{name}.secret") for name in ("a", "b")}
    listener = Listener("tcp://127.0.0.1:*", {"b": keys["b"].public}, keys=keys["a"], timing=Timing(wait_s=600))
    pipe.send(listener.address)
    channel = listener.channel("b")
    pipe.send(run(channel, "a", case))
    listener.close()


def follow(folder: str, case: Case, pipe: Connection) -> None:
    """The passive party's process."""
    keys = {name: read_secret(Path(folder) / f"{name}.secret") for name in ("a", "b")}
    channel = ConnectedChannel(
        pipe.recv(), name="b", peer="a", keys=keys["b"], peer_key=keys["a"].public, timing=Timing(wait_s=600)
    )
    pipe.send(run(channel, "b", case))
    channel.close()


def run(channel: Channel, party: str, case: Case) -> dict[str, object]:
    """Align once and tell what it took, from when both are ready."""
    ids = case.ids_of(party)
    prepared = case.prepared(ids) if party == "b" else None
    terms = AlignmentTerms(run_id="bench", method=case.method, secret=SECRET, prepared=prepared)
    size = case.n_ids if party == "a" else case.n_of_a or case.n_ids
    Chooser(1, b"")  # Loads the libraries.
    if party == "a":
        expect(channel, Done)
    channel.send(Done())
    if party == "b":
        expect(channel, Done)
    before_bytes = peak_bytes(reset=True)
    started, cpu_started = time.monotonic(), time.process_time()
    if party == "a":
        common = psi_initiate([channel], ids, sizes=[size], terms=terms)
    else:
        common = psi_respond(channel, ids, size=size, terms=terms)
    seconds, cpu_seconds = time.monotonic() - started, time.process_time() - cpu_started
    check(common, party, len(ids), size)
    return {
        "ids": len(ids),
        "common": len(common.positions),
        "seconds": round(seconds, 2),
        "cpu_seconds": round(cpu_seconds, 2),
        "sent_bytes": channel.traffic.sent_bytes,
        "memory_mb": round((peak_bytes() - before_bytes) / 1e6, 1),
        "peak_mb": round(peak_bytes() / 1e6, 1),
    }


def check(common: Common, party: str, n_own: int, n_theirs: int) -> None:
    """Stop if the result is not the truth."""
    n_of_a = n_own if party == "a" else n_theirs
    expected = np.arange(n_of_a // 2, n_of_a) if party == "a" else np.arange(n_of_a - n_of_a // 2)
    if not np.array_equal(common.positions, expected):
        raise SystemExit(f"wrong ids were found at {party}")


if __name__ == "__main__":
    main()
