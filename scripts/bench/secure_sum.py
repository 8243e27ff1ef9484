"""Seconds and bytes of one round of secure aggregation, all workers in one process; one JSON line per setting."""

from __future__ import annotations

import statistics
import time

import numpy as np
from measuring import say

from protocols.secure_aggregation.epochs import Epoch
from protocols.secure_aggregation.sum import SumRound
from protocols.secure_aggregation.worker import SummedWorker

REPEATS = 3


def one_round(workers: list[SummedWorker], epoch: Epoch, number: int, vectors: np.ndarray, n_gone: int) -> float:
    """Seconds of a whole round in which the last `n_gone` workers drop out after their parcels."""
    start = time.perf_counter()
    of = SumRound(epoch, number, vectors.shape[1], {u: worker.prepare(number) for u, worker in enumerate(workers)})
    staying = range(len(workers) - n_gone)
    for u in staying:
        of.add(u, workers[u].mask(number, of.present, vectors[u]))
    survivors = of.close()
    for u in staying:
        of.add_confirmations(u, workers[u].confirm(number, survivors))
    for u in staying:
        of.add_shares(u, *workers[u].unmask(number, *of.request(u)))
    assert (of.result() == vectors[: len(staying)].sum(axis=0)).all()
    return time.perf_counter() - start


def main() -> None:
    rng = np.random.default_rng(0)
    for n_workers, length, n_gone in ((20, 16, 0), (20, 100_000, 0), (20, 100_000, 4), (50, 100_000, 0)):
        workers = [SummedWorker(f"w{u}", "bench") for u in range(n_workers)]
        keys = tuple(worker.public_key for worker in workers)
        names = tuple(f"w{u}" for u in range(n_workers))
        epoch = Epoch(run="bench", number=1, names=names, keys=keys, threshold=n_workers // 2 + 1)
        start = time.perf_counter()
        for worker in workers:
            worker.join(epoch)
        joining_s = time.perf_counter() - start
        vectors = rng.integers(-(2**40), 2**40, (n_workers, length))
        seconds = [one_round(workers, epoch, number, vectors, n_gone) for number in range(REPEATS)]
        facts = {"workers": n_workers, "numbers": length, "dropped": n_gone, "joining_s": round(joining_s, 3)}
        say(bench="secure_sum", **facts, round_s=round(statistics.median(seconds), 3))


if __name__ == "__main__":
    main()
