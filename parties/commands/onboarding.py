"""Commands that make files from data: `opboost schema` and `opboost init`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from parties.commands.console import Format, FormatOption, print_result, refuse_given, terminal_of_command
from parties.commands.init_options import (
    DELTA,
    PROJECT,
    ROLES_OF_ROWS,
    PartyRole,
    answer,
    asked,
    check_options,
    data_files,
    owners_of,
    public_numbers,
)

if TYPE_CHECKING:
    from parties.onboarding.party_folder import Made
    from parties.onboarding.schema_draft import Bound, Hints

REPEATED = "the first row of each counts, by `align: {duplicates: first}` on both sides"


IdOption = Annotated[str | None, typer.Option("--id", help="The record key's column; by default one without repeats.")]
LabelOption = Annotated[str | None, typer.Option("--label", help="The label's column (active, worker, owner).")]
PositiveOption = Annotated[
    str | None,
    typer.Option(
        "--positive",
        help="The label that means 1; by default the rarer of two, or for a worker or an owner a TODO that all fill in "
        "alike.",
    ),
]
BoundsOption = Annotated[
    list[str] | None, typer.Option("--bounds", help="Public bounds, COLUMN=LOWER:UPPER; repeatable.")
]
PeerOption = Annotated[
    str | None, typer.Option(help="The other party's name; of a worker the coordinator's (active, passive, worker).")
]
AddressOption = Annotated[
    str | None,
    typer.Option(
        help="Address between the two, such as tcp://HOST:5555; where a coordinator listens, and its workers reach it."
    ),
]
OwnersOption = Annotated[
    str | None,
    typer.Option(
        help="All who hold rows, as in north,south; in a chain in the order of their turns, and all but the last with "
        "where they listen: north=tcp://HOST:5557,south (coordinator, worker, owner)."
    ),
]
AgreedOption = Annotated[
    Path | None,
    typer.Option("--schema", help="The agreed schema, in place of a draft from the data (coordinator, worker, owner)."),
]
EpsilonOption = Annotated[
    float | None, typer.Option(help="Epsilon of the guarantee, per record (coordinator, worker, owner).")
]
DeltaOption = Annotated[
    float | None, typer.Option(help=f"Delta of the same, by default {DELTA} (coordinator, worker).")
]
RecordsOption = Annotated[
    int | None, typer.Option(help="About how many records all have together: public (coordinator, worker).")
]
ClassesOption = Annotated[
    int | None, typer.Option(help="How many classes of the label there are, if more than two (coordinator, worker).")
]
ParametersOption = Annotated[
    Path | None, typer.Option(help="JSON or YAML of parameters in the names of XGBoost, FATE or SecretFlow (active).")
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
    context: typer.Context,
    data: Annotated[
        list[Path] | None,
        typer.Argument(help="Data file; with --project the active party's and the passive's; none of a coordinator."),
    ] = None,
    role: Annotated[PartyRole | None, typer.Option(help="This party's role.")] = None,
    project: Annotated[bool, typer.Option("--project", help="Make both sides, to rehearse on this machine.")] = False,
    folder: Annotated[Path, typer.Option(help="Where the files go.")] = Path("."),
    name: Annotated[str | None, typer.Option(help="This party's name; by default the data file's.")] = None,
    peer: PeerOption = None,
    address: AddressOption = None,
    run_id: Annotated[str, typer.Option(help="Name of the run, the same on all sides.")] = "first",
    owners: OwnersOption = None,
    agreed: AgreedOption = None,
    epsilon: EpsilonOption = None,
    delta: DeltaOption = None,
    records: RecordsOption = None,
    classes: ClassesOption = None,
    id_column: IdOption = None,
    label: LabelOption = None,
    positive: PositiveOption = None,
    bounds: BoundsOption = None,
    parameters: ParametersOption = None,
    form: FormatOption = Format.TEXT,
) -> None:
    """Make a party's keys, schema and run file; asks at the terminal for what no option gives.

    The run file contains every setting with its default and its meaning.
    """
    chosen_role = PROJECT if project else answer(role, "--role", "Role", choices=list(PartyRole))
    check_options(context, chosen_role)
    files = data_files(data, chosen_role)
    if agreed is None and (path := asked(agreed, "--schema", chosen_role)) is not None:
        agreed = Path(path)
    if agreed is None:
        label = asked(label, "--label", chosen_role)
    else:
        refuse_given("stands in the agreed schema: leave it out", id=id_column, label=label, positive=positive)
    hints = _hints(id_column, label, positive, bounds)
    party = asked(name, "--name", chosen_role) or files[0].name.split(".")[0]
    everybody = owners_of(asked(owners, "--owners", chosen_role))
    peer_name, address_given = (asked(*pair, chosen_role) or "" for pair in ((peer, "--peer"), (address, "--address")))
    numbers = public_numbers(chosen_role, epsilon=epsilon, delta=delta, records=records, classes=classes)
    with terminal_of_command():
        from parties.onboarding.other_systems import OtherParameters
        from parties.onboarding.project import Part, make_party, make_project
        from parties.onboarding.row_project import RowPart, make_row_party

        known = None if parameters is None else OtherParameters.read(parameters)
        model = {} if known is None else known.model
        common: dict[str, Any] = {
            "role": chosen_role,
            "party": party,
            "folder": folder,
            "address": address_given,
            "run_id": run_id,
        }
        others: tuple[str, ...] = ()
        if chosen_role == PROJECT:
            made = make_project(files[0], files[1], folder, hints, model)
        elif chosen_role in ROLES_OF_ROWS:
            part = RowPart(owners=everybody, coordinator=peer_name, **common, **numbers)
            table = files[0] if files else None
            made, others = {party: make_row_party(part, hints, data=table, agreed=agreed)}, part.others
        else:
            made, others = (
                {party: make_party(files[0], Part(peer=peer_name, model=model, **common), hints)},
                (peer_name,),
            )
        _print_made(form, made, folder, others=others, dropped=None if known is None else known.dropped)


def _print_made(
    form: Format, made: Mapping[str, Made], folder: Path, *, others: Sequence[str], dropped: Sequence[str] | None
) -> None:
    """Print the files made for each party, who needs the public key, what remains to be filled in, the next command.

    Without `others`, both sides of a rehearsal were made.
    """
    facts: dict[str, object] = {}
    if others:
        (party_folder_made,), next_command = made.values(), f"opboost doctor {folder / 'run.yaml'}"
        go = "goes" if len(others) == 1 else "go"
        facts["send"] = f"{party_folder_made.to_send} to {', '.join(others)}, whose own {go} to {folder / 'keys'}"
    else:
        is_open = any(party_folder.open_bounds or party_folder.open_marks for party_folder in made.values())
        commands = ["doctor"] * 2 if is_open else ["party-a", "party-b"]
        runs = (folder / party / "run.yaml" for party in made)
        next_command = " & ".join(f"opboost {command} {run}" for command, run in zip(commands, runs, strict=True))
    if dropped is not None:
        facts["without_counterpart"] = _listed(list(dropped), form)
    files = [str(path) for party_folder in made.values() for path in party_folder.files]
    open_points = {
        "left_out": [f"{party}: {name}" for party, party_folder in made.items() for name in party_folder.ignored],
        "repeated_ids": [f"{party}: {REPEATED}" for party, party_folder in made.items() if party_folder.has_repeats],
        "bounds_to_write": [
            f"{party_folder.files[0]}: {', '.join(party_folder.open_bounds)}"
            for party_folder in made.values()
            if party_folder.open_bounds
        ],
    }
    if marks := [
        f"{party_folder.files[0]}: {', '.join(party_folder.open_marks)}"
        for party_folder in made.values()
        if party_folder.open_marks
    ]:
        open_points["marks_to_write"] = marks
    if labels := [f"{party_folder.files[0]}: positive" for party_folder in made.values() if party_folder.is_label_open]:
        open_points["labels_to_write"] = labels
    lists = {key: _listed(names, form) for key, names in open_points.items()}
    print_result(form, made=_listed(files, form), **facts, **lists, next=next_command)


def _listed(names: list[str], form: Format) -> object:
    return names if form is Format.JSON else ", ".join(names) or "none"


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
