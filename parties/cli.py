"""The `opboost` command. Heavy imports wait until a command needs them, so that `--help` is instant."""

from __future__ import annotations

import gc
import json
import signal
from collections.abc import Callable, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Annotated, Any

import typer

from parties.commands.admin import backup, doctor, keygen, ledger, report, restore, status
from parties.commands.compile_loops import compile_loops
from parties.commands.console import (
    DataOption,
    Format,
    FormatOption,
    Insecure,
    Mode,
    Retry,
    RunFile,
    SchemeName,
    prepare_streams,
    print_error,
    print_result,
    print_trained,
    print_unexpected,
    refuse_given,
    terminal_of_command,
)
from parties.commands.exit_codes import retrying
from parties.commands.explain import explain
from parties.commands.export import export
from parties.commands.onboarding import init, schema
from parties.commands.scorecard import scorecard
from parties.commands.scouting import scout
from parties.commands.serve import serve
from parties.commands.tune import tune
from parties.errors import Stopped, as_stopped

# New containers before Python looks for cycles. Modules and compiled loops bring some hundred thousand that all stay:
# at the usual 700, looking through them again and again takes a sixth of the start of a party.
GARBAGE_OBJECTS = 100_000

app = typer.Typer(
    name="opboost",
    help="Boosted trees over two organisations' columns, without showing the columns.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        from protocols.messages.message import PROTOCOL_VERSION

        typer.echo(f"opboost {version('opboost')} (protocol {PROTOCOL_VERSION})")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show versions and exit.")
    ] = False,
) -> None:
    pass


def _train(job: Callable[..., Any], run_file: Path, insecure: bool, retry: bool, form: Format) -> None:
    with terminal_of_command() as terminal:
        once = partial(job, run_file, insecure=insecure, terminal=terminal)
        folder = retrying(once, retry=retry, warn=terminal.warn)
        print_trained(form, folder, f"opboost predict {run_file}{' --insecure' * insecure}")


@app.command("party-a")
def party_a(
    run_file: RunFile, insecure: Insecure = False, retry: Retry = False, form: FormatOption = Format.TEXT
) -> None:
    """Train as the active party, which holds the labels and grows the trees."""
    from parties.jobs.train_vertical import train_active
    from parties.session.reconnection import Restarts

    _train(partial(train_active, restarts=Restarts()), run_file, insecure, retry, form)


@app.command("party-b")
def party_b(
    run_file: RunFile,
    serve: Annotated[
        bool, typer.Option("--serve", help="Answer predictions of the trained model until SIGTERM or Ctrl-C.")
    ] = False,
    data: Annotated[Path | None, typer.Option(help="With --serve: another data file than the run's.")] = None,
    insecure: Insecure = False,
    retry: Retry = False,
    form: FormatOption = Format.TEXT,
) -> None:
    """Train as a passive party, which releases desensitized ranks of its columns. With --serve: answer predictions."""
    from parties.jobs.train_vertical import train_passive
    from parties.session.reconnection import Restarts

    if serve:
        _serve(run_file, data, insecure, form)
        return
    if data is not None:
        raise typer.BadParameter("goes with --serve; training takes the run file's data", param_hint="--data")
    _train(partial(train_passive, restarts=Restarts()), run_file, insecure, retry, form)


def _serve(run_file: Path, data: Path | None, insecure: bool, form: Format) -> None:
    from parties.jobs.answer_vertical import serve_until_stopped
    from parties.vertical.prediction_service import StopSignals

    with StopSignals() as signals, terminal_of_command() as terminal:
        done = serve_until_stopped(run_file, data=data, insecure=insecure, terminal=terminal, signals=signals)
        print_result(form, sessions=done.n_sessions, requests=done.n_requests, records_answered=done.n_answered)


@app.command()
def coordinator(
    run_file: RunFile, insecure: Insecure = False, retry: Retry = False, form: FormatOption = Format.TEXT
) -> None:
    """Train on the rows of several workers as their coordinator, which sees sums and never a row."""
    from parties.jobs.train_horizontal import train_coordinator

    _train(train_coordinator, run_file, insecure, retry, form)


@app.command()
def worker(
    run_file: RunFile, insecure: Insecure = False, retry: Retry = False, form: FormatOption = Format.TEXT
) -> None:
    """Train as a worker of a coordinator, on this party's own rows; a stopped worker may be started again."""
    from parties.jobs.train_horizontal import train_worker

    _train(train_worker, run_file, insecure, retry, form)


@app.command()
def chain(
    run_file: RunFile, insecure: Insecure = False, retry: Retry = False, form: FormatOption = Format.TEXT
) -> None:
    """Train as an owner of rows in a chain; an interrupted run goes on when all owners start it again."""
    from parties.jobs.train_chain import train_owner

    _train(train_owner, run_file, insecure, retry, form)


