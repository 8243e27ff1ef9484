"""Time, bytes and memory of alignment: two processes over ZeroMQ with CURVE on loopback, one JSON line per measurement.

Each party brings as many ids as given (100,000 by default), half of which the other one knows, and the result is
checked against the truth. Seconds count from the moment that both are connected; memory is by how much the process's
peak rose, imports and the ids themselves aside.

    python scripts/bench/alignment.py [--ids N] [--method psi|psi-dh|hashed]
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import tempfile
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import get_args

import numpy as np
from measuring import peak_bytes, say

from protocols.alignment.private_set_intersection import AlignmentTerms, Common, SetMethod, psi_initiate, psi_respond
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
    parser.add_argument("--method", choices=get_args(SetMethod), help="one method only")
    options = parser.parse_args()
    for method in (options.method,) if options.method else get_args(SetMethod):
        measure(method, options.ids)


def measure(method: SetMethod, n_ids: int) -> None:
    """Run both parties once; print a line per party."""
    spawn = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as folder:
        for name in ("a", "b"):
            generate(Path(folder), name)
        mine, theirs = spawn.Pipe(), spawn.Pipe()
        a = spawn.Process(target=lead, args=(folder, method, n_ids, mine[1]))
        b = spawn.Process(target=follow, args=(folder, method, n_ids, theirs[1]))
        a.start()
        address = mine[0].recv()
        b.start()
        theirs[0].send(address)
        for party, pipe in (("a", mine[0]), ("b", theirs[0])):
            say(bench="alignment", method=method, ids=n_ids, party=party, cores=os.cpu_count(), **pipe.recv())
        a.join()
        b.join()


def ids_of(party: str, n_ids: int) -> list[bytes]:
    """Ids of one party, of which the other one knows the half."""
    start = 0 if party == "a" else n_ids // 2
    return [b"customer-%012d" % number for number in range(start, start + n_ids)]


def lead(folder: str, method: SetMethod, n_ids: int, pipe: Connection) -> None:
    """The active party's process."""
    keys = {name: read_secret(Path(folder) / f"{name}.secret") for name in ("a", "b")}
    listener = Listener("tcp://127.0.0.1:*", {"b": keys["b"].public}, keys=keys["a"], timing=Timing())
    pipe.send(listener.address)
    channel = listener.channel("b")
    expect(channel, Done)
    channel.send(Done())
    pipe.send(run(channel, "a", method, n_ids))
    listener.close()


def follow(folder: str, method: SetMethod, n_ids: int, pipe: Connection) -> None:
    """The passive party's process."""
    keys = {name: read_secret(Path(folder) / f"{name}.secret") for name in ("a", "b")}
    channel = ConnectedChannel(
        pipe.recv(), name="b", peer="a", keys=keys["b"], peer_key=keys["a"].public, timing=Timing()
    )
    channel.send(Done())
    expect(channel, Done)
    pipe.send(run(channel, "b", method, n_ids))
    channel.close()


def run(channel: Channel, party: str, method: SetMethod, n_ids: int) -> dict[str, object]:
    """Align once and tell what it took."""
    ids, terms = ids_of(party, n_ids), AlignmentTerms(run_id="bench", method=method, secret=SECRET)
    before_bytes = peak_bytes(reset=True)
    started, cpu_started = time.monotonic(), time.process_time()
    if party == "a":
        common = psi_initiate([channel], ids, sizes=[n_ids], terms=terms)
    else:
        common = psi_respond(channel, ids, size=n_ids, terms=terms)
    seconds, cpu_seconds = time.monotonic() - started, time.process_time() - cpu_started
    check(common, party, n_ids)
    return {
        "common": len(common.positions),
        "seconds": round(seconds, 2),
        "cpu_seconds": round(cpu_seconds, 2),
        "sent_bytes": channel.traffic.sent_bytes,
        "memory_mb": round((peak_bytes() - before_bytes) / 1e6, 1),
        "peak_mb": round(peak_bytes() / 1e6, 1),
    }


def check(common: Common, party: str, n_ids: int) -> None:
    """Stop if the result is not the truth."""
    start = n_ids // 2 if party == "a" else 0
    expected = np.arange(start, n_ids) if party == "a" else np.arange(n_ids - n_ids // 2)
    if not np.array_equal(common.positions, expected):
        raise SystemExit(f"wrong ids were found at {party}")


if __name__ == "__main__":
    main()
