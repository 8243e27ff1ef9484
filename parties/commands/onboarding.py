"""Commands that make files from data: `opboost schema` and `opboost init`."""

from __future__ import annotations

import re
import sys
from dataclasses import replace
from datetime import date
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from parties.commands.console import Format, FormatOption, print_result, stderr, terminal_of_command

if TYPE_CHECKING:
    from parties.onboarding.schema_draft import Bound, Hints

REPEATED = "the first row of each counts, by `align: {duplicates: first}` on both sides"


class PartyRole(StrEnum):
    """Role of a party in vertical training."""

    ACTIVE = "active"
    PASSIVE = "passive"


IdOption = Annotated[str | None, typer.Option("--id", help="The record key's column; by default one without repeats.")]
LabelOption = Annotated[str | None, typer.Option("--label", help="The label's column (active party).")]
PositiveOption = Annotated[str | None, typer.Option("--positive", help="The label that means 1; by default the rarer.")]
BoundsOption = Annotated[
    list[str] | None, typer.Option("--bounds", help="Public bounds, COLUMN=LOWER:UPPER; repeatable.")
]


def schema(
    data: Annotated[Path, typer.Argument(help="Data file, CSV or Parquet.", metavar="DATA")],
    out: Annotated[Path, typer.Option(help="Where the schema goes.")] = Path("schema.yaml"),
    id_column: IdOption = None,
    label: LabelOption = None,
    positive: PositiveOption = None,
    bounds: BoundsOption = None,
    form: FormatOption = Format.TEXT,
) -> None:
    """Draft a schema from a data file: kinds, categories, formats, and a TODO for every public bound.

    Bounds are never taken from the data: the lowest and the highest value belong to two people.
    """
    with terminal_of_command():
        from parties.onboarding.project import write_schema

        draft = write_schema(data, out, _hints(id_column, label, positive, bounds))
        print_result(
            form,
            schema=str(out),
            columns=len(draft.columns),
            left_out=_listed(draft.ignore, form),
            bounds_to_write=_listed(draft.open_bounds, form),
            **({"marks_to_write": _listed(draft.open_marks, form)} if draft.open_marks else {}),
        )


def init(
    data: Annotated[list[Path], typer.Argument(help="Data file; with --project the active party's and the passive's.")],
    role: Annotated[PartyRole | None, typer.Option(help="This party's role.")] = None,
    project: Annotated[bool, typer.Option("--project", help="Make both sides, to rehearse on this machine.")] = False,
    folder: Annotated[Path, typer.Option(help="Where the files go.")] = Path("."),
    name: Annotated[str | None, typer.Option(help="This party's name; by default the data file's.")] = None,
    peer: Annotated[str | None, typer.Option(help="The other party's name.")] = None,
    address: Annotated[str | None, typer.Option(help="Address between the two, such as tcp://HOST:5555.")] = None,
    run_id: Annotated[str, typer.Option(help="Name of the run, the same on both sides.")] = "first",
    id_column: IdOption = None,
    label: LabelOption = None,
    positive: PositiveOption = None,
    bounds: BoundsOption = None,
    parameters: Annotated[
        Path | None, typer.Option(help="JSON or YAML of parameters in the names of XGBoost, FATE or SecretFlow.")
    ] = None,
    form: FormatOption = Format.TEXT,
) -> None:
    """Make a party's keys, schema and run file from its data file; asks for what no option says.

    Every choice stands in the run file with its default and its meaning.
    """
    if len(data) != (2 if project else 1):
        raise typer.BadParameter(f"takes one data file, or two with --project; found {len(data)}", param_hint="DATA")
    own = PartyRole.ACTIVE if project else PartyRole(_asked(role, "--role", "Role", choices=list(PartyRole)))
    if own is PartyRole.ACTIVE:
        label = _asked(label, "--label", "Column of the label")
    if not project:
        peer = _asked(peer, "--peer", "Name of the other party")
        address = _asked(address, "--address", "Address between the two, such as tcp://HOST:5555")
    with terminal_of_command():
        from parties.onboarding.other_systems import OtherParameters
        from parties.onboarding.project import Part, make_party, make_project

        other = OtherParameters({}) if parameters is None else OtherParameters.read(parameters)
        hints = _hints(id_column, label, positive, bounds)
        send: dict[str, object] = {}
        if project or peer is None or address is None:
            made = make_project(data[0], data[1], folder, hints, other.model)
            is_open = any(one.open_bounds or one.open_marks for one in made.values())
            commands = ["doctor"] * 2 if is_open else ["party-a", "party-b"]
            runs = (folder / party / "run.yaml" for party in made)
            then = " & ".join(f"opboost {command} {run}" for command, run in zip(commands, runs, strict=True))
        else:
            party = name or data[0].name.split(".")[0]
            part = Part(role=own.value, party=party, peer=peer, folder=folder, address=address, run_id=run_id)
            one = make_party(data[0], replace(part, model=other.model), hints)
            made, then = {party: one}, f"opboost doctor {folder / 'run.yaml'}"
            send |= {"send": f"{one.to_send} to {peer}, whose own goes to {folder / 'keys'}"}
        if parameters is not None:
            send["without_counterpart"] = _listed(list(other.dropped), form)
        files = [str(path) for one in made.values() for path in one.files]
        found = {
            "left_out": [f"{party}: {name}" for party, one in made.items() for name in one.ignored],
            "repeated_ids": [f"{party}: {REPEATED}" for party, one in made.items() if one.has_repeats],
            "bounds_to_write": [
                f"{one.files[0]}: {', '.join(one.open_bounds)}" for one in made.values() if one.open_bounds
            ],
        }
        if marks := [f"{one.files[0]}: {', '.join(one.open_marks)}" for one in made.values() if one.open_marks]:
            found["marks_to_write"] = marks
        lists = {key: _listed(names, form) for key, names in found.items()}
        print_result(form, made=_listed(files, form), **send, **lists, next=then)


def _listed(names: list[str], form: Format) -> object:
    return names if form is Format.JSON else ", ".join(names) or "none"


def _asked(given: str | None, option: str, question: str, choices: list[str] | None = None) -> str:
    """An option's value, or the answer of the person at the terminal; refused where nobody is there."""
    from rich.prompt import Prompt

    if given is not None:
        return given
    if not sys.stdin.isatty():
        raise typer.BadParameter(f"is missing: {question.lower()}", param_hint=option)
    return str(Prompt.ask(question, choices=choices, console=stderr))


def _hints(id_column: str | None, label: str | None, positive: str | None, bounds: list[str] | None) -> Hints:
    from parties.onboarding.schema_draft import Hints

    return Hints(id=id_column, label=label, positive=positive, bounds=dict(map(_bound, bounds or ())))


def _bound(text: str) -> tuple[str, tuple[Bound, Bound]]:
    name, _, pair = text.rpartition("=")
    lower, _, upper = pair.partition(":")
    try:
        return name, (_value(lower), _value(upper))
    except ValueError:
        raise typer.BadParameter(f"takes COLUMN=LOWER:UPPER; found {text!r}", param_hint="--bounds") from None


def _value(text: str) -> Bound:
    """A number or a date."""
    if re.fullmatch(r"\d{4}-\d{2}-\d{2}", text):
        return date.fromisoformat(text)
    return int(text) if re.fullmatch(r"-?\d+", text) else float(text)
