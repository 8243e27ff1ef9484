"""Growth: exponents of a small measurement become a table and a drawing; lines of something else are refused."""

from __future__ import annotations

import json
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

NAMES = ("cpu_seconds_slope", "growth_mb_slope", "sent_mb_slope")
SCRIPT = Path(__file__).parents[3] / "scripts" / "figures" / "growth.py"


def drawn(path: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, SCRIPT, path], capture_output=True, text=True, check=False)


def test_every_axis_has_a_row_and_a_line(tmp_path: Path) -> None:
    found = [
        {"bench": "cost", "axis": axis, axis: value, "cpu_seconds": value**power, "growth_mb": 1, "sent_mb": value}
        for axis, power in (("rows", 1), ("trees", 0.5))
        for value in (100, 200, 400)
    ]
    slopes = [
        {"bench": "cost", "axis": axis, "point": "slope", **dict(zip(NAMES, (power, 0, 1), strict=True))}
        for axis, power in (("rows", 1.0), ("trees", 0.5))
    ]
    path = tmp_path / "growth.jsonl"
    path.write_text("not a line\n" + "".join(json.dumps(line) + "\n" for line in [*found, *slopes]))
    done = drawn(path)
    assert "| rows | 100, 400 | 1.00 (100 to 400) | 0.00 (1 to 1) | 1.00 (100 to 400) |" in done.stdout
    assert "| trees | 100, 400 | 0.50 (10 to 20) |" in done.stdout
    assert ET.fromstring((tmp_path / "growth.svg").read_text()).tag.endswith("svg")
    path.write_text(json.dumps({"bench": "core"}))
    assert (drawn(path).returncode, drawn(path).stdout) == (1, "")
