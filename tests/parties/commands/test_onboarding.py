"""`opboost schema` and `opboost init`: options, questions at a terminal, and what is said of what was made."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml
from typer.testing import CliRunner

from parties.cli import app


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "shop.csv"
    rows = range(120)
    pd.DataFrame(
        {"id": [f"k{row}" for row in rows], "age": [20 + row % 60 for row in rows], "debt": [row % 7 for row in rows]}
    ).to_csv(path, index=False)
    return path


def run(*words: object) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, [str(word) for word in words])
    return result.exit_code, result.stdout, result.stderr


def test_a_schema_names_the_bounds_that_are_to_be_written(table: Path, tmp_path: Path) -> None:
    target = tmp_path / "schema.yaml"
    code, out, _ = run("schema", table, "--out", target, "--bounds", "age=0:120", "--format", "json")
    assert code == 0
    assert json.loads(out) == {"schema": str(target), "columns": 2, "left_out": [], "bounds_to_write": ["debt"]}
    code, _, error = run("schema", table, "--out", target)
    assert code == 1
    assert str(target) in error


def test_marks_in_numbers_that_are_to_be_written_are_named(table: Path, tmp_path: Path) -> None:
    lines = table.read_text().splitlines()
    table.write_text("\n".join([f"{lines[0]},kg", *(f'{line},"1,{row:03}"' for row, line in enumerate(lines[1:]))]))
    bounds = [word for name in ("age", "debt", "kg") for word in ("--bounds", f"{name}=0:120")]
    code, out, _ = run("schema", table, "--out", tmp_path / "schema.yaml", *bounds, "--format", "json")
    found = json.loads(out)
    assert (code, found["bounds_to_write"], found["marks_to_write"]) == (0, [], ["decimal", "thousands"])
    bank = tmp_path / "bank.csv"
    bank.write_text(table.read_text().replace("debt", "loss"))
    words = ("--label", "loss", "--positive", "3", *bounds, "--folder", tmp_path / "made", "--format", "json")
    code, out, error = run("init", "--project", bank, table, *words)
    found = json.loads(out)
    assert code == 0, error
    assert found["marks_to_write"] == [
        f"{tmp_path / 'made' / party / 'schema.yaml'}: decimal, thousands" for party in ("bank", "shop")
    ]
    assert [one.split()[1] for one in found["next"].split(" & ")] == ["doctor"] * 2


@pytest.mark.parametrize("bounds", ["age=low:high", "age", "age=1:", "age=2020-13-01:2021-01-01"])
def test_bounds_that_are_none_are_refused(table: Path, tmp_path: Path, bounds: str) -> None:
    code, _, error = run("schema", table, "--out", tmp_path / "schema.yaml", "--bounds", bounds)
    assert code == 2
    assert "takes COLUMN=LOWER:UPPER" in error
    assert not (tmp_path / "schema.yaml").exists()


def test_a_partys_folder_is_made_and_the_next_step_told(table: Path, tmp_path: Path) -> None:
    words = ("--role", "passive", "--peer", "bank", "--address", "tcp://127.0.0.1:5555", "--folder", tmp_path / "made")
    code, out, _ = run("init", table, *words, "--format", "json")
    found = json.loads(out)
    assert code == 0
    assert found["next"] == f"opboost doctor {tmp_path / 'made' / 'run.yaml'}"
    assert found["bounds_to_write"] == [f"{tmp_path / 'made' / 'schema.yaml'}: debt"]
    assert (found["left_out"], found["repeated_ids"]) == ([], [])
    assert all(Path(path).exists() for path in found["made"])
    assert found["send"].startswith(str(tmp_path / "made" / "keys" / "shop"))


@pytest.mark.parametrize(
    ("bounds", "commands"), [((), ["doctor"] * 2), (("--bounds", "debt=0:9"), ["party-a", "party-b"])]
)
def test_a_projects_next_step_is_to_train_once_no_bounds_are_open(
    table: Path, tmp_path: Path, bounds: tuple[str, ...], commands: list[str]
) -> None:
    bank = tmp_path / "bank.csv"
    bank.write_text(table.read_text().replace("debt", "loss"))
    words = ("--label", "loss", "--positive", "3", "--bounds", "age=0:120", *bounds, "--folder", tmp_path / "made")
    code, out, error = run("init", "--project", bank, table, *words, "--format", "json")
    assert code == 0, error
    assert [one.split()[1] for one in json.loads(out)["next"].split(" & ")] == commands


@pytest.mark.parametrize(
    ("words", "option"),
    [
        ((), "--role"),
        (("--role", "active"), "--label"),
        (("--role", "passive"), "--peer"),
        (("--role", "passive", "--peer", "bank"), "--address"),
        (("--project",), "two with --project; found 1"),
    ],
)
def test_where_nobody_can_be_asked_the_missing_option_is_named(
    table: Path, words: tuple[str, ...], option: str
) -> None:
    code, _, error = run("init", table, *words)
    assert code == 2
    assert option in error


@pytest.fixture
def agreed(tmp_path: Path) -> Path:
    path = tmp_path / "agreed.yaml"
    path.write_text("{id: id, label: debt, columns: {age: {lower: 0, upper: 120}}}")
    return path


def rows(*words: object) -> tuple[int, str, str]:
    """`opboost init` for training on divided rows, with what is common to all."""
    return run("init", "--owners", "shop,bank", "--epsilon", 1, *words, "--format", "json")


@pytest.mark.parametrize(
    ("words", "training"),
    [
        ((), {"objective": "binary:logistic", "delta": 1e-6}),
        (("--bounds", "debt=0:9.5", "--delta", "1e-5"), {"label_bounds": [0, 9.5], "delta": 1e-5}),
        (("--classes", 7), {"objective": "multi:softprob", "classes": 7}),
    ],
)
def test_a_coordinators_and_a_workers_folder_are_made(
    table: Path, agreed: Path, tmp_path: Path, words: tuple[object, ...], training: dict[str, Any]
) -> None:
    common = ("--schema", agreed, "--address", "tcp://127.0.0.1:1", "--records", 900, *words)
    hub, worker = tmp_path / "hub", tmp_path / "worker"
    code, out, error = rows("--role", "coordinator", "--name", "hub", "--folder", hub, *common)
    assert code == 0, error
    found = json.loads(out)
    assert found["send"] == f"{hub / 'keys' / 'hub.public'} to shop, bank, whose own go to {hub / 'keys'}"
    assert found["next"] == f"opboost doctor {hub / 'run.yaml'}"
    assert all(Path(path).exists() for path in found["made"])
    code, out, error = rows(table, "--role", "worker", "--peer", "hub", "--folder", worker, *common)
    assert code == 0, error
    assert (
        json.loads(out)["send"] == f"{worker / 'keys' / 'shop.public'} to hub, bank, whose own go to {worker / 'keys'}"
    )
    sections = [yaml.safe_load((folder / "run.yaml").read_text())["training"] for folder in (hub, worker)]
    assert sections[0] == sections[1]
    assert sections[0].items() >= {**training, "epsilon": 1.0, "recommended": {"records": 900}}.items()


def test_an_owners_folder_is_made_and_the_bounds_that_are_to_be_written_are_told(table: Path, tmp_path: Path) -> None:
    folder = tmp_path / "made"
    words = ("--role", "owner", "--owners", "bank=tcp://bank.example:1,shop", "--label", "age", "--bounds", "age=0:120")
    code, out, error = rows(table, *words, "--folder", folder)
    assert code == 0, error
    found = json.loads(out)
    assert found["send"] == f"{folder / 'keys' / 'shop.public'} to bank, whose own goes to {folder / 'keys'}"
    assert found["bounds_to_write"] == [f"{folder / 'schema.yaml'}: debt"]
    assert found["next"] == f"opboost doctor {folder / 'run.yaml'}"


def test_a_label_of_words_is_left_to_all_owners_and_told(table: Path, tmp_path: Path) -> None:
    table.write_text(table.read_text().replace(",0\n", ",paid\n"))
    cells = [line.split(",") for line in table.read_text().splitlines()[1:]]
    lines = ["id,age,debt", *(f"{one},{age},{'paid' if debt == 'paid' else 'owed'}" for one, age, debt in cells)]
    table.write_text("\n".join(lines))
    words = (
        "--role",
        "owner",
        "--owners",
        "bank=tcp://bank.example:1,shop",
        "--label",
        "debt",
        "--bounds",
        "age=0:120",
    )
    code, out, error = rows(table, *words, "--folder", tmp_path / "made")
    assert code == 0, error
    schema = tmp_path / "made" / "schema.yaml"
    assert json.loads(out)["labels_to_write"] == [f"{schema}: positive"]
    code, out, _ = run("doctor", tmp_path / "made" / "run.yaml", "--wait", "0.1")
    assert code
    assert "`positive` has a TODO" in " ".join(out.replace("│", " ").split())
    code, out, error = rows(table, *words, "--folder", tmp_path / "other", "--positive", "owed")
    assert (code, "labels_to_write" in json.loads(out)) == (0, False), error


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--id", "id"), "--id: stands in the agreed schema"),
        (("--label", "debt"), "--label: stands in the agreed schema"),
        (("--positive", "3"), "--positive: stands in the agreed schema"),
        (("--name", "east"), "--name must be one of --owners, shop, bank; found 'east'"),
        (("--epsilon", "99"), "--epsilon: takes a number, > 0, ≤ 36.0; found 99.0"),
        (("--owners", "shop"), "--owners takes 2 to 200 names; found 1"),
        (("--bounds", "debt=9:0"), "--bounds debt: label_bounds: must be a lower and a higher number"),
    ],
)
def test_what_does_not_go_together_is_refused_and_nothing_made(
    table: Path, agreed: Path, tmp_path: Path, words: tuple[str, ...], said: str
) -> None:
    common = ("--schema", agreed, "--peer", "hub", "--address", "tcp://h:1", "--records", 900)
    code, _, error = rows(table, "--role", "worker", *common, *words, "--folder", tmp_path / "made")
    assert code
    assert said in " ".join(error.replace("│", " ").split())
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize(
    ("role", "option"),
    [
        ("coordinator", "--schema"),
        ("coordinator --schema s.yaml", "--name"),
        ("coordinator --schema s.yaml --name hub", "--owners"),
        ("coordinator --schema s.yaml --name hub --owners a,b", "--address"),
        ("coordinator --schema s.yaml --name hub --owners a,b --address tcp://h:1", "--epsilon"),
        ("coordinator --schema s.yaml --name hub --owners a,b --address tcp://h:1 --epsilon 1", "--records"),
        ("worker", "--label"),
        ("worker --schema s.yaml", "--owners"),
        ("worker --schema s.yaml --owners a,b", "--peer"),
        ("owner --schema s.yaml --owners a,b", "--epsilon"),
    ],
)
def test_of_the_roles_on_rows_the_missing_option_is_named(table: Path, role: str, option: str) -> None:
    data = [] if role.startswith("coordinator") else [table]
    code, _, error = run("init", *data, "--role", *role.split())
    assert code == 2
    assert f"Invalid value for {option}: is missing" in error
