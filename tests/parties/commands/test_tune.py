"""`opboost tune`: who may, and what is said without its packages."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from parties.cli import app


def said(folder: Path, command: str, role: str) -> str:
    (folder / "run.yaml").write_text(f"role: {role}\n")
    done = CliRunner().invoke(app, [command, str(folder / "run.yaml")])
    assert done.exit_code == 1
    return " ".join(done.stderr.split())


@pytest.mark.parametrize("role", ["passive", "worker", "coordinator", "owner"])
def test_it_is_the_active_partys_alone(tmp_path: Path, role: str) -> None:
    words = said(tmp_path, "tune", role)
    assert f"is of role {role}; this command takes a run file of role active. Nothing was done" in words


def test_absent_packages_are_named_with_the_way_to_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "parties.tuning.study", None)
    assert "install opboost[tune]. Nothing was trained" in said(tmp_path, "tune", "active")
