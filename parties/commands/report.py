"""`opboost report`: the grid of settings from the options, and the report as files or text."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import typer

from opboost.errors import nearest
from opboost.privacy.laws import Law
from parties.commands.printing import print_page
from parties.errors import ConfigError
from parties.reports.plan.choices import MECHANISMS, MechanismGrid
from parties.reports.writing import Report
from parties.storage.atomic_files import write_text


def asked_grid(
    mechanisms: Sequence[str] | None,
    laws: Sequence[str] | None,
    epsilons: Sequence[float] | None,
    thetas: Sequence[int] | None,
    alphas: Sequence[float] | None,
) -> MechanismGrid | None:
    """Grid of mechanism settings from the options; None if there are none.

    Raises
    ------
    ConfigError
        If a mechanism or a noise distribution does not exist, or a number is none that one could have.
    """
    for what, values, known in (("mechanism", mechanisms, MECHANISMS), ("law", laws, tuple(Law))):
        unknown = sorted(set(values or ()) - set(known))
        if unknown:
            raise ConfigError(
                f"--{what} must be one of {', '.join(known)}; found {', '.join(unknown)}{nearest(unknown, known)}"
            )
    for what, numbers in (("epsilon", epsilons), ("theta", thetas), ("alpha", alphas)):
        for number in numbers or ():
            if not 0 < number < math.inf:
                raise ConfigError(f"--{what} must be positive and finite; found {number:g}")
    grid = MechanismGrid(
        mechanisms=tuple(mechanisms or ()),
        laws=tuple(Law(law) for law in laws or ()),
        epsilons=tuple(epsilons or ()),
        thetas=tuple(thetas or ()),
        alphas=tuple(alphas or ()),
    )
    return None if grid.is_empty else grid


def deliver(report: Report, form: str, out: Path | None) -> None:
    """Write the HTML report and print its first tables; print any other format, or write it to `out`."""
    if form == "html" and out is None:
        report.write()
        print_page(report.page)
        for sentence in report.warnings:
            typer.echo(f"warning: {sentence}")
        typer.echo(f"report: {report.home}")
    elif out is None:
        typer.echo(report.text(form), nl=False)
    else:
        write_text(out, report.text(form))
        typer.echo(f"report: {out}")
