"""Seconds of a training run with worker processes over CURVE on this machine; one JSON line per setting.

Every worker is a process; the coordinator is this one. The clock starts when all processes have loaded their code, and
stops when the last one has the finished model. `cpu_s` is what all processes together used meanwhile, whatever else
the machine was doing; `load` tells how much that was.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import tempfile
import time
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any

import numpy as np

from opboost import rng
from opboost.horizontal.leaf_noise import leaf_clipping
from opboost.horizontal.public_table import PublicGrid
from opboost.horizontal.public_task import PublicTask
from opboost.horizontal.sgbdt import Shape
from opboost.horizontal.sgbdt_owners import SGBDTAmongOwners
from opboost.horizontal.shared_noise import shared_leaf_noise
from parties.coordinator import coordinate
from parties.worker import WorkerJob, work
from parties.worker_group import WorkerGroup
from protocols.channel import Timing
from protocols.keys import KeyPair, generate, read_secret
from protocols.zmq_channel import ConnectedChannel
from protocols.zmq_listener import Listener

N_ROWS, N_COLUMNS = 1000, 10
TIMING = Timing(timeout_s=60, wait_s=120)
PORT = 17671


def recipe(n_workers: int, n_trees: int) -> SGBDTAmongOwners:
    clipping = leaf_clipping(0.5, 2.0, is_classification=True)
    noise = shared_leaf_noise(
        clipping, epsilon=1.0, delta=1e-6, n_trees=n_trees, n_honest=n_workers // 2 + 1, has_filter=True
    )
    names = tuple(f"c{column}" for column in range(N_COLUMNS))
    task = PublicTask(names, PublicGrid([(0, 1)] * N_COLUMNS, 16), 0.0, 1.0, 1.0, True, True)
    shape = Shape(max_depth=4, learning_rate=0.4, reg_lambda=1.0, noise_lambda=6.0, max_leaf=2.0)
    return SGBDTAmongOwners(task=task, shape=shape, noise=noise, n_trees=n_trees, delta=1e-6)


def be_worker(
    place: int, n_workers: int, n_trees: int, keys: KeyPair, hub: bytes, loaded: Barrier, used: Queue[float]
) -> None:
    of, bits = recipe(n_workers, n_trees), rng.secure()
    draw = np.random.default_rng(place)
    X = draw.random((N_ROWS, N_COLUMNS))
    y = (X[:, 0] + X[:, 1] > 1).astype(float)
    job = WorkerJob(
        party=f"w{place}", run_id="bench", terms={}, threshold=n_workers // 2 + 1, n_trees=n_trees,
        n_bins=of.task.grid.axes.n_bins, rng=bits,
        make_rows=lambda *, shape_bits: of.rows(X, y, shape_bits=shape_bits, rng=bits.fork("rows")),
    )  # fmt: skip
    of.rows(X[:2], y[:2], shape_bits=rng.seeded(0), rng=rng.seeded(0))
    loaded.wait()
    before = time.process_time()
    channel = ConnectedChannel(
        f"tcp://127.0.0.1:{PORT}", name=job.party, peer="hub", keys=keys, peer_key=hub, timing=TIMING
    )
    work(job, channel)
    channel.close()
    used.put(time.process_time() - before)


def measure(n_workers: int, n_trees: int) -> dict[str, Any]:
    names = ["hub", *(f"w{place}" for place in range(n_workers))]
    with tempfile.TemporaryDirectory() as folder:
        keys = {name: read_secret(generate(Path(folder), name)[0]) for name in names}
    context = multiprocessing.get_context("spawn")
    loaded, used = context.Barrier(n_workers + 1), context.Queue()
    processes = [
        context.Process(
            target=be_worker, args=(place, n_workers, n_trees, keys[f"w{place}"], keys["hub"].public, loaded, used)
        )
        for place in range(n_workers)
    ]
    for process in processes:
        process.start()
    loaded.wait()
    start, before = time.perf_counter(), time.process_time()
    peers = {name: keys[name].public for name in names[1:]}
    listener = Listener(f"tcp://127.0.0.1:{PORT}", peers, keys=keys["hub"], timing=TIMING)
    channels = [listener.channel(name) for name in peers]
    workers = WorkerGroup(
        channels=channels, run_id="bench", terms={}, threshold=n_workers // 2 + 1, wait_s=120, patience_s=120
    )
    coordinate(recipe(n_workers, n_trees), workers, rng=rng.secure())
    listener.close()
    cpu_s = sum(used.get() for _ in processes)
    for process in processes:
        process.join()
    seconds = time.perf_counter() - start
    cpu_s += time.process_time() - before
    sent = sum(channel.traffic.sent_bytes for channel in channels)
    received = sum(channel.traffic.received_bytes for channel in channels)
    return {
        "bench": "horizontal", "workers": n_workers, "rows_each": N_ROWS, "rounds": n_trees,
        "seconds": round(seconds, 2), "cpu_s": round(cpu_s, 2),
        "sent_mb": round(sent / 1e6, 2), "received_mb": round(received / 1e6, 2),
        "load": round(os.getloadavg()[0], 1),
    }  # fmt: skip


def main() -> None:
    for n_workers, n_trees in ((3, 20), (20, 20)):
        print(json.dumps(measure(n_workers, n_trees)), flush=True)


if __name__ == "__main__":
    main()
