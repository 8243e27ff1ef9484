"""The `opboost` command. Heavy imports wait until a command needs them, so that `--help` is instant."""

from __future__ import annotations

import gc
import json
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.text import Text

from parties.errors import Stopped

if TYPE_CHECKING:
    from parties.jobs import Terminal

# New containers before Python looks for cycles. Modules and compiled loops bring some hundred thousand that all stay:
# at the usual 700, looking through them again and again takes a sixth of the start of a party.
GARBAGE_OBJECTS = 100_000

app = typer.Typer(
    name="opboost",
    help="Boosted trees over two organisations' columns, without showing the columns.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
stderr = Console(stderr=True)


class Format(StrEnum):
    """How results are printed."""

    TEXT = "text"
    JSON = "json"


class ReportFormat(StrEnum):
    """What a report is written as."""

    HTML = "html"
    JSON = "json"
    CSV = "csv"
    MARKDOWN = "md"


class Scheme(StrEnum):
    """How owners of rows train in the demo."""

    SGBDT = "sgbdt"
    INPRIVATE = "inprivate"


class Purpose(StrEnum):
    """What the doctor is asked about."""

    TRAIN = "train"
    PREDICT = "predict"
    SERVE = "serve"


class Mode(StrEnum):
    """How new records are scored."""

    ROUTED = "routed"
    DESENSITIZED = "desensitized"
    LOCAL = "local"


RunFile = Annotated[Path, typer.Argument(help="The party's run file (YAML).", metavar="RUN.yaml")]
Insecure = Annotated[bool, typer.Option("--insecure", help="Talk in plain text; allowed on loopback only.")]
FormatOption = Annotated[Format, typer.Option("--format", help="text for people, json for scripts.")]
DataOption = Annotated[Path | None, typer.Option(help="Another data file than the run's.")]


def _print_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        from protocols.messages import VERSION

        typer.echo(f"opboost {version('opboost')} (protocol {VERSION})")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show versions and exit.")
    ] = False,
) -> None:
    pass


@app.command("party-a")
def party_a(run_file: RunFile, insecure: Insecure = False, form: FormatOption = Format.TEXT) -> None:
    """Train as the active party: holds the labels, grows the trees."""
    from parties.jobs import train_active

    with _terminal() as terminal:
        folder = train_active(run_file, insecure=insecure, terminal=terminal)
        _result(form, run_folder=str(folder.path))


@app.command("party-b")
def party_b(
    run_file: RunFile,
    serve: Annotated[
        bool, typer.Option("--serve", help="Answer predictions of the trained model until SIGTERM or Ctrl-C.")
    ] = False,
    data: Annotated[Path | None, typer.Option(help="With --serve: another data file than the run's.")] = None,
    insecure: Insecure = False,
    form: FormatOption = Format.TEXT,
) -> None:
    """Train as a passive party: releases desensitized ranks of its columns. With --serve: answer predictions."""
    from parties.jobs import train_passive

    if serve:
        _serve(run_file, data, insecure, form)
        return
    if data is not None:
        raise typer.BadParameter("goes with --serve; training takes the run file's data", param_hint="--data")
    with _terminal() as terminal:
        folder = train_passive(run_file, insecure=insecure, terminal=terminal)
        _result(form, run_folder=str(folder.path))


def _serve(run_file: Path, data: Path | None, insecure: bool, form: Format) -> None:
    from parties.prediction_jobs import serve_until_stopped
    from parties.serving import StopSignals

    with StopSignals() as signals, _terminal() as terminal:
        done = serve_until_stopped(run_file, data=data, insecure=insecure, terminal=terminal, signals=signals)
        _result(form, sessions=done.n_sessions, requests=done.n_requests, records_answered=done.n_answered)


@app.command()
def coordinator(run_file: RunFile, insecure: Insecure = False, form: FormatOption = Format.TEXT) -> None:
    """Train on the rows of several workers, as the one who adds up: sees sums, never a row."""
    from parties.horizontal_jobs import run_coordinator

    with _terminal() as terminal:
        folder = run_coordinator(run_file, insecure=insecure, terminal=terminal)
        _result(form, run_folder=str(folder.path))


@app.command()
def worker(run_file: RunFile, insecure: Insecure = False, form: FormatOption = Format.TEXT) -> None:
    """Take part in such a training with rows of one's own; a worker that was stopped may be started again."""
    from parties.horizontal_jobs import run_worker

    with _terminal() as terminal:
        folder = run_worker(run_file, insecure=insecure, terminal=terminal)
        _result(form, run_folder=str(folder.path))


