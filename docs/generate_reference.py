"""Reference pages from the code: run files from the pydantic models, commands from typer, tables from docstrings.

Each page is Markdown under ``_generated`` and is included by a page that is written by hand. A key without a sentence
stops the build.
"""

from __future__ import annotations

import inspect
import re
import types
import typing
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import typer
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

import opboost.errors
import parties.errors
import parties.runs.run_folder
import protocols.errors
from parties.cli import app
from parties.config.chain import OwnerRun
from parties.config.horizontal import CoordinatorRun, WorkerRun
from parties.config.reader_section import ReadingSection
from parties.config.vertical import ActiveRun, PassiveRun
from parties.onboarding.key_words import constraint_words, keys_of, type_words

RUN_FILES: dict[str, type[BaseModel]] = {
    "active": ActiveRun,
    "passive": PassiveRun,
    "coordinator": CoordinatorRun,
    "worker": WorkerRun,
    "owner": OwnerRun,
}


def write_pages(folder: Path) -> None:
    """Write every generated page into a folder."""
    folder.mkdir(exist_ok=True)
    pages = {f"run-{role}.md": run_file_page(model) for role, model in RUN_FILES.items()}
    pages["reader.md"] = run_file_page(ReadingSection)
    pages["commands.md"] = commands_page()
    pages["errors.md"] = errors_page()
    pages["run-folder.md"] = table_of_docstring(parties.runs.run_folder)
    for name, text in pages.items():
        target = folder / name
        if not target.exists() or target.read_text(encoding="utf-8") != text:
            target.write_text(text, encoding="utf-8")


def run_file_page(model: type[BaseModel]) -> str:
    """One table of keys for the run file and one for each kind of section, which names all places where it stands."""
    places: dict[type[BaseModel], list[str]] = {}
    for place, section in sections(model):
        places.setdefault(section, []).append(place)
    parts = []
    for section, names in places.items():
        title = f"### {', '.join(f'`{name}`' for name in names)}\n\n" if any(names) else ""
        rows = [row(key, field) for key, field in keys_of(section)]
        table = "\n".join(["| key | type | default | meaning |", "|---|---|---|---|", *rows])
        parts.append(f"{title}{table}\n")
    return "\n".join(parts)


def sections(model: type[BaseModel], place: str = "") -> Iterator[tuple[str, type[BaseModel]]]:
    """A model and, depth first, the models of its keys, each with its place in the file."""
    yield place, model
    for key, field in keys_of(model):
        for inner, mark in models_in(field.annotation):
            yield from sections(inner, f"{place}.{key}{mark}" if place else f"{key}{mark}")


def models_in(kind: Any) -> Iterator[tuple[type[BaseModel], str]]:
    """The sections inside a type, with ``[]`` for a list of them and ``.NAME`` for a mapping by name."""
    if inspect.isclass(kind) and issubclass(kind, BaseModel):
        yield kind, ""
        return
    mark = {tuple: "[]", dict: ".NAME"}.get(get_origin(kind), "")
    for part in get_args(kind):
        if get_origin(kind) is not Literal:
            yield from ((inner, f"{mark}{below}") for inner, below in models_in(part))


def row(key: str, field: FieldInfo) -> str:
    """A key's line in the table."""
    if not field.description:
        raise ValueError(f"the key `{key}` has no description")
    kind = ", ".join([type_words(field.annotation), *constraint_words(field.metadata)])
    cells = (f"`{key}`", kind, default_words(field), field.description)
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def default_words(field: FieldInfo) -> str:
    """A default as it would stand in the file; empty where there is none."""
    value = field.default
    if field.is_required():
        return "required"
    if "left out:" in (field.description or ""):
        return "by objective"
    if value is None or value is PydanticUndefined or isinstance(value, BaseModel) or value in ((), {}):
        return ""
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    return f"`{value.value if isinstance(value, Enum) else value}`"


def commands_page() -> str:
    """Every command with its help, arguments and options."""
    group: Any = typer.main.get_command(app)
    callbacks = {
        info.name or info.callback.__name__.replace("_", "-"): info.callback
        for info in app.registered_commands
        if info.callback
    }
    parts = []
    for name, callback in sorted(callbacks.items()):
        hints = typing.get_type_hints(callback)
        rows = [parameter_row(parameter, hints[parameter.name]) for parameter in group.commands[name].params]
        text = inspect.cleandoc(callback.__doc__ or "")
        table = "\n".join(["| | | default |", "|---|---|---|", *rows])
        parts.append(f"## `opboost {name}`\n\n{text}\n\n{table}\n")
    return "\n".join(parts)


def parameter_row(parameter: Any, kind: Any) -> str:
    """The line of an argument or an option."""
    shown = ", ".join(parameter.opts)
    if not shown.startswith("-"):
        shown = parameter.metavar or parameter.name.upper()
    choices = [member.value for part in (kind, *get_args(kind)) for member in _members(part)]
    listed = f" One of {', '.join(f'`{one}`' for one in choices)}." if choices else ""
    if parameter.required:
        value = "required"
    elif parameter.default in (None, False):
        value = ""
    else:
        value = f"`{getattr(parameter.default, 'value', parameter.default)}`"
    return f"| `{shown}` | {parameter.help}{listed} | {value} |"


def _members(kind: Any) -> list[Enum]:
    return list(kind) if inspect.isclass(kind) and issubclass(kind, Enum) else []


def errors_page() -> str:
    """The exceptions of the three packages, as they derive from each other."""
    parts = []
    for module in (opboost.errors, parties.errors, protocols.errors):
        tree = (module.__doc__ or "").split("::\n\n")[1]
        lines = inspect.cleandoc(tree.split("\n\n")[0])
        parts.append(f"## `{module.__name__}`\n\n```text\n{lines}\n```\n")
    return "\n".join(parts)


def table_of_docstring(module: types.ModuleType) -> str:
    """The two-column table of a module's docstring."""
    rows = re.findall(r"^(``[^`]+``) +(.*)$", module.__doc__ or "", flags=re.MULTILINE)
    table = "".join(f"| {left} | {right} |\n" for left, right in rows)
    return f"| file | content |\n|---|---|\n{table}".replace("``", "`")
