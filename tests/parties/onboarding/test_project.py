"""Both parties' folders from two raw files: which ids they share decides whether a run can begin."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
import yaml

from parties.errors import ConfigError
from parties.onboarding.project import Made, make_project
from parties.onboarding.schema_draft import Hints

N_ROWS = 40


def project(folder: Path, active: list[str], passive: list[object], key: str = "KEY") -> dict[str, Made]:
    label = [row % 2 for row in range(len(active))]
    pd.DataFrame({"key": active, "age": range(len(active)), "good": label}).to_csv(folder / "bank.csv", index=False)
    spend = [row / 3 for row in range(len(passive))]
    pd.DataFrame({"spend": spend, key: passive, "no": range(len(passive))}).to_csv(folder / "shop.csv", index=False)
    return make_project(folder / "bank.csv", folder / "shop.csv", folder / "out", Hints(label="good"))


def run_file(folder: Path, party: str) -> dict[str, object]:
    found: dict[str, object] = yaml.safe_load((folder / "out" / party / "run.yaml").read_text())
    return found


IDS = [f"{row:04}x" for row in range(N_ROWS)]


def test_the_record_key_is_the_column_that_both_sides_have(tmp_path: Path) -> None:
    made = project(tmp_path, IDS, list(IDS))
    schemas = [yaml.safe_load((tmp_path / "out" / party / "schema.yaml").read_text()) for party in ("bank", "shop")]
    assert [one["id"] for one in schemas] == ["key", "KEY"]
    assert [one.open_bounds for one in made.values()] == [(), ("spend", "no")]
    assert not any(one.has_repeats for one in made.values())
    assert "align" not in run_file(tmp_path, "shop")


def test_of_a_repeated_id_the_first_row_counts_on_both_sides(tmp_path: Path) -> None:
    made = project(tmp_path, IDS, [*IDS, IDS[0]])
    assert [one.has_repeats for one in made.values()] == [False, True]
    assert run_file(tmp_path, "bank")["align"] == {"method": "psi", "duplicates": "first"}
    assert run_file(tmp_path, "shop")["align"] == {"duplicates": "first"}


@pytest.mark.parametrize(
    ("passive", "key", "words"),
    [
        ([one.lstrip("0") for one in IDS[1:]], "key", "but for zeros in front"),
        ([one.upper() for one in IDS], "key", "but for capitals"),
        ([f"{one[:2]}-{one[2:]}" for one in IDS], "key", "but for marks and spaces"),
        ([f"{one}y" for one in IDS], "other_key", "name the record key with --id"),
    ],
)
def test_files_without_a_common_id_are_refused_with_the_reason(
    tmp_path: Path, passive: list[object], key: str, words: str
) -> None:
    with pytest.raises(ConfigError, match=f"bank and shop have no id in common; .*{words}.* Nothing was made"):
        project(tmp_path, IDS, passive, key)
    assert not (tmp_path / "out").exists()