@app.command()
def chain(run_file: RunFile, insecure: Insecure = False, form: FormatOption = Format.TEXT) -> None:
    """Train along a chain of owners with rows of one's own; an interrupted run goes on when all start it again."""
    from parties.chain_jobs import run_owner

    with _terminal() as terminal:
        folder = run_owner(run_file, insecure=insecure, terminal=terminal)
        _result(form, run_folder=str(folder.path))


@app.command()
def predict(
    run_file: RunFile,
    data: DataOption = None,
    ids: Annotated[Path | None, typer.Option(help="Score only the ids listed in this file.")] = None,
    mode: Annotated[
        Mode | None, typer.Option(help="How the passive parties take part (active party); by default routed.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Where predictions go, .csv or .parquet.")] = None,
    insecure: Insecure = False,
    form: FormatOption = Format.TEXT,
) -> None:
    """Score records with a trained model. Each party runs this with its own run file.

    The active party gets the predictions; a passive party answers for its columns. No labels are needed. The model of a
    coordinator, a worker or an owner in a chain is complete: each predicts alone.
    """
    from parties.config import HORIZONTAL_ROLES, read_role

    with _terminal() as terminal:
        role = read_role(run_file)
        if role in HORIZONTAL_ROLES:
            from parties.horizontal_prediction import predict_alone

            if mode is not None:
                raise typer.BadParameter("there are no passive parties in this run: leave it out", param_hint="--mode")
            target = predict_alone(run_file, data=data, ids=ids, out=out, terminal=terminal)
            _result(form, predictions=str(target))
            return
        from parties.prediction_jobs import predict_active, serve_passive

        if role == "active":
            chosen = (mode or Mode.ROUTED).value
            target = predict_active(
                run_file, data=data, ids=ids, mode=chosen, out=out, insecure=insecure, terminal=terminal
            )
            _result(form, predictions=str(target))
        else:
            n_answered = serve_passive(run_file, data=data, insecure=insecure, terminal=terminal)
            _result(form, records_answered=n_answered)


@app.command()
def keygen(
    name: Annotated[str, typer.Argument(help="The party's name; the files are NAME.secret and NAME.public.")],
    folder: Annotated[Path, typer.Option(help="Where to put them.")] = Path("keys"),
    shared: Annotated[
        bool, typer.Option("--shared", help="Make NAME.shared instead: a secret for hashed ids.")
    ] = False,
    form: FormatOption = Format.TEXT,
) -> None:
    """Make a party's pair of keys. The public one goes to the peers, the secret one stays."""
    from protocols.keys import generate, generate_shared

    with _terminal():
        if shared:
            _result(form, shared=str(generate_shared(folder, name)))
            return
        secret, public = generate(folder, name)
        _result(form, secret=str(secret), public=str(public))


@app.command()
def ledger(
    run_file: Annotated[
        Path | None, typer.Argument(help="A passive party's run file, for its ledger and limits.", metavar="[RUN.yaml]")
    ] = None,
    path: Annotated[Path | None, typer.Option(help="The ledger; by default the run's, or runs/ledger.sqlite.")] = None,
    form: FormatOption = Format.TEXT,
) -> None:
    """Show what was released and what may still be, per column and per record; fails if that was tampered with."""
    from parties.statement import read_statement

    with _terminal():
        found = read_statement(run_file, path)
    if form is Format.JSON:
        typer.echo(json.dumps(found.to_dict()))
    else:
        from parties.printing import print_statement

        print_statement(found)


@app.command()
def report(
    run_file: RunFile,
    before: Annotated[bool, typer.Option("--before", help="The plan, even if the run is finished.")] = False,
    form: Annotated[
        ReportFormat, typer.Option("--format", help="html writes files; the others print to standard output.")
    ] = ReportFormat.HTML,
    out: Annotated[Path | None, typer.Option(help="Where the report goes instead.")] = None,
    order: Annotated[
        list[float] | None, typer.Option(help="Find the smallest budget that keeps this order, 0 to 1; repeatable.")
    ] = None,
    mechanism: Annotated[list[str] | None, typer.Option(help="Compare global, local, adj; repeatable.")] = None,
    law: Annotated[list[str] | None, typer.Option(help="Compare laws of noise; repeatable.")] = None,
    epsilon: Annotated[list[float] | None, typer.Option(help="Compare budgets; repeatable.")] = None,
    theta: Annotated[list[int] | None, typer.Option(help="Compare widths of cells; repeatable.")] = None,
    alpha: Annotated[list[float] | None, typer.Option(help="Compare shares between cells; repeatable.")] = None,
) -> None:
    """Before a run: what a release would promise and keep. After it: what it did.

    Nothing is drawn, charged or sent. An active party, which releases no columns, has a report afterwards only. A
    finished run's report is written by the run itself, and again after predictions; so does this.
    """
    from parties.reports.command import asked_grid, deliver
    from parties.reports.writing import report_of

    with _terminal() as terminal:
        grid = asked_grid(mechanism, law, epsilon, theta, alpha)
        found = report_of(
            run_file, before=before, grid=grid, wanted_order=tuple(order or ()), progress=terminal.progress
        )
        deliver(found, form.value, out)


