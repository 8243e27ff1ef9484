"""The demo of three owners of rows: what it writes, and that nobody's rows are anywhere but at home."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from parties.commands import demo_folder, horizontal_demo
from parties.commands.horizontal_demo import HUB, OWNERS, run_horizontal_demo
from parties.jobs.train_vertical import Terminal
from tests.support.modes import exposed, open_umask
from tests.support.processes import forked

Demo = tuple[dict[str, Any], Path]


@pytest.fixture(params=["recommended", "inprivate"])
def demo(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[dict[str, Any], Path]:
    monkeypatch.setattr(horizontal_demo, "N_TREES", 15)
    monkeypatch.setattr(demo_folder.subprocess, "Popen", forked)
    out = tmp_path / "out"
    with open_umask():
        return run_horizontal_demo(out, epsilon=2.0, scheme=request.param, terminal=Terminal()), out


def test_the_demo_trains_compares_and_keeps_rows_at_home_and_from_other_users(demo: Demo) -> None:
    summary, out = demo
    assert exposed(out) == set()
    assert json.loads((out / "summary.json").read_text()) == summary
    assert 0.55 < summary["score_joint"] < summary["score_central"] < 0.9
    assert set(summary["score_alone"]) == set(OWNERS)
    assert summary["guarantee"]["certified"]
    assert summary["guarantee"]["epsilon"] <= 2.0
    assert summary["bytes_sent"] > 0
    home = out / (HUB if summary["scheme"] == "recommended" else OWNERS[0])
    report = json.loads((home / "runs" / "demo" / "report.json").read_text())
    assert report["account"]["guarantee"]["epsilon"] == summary["guarantee"]["epsilon"]
    ids = {name: set(pd.read_csv(out / name / "data.csv", dtype=str)["id"]) for name in OWNERS}
    assert sum(map(len, ids.values())) == len(set().union(*ids.values())) == summary["rows"]
    for name, known in ids.items():
        some = sorted(known)[:20]
        for path in out.rglob("*"):
            if path.is_file() and not path.is_relative_to(out / name):
                text = path.read_bytes()
                assert not any(one.encode() in text for one in some), path
