"""Worker checkpoint: what was answered for outlives the process, and other rows or a damaged file end it."""

from __future__ import annotations

from pathlib import Path

import pytest

from parties.errors import OverBudget, RunFolderError
from parties.horizontal.verified_rows import Answered
from parties.horizontal.worker_checkpoint import MAX_DRAWINGS, WorkerCheckpoint
from parties.runs.run_folder import RunFolder


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    (tmp_path / "run.yaml").write_text("party: w0\n")
    found = RunFolder(tmp_path / "run")
    found.create(tmp_path / "run.yaml", party="w0", role="worker")
    return found


def test_a_fresh_worker_has_answered_nothing_and_a_restarted_one_what_it_noted(folder: RunFolder) -> None:
    checkpoint = WorkerCheckpoint(folder, "rows")
    assert checkpoint.answered == Answered()
    checkpoint.note_answer(Answered(n_trees=3, history="abc"))
    assert WorkerCheckpoint(folder, "rows").answered == Answered(n_trees=3, history="abc")


def test_the_first_answer_alone_is_asked_about_and_a_refusal_leaves_nothing(folder: RunFolder) -> None:
    asked: list[int] = []
    checkpoint = WorkerCheckpoint(folder, "rows", before_first=lambda: asked.append(1))
    for n_trees in (1, 2):
        checkpoint.note_answer(Answered(n_trees=n_trees, history="x"))
    assert asked == [1]


def test_a_run_that_is_over_budget_is_not_marked_as_released(folder: RunFolder) -> None:
    def refuse() -> None:
        raise OverBudget("over")

    with pytest.raises(OverBudget):
        WorkerCheckpoint(folder, "rows", before_first=refuse).note_answer(Answered(n_trees=1, history="x"))
    assert not folder.has_released
    assert not (folder.path / "answers.json").exists()


def test_other_rows_are_refused(folder: RunFolder) -> None:
    WorkerCheckpoint(folder, "rows").note_answer(Answered(n_trees=1, history="x"))
    with pytest.raises(RunFolderError, match=r"beginning of a run on other rows.* Nothing was sent"):
        WorkerCheckpoint(folder, "others")


def test_a_drawing_is_kept_to_the_bit_and_a_damaged_one_refused(folder: RunFolder) -> None:
    checkpoint = WorkerCheckpoint(folder, "rows")
    assert checkpoint.drawing() == b""
    checkpoint.note_drawing(bytes(range(32)))
    assert WorkerCheckpoint(folder, "rows").drawing() == bytes(range(32))
    for text in ('{"drawing": "xyz"}', '{"drawing": 3}', "{}"):
        (folder.path / "drawing.json").write_text(text)
        with pytest.raises(RunFolderError, match=r"drawing\.json is malformed"):
            checkpoint.drawing()


def test_who_breaks_off_chooses_among_a_few_drawings_alone(folder: RunFolder) -> None:
    for k in range(MAX_DRAWINGS):
        WorkerCheckpoint(folder, "rows").note_drawing(bytes([k]))
    with pytest.raises(RunFolderError, match=r"drawn the public bits of this run 8 times.* Nothing was released"):
        WorkerCheckpoint(folder, "rows").note_drawing(b"another")
    assert WorkerCheckpoint(folder, "rows").drawing() == bytes([MAX_DRAWINGS - 1])
