"""What-ifs: every setting that can be copied gives, in a run file, just what was shown for it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from parties.reports.plan.choices import BUDGETS, MechanismGrid
from parties.reports.plan.facts import ColumnPlan, plan_of
from parties.reports.plan.what_if import what_if_data, what_if_grid, yaml_entry


@pytest.fixture
def shop(make_sites: Any, tmp_path: Path) -> Any:
    found = make_sites(tmp_path).shop
    found.run["desensitize"] = {"epsilon": 0.5, "domain_size": 40, "theta": 10}
    found.schema["columns"]["tier"] = {"kind": "ordered", "categories": ["low", "middle", "high"]}
    found.schema["columns"]["town"] = {"kind": "unordered", "categories": ["x", "y", "z"]}
    found.table["tier"] = ["low", "middle", "high", "high"] * (len(found.table) // 4)
    found.table["town"] = ["x", "y", "z", "z"] * (len(found.table) // 4)
    return found


def columns_of(shop: Any) -> tuple[ColumnPlan, ...]:
    return plan_of(shop.write(), MechanismGrid(), wanted_order=()).columns


def test_a_setting_that_is_copied_gives_what_was_shown(shop: Any) -> None:
    shop.run["desensitize"] = {"whole_range": 8, "theta": 4, "domain_size": 40}
    before = columns_of(shop)
    missing = [one.promise.missing_epsilon for one in before]
    for at in (3, 30):
        copied = [[one for one in column.candidates if one.budget is not None] for column in before]
        chosen = [found[at % len(found)] for found in copied]
        entries = [yaml_entry(column, one) for column, one in zip(before, chosen, strict=True)]
        text = "\n".join(f"{column.promise.column}: {entry}" for column, entry in zip(before, entries, strict=True))
        shop.run["desensitize"]["columns"] = yaml.safe_load(text)
        for column, one in zip(columns_of(shop), chosen, strict=True):
            assert column.chosen.settings == one.settings
            assert column.chosen.verdict == one.verdict
            assert column.chosen.curve == one.curve
        assert [one.promise.missing_epsilon for one in columns_of(shop)] == missing


def test_the_script_has_an_option_for_every_budget_and_a_curve_for_every_option(shop: Any) -> None:
    columns = columns_of(shop)
    data: Any = what_if_data(columns)
    assert data["budgets"] == BUDGETS
    for column, found in zip(columns, data["columns"], strict=True):
        assert found["name"] == column.promise.column
        for options in (*found["options"].values(), [found["chosen"]]):
            shown = [one for one in options if one is not None]
            assert all(0 <= one[0] < len(data["words"]) and one[5] < len(data["curves"]) for one in shown)
        assert {len(options) for options in found["options"].values()} == {len(BUDGETS)}
        assert found["points"] is None or f"global|{found['points']}" in found["options"]
    # More budget never helps against the attacker's guess.
    for options in data["columns"][0]["options"].values():
        grades = [one[0] for one in options]
        assert grades == sorted(grades)


def test_the_table_says_the_same_for_the_chosen_points(shop: Any) -> None:
    columns = columns_of(shop)
    data: Any = what_if_data(columns)
    grid = what_if_grid(columns)
    assert grid.headings == ("column", *map(str, BUDGETS))
    for row, found in zip(grid.rows, data["columns"], strict=True):
        options = found["options"]["" if found["points"] is None else f"global|{found['points']}"]
        assert row[1:] == tuple(f"{data['words'][one[0]]}, {one[1].split(';')[0]}" if one else "-" for one in options)
