"""Masked cells are shown on the terminal of the file's owner, and nowhere else."""

from __future__ import annotations

import json
from typing import Any

import pytest

from opboost.errors import DataError
from parties.config.reading import read_run
from parties.config.vertical import PassiveRun
from parties.errors import notes_on
from parties.vertical.preparation import prepare_passive
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
    assert "column 'spend' is numeric by the schema but 1 cell is not a number\n" in error
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
    assert found["message"] == "column 'spend' is numeric by the schema but 1 cell is not a number"
    assert "99,999" not in document + error


@pytest.mark.parametrize("n_letters", [24, 200_000])
def test_a_long_cell_in_the_file_changes_nothing_of_the_sentence(shop: Any, n_letters: int) -> None:
    """Python's reader of CSV files, by which lines are counted, takes no cell of more than 131,072 characters."""
    shop.schema["ignore"] = ["note"]
    shop.table = shop.table.iloc[:20].assign(note="x" * n_letters)
    path = shop.write()
    with pytest.raises(DataError, match="column 'spend' is numeric by the schema but 1 cell is not a number") as error:
        prepare_passive(read_run(path, PassiveRun), path)
    assert [NOTE in note for note in notes_on(error.value)] == [True] * (n_letters < 131_072)
