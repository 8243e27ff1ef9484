"""`opboost scorecard`: who may, and options that are out of range."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from parties.cli import app


@pytest.mark.parametrize("role", ["passive", "worker", "coordinator", "owner"])
def test_it_is_the_active_partys_alone(tmp_path: Path, role: str) -> None:
    (tmp_path / "run.yaml").write_text(f"role: {role}\n")
    done = CliRunner().invoke(app, ["scorecard", str(tmp_path / "run.yaml")])
    assert done.exit_code == 1
    assert f"is of role {role}; this command takes a run file of role active" in " ".join(done.stderr.split())


@pytest.mark.parametrize("share", ["0", "1", "-0.2", "some"])
def test_no_or_every_record_cannot_be_rejected(tmp_path: Path, share: str) -> None:
    done = CliRunner().invoke(app, ["scorecard", str(tmp_path / "run.yaml"), "--reject", share])
    assert done.exit_code == 2
    assert "--reject" in done.stderr


@pytest.mark.parametrize("kept", ["meta.json", "report.html"])
def test_no_page_takes_the_place_of_another_report(sites: Any, kept: str) -> None:
    """Of a run, which may have none yet, or of anything else."""
    run_file = sites.bank.write()
    (folder := sites.bank.path / "runs" / "autumn").mkdir(parents=True)
    (folder / kept).write_text("{}")
    done = CliRunner().invoke(app, ["scorecard", str(run_file), "--out", str(folder)])
    assert (done.exit_code, "is for another report.html" in " ".join(done.stderr.split())) == (1, True)
    assert [(one.name, one.read_text()) for one in folder.iterdir()] == [(kept, "{}")]
