"""Headlines run at a small scale, with several parties and with several workers in a process."""

from __future__ import annotations

import json
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

SCRIPT = Path(__file__).parents[3] / "scripts" / "bench" / "headlines.py"


def headline(*options: str) -> dict[str, Any]:
    done = subprocess.run([sys.executable, SCRIPT, *options], capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def test_workers_share_processes_and_their_cost_is_counted() -> None:
    found = headline("--case", "workers", "--scale", "0.015", "--processes", "2", "--price", "3600")
    assert (found["workers"], found["processes"], found["rounds"]) == (3, 2, 20)
    assert found["usd"] == pytest.approx(found["cpu_seconds"])
    assert found["bytes"] > 3 * 20 * 1000


def test_several_passive_parties_have_folders_keys_and_columns_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(SCRIPT.parent)
    vertical = runpy.run_path(str(SCRIPT.parent / "vertical.py"))
    case = vertical["Case"](name="c", n_rows=50, n_own=2, n_passive=3, n_parties=2, model={})
    folders = vertical["prepare"](tmp_path / "data", case, "prealigned")
    assert list(folders) == ["a", "b", "b1"]
    assert [peer["name"] for peer in json.loads((folders["a"] / "run.json").read_text())["passive"]] == ["b", "b1"]
    tables = {party: pd.read_parquet(folder / "data.parquet") for party, folder in folders.items()}
    assert list(tables["b1"]) == ["id", "b1_0", "b1_1", "b1_2"]
    assert (
        not (tables["b"].drop(columns="id").to_numpy() == tables["b1"].drop(columns="id").to_numpy()).all(axis=0).any()
    )
