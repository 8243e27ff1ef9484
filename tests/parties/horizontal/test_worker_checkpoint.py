"""Worker checkpoint: what was answered for outlives the process, and other rows or a damaged file end it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from parties.errors import OverBudget, RunFolderError
from parties.horizontal.answered_questions import Answered
from parties.horizontal.worker_checkpoint import MAX_DRAWINGS, WorkerCheckpoint
from parties.runs.run_folder import RunFolder
from parties.storage.twice_kept import write_twice


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    (tmp_path / "run.yaml").write_text("party: w0\n")
    found = RunFolder(tmp_path / "run")
    found.create(tmp_path / "run.yaml", party="w0", role="worker")
    return found


def test_a_restarted_worker_has_what_it_answered_and_the_same_coins_and_noise(folder: RunFolder) -> None:
    checkpoint = WorkerCheckpoint(folder)
    assert checkpoint.answered == Answered()
    checkpoint.check_rows("rows")
    now = Answered(n_trees=3, history="abc", n_questions=2, questions="de", n_summed=1, survivors=("w0", "w1"))
    checkpoint.note_answer(now)
    again = WorkerCheckpoint(folder)
    assert again.answered == checkpoint.answered == now
    assert again.bits().words(4).tolist() == checkpoint.bits().words(4).tolist()
    again.check_rows("rows")
    again.conclude()
    assert folder.read_json("answers.json")["answers.json"]["key"] == ""
    # Without the key nothing is answered again: the last sum would have other noise.
    with pytest.raises(RunFolderError, match=r"model\.json is missing.* Nothing was sent"):
        WorkerCheckpoint(folder)
    folder.write_json("model.json", {})
    assert WorkerCheckpoint(folder).bits().words(4).tolist() != checkpoint.bits().words(4).tolist()


def test_before_the_first_answer_every_process_has_other_bits(folder: RunFolder) -> None:
    one, other = (WorkerCheckpoint(folder).bits().words(4).tolist() for _ in range(2))
    assert one != other


def test_every_process_charges_once_which_the_ledger_counts_once(folder: RunFolder) -> None:
    """After the key is kept, without which the charge would be for other noise."""
    asked: list[bool] = []
    for _ in range(2):
        checkpoint = WorkerCheckpoint(folder, charge=lambda: asked.append(folder.has_released))
        for n_trees in (1, 2):
            checkpoint.note_answer(Answered(n_trees=n_trees, history="x"))
    assert asked == [True, True]


def test_a_run_that_is_over_budget_is_asked_about_again(folder: RunFolder) -> None:
    def refuse() -> None:
        raise OverBudget("over")

    for _ in range(2):
        with pytest.raises(OverBudget):
            WorkerCheckpoint(folder, charge=refuse).note_answer(Answered(n_trees=1, history="x"))


def test_an_answer_that_could_not_be_charged_was_none(folder: RunFolder) -> None:
    """It never left: the run goes on without the worker, whose records are new to the next one."""

    def refuse() -> None:
        raise OverBudget("over")

    now = Answered(n_trees=1, history="x")
    with pytest.raises(OverBudget):
        WorkerCheckpoint(folder, charge=refuse).note_answer(now)
    assert folder.has_released
    again = WorkerCheckpoint(folder)
    assert not again.has_answered
    again.note_answer(now)
    assert (again.has_answered, WorkerCheckpoint(folder).has_answered) == (True, True)
    kept = folder.read_json("answers.json")["answers.json"]
    assert kept.pop("is_charged")
    write_twice(folder.path / "answers.json", kept)
    assert WorkerCheckpoint(folder).has_answered


def test_other_rows_are_refused(folder: RunFolder) -> None:
    checkpoint = WorkerCheckpoint(folder)
    checkpoint.check_rows("rows")
    checkpoint.note_answer(Answered(n_trees=1, history="x"))
    with pytest.raises(RunFolderError, match=r"beginning of a run on other rows.* Nothing was sent"):
        WorkerCheckpoint(folder).check_rows("others")


def test_answers_of_another_version_are_not_given_again(folder: RunFolder) -> None:
    """Its noise may come from other streams of the same key, and two draws on one sum are two releases."""
    checkpoint = WorkerCheckpoint(folder)
    checkpoint.check_rows("rows")
    checkpoint.note_answer(Answered(n_trees=1, history="x"))
    kept = folder.read_json("answers.json")["answers.json"]
    write_twice(folder.path / "answers.json", {**kept, "version": "0.0.9"})
    with pytest.raises(RunFolderError, match=r"under version 0\.0\.9 of opboost; .* other noise.* Nothing was drawn"):
        WorkerCheckpoint(folder)
    # Whoever has the model answers nothing any more; files of before versions were noted are taken as they are.
    folder.write_json("model.json", {})
    assert WorkerCheckpoint(folder).answered.n_trees == 1
    (folder.path / "model.json").unlink()
    del kept["version"]
    write_twice(folder.path / "answers.json", kept)
    assert WorkerCheckpoint(folder).bits().words(4).tolist() == checkpoint.bits().words(4).tolist()


DAMAGED = [{}, {"table": "rows", "key": "xyz"}, {"table": "rows", "key": "", "answered": 1}]


@pytest.mark.parametrize("document", DAMAGED)
def test_damaged_answers_are_read_from_the_copy_and_without_one_refused(
    folder: RunFolder, document: dict[str, Any]
) -> None:
    """Without them the key of noise is lost, and with it the same answer to a question that comes again."""
    now, checkpoint = Answered(n_trees=3, history="abc", survivors=("w0", "w1")), WorkerCheckpoint(folder)
    checkpoint.note_answer(now)
    folder.write_json("answers.json", document)
    again = WorkerCheckpoint(folder)
    assert again.answered == now
    assert again.bits().words(4).tolist() == checkpoint.bits().words(4).tolist()
    (folder.path / "answers.copy").unlink()
    with pytest.raises(RunFolderError, match=r"answers\.json cannot be read; choose another run_id"):
        WorkerCheckpoint(folder)


def test_a_drawing_is_kept_to_the_bit_twice_and_a_damaged_one_refused(folder: RunFolder) -> None:
    checkpoint = WorkerCheckpoint(folder)
    assert checkpoint.drawings() == {"drawing": b"", "n_drawings": 0}
    checkpoint.note_drawing(bytes(range(32)))
    assert WorkerCheckpoint(folder).drawings()["drawing"] == bytes(range(32))
    for text in ('{"drawing": "xyz"}', '{"drawing": 3}', '{"drawing": "", "key": "00"}', "{}"):
        (folder.path / "drawing.json").write_text(text)
        assert checkpoint.drawings() == {"drawing": bytes(range(32)), "n_drawings": 1}
    (folder.path / "drawing.copy").unlink()
    with pytest.raises(RunFolderError, match=r"drawing\.json cannot be read"):
        checkpoint.drawings()


def test_random_bytes_are_those_of_the_first_process_whatever_was_drawn(folder: RunFolder) -> None:
    words = WorkerCheckpoint(folder).public_bits().words(4).tolist()
    WorkerCheckpoint(folder).note_drawing(b"d")
    again = WorkerCheckpoint(folder)
    assert again.public_bits().words(4).tolist() == words
    assert again.drawings() == {"drawing": b"d", "n_drawings": 1}
    assert again.bits().words(4).tolist() != words


def test_who_breaks_off_chooses_among_a_few_drawings_alone(folder: RunFolder) -> None:
    for k in range(MAX_DRAWINGS):
        WorkerCheckpoint(folder).note_drawing(bytes([k]))
    with pytest.raises(RunFolderError, match=r"drawn the public bits of this run 8 times.* Nothing was released"):
        WorkerCheckpoint(folder).note_drawing(b"another")
    assert WorkerCheckpoint(folder).drawings()["drawing"] == bytes([MAX_DRAWINGS - 1])
