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
    """Make a party's pair of keys. The public one goes to the peers, the secret one stays."""
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
    """Show what was released and what may still be, per column and per record; fails if that was tampered with.

    With the run file of a worker, or of an owner in a chain: what its runs have spent, of which budget.
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
        found: Statement | AccountStatement
        keepers = "passive", "worker", "owner"
        if run_file is not None and path is None and check_role(run_file, *keepers) in HORIZONTAL_ROLES:
            found = read_account(run_file)
        else:
            found = read_statement(run_file, path)
    if form is Format.JSON:
        typer.echo(json.dumps(found.to_dict()))
    else:
        from parties.commands.printing import print_statement

        print_statement(found)


def backup(
    folder: Annotated[Path, typer.Argument(help="Where the copy goes; it must hold none.")],
    run_file: LedgerOf = None,
    path: LedgerPath = None,
    form: FormatOption = Format.TEXT,
) -> None:
    """Copy a ledger with everything that was drawn, while it is in use."""
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
    """Put a copy back where the ledger is lost or damaged; stop what uses it before."""
    from parties.ledger.backup import restore as put_back
    from parties.reports.ledger_statement import ledger_path

    with terminal_of_command():
        found = ledger_path(run_file, path)
        print_result(form, ledger=str(found), lines=put_back(folder, found, older=older))


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
    """Before a run: what a release would promise and keep. After it: what it did.

    Nothing is drawn, charged or sent. An active party, which releases no columns, has a report afterwards only. A
    finished run's report is written by the run itself, and again after predictions; so does this.
    """
    from parties.commands.report import asked_grid, deliver
    from parties.reports.writing import read_party_run, report_of

    with terminal_of_command() as terminal:
        if out is not None:
            read_party_run(run_file).check_free(out, run_file)
        grid = asked_grid(mechanism, law, epsilon, theta, alpha)
        found = report_of(
            run_file, before=before, grid=grid, wanted_order=tuple(order or ()), progress=terminal.progress
        )
        deliver(found, form.value, out)


def status(run_file: RunFile, form: FormatOption = Format.TEXT) -> None:
    """Show what a run does now: its last step, its progress, its peers, and what a passive party has spent."""
    from parties.reports.run_status import run_status

    with terminal_of_command():
        found = run_status(run_file).to_dict()
    if form is Format.JSON:
        typer.echo(json.dumps(found))
    else:
        from parties.commands.printing import print_status

        print_status(found)


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
    from parties.commands.printing import print_findings
    from parties.doctor.check_result import is_sound, report
    from parties.doctor.prediction import examine_prediction
    from parties.doctor.vertical import examine

    if purpose is Purpose.TRAIN and data is not None:
        raise typer.BadParameter("goes with --for predict or serve", param_hint="--data")
    with terminal_of_command() as terminal:
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
