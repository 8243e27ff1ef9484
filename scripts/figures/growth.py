"""How the cost of a joint training grows, from the lines of `scripts/bench/cost.py`: a table, and a figure beside them.

    python scripts/bench/cost.py --axes rows,columns,trees,parties,domain > growth.jsonl
    python scripts/bench/cluster.py --rows 1200000 --columns 10 --trees 100 >> growth.jsonl
    python scripts/figures/growth.py growth.jsonl

The table is printed in Markdown: of every axis the exponent of a power law through its points, 1 where doubling the one
doubles the other. The drawing, FILE.svg, shows processor seconds against multiples of each axis's first point. Where
the file has the slopes of `scripts/bench/cluster.py`, a second table says what 10^9 rows x 100 columns of B and 100
trees would take on a cluster of either side: a straight line through the two larger tables, drawn out.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from parties.reports.figures import Axis, Series, lines, standalone

# What the plan is for, cores of each side, and the bytes a second of the line between them (1 Gb/s).
ROWS, COLUMNS, TREES, CORES, LINE = 10**9, 100, 100, 32, 125e6

# What each step of `cluster.py` is called in the plan, and how often its nanoseconds are spent.
STEPS = {
    "ids_s": ("both: order and digest of ids", "row", ROWS),
    "look_s": ("both: two values of each column", "value", ROWS * COLUMNS),
    "release_s": ("B: release", "value", ROWS * COLUMNS),
    "pack_s": ("B: digests of the ranks, on the driver alone", "value", ROWS * COLUMNS),
    "train_s": ("A: training", "value and tree", ROWS * COLUMNS * TREES),
    "answer_s": ("B: answers to all tests", "value", ROWS * COLUMNS),
    "predict_s": ("A: predictions", "value", ROWS * COLUMNS),
}

MEASURES = {"cpu_seconds": "processor seconds", "growth_mb": "memory, MB", "sent_mb": "sent by B, MB"}


def main() -> int:
    """Print the table and write the drawing; 1 if the file has no lines of an axis."""
    parser = argparse.ArgumentParser(description="Draw how the cost of joint training grows.")
    parser.add_argument("file", type=Path)
    path: Path = parser.parse_args().file
    found = [json.loads(line) for line in path.read_text().splitlines() if line.startswith("{")]
    points: dict[str, dict[float, dict[str, Any]]] = {}
    for line in found:
        if line.get("bench") == "cost" and line.get("point") != "slope":
            points.setdefault(line["axis"], {})[line[line["axis"]]] = line
    slopes = {line["axis"]: line for line in found if line.get("point") == "slope"}
    if not points or points.keys() != slopes.keys():
        print(f"{path} has no points with slopes: it should hold what scripts/bench/cost.py prints", file=sys.stderr)
        return 1
    print(table(points, slopes))
    steps = {line["step"]: line for line in found if line.get("bench") == "dask" and "step" in line}
    if steps and "rows" in points:
        print(plan(steps, points["rows"]))
    path.with_suffix(".svg").write_text(standalone(drawing(points)))
    return 0


def table(points: dict[str, dict[float, dict[str, Any]]], slopes: dict[str, dict[str, Any]]) -> str:
    """A row for every axis: its range, and the exponents and largest values of what was measured."""
    rows = [f"| against | from, to | {' | '.join(MEASURES.values())} |", "|---|---|" + "---|" * len(MEASURES)]
    for axis, by_value in points.items():
        low, high = min(by_value), max(by_value)
        cells = [
            f"{slopes[axis][f'{name}_slope']:.2f} ({by_value[low][name]:g} to {by_value[high][name]:g})"
            for name in MEASURES
        ]
        rows.append(f"| {axis} | {low:,}, {high:,} | {' | '.join(cells)} |")
    return "\n".join(rows)


def plan(steps: dict[str, dict[str, Any]], by_rows: dict[float, dict[str, Any]]) -> str:
    """What each step would take at the size of the plan, and the hours until there is a model."""
    rows = ["", f"| step | measured | at {ROWS:,} x {COLUMNS} |", "|---|---|---|"]
    hours = {}
    for step, (name, unit, times) in STEPS.items():
        ns = next(value for key, value in steps[step].items() if key.startswith("cpu_ns_per"))
        hours[step] = ns * times / 3.6e12
        rows.append(f"| {name} | {ns:g} ns per {unit} | {hours[step]:.1f} core-hours |")
    (few, before), (many, after) = min(by_rows.items()), max(by_rows.items())
    # Half of the columns are B's.
    n_bytes = 1e6 * (after["sent_mb"] - before["sent_mb"]) / (many - few) / (after["columns"] // 2)
    sent = n_bytes * ROWS * COLUMNS
    rows.append(f"| on the wire | {n_bytes:.2f} bytes per value | {sent / 1e9:.0f} GB, {sent / LINE / 60:.0f} min |")
    cluster = sum(hours[step] for step in ("ids_s", "look_s", "release_s", "train_s")) / CORES
    # The driver reads the ranks for their digests, and again to send them.
    whole = cluster + 2 * hours["pack_s"] + sent / LINE / 3600
    return "\n".join([*rows, "", f"Until the model is there, on {CORES} cores of each side: {whole:.1f} hours."])


def drawing(points: dict[str, dict[float, dict[str, Any]]]) -> str:
    """A line for every axis, both directions in multiples of its first point."""
    series = [relative(axis, sorted(by_value.items())) for axis, by_value in points.items()]
    x, y = Axis(label="multiple of the first point", is_log=True), Axis(label="times the seconds", is_log=True)
    return lines(series, x=x, y=y, alt=f"Processor seconds of a joint training against {', '.join(points)}")


def relative(axis: str, points: Sequence[tuple[float, dict[str, Any]]]) -> Series:
    """Points of an axis as multiples of the first."""
    (first, line), seconds = points[0], [one["cpu_seconds"] for _, one in points]
    return Series(axis, tuple(x / first for x, _ in points), tuple(s / line["cpu_seconds"] for s in seconds))


if __name__ == "__main__":
    sys.exit(main())
