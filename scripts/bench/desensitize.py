"""Time of desensitization: nanoseconds per value, one JSON line per measurement.

Maps x laws x budgets x domains x cell widths x alpha, on one and two threads; beside them numpy's `Generator.choice`,
and OpenDP and diffprivlib where they are installed; then the ranking of a column, and the memory for 10^7 values.
The last line sums up: the largest and the median cell on one thread. ``--quick`` takes a tenth of the cells.

    python scripts/bench/desensitize.py [--quick]
"""

from __future__ import annotations

import itertools
import statistics
import sys
import time
import tracemalloc
from collections.abc import Callable, Iterator

import numba
import numpy as np
from measuring import say

from opboost import AdjMap, GlobalMap, IntegerDomain, LocalMap, rng
from opboost.desensitize import ReleasedColumn
from opboost.privacy.adj_map import OrderPreservingMap
from opboost.privacy.laws import Law
from opboost.ranking import rankings
from opboost.schema import ColumnSchema

N_VALUES = 1 << 19
EPSILONS = (0.01, 0.08, 1.28, 5.12)
SIZES = (100, 1000, 10**5, 10**6)
THETAS = (4, 100)
ALPHAS = (1.0, 10.0)
REPEATS = 3


def main() -> None:
    """Measure everything and print it."""
    every = 10 if "--quick" in sys.argv[1:] else 1
    one_thread = []
    for threads in (1, 2):
        numba.set_num_threads(min(threads, numba.config.NUMBA_NUM_THREADS))
        for cell in itertools.islice(maps(), 0, None, every):
            codes = np.random.default_rng(0).integers(cell.domain.lo, cell.domain.hi + 1, N_VALUES)
            ns = ns_per_value(lambda cell=cell, codes=codes: cell.randomise(codes, rng=rng.secure()), N_VALUES)
            say(bench="desensitize", **describe(cell), threads=threads, ns_per_value=ns)
            if threads == 1:
                one_thread.append(ns)
    numba.set_num_threads(1)
    bench_choice()
    bench_opendp()
    bench_diffprivlib()
    bench_ranks()
    bench_memory()
    say(bench="summary", threads=1, cells=len(one_thread), worst=max(one_thread), median=statistics.median(one_thread))


def maps() -> Iterator[OrderPreservingMap]:
    """Every cell of the benchmark."""
    for size, epsilon, law in itertools.product(SIZES, EPSILONS, Law):
        domain = IntegerDomain(1, size)
        yield GlobalMap(epsilon=epsilon, domain=domain, law=law)
        for theta in THETAS:
            yield LocalMap(epsilon=epsilon, domain=domain, law=law, theta=theta)
            for alpha in ALPHAS:
                yield AdjMap(epsilon=epsilon, domain=domain, law=law, theta=theta, alpha=alpha)


def describe(cell: OrderPreservingMap) -> dict[str, object]:
    """The settings of a map."""
    facts = {"map": cell.name, "law": cell.law.value, "epsilon": cell.epsilon, "domain": cell.domain.size}
    return {**facts, "theta": getattr(cell, "theta", None), "alpha": getattr(cell, "alpha", None)}


def bench_choice() -> None:
    """numpy: one `choice` per distinct code, from the exact table."""
    for size in (100, 1000):
        cell = GlobalMap(epsilon=0.08, domain=IntegerDomain(1, size))
        table = np.exp(cell.log_probabilities())
        codes = np.random.default_rng(0).integers(0, size, N_VALUES)
        generator, counts = np.random.default_rng(0), np.bincount(codes, minlength=size)

        def draw(table=table, counts=counts, generator=generator) -> None:
            for row, count in zip(table, counts, strict=True):
                generator.choice(len(row), size=count, p=row / row.sum())

        say(bench="numpy_choice", **describe(cell), threads=1, **beside(draw, N_VALUES, "numpy", size))


def bench_opendp() -> None:
    """OpenDP's discrete Laplace, value by value as its vector domain offers it."""
    try:
        import opendp.prelude as dp
    except ImportError as error:
        say(bench="opendp", skipped=str(error))
        return
    dp.enable_features("contrib")
    space = dp.vector_domain(dp.atom_domain(T="i64")), dp.l1_distance(T="i64")
    draw = dp.m.make_laplace(*space, scale=1 / 0.08)
    values = [int(code) for code in np.random.default_rng(0).integers(0, 1000, 20_000)]
    say(
        bench="opendp",
        law="discrete laplace",
        epsilon=0.08,
        threads=1,
        **beside(lambda: draw(values), 20_000, "opendp", 1000),
    )


def bench_diffprivlib() -> None:
    """Diffprivlib's truncated geometric mechanism, value by value."""
    try:
        from diffprivlib.mechanisms import GeometricTruncated
    except ImportError as error:
        say(bench="diffprivlib", skipped=str(error))
        return
    mechanism = GeometricTruncated(epsilon=0.08, sensitivity=1, lower=0, upper=999)
    values = [int(code) for code in np.random.default_rng(0).integers(0, 1000, 20_000)]

    def draw() -> None:
        for value in values:
            mechanism.randomise(value)

    say(bench="diffprivlib", law="clamped", epsilon=0.08, threads=1, **beside(draw, 20_000, "diffprivlib", 1000))


def beside(call: Callable[[], object], n_values: int, name: str, size: int) -> dict[str, float]:
    """A rival's time, and what Global-Map's on one thread is of it."""
    cell = GlobalMap(epsilon=0.08, domain=IntegerDomain(1, size))
    codes = np.random.default_rng(0).integers(1, size + 1, N_VALUES)
    ours = ns_per_value(lambda: cell.randomise(codes, rng=rng.secure()), N_VALUES)
    theirs = ns_per_value(call, n_values)
    return {"ns_per_value": theirs, f"ratio_vs_{name}": round(ours / theirs, 4)}


def bench_ranks() -> None:
    """Dense ranks of a column of 10^7 codes."""

    def rank(released: ReleasedColumn) -> None:
        for ranking in rankings(released.schema, [released]):
            ranking.ranks(released)

    for size in (1000, 10**6):
        codes = np.random.default_rng(0).integers(1, size + 1, 10**7)
        released = ReleasedColumn(ColumnSchema(name="x", lower=0, upper=1), codes, np.zeros(len(codes), np.bool_))
        say(
            bench="ranks",
            domain=size,
            n_values=len(codes),
            ns_per_value=ns_per_value(lambda c=released: rank(c), 10**7),
        )


def bench_memory() -> None:
    """Peak memory of randomising 10^7 values, beyond the input and the output."""
    cell = AdjMap(epsilon=0.08, domain=IntegerDomain(1, 10**6), theta=100)
    codes = np.random.default_rng(0).integers(1, 10**6 + 1, 10**7)
    tracemalloc.start()
    released = cell.randomise(codes, rng=rng.secure())
    peak = tracemalloc.get_traced_memory()[1] - released.nbytes
    tracemalloc.stop()
    say(bench="memory", **describe(cell), n_values=len(codes), extra_bytes=peak)


def ns_per_value(call: Callable[[], object], n_values: int) -> float:
    """Median over a few runs, after one that compiles."""
    call()
    seconds = []
    for _ in range(REPEATS):
        started = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - started)
    return round(statistics.median(seconds) / n_values * 1e9, 2)


if __name__ == "__main__":
    main()
