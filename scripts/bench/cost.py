"""What a joint training costs as it grows: against rows, columns, trees, depth, bins, parties and domain.

One thing is doubled at a time around a base case, every point in a process of its own, all parties in that process over
memory channels, with the messages of a real run. A slope is the exponent of a power law: 1 means that doubling the one
doubles the other. `scripts/figures/growth.py` makes a table and a figure of the lines.

    python scripts/bench/cost.py [--axes rows,columns] [--turns 3]
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import subprocess
import sys
import time
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from measuring import peak_bytes, say


@dataclass(frozen=True, slots=True)
class Case:
    """What a run looks like; half of the columns are A's."""

    rows: int = 100_000
    columns: int = 20
    trees: int = 50
    depth: int = 6
    bins: int = 256
    parties: int = 1
    domain: int = 1000


BASE = Case()
AXES = {
    "rows": (50_000, 100_000, 200_000, 400_000),
    "columns": (10, 20, 40, 80),
    "trees": (25, 50, 100, 200),
    "depth": (3, 4, 6, 8),
    "bins": (32, 64, 128, 256),
    "parties": (1, 2, 5, 10),
    "domain": (100, 1000, 10_000, 100_000),
}


def main() -> None:
    """Measure every point of every axis, then fit the slopes."""
    parser = argparse.ArgumentParser(description="Measure how the cost of joint training grows.")
    parser.add_argument("--axes", type=lambda text: text.split(","), default=list(AXES), help=f"of {', '.join(AXES)}")
    parser.add_argument("--turns", type=int, default=1)
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker:
        say(**measure(Case(**json.loads(arguments.worker))))
        return
    for axis in arguments.axes:
        points = {}
        for value in AXES[axis]:
            case = replace(BASE, **{axis: value})
            turns = [_in_own_process(case) for _ in range(arguments.turns)]
            points[value] = {name: statistics.median(turn[name] for turn in turns) for name in turns[0]}
            say(bench="cost", axis=axis, **asdict(case), **points[value])
        slopes = {f"{name}_slope": slope(points, name) for name in points[AXES[axis][0]]}
        say(bench="cost", axis=axis, point="slope", **slopes)


def measure(case: Case) -> dict[str, float]:
    """Train once, after a warm-up, and report seconds, memory and what the passive parties sent."""
    _run(replace(case, rows=1000, trees=2), _data(replace(case, rows=1000)))
    data = _data(case)
    before = peak_bytes(reset=True)
    started, used = time.perf_counter(), time.process_time()
    sent = _run(case, data)
    seconds = time.perf_counter() - started
    return {
        "cpu_seconds": round(time.process_time() - used, 3),
        "train_seconds": round(seconds, 3),
        "growth_mb": round((peak_bytes() - before) / 1e6, 1),
        "sent_mb": round(sent / 1e6, 3),
    }


def slope(points: dict[int, dict[str, float]], name: str) -> float:
    """The exponent of the power law through the points."""
    x = [math.log(value) for value in points]
    y = [math.log(max(point[name], 1e-9)) for point in points.values()]
    return round(float(np.polyfit(x, y, 1)[0]), 2)


def _data(case: Case) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(0)
    columns = generator.random((case.columns, case.rows))
    score = columns[0] + columns[-1] * columns[1] + generator.normal(0, 0.3, case.rows)
    return columns, (score > np.median(score)).astype(float)


def _run(case: Case, data: tuple[np.ndarray, np.ndarray]) -> int:
    """One joint training; returns the bytes that the passive parties sent."""
    import pandas as pd

    from opboost import ColumnSchema, rng
    from opboost.columns import OwnColumn
    from opboost.desensitize import ColumnMechanism
    from opboost.mechanism_settings import MechanismSettings
    from opboost.trees.boosting import BoostingParameters
    from opboost.trees.losses import Logistic
    from parties.vertical import party_a, party_b
    from parties.vertical.release_job import PassiveJob
    from parties.vertical.simulation import drawn_from, simulate

    columns, labels = data
    settings = MechanismSettings(epsilon=0.1, domain_size=case.domain)
    common: dict[str, Any] = {"run_id": "cost", "id_digest": "d"}
    theirs = np.array_split(np.arange(case.columns // 2, case.columns), case.parties)
    bits = rng.secure()
    passive = {
        f"b{i}": PassiveJob(
            party=f"b{i}",
            features=pd.DataFrame({f"x{c}": columns[c] for c in part}),
            rng=bits,
            release=drawn_from(bits),
            **common,
            mechanisms=tuple(ColumnMechanism(ColumnSchema(name=f"x{c}", lower=0, upper=1), settings) for c in part),
        )
        for i, part in enumerate(theirs)
    }
    active = party_a.ActiveJob(
        party="a",
        own=tuple(OwnColumn(f"x{c}", columns[c]) for c in range(case.columns // 2)),
        labels=labels,
        weights=np.ones(case.rows),
        loss=Logistic(),
        **common,
        parameters=BoostingParameters(n_estimators=case.trees, max_depth=case.depth, max_bin=case.bins),
    )
    sent = [0]

    def lead(channels: Any) -> None:
        party_a.train_jointly(active, channels)
        sent[0] = sum(channel.traffic.received_bytes for channel in channels)

    simulate(
        lead, {name: lambda channel, job=job: party_b.train(job, channel) for name, job in passive.items()}, name="a"
    )
    return sent[0]


def _in_own_process(case: Case) -> dict[str, float]:
    command = [sys.executable, __file__, "--worker", json.dumps(asdict(case))]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


if __name__ == "__main__":
    main()
