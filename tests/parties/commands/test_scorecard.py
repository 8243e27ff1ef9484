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
    assert f"is of role {role}: a scorecard needs labels" in " ".join(done.stderr.split())


@pytest.mark.parametrize("share", ["0", "1", "-0.2", "some"])
def test_no_or_every_record_cannot_be_rejected(tmp_path: Path, share: str) -> None:
    done = CliRunner().invoke(app, ["scorecard", str(tmp_path / "run.yaml"), "--reject", share])
    assert done.exit_code == 2
    assert "--reject" in done.stderr


def test_no_page_takes_the_place_of_a_runs_own_report(sites: Any) -> None:
    run_file = sites.bank.write()
    for name in ("spring", "autumn"):
        (folder := sites.bank.path / "runs" / name).mkdir(parents=True)
        (folder / "meta.json").write_text("{}")
        (folder / "report.html").write_text("what was promised")
        done = CliRunner().invoke(app, ["scorecard", str(run_file), "--out", str(folder)])
        assert (done.exit_code, "is a run folder, which has a report.html" in " ".join(done.stderr.split())) == (
            1,
            True,
        )
        assert (folder / "report.html").read_text() == "what was promised"
