"""Compare two runs of the benchmarks: what became slower or larger by more than the noise.

A figure counts as changed if the medians differ by more than a tenth and the runs of the two files do not overlap. With
one run each, noise is unknown: then a difference must exceed a quarter. Exits with 1 if something became worse.

    python scripts/bench/compare.py OLD.jsonl NEW.jsonl
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

# Figures of which less is better, by their names.
MEASURE = re.compile(r"ratio|^p\d+|(^|_)(seconds|s|ms|us|ns|mb|bytes)($|_per_)|^ns_per_")

# Settings that are not whole numbers.
SETTINGS = {"epsilon", "theta", "alpha", "delta"}

NOT_COMPARED = {"machine", "repeat", "spread", "versions"}

SURE, UNSURE = 1.10, 1.25

Identity = tuple[tuple[str, Any], ...]


class Change(NamedTuple):
    """One figure of both files."""

    of: Identity
    measure: str
    old: float
    new: float
    is_beyond_noise: bool

    @property
    def factor(self) -> float:
        return self.new / self.old if self.old else float("inf")

    def __str__(self) -> str:
        return f"{describe(self.of)}: {self.measure} {self.old:g} -> {self.new:g} ({self.factor:.2f} x)"


def main() -> int:
    """Print what changed beyond noise; 1 if something became worse."""
    parser = argparse.ArgumentParser(description="Compare two runs of the benchmarks.")
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path)
    arguments = parser.parse_args()
    old, new = (runs_by_line(read(path)) for path in (arguments.old, arguments.new))
    compared = changes(old, new)
    worse = [change for change in compared if change.is_beyond_noise and change.factor > 1]
    better = [change for change in compared if change.is_beyond_noise and change.factor < 1]
    for title, listed in (("worse", worse), ("better", better)):
        for change in sorted(listed, key=lambda change: -abs(change.factor - 1)):
            print(f"{title}: {change}")
    n_gone = len(old.keys() - new.keys())
    print(f"{len(compared)} figures compared, {len(worse)} worse, {len(better)} better; {n_gone} lines are gone")
    return 1 if worse else 0


def read(path: Path) -> list[dict[str, Any]]:
    """The lines of a file that `run.py` kept."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line]


def runs_by_line(lines: Iterable[Mapping[str, Any]]) -> dict[Identity, dict[str, list[float]]]:
    """What was measured, by what tells one line from another, run by run."""
    runs: dict[Identity, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for line in lines:
        for name, value in measures(line).items():
            runs[identity(line)][name].append(value)
    return runs


def identity(line: Mapping[str, Any]) -> Identity:
    """What a line is about: its words, whole numbers and settings, without what was measured."""
    return tuple(
        (name, json.dumps(value) if isinstance(value, dict | list) else value)
        for name, value in line.items()
        if name not in NOT_COMPARED and not MEASURE.search(name) and (name in SETTINGS or not isinstance(value, float))
    )


def measures(line: Mapping[str, Any]) -> dict[str, float]:
    """The figures of a line of which less is better."""
    return {
        name: float(value)
        for name, value in line.items()
        if name not in NOT_COMPARED and MEASURE.search(name) and isinstance(value, int | float)
    }


def changes(
    old: Mapping[Identity, Mapping[str, list[float]]], new: Mapping[Identity, Mapping[str, list[float]]]
) -> list[Change]:
    """Every figure that both have."""
    return [
        Change(of, name, statistics.median(was), statistics.median(new[of][name]), _is_beyond_noise(was, new[of][name]))
        for of in old.keys() & new.keys()
        for name, was in old[of].items()
        if name in new[of]
    ]


def describe(of: Identity) -> str:
    """A line's identity in words."""
    return " ".join(str(value) for name, value in of if value is not None)


def _is_beyond_noise(old: list[float], new: list[float]) -> bool:
    before, after = statistics.median(old), statistics.median(new)
    if min(len(old), len(new)) == 1:
        return max(before, after) > UNSURE * min(before, after)
    is_apart = min(new) > max(old) or max(new) < min(old)
    return is_apart and max(before, after) > SURE * min(before, after)


if __name__ == "__main__":
    sys.exit(main())
