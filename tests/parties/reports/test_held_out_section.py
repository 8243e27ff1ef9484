"""Scores of held-out records in a run folder: read, shown, and refused where they are damaged."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import pytest

from opboost.uplift import Uplift
from parties.errors import RunFolderError
from parties.reports.held_out_section import load_uplift, uplift_grid
from parties.runs.run_folder import RunFolder


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    return RunFolder(tmp_path)


def test_without_held_out_records_there_are_no_scores(folder: RunFolder) -> None:
    assert load_uplift(folder) is None


def test_kept_scores_are_read_and_shown_as_a_table(folder: RunFolder) -> None:
    found = Uplift(
        metric="auc", n_rows=80, n_held_out=100, alone=0.7, joint=0.8, uplift=0.1, low=0.05, high=0.15, n_chose=20
    )
    folder.write_json("held_out.json", asdict(found))
    assert load_uplift(folder) == found
    grid = uplift_grid(found, "bank")
    assert [row[0] for row in grid.rows] == ["bank alone", "joint model", "uplift", "uplift, 95 % bootstrap interval"]
    assert grid.rows[-1][1] == "0.05 to 0.15"
    assert "20 others chose between models" in grid.caption


def test_what_was_not_measured_is_said(folder: RunFolder) -> None:
    grid = uplift_grid(Uplift(metric="auc", n_rows=0, n_held_out=100, reason="nobody answered"), "bank")
    assert [row[1] for row in grid.rows] == ["not measured"] * 3


@pytest.mark.parametrize("document", [{"metric": "auc"}, {"metric": 1, "n_rows": "many", "n_held_out": 3}])
def test_damaged_scores_are_refused(folder: RunFolder, document: object) -> None:
    folder.write_json("held_out.json", document)
    with pytest.raises(RunFolderError, match=r"held_out\.json is malformed"):
        load_uplift(folder)