@app.command()
def doctor(
    run_file: RunFile,
    purpose: Annotated[
        Purpose, typer.Option("--for", help="Before training, `predict`, or `party-b --serve`.")
    ] = Purpose.TRAIN,
    data: DataOption = None,
    insecure: Insecure = False,
    wait: Annotated[float, typer.Option(help="Seconds to look for the peers.", min=0.1, max=3600)] = 5.0,
    form: FormatOption = Format.TEXT,
) -> None:
    """Check files, schema, data, keys, ledger, budget, folder and the peer, without starting; fails on a problem.

    With --for predict or serve: the model, the data (those of --data, if given), the limits and the peer's terms.

    The peer is asked if it runs this command too, or waits for the run; whoever waits is not disturbed.
    """
    from parties.doctor import examine
    from parties.doctor_prediction import examine_prediction
    from parties.findings import is_sound, report
    from parties.printing import print_findings

    if purpose is Purpose.TRAIN and data is not None:
        raise typer.BadParameter("goes with --for predict or serve", param_hint="--data")
    with _terminal() as terminal:
        terminal.say(f"checking files, then looking for the peers for at most {wait:g} s each")
        if purpose is Purpose.TRAIN:
            found = examine(run_file, insecure=insecure, wait_s=wait)
        else:
            serves = purpose is Purpose.SERVE
            found = examine_prediction(run_file, data=data, serves=serves, insecure=insecure, wait_s=wait)
    if form is Format.JSON:
        typer.echo(json.dumps(report(found)))
    else:
        print_findings(found)
    if not is_sound(found):
        raise typer.Exit(1)


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Where all parties' folders and summary.json go.")] = Path("runs/demo"),
    epsilon: Annotated[
        float | None,
        typer.Option(help="Per unit of the mapped domain, by default 0.1; per record with --horizontal, by default 1."),
    ] = None,
    mechanism: Annotated[str, typer.Option(help="global, local or adj; without --horizontal.")] = "global",
    horizontal: Annotated[
        bool, typer.Option("--horizontal", help="Three owners of rows in place of two owners of columns.")
    ] = False,
    scheme: Annotated[Scheme, typer.Option(help="With --horizontal: how they train.")] = Scheme.SGBDT,
    form: FormatOption = Format.TEXT,
) -> None:
    """Train jointly on the bundled two-party sample, each party as a process on this machine."""
    from parties.demo import run_demo
    from parties.horizontal_demo import run_horizontal_demo

    with _terminal() as terminal:
        if horizontal:
            summary = run_horizontal_demo(
                out, epsilon=1.0 if epsilon is None else epsilon, scheme=scheme.value, terminal=terminal
            )
        else:
            summary = run_demo(out, epsilon=0.1 if epsilon is None else epsilon, mechanism=mechanism, terminal=terminal)
    if form is Format.JSON:
        typer.echo(json.dumps(summary))
    else:
        from parties.printing import print_horizontal_summary, print_summary

        (print_horizontal_summary if horizontal else print_summary)(summary)


def main() -> None:
    """Entry point of the console script. A party that is told to stop says goodbye to its peers first."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _stop)
    gc.set_threshold(GARBAGE_OBJECTS)
    try:
        app()
    except Stopped as error:
        stderr.print(f"error: {error}", style="red", highlight=False, markup=False, soft_wrap=True)
        raise
    except Exception as error:
        stderr.print(
            f"error: stopped with {type(error).__name__}, which is a defect of this program. What follows is for "
            "whoever mends it; it may hold values of your data, so read it before you pass it on",
            style="red", highlight=False, markup=False, soft_wrap=True,
        )  # fmt: skip
        raise
    finally:
        # Everything is closed by now. Looking for cycles among all modules before the end would take another third of
        # a second, and the memory goes back to the system anyway.
        gc.freeze()


def _stop(number: int, frame: object) -> None:
    raise Stopped(number)


@contextmanager
def _terminal() -> Iterator[Terminal]:
    """Progress and steps on standard error where a person watches; expected errors as one sentence and exit code 1."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    from parties.jobs import EXPECTED_ERRORS, Terminal

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
        stderr.print(f"error: {error}", style="red", highlight=False, markup=False, soft_wrap=True)
        raise typer.Exit(1) from None


def _result(form: Format, **facts: object) -> None:
    """A command's result: for scripts as JSON, for people as a table, and as plain lines where nobody watches."""
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


if __name__ == "__main__":
    main()
