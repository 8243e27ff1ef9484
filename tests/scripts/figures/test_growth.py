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
        | ({"columns": 20} if axis == "rows" else {})
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
    assert "| step |" not in done.stdout
    assert ET.fromstring((tmp_path / "growth.svg").read_text()).tag.endswith("svg")
    steps = ("ids_s", "look_s", "release_s", "pack_s", "train_s", "answer_s", "predict_s")
    at_once = [
        {"bench": "dask", "step": step, f"cpu_ns_per_{'row' if step == 'ids_s' else 'value'}": 36} for step in steps
    ]
    with path.open("a") as file:
        file.writelines(json.dumps(line) + "\n" for line in at_once)
    plan = drawn(path).stdout
    assert "| both: order and digest of ids | 36 ns per row | 0.0 core-hours |" in plan
    assert "| A: training | 36 ns per value and tree | 100.0 core-hours |" in plan
    assert "| on the wire | 100000.00 bytes per value | 10000000 GB, 1333333 min |" in plan
    # A cluster's 102.01 core-hours on 32 cores, 2 of the driver's alone, and the wire.
    assert f"of each side: {102.01 / 32 + 2 + 1e16 / 125e6 / 3600:.1f} hours." in plan
    path.write_text(json.dumps({"bench": "core"}))
    assert (drawn(path).returncode, drawn(path).stdout) == (1, "")