@app.command()
def predict(
    run_file: RunFile,
    data: DataOption = None,
    ids: Annotated[Path | None, typer.Option(help="Score only the ids listed in this file.")] = None,
    mode: Annotated[
        Mode | None, typer.Option(help="How the passive parties take part (active party); by default routed.")
    ] = None,
    out: Annotated[
        str | None, typer.Option(help="Where predictions go: .csv or .parquet, also at s3://, or a table.")
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace predictions that are there.")] = False,
    append: Annotated[bool, typer.Option("--append", help="Add them to a table of a database.")] = False,
    reasons: Annotated[
        int, typer.Option(min=0, help="Name so many columns that raised each score most (active party).")
    ] = 0,
    insecure: Insecure = False,
    retry: Retry = False,
    form: FormatOption = Format.TEXT,
) -> None:
    """Score records with a trained model. Each party runs this with its own run file.

    The active party gets the predictions; a passive party answers for its columns. No labels are needed. The model of a
    coordinator, a worker or an owner in a chain is complete: each predicts alone.
    """
    from parties.config.party_run import HORIZONTAL_ROLES
    from parties.config.reading import read_role

    facts: dict[str, object] = {}
    to: dict[str, Any] = {"ids": ids, "out": out, "overwrite": overwrite, "append": append}
    report: dict[str, Any] = {"scored": lambda metrics: facts.update({k: round(v, 4) for k, v in metrics.items()})}
    with terminal_of_command() as terminal:
        call: dict[str, Any] = {"data": data, "terminal": terminal}
        role = read_role(run_file)
        if role in HORIZONTAL_ROLES:
            from parties.jobs.predict_horizontal import predict_alone

            refuse_given("there are no passive parties in this run: leave it out", mode=mode, reasons=reasons)
            target = predict_alone(run_file, **call, **to, **report)
            print_result(form, predictions=str(target), **facts)
            return
        from parties.jobs.answer_vertical import serve_passive
        from parties.jobs.predict_vertical import predict_active

        if role == "active":
            call |= {**to, **report, "insecure": insecure, "mode": (mode or Mode.ROUTED).value, "reasons": reasons}
            call["unasked"] = partial(facts.update, asked=False)
            target = retrying(partial(predict_active, run_file, **call), retry=retry, warn=terminal.warn)
            print_result(form, predictions=str(target), **facts)
        else:
            refuse_given("is for the active party's run file: leave it out", mode=mode, reasons=reasons, **to)
            answer = partial(serve_passive, run_file, insecure=insecure, **call)
            print_result(form, records_answered=retrying(answer, retry=retry, warn=terminal.warn))


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Where all parties' folders and summary.json go.")] = Path("runs/demo"),
    epsilon: Annotated[
        float | None,
        typer.Option(
            help="Per point of a domain of 100, by default a loss of 8 over the whole range of a column; per record "
            "with --horizontal, by default 1."
        ),
    ] = None,
    mechanism: Annotated[str, typer.Option(help="global, local or adj; without --horizontal.")] = "global",
    horizontal: Annotated[
        bool, typer.Option("--horizontal", help="Three owners of rows in place of two owners of columns.")
    ] = False,
    scheme: Annotated[SchemeName, typer.Option(help="With --horizontal: how they train.")] = SchemeName.RECOMMENDED,
    form: FormatOption = Format.TEXT,
) -> None:
    """Train jointly on the bundled two-party sample, each party as a process on this machine."""
    from parties.commands.demo import run_demo
    from parties.commands.horizontal_demo import run_horizontal_demo

    with terminal_of_command() as terminal:
        if horizontal:
            per_record = 1.0 if epsilon is None else epsilon
            summary = run_horizontal_demo(out, epsilon=per_record, scheme=scheme.value, terminal=terminal)
        else:
            summary = run_demo(out, epsilon=epsilon, mechanism=mechanism, terminal=terminal)
    if form is Format.JSON:
        typer.echo(json.dumps(summary))
    else:
        from parties.commands.printing import print_horizontal_summary, print_summary

        (print_horizontal_summary if horizontal else print_summary)(summary)


_DATA = (schema, init, doctor, ledger, backup, restore)
for function in (compile_loops, keygen, *_DATA, scout, report, status, serve, export, explain, tune, scorecard):
    app.command()(function)


@cache
def command() -> Callable[..., Any]:
    """The command that dispatches to all others; built once per process, and inherited by forked processes."""
    return typer.main.get_command(app)


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point of the console script and the launchers. A party that is told to stop notifies its peers first.

    Parameters
    ----------
    arguments : sequence of str, optional
        A command and its options; by default those of the process.
    """
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _stop)
    # Logs are opened again by themselves (`parties.runs.run_log`), and a terminal that is closed stops no run.
    signal.signal(signal.SIGHUP, lambda number, frame: None)
    gc.set_threshold(GARBAGE_OBJECTS)
    prepare_streams()
    try:
        command()(arguments, prog_name="opboost")
    except (Exception, SystemExit) as error:
        stopped = as_stopped(error)
        if isinstance(stopped, Stopped):
            print_error(str(stopped))
            raise stopped from None
        if isinstance(error, Exception):
            print_unexpected(error)
        raise
    finally:
        Stopped.received = None
        # Everything is closed by now; to look for cycles among all modules would take another third of a second.
        gc.freeze()


def _stop(number: int, frame: object) -> None:
    Stopped.received = number
    raise Stopped(number)


if __name__ == "__main__":
    main()
