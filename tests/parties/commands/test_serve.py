"""`opboost serve` without its packages, and of a run that cannot be served."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from parties.cli import app


def test_absent_packages_are_named_with_the_way_to_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "parties.jobs.serve_scores", None)
    done = CliRunner().invoke(app, ["serve", str(tmp_path / "run.yaml")])
    assert done.exit_code == 1
    assert "install opboost[serve]. Nothing was served" in " ".join(done.stderr.split())


def test_an_absent_run_file_is_named(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["serve", str(tmp_path / "absent.yaml")])
    assert done.exit_code == 1
    assert "absent.yaml" in done.stderr.replace("\n", "")
