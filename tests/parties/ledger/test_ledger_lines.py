"""Ledger lines: the digest of each covers all before it."""

from __future__ import annotations

import hashlib
import json
import math
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parties.ledger.ledger_lines import canonical, seal


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "runs" / "ledger.sqlite"


def lines(path: Path) -> list[dict[str, Any]]:
    with sqlite3.connect(path) as database:
        rows = database.execute("SELECT fields FROM lines ORDER BY number").fetchall()
    database.close()
    return [json.loads(fields) for (fields,) in rows]


@given(position=st.integers(0, 3), old=st.sampled_from(["d", "e", "0", "1", ":", "spring"]))
def test_a_digest_covers_every_character_of_every_line_before_it(position: int, old: str) -> None:
    texts = [canonical({"number": i, "name": "spring", "at": "d0e1"}) for i in range(4)]

    def last(lines: list[str]) -> str:
        digest = "start"
        for line in lines:
            digest = seal(digest, line)
        return digest

    changed = [text.replace(old, "?", 1) if i == position else text for i, text in enumerate(texts)]
    assert (last(changed) == last(texts)) == (changed == texts)


def test_the_seal_is_sha_256_of_the_digest_before_and_the_line() -> None:
    assert seal("ab", '{"x":1}') == hashlib.sha256(b'ab\n{"x":1}').hexdigest()
    assert canonical({"b": 1, "a": [0.1]}) == '{"a":[0.1],"b":1}'
    with pytest.raises(ValueError, match="JSON compliant"):
        canonical(math.nan)
