"""Seconds of a training run with worker processes over CURVE on this machine; one JSON line per setting.

Random trees with Newton updates, 200 in batches of 10: 20 rounds of secure aggregation, noise in shares by the workers.
Every worker is a process of its own; the coordinator is this one, and has its code loaded. Two clocks stop when the
last worker has the finished model: `seconds` starts when all processes have loaded their code and wait, `from_start_s`
when the first process is started; owners who share no machine load their code at the same time. `cpu_s` and
`from_start_cpu_s` are what all processes together used. `ratio_vs_one_process` is `seconds` over those of the same
training in one process.
"""

from __future__ import annotations

import math
import multiprocessing
import os
import resource
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any

import numpy as np
from measuring import free_ports, say
from numpy.typing import NDArray

from opboost import rng
from opboost.horizontal.federated.owners import FederatedAmongOwners
from opboost.horizontal.public_task import PublicTask
from opboost.horizontal.rows.client_rows import ClientRows
from parties.config.federated_section import FederatedSection
from parties.horizontal.coordinator import run_coordinator
from parties.horizontal.worker import WorkerJob, run_worker
from parties.horizontal.worker_group import WorkerGroup
from protocols.transport.channel import Timing
from protocols.transport.keys import KeyPair, generate, read_secret
from protocols.transport.zmq_channel import ConnectedChannel
from protocols.transport.zmq_listener import Listener

N_ROWS, N_COLUMNS = 1000, 10
N_TREES, BATCH_SIZE = 200, 10
# Hundreds of workers share the cores of one machine.
TIMING = Timing(timeout_s=60, wait_s=900)


def recipe(n_workers: int) -> FederatedAmongOwners:
    names = tuple(f"c{column}" for column in range(N_COLUMNS))
    section = FederatedSection(n_estimators=N_TREES, batch_size=BATCH_SIZE)
    task = PublicTask(names, section.grid(names, [(0.0, 1.0)] * N_COLUMNS), 0.0, 1.0, 1.0, True, True)
    return section.recipe(task, delta=1e-6, n_honest=n_workers // 2 + 1)


def table(place: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    X = np.random.default_rng(place).random((N_ROWS, N_COLUMNS))
    return X, (X[:, 0] + X[:, 1] > 1).astype(float)


def be_workers(
    places: list[int],
    n_workers: int,
    keys: list[KeyPair],
    hub: bytes,
    address: str,
    loaded: Barrier,
    used: Queue[tuple[float, float]],
) -> None:
    """Several workers in a process of threads, as far as they are more than processes."""
    of = recipe(n_workers)
    in_one_process(of, *(part[:2] for part in table(places[0])), n_trees=1)
    loaded.wait()
    before = time.process_time()
    with ThreadPoolExecutor(len(places)) as threads:
        list(threads.map(lambda place, own: be_worker(place, n_workers, own, hub, address), places, keys))
    used.put((time.process_time() - before, time.process_time()))


def be_worker(place: int, n_workers: int, keys: KeyPair, hub: bytes, address: str) -> None:
    of, bits = recipe(n_workers), rng.secure()
    X, y = table(place)
    job = WorkerJob(
        party=f"w{place}",
        run_id="bench",
        terms={},
        threshold=n_workers // 2 + 1,
        recipe=of,
        rng=bits,
        make_rows=lambda: of.rows(X, y, rng=bits.fork("rows")),
    )
    channel = ConnectedChannel(address, name=job.party, peer="hub", keys=keys, peer_key=hub, timing=TIMING)
    run_worker(job, channel)
    channel.close()


def in_one_process(
    of: FederatedAmongOwners, X: NDArray[np.float64], y: NDArray[np.float64], *, n_trees: int = N_TREES
) -> float:
    """Seconds of the same trees on rows that are all here, with noise drawn once."""
    start = time.perf_counter()
    exact = ClientRows(
        X, y, columns=of.task.grid, gradients=of.update.gradients, clipping=of.update.clipping, walks=True
    )
    section = FederatedSection(n_estimators=n_trees, batch_size=BATCH_SIZE)
    section.recipe(of.task, delta=1e-6, n_honest=None).train(exact, shape_bits=rng.seeded(0), rng=rng.secure())
    return time.perf_counter() - start


def measure(n_workers: int, n_processes: int | None = None) -> dict[str, Any]:
    """Run so many workers in so many processes; by default each in one of its own."""
    of = recipe(n_workers)
    X, y = (np.concatenate(parts) for parts in zip(*map(table, range(n_workers)), strict=True))
    in_one_process(of, X[:2], y[:2], n_trees=1)
    alone_s = in_one_process(of, X, y)
    names = ["hub", *(f"w{place}" for place in range(n_workers))]
    with tempfile.TemporaryDirectory() as folder:
        keys = {name: read_secret(generate(Path(folder), name)[0]) for name in names}
    address = f"tcp://127.0.0.1:{free_ports(1)[0]}"
    context, hub = multiprocessing.get_context("spawn"), keys["hub"].public
    shares = [list(range(n_workers))[i :: n_processes or n_workers] for i in range(n_processes or n_workers)]
    loaded, used = context.Barrier(len(shares) + 1), context.Queue()
    processes = [
        context.Process(
            target=be_workers, args=(places, n_workers, [keys[f"w{i}"] for i in places], hub, address, loaded, used)
        )
        for places in shares
    ]
    first, first_cpu = time.perf_counter(), time.process_time()
    for process in processes:
        process.start()
    loaded.wait()
    start, before = time.perf_counter(), time.process_time()
    peers = {name: keys[name].public for name in names[1:]}
    listener = Listener(address, peers, keys=keys["hub"], timing=TIMING)
    channels = [listener.channel(name) for name in peers]
    workers = WorkerGroup(
        channels=channels,
        run_id="bench",
        terms={},
        threshold=n_workers // 2 + 1,
        wait_s=TIMING.wait_s,
        patience_s=TIMING.wait_s,
    )
    run_coordinator(of, workers, rng=rng.secure())
    listener.close()
    cpu = [used.get() for _ in processes]
    end, end_cpu = time.perf_counter(), time.process_time()
    for process in processes:
        process.join()
    sent = sum(channel.traffic.sent_bytes for channel in channels)
    received = sum(channel.traffic.received_bytes for channel in channels)
    return {
        "bench": "horizontal",
        "workers": n_workers,
        "processes": len(shares),
        "rows_each": N_ROWS,
        "trees": N_TREES,
        "rounds": workers.n_rounds,
        "seconds": round(end - start, 2),
        "cpu_s": round(sum(each[0] for each in cpu) + end_cpu - before, 2),
        "from_start_s": round(end - first, 2),
        "from_start_cpu_s": round(sum(each[1] for each in cpu) + end_cpu - first_cpu, 2),
        "alone_s": round(alone_s, 3),
        "ratio_vs_one_process": round((end - start) / alone_s, 1),
        "kb_to_a_worker": math.ceil(sent / n_workers / 1e3),
        "kb_from_a_worker": math.ceil(received / n_workers / 1e3),
        "peak_mb_of_a_worker": resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss // 1024,
        "load": round(os.getloadavg()[0], 1),
    }


def main() -> None:
    for n_workers in (3, 20):
        say(**measure(n_workers))


if __name__ == "__main__":
    main()
