"""Results as tables for people."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from parties.doctor.check_result import Finding, Status
from parties.reports.ledger_statement import Spending, Statement
from parties.reports.page import Page
from protocols.transport.sanitize import readable

_COLOURS = {Status.OK: "green", Status.WARNING: "yellow", Status.PROBLEM: "red", Status.SKIPPED: "cyan"}


def print_page(page: Page) -> None:
    """The first tables of a report, which say most of it in words."""
    console = _console()
    for _, grid in page.grids[:2]:
        table = Table(title=_shown(grid.caption), title_justify="left")
        for heading in grid.headings:
            table.add_column(heading, overflow="fold")
        for row in grid.rows:
            table.add_row(*map(_shown, row))
        console.print(table)


def print_findings(findings: Sequence[Finding]) -> None:
    """What the doctor found, and one sentence to sum it up."""
    table = Table()
    for heading in ("check", "result", "found"):
        table.add_column(heading, overflow="fold")
    for finding in findings:
        status = f"[{_COLOURS[finding.status]}]{finding.status.value}[/]"
        table.add_row(escape(finding.check), status, escape(finding.sentence))
    _console().print(table)
    n = {status: sum(finding.status is status for finding in findings) for status in Status}
    verdict = "the run may be started" if n[Status.PROBLEM] == 0 else "the run would not succeed"
    typer.echo(f"{n[Status.PROBLEM]} problems, {n[Status.WARNING]} warnings: {verdict}")


def print_summary(summary: dict[str, object]) -> None:
    """The demo's result as a table."""
    table = Table(title=f"{summary['dataset']}: {summary['metric']} on {summary['rows_test']} unseen records")
    table.add_column("model")
    table.add_column(str(summary["metric"]), justify="right")
    rows = (
        ("A alone", "score_active_only"),
        ("A with B, desensitized ranks, routed prediction", "score_joint"),
        ("A with B, desensitized ranks, desensitized prediction", "score_joint_desensitized"),
        ("A with B, without privacy", "score_central"),
    )
    for label, key in rows:
        table.add_row(label, f"{summary[key]:.4f}")
    console = Console(file=sys.stdout)
    console.print(table)
    facts = Table(show_header=False)
    for label, key in (
        ("released by B", "released"),
        ("at a cost of", "cost"),
        ("bytes sent, both sides", "bytes_sent"),
        ("seconds, training and prediction", "seconds"),
        ("run folders", "folders"),
    ):
        facts.add_row(label, str(summary[key]))
    console.print(facts)


def print_horizontal_summary(summary: Mapping[str, Any]) -> None:
    """The horizontal demo's result as a table."""
    table = Table(title=f"{summary['dataset']}: {summary['metric']} on {summary['rows_test']} unseen records")
    table.add_column("model")
    table.add_column(str(summary["metric"]), justify="right")
    table.add_row(f"all owners, {summary['scheme']}, private", f"{summary['score_joint']:.4f}")
    for name, score in summary["score_alone"].items():
        table.add_row(f"{name} alone, without privacy", f"{score:.4f}")
    table.add_row("all rows in one place, without privacy", f"{summary['score_central']:.4f}")
    console = Console(file=sys.stdout)
    console.print(table)
    facts = Table(show_header=False)
    for label, key in (
        ("promise", "promise"),
        ("bytes sent, everybody", "bytes_sent"),
        ("seconds of training", "seconds"),
        ("run folders", "folders"),
    ):
        facts.add_row(label, str(summary[key]))
    console.print(facts)


def print_statement(found: Statement) -> None:
    """A ledger as a table."""
    table = Table()
    table.add_column("column")
    table.add_column("one unit")
    for heading in ("epsilon per unit", "categories", "cells, bits"):
        table.add_column(heading, justify="right")
        table.add_column("remaining", justify="right")
    for heading in ("draws", "re-used", "tests", "answered"):
        table.add_column(heading, justify="right")
    for column in found.columns:
        spendings = (column.epsilon, column.category_epsilon, column.cell_bits)
        costs = [text for spending in spendings for text in _spending(spending)]
        unit = column.unit.words if column.unit is not None else "-"
        counts = (column.n_releases, column.n_reuses, column.n_tests, column.n_answered)
        table.add_row(escape(column.column), unit, *costs, *map(str, counts))
    console = _console()
    typer.echo(f"{found.path}: {found.n_lines} lines, verified; released to {', '.join(found.peers) or 'nobody'}")
    console.print(table)
    spent, remaining = _spending(found.record)
    typer.echo(f"worst of {found.n_records} records, over all columns: spent {spent}, remaining {remaining}")
    bits, left = _spending(found.record_cell_bits)
    typer.echo(f"cells published exactly, of the record with most over all columns: {bits} bits, remaining {left}")


def _spending(spending: Spending) -> tuple[str, str]:
    remaining = "unlimited" if spending.remaining is None else f"{spending.remaining:.4g}"
    return f"{spending.spent:.4g}", remaining


def _shown(text: str) -> str:
    """A text that may hold a name which a peer chose: one line, without markup and without what a terminal obeys."""
    return escape(readable(text, len(text)))


def _console() -> Console:
    """Standard output; wide where nobody looks at it."""
    console = Console(file=sys.stdout)
    if not console.is_terminal:
        console.width = 160
    return console
