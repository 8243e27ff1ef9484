"""Console of a command: results on standard output, everything else on standard error."""

from __future__ import annotations

import errno
import io
import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.text import Text

if TYPE_CHECKING:
    from parties.jobs.life_cycle import Terminal
    from parties.runs.run_folder import RunFolder

stderr = Console(stderr=True)

# What a write to a full disk, or over a limit, ends with.
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class Format(StrEnum):
    """Format of printed results."""

    TEXT = "text"
    JSON = "json"


class SchemeName(StrEnum):
    """Training algorithm of the horizontal demo."""

    RECOMMENDED = "recommended"
    INPRIVATE = "inprivate"


class Mode(StrEnum):
    """Prediction mode."""

    ROUTED = "routed"
    DESENSITIZED = "desensitized"
    LOCAL = "local"


RunFile = Annotated[Path, typer.Argument(help="The party's run file (YAML).", metavar="RUN.yaml")]
Insecure = Annotated[bool, typer.Option("--insecure", help="Talk in plain text; allowed on loopback only.")]
FormatOption = Annotated[Format, typer.Option("--format", help="text for people, json for scripts.")]
Retry = Annotated[
    bool, typer.Option("--retry", help="Begin again, without end, while a peer is not there (exit code 3).")
]
DataOption = Annotated[Path | None, typer.Option(help="Another data file than the run's.")]


def prepare_streams() -> None:
    """Open standard streams that are closed, and have every text printed."""
    open_closed_streams()
    print_all_texts()


def open_closed_streams() -> None:
    """Let standard streams that whoever starts a command has closed lead nowhere.

    The next files that are opened, such as a ledger, would get their numbers, and with them what libraries print.
    """
    for number, (name, mode) in enumerate({"stdin": "r", "stdout": "w", "stderr": "w"}.items()):
        try:
            os.fstat(number)
        except OSError:
            # The lowest number that is free is this one.
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115 - for as long as the process lasts


def print_all_texts() -> None:
    """Have results printed whose characters the terminal's encoding lacks, such as bytes of file names: escaped."""
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
        sys.stdout.reconfigure(errors="backslashreplace")


@contextmanager
def terminal_of_command() -> Iterator[Terminal]:
    """Terminal of a command: progress and steps on standard error; expected errors as one sentence and an exit code."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    from parties.commands.exit_codes import exit_code
    from parties.errors import EXPECTED_ERRORS, notes_on
    from parties.jobs.life_cycle import Terminal

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    bars = Progress(*columns, console=stderr, disable=not stderr.is_terminal)
    tasks: dict[str, int] = {}

    def report(step: str, done: int, total: int) -> None:
        if step not in tasks:
            tasks[step] = bars.add_task(step, total=total)
        bars.update(tasks[step], completed=done, total=total)  # type: ignore[arg-type]

    def warn(sentence: str) -> None:
        stderr.print(sentence, highlight=False, markup=False, soft_wrap=True)

    def say(sentence: str) -> None:
        if stderr.is_terminal:
            warn(sentence)

    try:
        with bars:
            yield Terminal(progress=report, say=say, warn=warn)
    except EXPECTED_ERRORS as error:
        print_error("\n  ".join([str(error), *notes_on(error)]))
        raise typer.Exit(exit_code(error)) from None


def refuse_given(why: str, **options: object) -> None:
    """Refuse options that a command would pass over, if one of them was given."""
    for name, value in options.items():
        if value:
            raise typer.BadParameter(why, param_hint=f"--{name}")


def print_error(sentence: str) -> None:
    """Print why a command ended, on standard error."""
    stderr.print(f"error: {sentence}", style="red", highlight=False, markup=False, soft_wrap=True)


def print_unexpected(error: Exception) -> None:
    """Print what no command expects: a defect, whose traceback follows, or that there is no room for its words.

    Raises
    ------
    SystemExit
        Of a full disk.
    """
    from parties.commands.exit_codes import ExitCode

    if isinstance(error, OSError) and error.errno in _NO_ROOM and error.filename is None:
        print_error(f"standard output, or a temporary file, cannot be written: {error.strerror}")
        raise SystemExit(int(ExitCode.STORAGE)) from None
    print_error(
        f"stopped with {type(error).__name__}, which is a defect of this program. What follows is for whoever mends "
        "it; it may hold values of your data, so read it before you pass it on"
    )


def print_trained(form: Format, folder: RunFolder, then: str) -> None:
    """Print where a finished run lies and the next command, and for people also how it scores held-out records."""
    if (folder.path / "held_out.json").exists() and form is Format.TEXT:
        from parties.commands.printing import print_uplift

        print_uplift(folder)
    report = folder.path / "report.html"
    made = {"report": str(report)} if report.exists() else {}
    print_result(form, run_folder=str(folder.path), **made, next=then)


def print_result(form: Format, **facts: object) -> None:
    """Print a result: as JSON, as a table on a terminal, or as plain lines elsewhere."""
    if form is Format.JSON:
        typer.echo(json.dumps(facts))
    elif sys.stdout.isatty():
        from rich.table import Table

        table = Table(show_header=False)
        for name, value in facts.items():
            table.add_row(name.replace("_", " "), Text(str(value), overflow="fold"))
        Console().print(table)
    else:
        for name, value in facts.items():
            typer.echo(f"{name.replace('_', ' ')}: {value}")
