"""Folders that are made: nothing is replaced, and both sides of a rehearsal know each other."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
import yaml

from parties.errors import ConfigError
from parties.onboarding.project import Part, free_port, make_party, make_project
from parties.onboarding.schema_draft import Hints


@pytest.fixture
def tables(tmp_path: Path) -> tuple[Path, Path]:
    rows = range(120)
    ids = [f"k{row}" for row in rows]
    pd.DataFrame({"id": ids, "y": [row % 2 for row in rows], "age": list(rows)}).to_csv(
        tmp_path / "bank.csv", index=False
    )
    pd.DataFrame({"id": ids, "spend": [row % 50 for row in rows]}).to_csv(tmp_path / "shop.csv", index=False)
    return tmp_path / "bank.csv", tmp_path / "shop.csv"


def part(folder: Path, **changes: str) -> Part:
    given = {"role": "passive", "party": "shop", "peer": "bank", "address": "tcp://127.0.0.1:5555", **changes}
    return Part(folder=folder, **given)  # type: ignore[arg-type]


def test_files_that_exist_are_never_replaced(tables: tuple[Path, Path], tmp_path: Path) -> None:
    folder = tmp_path / "made"
    made = make_party(tables[1], part(folder), Hints())
    assert made.open_bounds == ("spend",)
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    with pytest.raises(ConfigError):
        make_party(tables[1], part(folder), Hints())
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


def test_both_sides_of_a_rehearsal_know_each_other(tables: tuple[Path, Path], tmp_path: Path) -> None:
    hints = Hints(id="id", label="y", bounds={"age": (0, 200), "spend": (0, 100)})
    made = make_project(*tables, tmp_path / "both", hints)
    assert set(made) == {"bank", "shop"}
    assert not any(one.open_bounds for one in made.values())
    bank, shop = (yaml.safe_load((tmp_path / "both" / name / "run.yaml").read_text()) for name in made)
    assert bank["run_id"] == shop["run_id"]
    for own, other in (("bank", "shop"), ("shop", "bank")):
        public = f"keys/{own}.public"
        assert (tmp_path / "both" / own / public).read_bytes() == (tmp_path / "both" / other / public).read_bytes()


def test_a_free_port_can_be_listened_on() -> None:
    assert 1024 <= free_port() < 65536
