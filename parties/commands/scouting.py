"""`opboost scout`: what each column adds, and proposed lines for the run files."""

from __future__ import annotations

import json
from functools import partial
from typing import Annotated

import typer

from parties.commands.console import Format, FormatOption, Insecure, Retry, RunFile, print_result, terminal_of_command
from parties.commands.exit_codes import retrying


def scout(
    run_file: RunFile,
    records: Annotated[
        int, typer.Option(min=100, help="Common records to release, drawn at random; the same on all sides.")
    ] = 2000,
    insecure: Insecure = False,
    retry: Retry = False,
    form: FormatOption = Format.TEXT,
) -> None:
    """Release a few random records, and measure on held-out ones what each column adds. Each party runs this.

    Only the released records are charged, and the full run keeps their draws. The active party gets the result, with
    lines for the run files that leave useless columns out and divide the budget among the others.
    """
    from parties.jobs.scout import scout as run_scout
    from parties.reports.plain import plain
    from parties.session.reconnection import Restarts

    with terminal_of_command() as terminal:
        once = partial(run_scout, run_file, records=records, insecure=insecure, terminal=terminal, restarts=Restarts())
        found = retrying(once, retry=retry, warn=terminal.warn)
        if form is Format.JSON:
            facts = {"uplift": plain(found.uplift), "uses": plain(found.uses), "to_copy": found.to_copy}
            facts |= {"run_folder": str(found.folder.path), "records": found.n_records, "columns": found.numbered}
            typer.echo(json.dumps(facts))
            return
        from parties.commands.printing import print_scouted

        print_scouted(found)
        print_result(form, run_folder=str(found.folder.path), records_released=found.n_records)
