"""Options of `opboost init`: each with the roles that it goes with, and questions where somebody can be asked."""

from __future__ import annotations

import sys
from typing import Any

import pytest
import rich.prompt
import typer
from typer.testing import CliRunner

from parties.cli import app
from parties.commands.init_options import PROJECT, PartyRole, asked, owners_of, public_numbers

# What stands for each option, so that it can be parsed; and which roles it goes with.
VALUES = {
    "--name": ("north", "active passive coordinator worker owner"),
    "--peer": ("south", "active passive worker"),
    "--address": ("tcp://h:1", "active passive coordinator worker"),
    "--run-id": ("second", "active passive coordinator worker owner"),
    "--owners": ("north,south", "coordinator worker owner"),
    "--schema": ("agreed.yaml", "coordinator worker owner"),
    "--epsilon": ("0", "coordinator worker owner"),
    "--delta": ("0", "coordinator worker"),
    "--records": ("0", "coordinator worker"),
    "--classes": ("0", "coordinator worker owner"),
    "--id": ("id", "project active passive worker owner"),
    "--label": ("y", "project active worker owner"),
    "--positive": ("1", "project active worker owner"),
    "--bounds": ("y=0:1", "project active passive coordinator worker owner"),
    "--parameters": ("p.json", "project active"),
}


@pytest.mark.parametrize("own", ["project", *PartyRole])
@pytest.mark.parametrize("option", VALUES)
def test_an_option_is_refused_by_name_with_a_role_that_it_does_not_go_with(own: str, option: str) -> None:
    role = ["--project"] if own == "project" else ["--role", own]
    value, roles = VALUES[option]
    result = CliRunner().invoke(app, ["init", *role, option, value])
    # None of them has all that it needs.
    assert result.exit_code == 2
    said = " ".join(result.stderr.replace("│", " ").split())
    is_refused = f"Invalid value for {option}: does not go with {' '.join(role)}, but with" in said
    assert is_refused is (own not in roles.split()), said


def test_data_and_a_role_are_refused_where_there_are_none() -> None:
    result = CliRunner().invoke(app, ["init", "rows.csv", "--role", "coordinator"])
    assert (result.exit_code, "Invalid value for DATA: does not go with --role coordinator" in result.stderr) == (
        2,
        True,
    )
    result = CliRunner().invoke(app, ["init", "a.csv", "b.csv", "--project", "--role", "active"])
    assert (result.exit_code, "Invalid value for --role: does not go with --project" in result.stderr) == (2, True)


class Terminal:
    """A standard input at which somebody sits."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def questions(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, Any]]:
    """The questions that are put, each of which is answered by 5."""
    found: list[tuple[str, Any]] = []

    def ask(question: str, *, default: Any, **_: Any) -> str:
        found.append((question, default))
        return "5"

    monkeypatch.setattr(sys, "stdin", Terminal())
    monkeypatch.setattr(rich.prompt.Prompt, "ask", ask)
    return found


def test_what_is_missing_is_asked_for_at_a_terminal(questions: list[tuple[str, Any]]) -> None:
    assert asked("given", "--peer", "worker") == "given"
    assert asked(None, "--peer", "worker") == "5"
    assert asked(None, "--peer", "coordinator") is None
    assert asked(None, "--label", PROJECT) == "5"
    assert questions == [("Name of the coordinator", ...), ("Column of the label", ...)]


def test_numbers_are_asked_for_and_delta_has_a_default(questions: list[tuple[str, Any]]) -> None:
    given = dict.fromkeys(("epsilon", "delta", "records", "classes"))
    assert public_numbers("coordinator", **{**given, "delta": 1e-5}) == {"epsilon": 5.0, "delta": 1e-5, "records": 5}
    assert public_numbers("owner", **given) == {"epsilon": 5.0}
    assert public_numbers("passive", **given) == {}
    assert {question.split()[0] for question, _ in questions} == {"Epsilon", "About"}
    with pytest.raises(typer.BadParameter, match=r"takes a number, > 0, ≤ 0\.01; found 5"):
        public_numbers("worker", **given)
    assert ("Delta of the guarantee, per record", "1e-6") in questions


def test_where_nobody_can_be_asked_the_default_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stdin, "isatty", lambda: False)
    found = public_numbers("worker", epsilon=1, delta=None, records=7, classes=4)
    assert found == {"epsilon": 1.0, "delta": 1e-6, "records": 7, "classes": 4}
    with pytest.raises(typer.BadParameter, match="is missing: epsilon"):
        public_numbers("worker", epsilon=None, delta=None, records=7, classes=None)


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("epsilon", 0),
        ("epsilon", 36.1),
        ("epsilon", float("nan")),
        ("epsilon", float("inf")),
        ("delta", 0),
        ("delta", 0.011),
        ("records", 0),
        ("records", 2**31),
        ("classes", 2),
        ("classes", 1001),
    ],
)
def test_a_number_outside_its_limits_is_refused_by_its_option(option: str, value: float) -> None:
    given: dict[str, Any] = {"epsilon": 1, "delta": 1e-6, "records": 7, "classes": 3, option: value}
    with pytest.raises(typer.BadParameter, match=f"takes a .*number, .*; found {value}") as found:
        public_numbers("worker", **given)
    assert found.value.param_hint == f"--{option}"


def test_owners_are_read_in_their_order() -> None:
    assert list(owners_of("south, north").items()) == [("south", None), ("north", None)]
    assert owners_of("north=tcp://h:1,south") == {"north": "tcp://h:1", "south": None}
    assert owners_of(None) == {}
    with pytest.raises(typer.BadParameter, match="every name once"):
        owners_of("north,north")
