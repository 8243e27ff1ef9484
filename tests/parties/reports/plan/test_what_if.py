"""What-ifs: every setting that can be copied gives, in a run file, just what was shown for it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from parties.config.reading import read_schema
from parties.config.vertical import PassiveRun
from parties.reports.plan.choices import BUDGETS, MechanismGrid, label, settings_of
from parties.reports.plan.facts import ColumnPlan, plan_of
from parties.reports.plan.what_if import what_if_data, what_if_grid, yaml_entry


def new_shop(make_sites: Any, folder: Path) -> Any:
    found = make_sites(folder).shop
    found.run["desensitize"] = {"epsilon": 0.5, "domain_size": 40, "theta": 10}
    found.schema["columns"]["tier"] = {"kind": "ordered", "categories": ["low", "middle", "high"]}
    found.schema["columns"]["town"] = {"kind": "unordered", "categories": ["x", "y", "z"]}
    found.table["tier"] = ["low", "middle", "high", "high"] * (len(found.table) // 4)
    found.table["town"] = ["x", "y", "z", "z"] * (len(found.table) // 4)
    return found


@pytest.fixture
def shop(make_sites: Any, tmp_path: Path) -> Any:
    return new_shop(make_sites, tmp_path)


@pytest.fixture(scope="module")
def planned(make_sites: Any, tmp_path_factory: pytest.TempPathFactory) -> tuple[ColumnPlan, ...]:
    return columns_of(new_shop(make_sites, tmp_path_factory.mktemp("planned")))


def columns_of(shop: Any) -> tuple[ColumnPlan, ...]:
    return plan_of(shop.write(), MechanismGrid(), wanted_order=()).columns


def test_a_setting_that_is_copied_gives_what_was_shown(shop: Any) -> None:
    shop.run["desensitize"] = {"whole_range": 8, "theta": 4, "domain_size": 40}
    before = columns_of(shop)
    missing = [one.promise.missing_epsilon for one in before]
    copied = [[one for one in column.candidates if one.budget is not None] for column in before]
    chosen = [found[30 % len(found)] for found in copied]
    entries = [yaml_entry(column, one) for column, one in zip(before, chosen, strict=True)]
    shop.run["desensitize"]["columns"] = yaml.safe_load("\n".join(entries))
    for column, one in zip(columns_of(shop), chosen, strict=True):
        assert column.chosen.settings == one.settings
        assert column.chosen.verdict == one.verdict
        assert column.chosen.curve == one.curve
        assert column.promise.missing_epsilon == missing.pop(0)


def test_the_script_has_an_option_for_every_budget_and_a_curve_for_every_option(
    planned: tuple[ColumnPlan, ...],
) -> None:
    data: Any = what_if_data(planned)
    assert data["budgets"] == BUDGETS
    for column, found in zip(planned, data["columns"], strict=True):
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


def test_the_table_says_the_same_for_the_chosen_points(planned: tuple[ColumnPlan, ...]) -> None:
    data: Any = what_if_data(planned)
    grid = what_if_grid(planned)
    assert grid.headings == ("column", *map(str, BUDGETS))
    for row, found in zip(grid.rows, data["columns"], strict=True):
        options = found["options"]["" if found["points"] is None else f"global|{found['points']}"]
        assert row[1:] == tuple(f"{data['words'][one[0]]}, {one[1].split(';')[0]}" if one else "-" for one in options)


HOSTILE = ("- a: b # c</script>{{7*7}}{%", "null", "!!python/object:os '\"\\é\u2028" + "x" * 150)


def test_every_setting_that_can_be_copied_is_read_from_a_run_file_whatever_columns_are_called(shop: Any) -> None:
    for name in HOSTILE:
        shop.schema["columns"][name] = {"kind": "ordered", "categories": list(HOSTILE)}
        shop.table[name] = [*HOSTILE, HOSTILE[0]] * (len(shop.table) // 4)
    shop.run["desensitize"] = {"mechanism": "adj", "theta": 3, "domain_size": 40, "law": "bounded_laplace"}
    shop.run["desensitize"]["columns"] = {"null": {"law": "clamped", "epsilon": 0.5, "alpha": 0.2}}
    columns = columns_of(shop)
    path, found = shop.write(), {one["name"]: one for one in what_if_data(columns)["columns"]}
    assert set(HOSTILE) <= set(found)
    schema, _ = read_schema(path.parent / "schema.yaml")
    whole = yaml.safe_load(path.read_text())
    options = [found[column.promise.column]["options"].values() for column in columns]
    shown = [[one for part in parts for one in part if one] for parts in options]
    for at in range(max(map(len, shown))):
        copied = "desensitize:\n  columns:\n" + "\n".join(one[at % len(one)][4] for one in shown)
        whole["desensitize"]["columns"] = yaml.safe_load(copied)["desensitize"]["columns"]
        run = PassiveRun.model_validate(whole)
        for column, one, built in zip(columns, shown, run.desensitize.mechanisms(schema), strict=True):
            assert label(settings_of(built.value)) == one[at % len(one)][3], column.promise.column
