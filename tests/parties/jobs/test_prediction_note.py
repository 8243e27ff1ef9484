"""The note of a prediction that is not over: it is of one request, and knows each file that this one has written."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from parties.errors import RecordsRefused, RunFolderError
from parties.jobs.prediction_note import PredictionNote, digest_of_records
from parties.runs.run_folder import RunFolder
from parties.tables.party_table import PartyTable

MAY, JUNE = {"records": "may", "out": "/srv/scores.csv"}, {"records": "june", "out": "/srv/scores.csv"}


def test_a_note_is_of_one_request_and_keeps_what_was_noted_before(tmp_path: Path) -> None:
    """A process may be killed between its note and its file; then the earlier file is still there."""
    may, june = (PredictionNote(RunFolder(tmp_path), request) for request in (MAY, JUNE))
    assert may.written() == {}
    may.add("a", {"ok": 3})
    may.add("b", {"ok": 2, "refused_rate_limit": 1})
    assert (may.written(), june.written()) == ({"a": {"ok": 3}, "b": {"ok": 2, "refused_rate_limit": 1}}, {})
    june.add("", {"ok": 4})
    assert (may.written(), june.written()) == ({}, {"": {"ok": 4}})


def test_a_request_that_predicts_anew_forgets_what_it_wrote_and_not_what_another_did(tmp_path: Path) -> None:
    may, june = (PredictionNote(RunFolder(tmp_path), request) for request in (MAY, JUNE))
    may.add("a", {"ok": 3})
    june.forget()
    assert may.written() == {"a": {"ok": 3}}
    may.forget()
    may.forget()
    assert may.written() == {}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{",
        '{"records": "may", "out": "/srv/scores.csv"}',
        '{"request": %s}',
        '{"request": %s, "written": ["a"]}',
        '{"request": %s, "written": {"a": {"ok": "many"}}}',
    ],
)
def test_a_note_that_is_damaged_or_of_an_earlier_version_says_nothing(tmp_path: Path, text: str) -> None:
    (tmp_path / "predicting.json").write_text(text.replace("%s", '{"records": "may", "out": "/srv/scores.csv"}'))
    assert PredictionNote(RunFolder(tmp_path), MAY).written() == {}


@pytest.mark.parametrize(
    ("error", "stays"), [(None, False), (RecordsRefused, False), (RunFolderError, True), (KeyboardInterrupt, True)]
)
def test_a_note_goes_when_its_request_is_done(tmp_path: Path, error: Any, stays: bool) -> None:
    note = PredictionNote(RunFolder(tmp_path), MAY)
    note.close(error)
    note.add("a", {"ok": 1})
    note.close(error)
    assert bool(note.written()) is stays


TABLE = PartyTable(
    pd.Index(["7", "8"], dtype=object),
    pd.DataFrame({"age": [40.0, np.nan], "town": ["b", None]}),
    margins={"start": np.array([0.5, 1])},
)


@pytest.mark.parametrize(
    "change",
    [
        lambda table: replace(table, ids=pd.Index(["7", "9"], dtype=object)),
        lambda table: table.take(np.array([1, 0])),
        lambda table: table.take(np.array([0])),
        lambda table: replace(table, features=table.frame.assign(age=[41.0, np.nan])),
        lambda table: replace(table, features=table.frame.assign(town=["b", "b"])),
        lambda table: replace(table, features=table.frame.assign(town=["b", "nan"])),
        lambda table: replace(table, features=table.frame.assign(town=["b", "None"])),
        lambda table: replace(table, margins={"start": np.array([0.5, 2])}),
        lambda table: replace(table, margins={}),
        lambda table: replace(table, keys=(np.array(["a", "b"], dtype=object),)),
    ],
)
def test_records_have_a_digest_of_all_that_they_are_scored_by(change: Callable[[PartyTable], PartyTable]) -> None:
    assert digest_of_records(TABLE) == digest_of_records(replace(TABLE, labels=np.array([0.0, 1.0])))
    assert digest_of_records(change(TABLE)) != digest_of_records(TABLE)
