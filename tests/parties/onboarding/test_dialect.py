"""How a file is written: separator, encoding and numbers are found in its text."""

from __future__ import annotations

from pathlib import Path

import pytest

from parties.errors import TableError
from parties.onboarding.dialect import read_raw, separator


def test_an_empty_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "data.csv").write_text("id,age\n")
    with pytest.raises(TableError, match="has no rows"):
        read_raw(tmp_path / "data.csv")


def test_a_separator_inside_quotes_does_not_count() -> None:
    assert separator(['a;b;"c, d, e"', '1;2;"x, y, z"']) == ";"


def test_a_title_above_the_header_is_named(tmp_path: Path) -> None:
    (tmp_path / "data.csv").write_text("Visits\n\nid,amount\n" + "".join(f"k{row},{row}\n" for row in range(20)))
    with pytest.raises(TableError, match=r"the header seems to be line 3; remove the lines above it"):
        read_raw(tmp_path / "data.csv")
