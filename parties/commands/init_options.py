"""Options of `opboost init`: the roles that each option goes with, questions at a terminal, parsing of their texts."""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import Any

import typer

from parties.commands.console import stderr

# Delta where none is given.
DELTA = "1e-6"


class PartyRole(StrEnum):
    """Role of a party in training."""

    ACTIVE = "active"
    PASSIVE = "passive"
    COORDINATOR = "coordinator"
    WORKER = "worker"
    OWNER = "owner"


# In place of a role: both sides of vertical training on one machine.
PROJECT = "--project"

ROLES_OF_ROWS = ("coordinator", "worker", "owner")
_OF_COLUMNS = ("active", "passive")
_ALL = (*_OF_COLUMNS, *ROLES_OF_ROWS)
_WITH_LABEL = (PROJECT, "active", "worker", "owner")

# Which roles an option goes with that not all take, and the question of those that need it.
_OPTIONS: dict[str, dict[str, str]] = {
    "DATA": dict.fromkeys((PROJECT, "active", "passive", "worker", "owner"), ""),
    "--role": dict.fromkeys(_ALL, ""),
    "--name": dict.fromkeys(_ALL, "") | {"coordinator": "Name of the coordinator"},
    "--peer": dict.fromkeys(_OF_COLUMNS, "Name of the other party") | {"worker": "Name of the coordinator"},
    "--address": {
        **dict.fromkeys(_OF_COLUMNS, "Address between the two, such as tcp://HOST:5555"),
        "coordinator": "Address where the coordinator listens, such as tcp://0.0.0.0:5556",
        "worker": "Address where the coordinator is reached, such as tcp://HOST:5556",
    },
    "--run-id": dict.fromkeys(_ALL, ""),
    "--owners": {
        **dict.fromkeys(ROLES_OF_ROWS, "Names of all workers, with commas between them"),
        "owner": "All owners in the order of their turns, such as north=tcp://HOST:5557,south",
    },
    "--schema": dict.fromkeys(ROLES_OF_ROWS, "") | {"coordinator": "File of the agreed schema"},
    "--id": dict.fromkeys((PROJECT, "active", "passive", "worker", "owner"), ""),
    "--label": dict.fromkeys(_WITH_LABEL, "Column of the label"),
    "--positive": dict.fromkeys(_WITH_LABEL, ""),
    "--epsilon": dict.fromkeys(ROLES_OF_ROWS, "Epsilon of the guarantee, per record"),
    "--delta": dict.fromkeys(("coordinator", "worker"), "Delta of the guarantee, per record"),
    "--records": dict.fromkeys(("coordinator", "worker"), "About how many records all workers have together"),
    "--classes": dict.fromkeys(ROLES_OF_ROWS, ""),
    "--parameters": dict.fromkeys((PROJECT, "active"), ""),
}


def check_options(context: typer.Context, role: str) -> None:
    """Refuse options that were given and do not go with a role, or with `PROJECT`.

    Raises
    ------
    typer.BadParameter
    """
    for parameter in context.command.params:
        option = parameter.opts[0] if parameter.opts[0].startswith("-") else parameter.opts[0].upper()
        source = context.get_parameter_source(parameter.name or "")
        is_given = source is not None and source.name == "COMMANDLINE"
        if is_given and role not in _OPTIONS.get(option, role):
            role_words, known = role if role == PROJECT else f"--role {role}", ", ".join(_OPTIONS[option])
            raise typer.BadParameter(
                f"does not go with {role_words}, but with {known}: leave it out", param_hint=option
            )


def asked(given: object, option: str, role: str, *, default: str | None = None) -> str | None:
    """An option's value, or the answer of the person at the terminal; None if this role has no such question.

    Raises
    ------
    typer.BadParameter
        If it is missing, has no default, and standard input is no terminal.
    """
    question = _OPTIONS[option].get(role)
    return answer(given, option, question, default=default) if question else None if given is None else str(given)


def answer(
    given: object, option: str, question: str, *, choices: list[str] | None = None, default: str | None = None
) -> str:
    """The answer to a question that does not depend on the role, from the options or from the terminal."""
    from rich.prompt import Prompt

    if given is not None:
        return str(given)
    if sys.stdin.isatty():
        return str(Prompt.ask(question, choices=choices, console=stderr, default=... if default is None else default))
    if default is None:
        raise typer.BadParameter(f"is missing: {question.lower()}", param_hint=option)
    return default


def data_files(given: list[Path] | None, role: str) -> list[Path]:
    """The data files: two with `PROJECT`, none of a coordinator, one otherwise.

    Raises
    ------
    typer.BadParameter
    """
    files, n_needed = given or [], {PROJECT: 2, "coordinator": 0}.get(role, 1)
    if len(files) != n_needed:
        raise typer.BadParameter(f"takes one data file, or two with --project; found {len(files)}", param_hint="DATA")
    return files


def public_numbers(role: str, **given: object) -> dict[str, Any]:
    """Numbers that all parties of a horizontal run agree on (`epsilon` to `classes`); asks for those not given.

    Raises
    ------
    typer.BadParameter
        Naming the option whose number is outside its limits.
    """
    from typing import Annotated

    from pydantic import Field

    from opboost.privacy.laws import MOST_EPSILON
    from opboost.privacy.record_guarantee import MOST_DELTA
    from parties.config.section import PositiveCount
    from parties.config.training_section import ClassCount

    kinds: dict[str, Any] = {
        "epsilon": Annotated[float, Field(gt=0, le=MOST_EPSILON)],
        "delta": Annotated[float, Field(gt=0, le=MOST_DELTA)],
        "records": PositiveCount,
        "classes": ClassCount,
    }
    defaults = {"delta": DELTA}
    texts = {key: asked(given[key], f"--{key}", role, default=defaults.get(key)) for key in kinds}
    return {key: _number(text, f"--{key}", kinds[key]) for key, text in texts.items() if text is not None}


def _number(text: str, option: str, kind: Any) -> Any:
    """Parse a number by the type that it has in run files."""
    from pydantic import TypeAdapter, ValidationError

    from parties.onboarding.key_words import type_words

    try:
        return TypeAdapter(kind).validate_python(text)
    except ValidationError:
        raise typer.BadParameter(f"takes a {type_words(kind)}; found {text}", param_hint=option) from None


def owners_of(text: str | None) -> dict[str, str | None]:
    """Parse the owners of rows, in their order, each with its address if one is given; empty without a text.

    Raises
    ------
    typer.BadParameter
    """
    pairs = [pair.partition("=") for pair in text.split(",")] if text is not None else []
    owners = {name.strip(): address.strip() if equals else None for name, equals, address in pairs}
    if len(owners) < len(pairs):
        raise typer.BadParameter(f"takes every name once; found {text!r}", param_hint="--owners")
    return owners
