"""Results of commands as tables for people."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from opboost.privacy.guarantee import rounded_up
from opboost.uplift import ColumnUse
from parties.doctor.check_result import Finding, Status
from parties.reports.account_statement import AccountStatement
from parties.reports.held_out_section import UNKNOWN, load_uplift, uplift_grid
from parties.reports.ledger_statement import Statement
from parties.reports.page import FigureGrid, Page
from parties.reports.words import spent_grid, spent_words
from parties.runs.run_folder import RunFolder
from protocols.transport.sanitize import readable

if TYPE_CHECKING:
    from parties.jobs.scout import Scouted

_COLOURS = {Status.OK: "green", Status.WARNING: "yellow", Status.PROBLEM: "red", Status.SKIPPED: "cyan"}


def print_page(page: Page) -> None:
    """Print the first tables of a report."""
    for _, grid in page.grids[:2]:
        _print_grid(grid)


def print_findings(findings: Sequence[Finding]) -> None:
    """Print the doctor's findings and a verdict."""
    table = Table()
    for heading in ("check", "result", "found"):
        table.add_column(heading, overflow="fold")
    for finding in findings:
        status = f"[{_COLOURS[finding.status]}]{finding.status.value}[/]"
        table.add_row(escape(finding.check), status, escape("\n".join([finding.sentence, *finding.notes])))
    _console().print(table)
    n = {status: sum(finding.status is status for finding in findings) for status in Status}
    verdict = "the run may be started" if n[Status.PROBLEM] == 0 else "the run would not succeed"
    typer.echo(f"{n[Status.PROBLEM]} problems, {n[Status.WARNING]} warnings: {verdict}")


def print_status(status: Mapping[str, Any]) -> None:
    """Print what a run does now, a fact a line."""
    typer.echo(f"run {status['run_id']} of {status['party']} ({status['role']}): {status['state']}")
    if phase := status["phase"]:
        typer.echo(f"{phase['time']} {phase['message']}")
    if progress := status["progress"]:
        typer.echo(f"{progress['step']}: {progress['done']} of {progress['total']}")
    for peer, traffic in status["peers"].items():
        typer.echo(
            f"{peer}: {traffic['sent']} messages sent ({traffic['sent_bytes']} bytes), {traffic['received']} received "
            f"({traffic['received_bytes']} bytes), the last at {traffic['last_received'] or 'no time'}"
        )
    for column, spent in (status["spent"] or {}).items():
        others = {kind: amounts for kind, amounts in spent.items() if isinstance(amounts, dict) and amounts["spent"]}
        for kind, amounts in {"epsilon": {"spent": spent["epsilon"], "limit": spent["limit"]}, **others}.items():
            # In JSON, whose words these are, infinity is a text.
            limit = "no limit" if amounts["limit"] is None else f"{amounts['limit']:g}"
            typer.echo(f"{column}: {kind} {rounded_up(float(amounts['spent']), 6)} spent of {limit}")


def print_uplift(folder: RunFolder) -> None:
    """Print the scores of held-out records."""
    if (uplift := load_uplift(folder)) is not None:
        _print_grid(uplift_grid(uplift, folder.read_json("meta.json")["party"]))
        if uplift.reason:
            typer.echo(f"not all could be measured: {uplift.reason}")


def print_summary(summary: Mapping[str, Any]) -> None:
    """Print the demo's result."""
    scores = {
        "A alone": summary["score_active_only"],
        "A with B, desensitized ranks, routed prediction": summary["score_joint"],
        "A with B, desensitized ranks, desensitized prediction": summary["score_joint_desensitized"],
        "A with B, without privacy": summary["score_central"],
    }
    facts = {
        "released by B": "released",
        "at a cost of": "cost",
        "bytes sent, both sides": "bytes_sent",
        "seconds, training and prediction": "seconds",
        "run folders": "folders",
    }
    _print_scores(summary, scores, facts)


def print_horizontal_summary(summary: Mapping[str, Any]) -> None:
    """Print the horizontal demo's result."""
    scores = {
        f"all owners, {summary['scheme']}, private": summary["score_joint"],
        **{f"{name} alone, without privacy": score for name, score in summary["score_alone"].items()},
        "all rows in one place, without privacy": summary["score_central"],
    }
    facts = {
        "promise": "promise",
        "bytes sent, everybody": "bytes_sent",
        "seconds of training": "seconds",
        "run folders": "folders",
    }
    _print_scores(summary, scores, facts)


def _print_scores(summary: Mapping[str, Any], scores: Mapping[str, float], facts: Mapping[str, str]) -> None:
    caption = f"{summary['dataset']}: {summary['metric']} on {summary['rows_test']} unseen records"
    rows = tuple((model, f"{score:.4f}") for model, score in scores.items())
    _print_grid(FigureGrid(caption, ("model", summary["metric"]), rows))
    _print_grid(FigureGrid("The run", ("", "value"), tuple((name, str(summary[key])) for name, key in facts.items())))


def print_scouted(scouted: Scouted) -> None:
    """Print what columns add, and lines for run files; at a passive party what the lines call its columns."""
    if scouted.numbered:
        _print_grid(FigureGrid("Columns by number", ("number", "column"), tuple(scouted.numbered.items())))
        return
    print_uplift(scouted.folder)
    rows = tuple((use.owner, ", ".join(use.columns), *_use_words(use)) for use in scouted.uses)
    caption = "What columns add on held-out records: the fall of the score if their answers are exchanged at random"
    _print_grid(FigureGrid(caption, ("party", "column", "adds", "95 % interval", "verdict"), rows))
    for party, lines in scouted.to_copy.items():
        typer.echo(f"\n# lines for the run file of {readable(party, len(party))}\n{lines}", nl=False)


def _use_words(use: ColumnUse) -> tuple[str, str, str]:
    """What columns add, the interval of it, and a verdict."""
    uplift = use.uplift
    if uplift.uplift is None or uplift.low is None or uplift.high is None:
        return UNKNOWN, "-", uplift.reason
    verdict = "helps" if uplift.low > 0 else "chance explains it: may be left out"
    return f"{uplift.uplift:.4f}", f"{uplift.low:.4f} to {uplift.high:.4f}", verdict


def print_statement(found: Statement | AccountStatement) -> None:
    """Print a ledger statement, or that of a worker's account."""
    if isinstance(found, AccountStatement):
        typer.echo(f"{found.path}: verified. {found.sentence}")
        rows = tuple(
            (run.run, run.coordinator, *(rounded_up(cost, 6) for cost in (run.epsilon, run.delta)), run.continues)
            for run in found.runs
        )
        headings = ("run", "coordinator", "epsilon", "delta", "counts also for")
        _print_grid(FigureGrid("Charged runs", headings, rows))
        return
    typer.echo(f"{found.path}: {spent_words(found)}")
    _print_grid(spent_grid(found))


def _print_grid(grid: FigureGrid) -> None:
    table = Table(title=_shown(grid.caption), title_justify="left")
    for heading in grid.headings:
        table.add_column(heading, overflow="fold")
    for row in grid.rows:
        table.add_row(*map(_shown, row))
    _console().print(table)


def _shown(text: str) -> str:
    """Sanitize a text that may hold a name which a peer chose: one line, without markup or control sequences."""
    return escape(readable(text, len(text)))


def _console() -> Console:
    """Console on standard output; wide if it is no terminal."""
    console = Console(file=sys.stdout)
    if not console.is_terminal:
        console.width = 160
    return console
