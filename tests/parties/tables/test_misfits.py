"""Masked cells are shown on the terminal of the file's owner, and nowhere else."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.support.processes import finish

NOTE = "data.csv, line 3, column 'spend': 99,999.99: thousands separators?"


@pytest.fixture
def shop(sites: Any) -> Any:
    sites.shop.table = sites.shop.table.astype({"spend": object})
    sites.shop.table.iloc[1, list(sites.shop.table.columns).index("spend")] = "12,345.60"
    return sites.shop


def test_training_shows_the_owner_where_a_cell_does_not_fit(shop: Any) -> None:
    ((code, out, error),) = finish(shop.start("party-b"))
    assert (code, out) == (1, "")
    assert "column 'spend' is numeric by the schema but 1 cells are not numbers\n" in error
    assert NOTE in error
    assert "345" not in error
    assert not shop.run_folder.exists()


def test_the_doctor_shows_it_on_the_terminal_and_not_in_json(shop: Any) -> None:
    ((code, text, _), (_, document, error)) = finish(
        shop.start("doctor", "--wait", "0.1"), shop.start("doctor", "--wait", "0.1", "--format", "json")
    )
    assert code == 1
    assert NOTE in " ".join(text.replace("│", " ").split())
    (found,) = (one for one in json.loads(document)["findings"] if one["check"] == "column spend")
    assert found["message"] == "column 'spend' is numeric by the schema but 1 cells are not numbers"
    assert "99,999" not in document + error
