"""Commands that start no run: keys, ledger, reports and the doctor."""

from __future__ import annotations

import json
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from parties.commands.console import (
    DataOption,
    Format,
    FormatOption,
    Insecure,
    RunFile,
    print_result,
    terminal_of_command,
)

LedgerOf = Annotated[Path | None, typer.Argument(help="The run file, for its ledger and limits.", metavar="[RUN.yaml]")]
LedgerPath = Annotated[Path | None, typer.Option(help="The ledger; by default the run's, or runs/ledger.sqlite.")]


class ReportFormat(StrEnum):
    """Format of a report."""

    HTML = "html"
    JSON = "json"
    CSV = "csv"
    MARKDOWN = "md"


class Purpose(StrEnum):
    """The job that the doctor checks for."""

    TRAIN = "train"
    PREDICT = "predict"
    SERVE = "serve"


def keygen(
    name: Annotated[str, typer.Argument(help="The party's name; the files are NAME.secret and NAME.public.")],
    folder: Annotated[Path, typer.Option(help="Where to put them.")] = Path("keys"),
    shared: Annotated[
        bool, typer.Option("--shared", help="Make NAME.shared instead: a secret for hashed ids.")
    ] = False,
    form: FormatOption = Format.TEXT,
) -> None:
    """Make a party's pair of keys. The public key goes to the peers; the secret key stays on this host."""
    from protocols.transport.keys import generate, generate_shared

    with terminal_of_command():
        if shared:
            print_result(form, shared=str(generate_shared(folder, name)))
            return
        secret, public = generate(folder, name)
        print_result(form, secret=str(secret), public=str(public))


def ledger(
    run_file: LedgerOf = None,
    path: LedgerPath = None,
    migrate: Annotated[bool, typer.Option("--migrate", help="Take over the draws of an earlier version.")] = False,
    form: FormatOption = Format.TEXT,
) -> None:
    """Show the spent and the remaining budget, per column and per record; fails if the ledger was tampered with.

    With the run file of a worker, or of an owner in a chain: how much of its budget its runs have spent.
    """
    from parties.config.party_run import HORIZONTAL_ROLES
    from parties.config.reading import check_role
    from parties.reports.account_statement import AccountStatement, read_account
    from parties.reports.ledger_statement import Statement, ledger_path, read_statement

    if migrate:
        from parties.jobs.migrate_ledger import migrate_ledger

        with terminal_of_command():
            done = migrate_ledger(ledger_path(run_file, path), run_file)
            print_result(form, taken_over=done.n_taken, to_be_drawn_anew=list(done.lost))
        return
    with terminal_of_command():
        statement: Statement | AccountStatement
        keepers = "passive", "worker", "owner"
        if run_file is not None and path is None and check_role(run_file, *keepers) in HORIZONTAL_ROLES:
            statement = read_account(run_file)
        else:
            statement = read_statement(run_file, path)
    if form is Format.JSON:
        typer.echo(json.dumps(statement.to_dict()))
    else:
        from parties.commands.printing import print_statement

        print_statement(statement)


def backup(
    folder: Annotated[Path, typer.Argument(help="Where the copy goes; it must hold none.")],
    run_file: LedgerOf = None,
    path: LedgerPath = None,
    form: FormatOption = Format.TEXT,
) -> None:
    """Copy a ledger with everything that was drawn; the ledger may be in use."""
    from parties.ledger.backup import back_up
    from parties.reports.ledger_statement import ledger_path

    with terminal_of_command():
        print_result(form, folder=str(folder), lines=back_up(ledger_path(run_file, path), folder))


def restore(
    folder: Annotated[Path, typer.Argument(help="Where the copy lies.")],
    run_file: LedgerOf = None,
    path: LedgerPath = None,
    older: Annotated[bool, typer.Option("--older", help="Though it may lack lines that the ledger had.")] = False,
    form: FormatOption = Format.TEXT,
) -> None:
    """Restore a ledger that is lost or damaged from a copy. Stop all processes that use the ledger first."""
    from parties.ledger.backup import restore as put_back
    from parties.reports.ledger_statement import ledger_path

    with terminal_of_command():
        ledger_file = ledger_path(run_file, path)
        print_result(form, ledger=str(ledger_file), lines=put_back(folder, ledger_file, older=older))


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
    law: Annotated[list[str] | None, typer.Option(help="Compare noise distributions; repeatable.")] = None,
    epsilon: Annotated[list[float] | None, typer.Option(help="Compare budgets; repeatable.")] = None,
    theta: Annotated[list[int] | None, typer.Option(help="Compare widths of cells; repeatable.")] = None,
    alpha: Annotated[list[float] | None, typer.Option(help="Compare shares between cells; repeatable.")] = None,
) -> None:
    """Write the report of a run. Before the run: the plan, with what a release would promise and keep.

    Nothing is drawn, charged or sent. An active party releases no columns, so it has a report only after the run. A
    finished run writes its report by itself, and again after predictions; this command writes it anew.
    """
    from parties.commands.report import asked_grid, deliver
    from parties.reports.writing import read_party_run, report_of

    with terminal_of_command() as terminal:
        if out is not None:
            read_party_run(run_file).check_free(out, run_file)
        grid = asked_grid(mechanism, law, epsilon, theta, alpha)
        party_report = report_of(
            run_file, before=before, grid=grid, wanted_order=tuple(order or ()), progress=terminal.progress
        )
        deliver(party_report, form.value, out)


def status(run_file: RunFile, form: FormatOption = Format.TEXT) -> None:
    """Show what a run does now: its last step, its progress, its peers, and what a passive party has spent."""
    from parties.reports.run_status import run_status

    with terminal_of_command():
        current = run_status(run_file).to_dict()
    if form is Format.JSON:
        typer.echo(json.dumps(current))
    else:
        from parties.commands.printing import print_status

        print_status(current)


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
    """Check files, schema, data, keys, ledger, budget, folder and the peer before a run; fails on a problem.

    With --for predict or serve: the model, the data (those of --data, if given), the limits and the peer's terms.

    The peer is asked if it runs this command too, or waits for the run. A waiting peer is not disturbed.
    """
    from parties.commands.printing import print_findings
    from parties.doctor.check_result import is_sound, report
    from parties.doctor.prediction import examine_prediction
    from parties.doctor.vertical import examine

    if purpose is Purpose.TRAIN and data is not None:
        raise typer.BadParameter("goes with --for predict or serve", param_hint="--data")
    with terminal_of_command() as terminal:
        terminal.say(f"checking files, then looking for the peers for at most {wait:g} s each")
        if purpose is Purpose.TRAIN:
            findings = examine(run_file, insecure=insecure, wait_s=wait)
        else:
            serves = purpose is Purpose.SERVE
            findings = examine_prediction(run_file, data=data, serves=serves, insecure=insecure, wait_s=wait)
    if form is Format.JSON:
        typer.echo(json.dumps(report(findings)))
    else:
        print_findings(findings)
    if not is_sound(findings):
        raise typer.Exit(1)
