"""Data files: one sentence for every fault, which shows nothing of what a file holds."""

from __future__ import annotations

import os
from pathlib import Path

import pandas as pd
import pytest

from parties.errors import LedgerError, TableError
from parties.tables.data_files import (
    MAX_NAME,
    MAX_NAMES,
    check_names,
    is_stored,
    named,
    parts,
    reporting_faults,
    stamp_of,
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    found = tmp_path / "data.csv"
    found.write_text("id\n1\n")
    return found


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (UnicodeDecodeError("utf-8", b"salary 81726354", 0, 1, "salary"), "it is not text in UTF-8"),
        (pd.errors.ParserError("salary 81726354"), "a row has too many cells, or a quote is not closed"),
        (PermissionError(13, "Permission denied"), "cannot be read: Permission denied"),
        (OSError("salary 81726354"), r"it is damaged, or not what its name says \(OSError\)"),
        (ValueError("salary 81726354"), r"it is damaged, or not what its name says \(ValueError\)"),
        (MemoryError(), r"\(MemoryError\)"),
    ],
)
def test_whatever_a_library_raises_is_one_sentence_without_its_words(path: Path, error: Exception, words: str) -> None:
    with pytest.raises(TableError, match=f"data.csv .*{words}") as refusal, reporting_faults(path):
        raise error
    assert "81726354" not in str(refusal.value)
    assert refusal.value.__suppress_context__


@pytest.mark.parametrize("error", [LedgerError("mine"), TableError("mine"), KeyboardInterrupt("mine")])
def test_errors_of_a_party_and_interruptions_pass(path: Path, error: BaseException) -> None:
    with pytest.raises(type(error), match="mine"), reporting_faults(path):
        raise error


def test_what_is_no_file_or_empty_is_not_even_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "empty").touch()
    for name, words in (("pipe", "where a data file is needed"), ("empty", "is empty"), ("none", "No such file")):
        reached = []
        with pytest.raises(TableError, match=words), reporting_faults(tmp_path / name):
            reached.append(name)
        assert reached == []


def test_no_parquet_file_is_left_out_for_the_case_of_its_name(tmp_path: Path) -> None:
    """A folder was read without a word as if it did not hold it, and the file alone was no text in UTF-8."""
    for name in ("b.PARQUET", "a.parquet", "c.csv", "d.parquet.crc"):
        (tmp_path / name).touch()
    assert parts(tmp_path) == (tmp_path / "a.parquet", tmp_path / "b.PARQUET")
    assert is_stored(tmp_path / "b.PARQUET")
    assert not is_stored(tmp_path / "c.csv")


def test_a_folder_that_may_not_be_read_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(folder: Path) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "iterdir", refuse)
    with pytest.raises(TableError, match=r"cannot be read: Permission denied\. Nothing was sent"):
        parts(tmp_path)


def test_a_stamp_changes_with_the_file(path: Path) -> None:
    before = stamp_of(path)
    assert stamp_of(path) == before
    path.write_text("id\n12\n")
    assert stamp_of(path) != before
    with pytest.raises(TableError):
        stamp_of(path.parent / "none.csv")


def test_repeated_names_are_refused_and_nameless_columns_are_not(path: Path) -> None:
    check_names(path, ["a", "b", "", ""])
    with pytest.raises(TableError, match="several columns named a, c; rename them or leave them out"):
        check_names(path, ["a", "b", "a", "c", "c"])


def test_names_of_columns_are_bounded_and_on_one_line() -> None:
    assert named(["a", 3]) == "a, 3"
    assert named(map(str, range(MAX_NAMES + 5))).endswith("9 and 5 more")
    shown = named(["k\n" * 1000])
    assert "\n" not in shown
    assert len(shown) < 2 * MAX_NAME
