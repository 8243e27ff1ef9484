"""How the cost of a joint training grows, from the lines of `scripts/bench/cost.py`: a table, and a figure beside them.

    python scripts/bench/cost.py > growth.jsonl
    python scripts/figures/growth.py growth.jsonl

The table is printed in Markdown: of every axis the exponent of a power law through its points, 1 where doubling the one
doubles the other. The drawing, FILE.svg, shows processor seconds against multiples of each axis's first point.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from parties.reports.figures import Axis, Series, lines, standalone

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
