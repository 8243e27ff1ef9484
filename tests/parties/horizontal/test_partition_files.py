"""Partition files: which a run file names, what is refused of them, and ids that come twice."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from parties.config.reading import read_schema
from parties.errors import TableError
from parties.horizontal import partition_files
from parties.horizontal.partition_files import PartFile, check_ids, part_files
from parties.horizontal.row_table import OwnerRows
from tests.support.row_partitions import files, write_rows


def named(data: Path | Sequence[Path], schema: Path) -> list[PartFile]:
    return part_files(data, *read_schema(schema), n_classes=2)


def test_labels_of_three_words_are_refused_however_partitions_divide_them(tmp_path: Path) -> None:
    write_rows(tmp_path)
    for number, part in enumerate(sorted((tmp_path / "parts").iterdir())):
        frame = pd.read_parquet(part)
        frame.assign(y=frame["y"].map({0: ("no", "unknown")[number % 2], 1: "yes"})).to_parquet(part)
    schema = tmp_path / "schema.yaml"
    text = schema.read_text()
    schema.write_text(text + "positive: 'yes'\n")
    with pytest.raises(TableError, match="the partitions: label column 'y' holds 2 different values"):
        files(tmp_path)
    schema.write_text(text + "positive: 'yes'\nnegative: ['no', unknown]\n")
    assert files(tmp_path)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda frame: frame.drop(columns="dose"), "1.parquet lacks columns of the schema: dose"),
        (lambda frame: frame.assign(more=1), "columns that the schema does not know: more"),
        (lambda frame: frame.drop(columns="y"), "no label column 'y'"),
    ],
)
def test_partitions_of_other_columns_are_refused_by_name(tmp_path: Path, change: Any, words: str) -> None:
    write_rows(tmp_path)
    path = tmp_path / "parts" / "1.parquet"
    change(pd.read_parquet(path)).to_parquet(path)
    with pytest.raises(TableError, match=words):
        files(tmp_path)


def test_what_names_no_partitions_with_rows_is_refused(tmp_path: Path) -> None:
    write_rows(tmp_path)
    schema = tmp_path / "schema.yaml"
    with pytest.raises(TableError, match="names no Parquet partitions"):
        named(tmp_path / "parts" / "*.pq", schema)
    with pytest.raises(TableError, match="1 partitions have no rows"):
        named([tmp_path / "parts" / "0.parquet"], schema)
    with pytest.raises(TableError, match=r"named \*.parquet"):
        named([schema], schema)
    assert len(named(tmp_path / "parts" / "*.parquet", schema)) == 3


@pytest.mark.parametrize(
    ("pattern", "fitting"),
    [("q[1]*.parquet", {"q[1]a"}), ("a?b*.parquet", {"a?b1"}), ("*.parquet", {"q[1]a", "q1a", "a?b1", "aXb2"})],
)
def test_one_star_is_any_letters_of_a_name_and_nothing_else_is_special(
    tmp_path: Path, pattern: str, fitting: set[str]
) -> None:
    write_rows(tmp_path)
    parts = tmp_path / "more"
    parts.mkdir()
    for number, name in enumerate(("q[1]a", "q1a", "a?b1", "aXb2", ".hidden")):
        copied = (tmp_path / "parts" / f"{1 + number % 2}.parquet").read_bytes()
        (parts / f"{name}.parquet").write_bytes(copied)
    assert {file.path.stem for file in named(parts / pattern, tmp_path / "schema.yaml")} == fitting


@pytest.mark.parametrize("pattern", ["**.parquet", "p**", "**", "***"])
def test_a_pattern_of_two_stars_is_refused_in_a_sentence(tmp_path: Path, pattern: str) -> None:
    write_rows(tmp_path)
    with pytest.raises(TableError, match=r"`\*\*` stands in the pattern.* Nothing was sent"):
        named(tmp_path / "parts" / pattern, tmp_path / "schema.yaml")


def test_a_link_that_leads_to_itself_is_refused_in_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "schema.yaml").write_text("columns: {}\n")
    (tmp_path / "part.parquet").symlink_to("part.parquet")
    with pytest.raises(TableError, match=r"part\.parquet cannot be read"):
        named(tmp_path, tmp_path / "schema.yaml")


def test_ids_that_share_half_of_their_digests_are_two(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_rows(tmp_path)
    found = files(tmp_path)
    names = [file.names() for file in found]
    halves = [
        np.frombuffer(b"".join(b"same" * 2 + one.ljust(16, b"\0")[8:] for one in part.tolist()), "S16")
        for part in names
    ]
    check_ids(halves)
    with pytest.raises(TableError, match="different ids"):
        check_ids([np.frombuffer(b"same" * 4 * len(part), "S16") for part in names])


@pytest.mark.parametrize("lost", [[], ["id"]])
@pytest.mark.parametrize("moment", ["read_stored", "OwnerRows.of"])
def test_a_file_that_is_changed_just_before_it_is_read_is_not_taken_for_the_one_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str, lost: list[str]
) -> None:
    write_rows(tmp_path)
    found = files(tmp_path)
    holder = partition_files if moment == "read_stored" else OwnerRows
    name = moment.rpartition(".")[2]
    read = getattr(holder, name)

    def rewrite_and_read(path: Path, *given: Any) -> Any:
        pd.read_parquet(path).iloc[:-1].drop(columns=lost).to_parquet(path)
        return read(path, *given)

    monkeypatch.setattr(holder, name, rewrite_and_read)
    with pytest.raises(TableError, match="was changed while it was in use"):
        found[0].names() if moment == "read_stored" else found[0].read()
