"""Patterns of file names: one * is any letters of a name, and no other letter is special."""

from __future__ import annotations

from pathlib import Path

import pytest

from parties.storage.name_patterns import fits, is_named_by


@pytest.mark.parametrize(
    ("pattern", "name", "does_fit"),
    [
        ("*.parquet", "a.parquet", True),
        ("*.parquet", "a\nb.parquet", True),
        ("*.parquet", "a.parquet.old", False),
        ("*.parquet", ".a.parquet", False),
        (".*.parquet", ".a.parquet", True),
        ("rows[1]*.parquet", "rows[1]r.parquet", True),
        ("rows[1]*.parquet", "rows1r.parquet", False),
        ("a?b.parquet", "a?b.parquet", True),
        ("a?b.parquet", "axb.parquet", False),
        ("a.parquet", "axparquet", False),
        ("*-*", "2024-05", True),
    ],
)
def test_only_a_star_is_special(tmp_path: Path, pattern: str, name: str, does_fit: bool) -> None:
    assert fits(name, pattern) is does_fit
    assert is_named_by(tmp_path / name, tmp_path / pattern) is does_fit
    assert not is_named_by(tmp_path / "deeper" / name, tmp_path / pattern)


def test_a_pattern_names_files_of_its_folder_alone_also_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "rows[1]").mkdir()
    (tmp_path / "link").symlink_to("rows[1]")
    for folder in ("rows[1]", "link", "link/../rows[1]"):
        assert is_named_by(tmp_path / "rows[1]" / "a.parquet", tmp_path / folder / "*.parquet")
    assert not is_named_by(tmp_path / "rows1" / "a.parquet", tmp_path / "rows*" / "*.parquet")
