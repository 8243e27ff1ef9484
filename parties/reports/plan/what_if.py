"""What-ifs of a plan: all values that its slider can show, computed in advance, and a table of them."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence

import numpy as np
import yaml

from parties.reports.page import FigureGrid
from parties.reports.plan.candidates import CURVE_SHARES, Candidate
from parties.reports.plan.choices import BUDGETS, FEW_POINTS, MECHANISMS, label
from parties.reports.plan.facts import ColumnPlan
from parties.reports.sentences import GRADES, odds
from parties.reports.words import fraction

# The drawing of loss curves: its left, right and lower end, and the loss at its upper end.
_LEFT, _RIGHT, _LOW, _TOP_LOSS = 40, 320, 170, math.log(10_000)


def shape_of(candidate: Candidate) -> tuple[object, ...]:
    """A candidate's mechanism and number of points."""
    return candidate.settings["mechanism"], candidate.settings.get("domain_size")


def yaml_entry(column: ColumnPlan, candidate: Candidate) -> str:
    """A candidate as an entry of a run file's `desensitize.columns`, in place of any that the column has."""
    if column.keep is not None:
        settings = {"category_epsilon": candidate.settings["epsilon"]}
    else:
        # The budget of empty cells stays, whatever follows from an `epsilon`.
        settings = candidate.settings | {"category_epsilon": column.promise.missing_epsilon or None}
    told = ", ".join(f"{key}: {_scalar(value)}" for key, value in settings.items() if value is not None)
    name = yaml.safe_dump(column.promise.column, default_style='"', width=math.inf).rstrip()
    return f"{name}: {{{told}}}"


def _scalar(value: object) -> str:
    """A setting in YAML, which takes a number in powers of ten for text where it has no decimal point."""
    if isinstance(value, float):
        return ".inf" if math.isinf(value) else np.format_float_positional(value, trim="0")
    return str(value)


def what_if_data(columns: Sequence[ColumnPlan]) -> dict[str, object]:
    """Values from which the page's script chooses, all computed in advance."""
    curves: dict[str, int] = {}

    def option(column: ColumnPlan, candidate: Candidate) -> list[object]:
        verdict, kendall = (
            candidate.verdict,
            candidate.outlook.kendall if candidate.outlook and column.keep is None else None,
        )
        right, blind = verdict.cases if verdict else ("-", "-")
        return [
            verdict.grade if verdict else 0,
            f"{right}; {blind} without",
            fraction(kendall),
            label(candidate.settings),
            textwrap.indent(yaml_entry(column, candidate), "    "),
            curves.setdefault(_polyline(candidate.curve), len(curves)),
        ]

    found = []
    for column in columns:
        options: dict[str, list[list[object] | None]] = {}
        for candidate in column.candidates:
            if candidate.budget is not None:
                key = "" if column.keep is not None else "{}|{}".format(*shape_of(candidate))
                at = BUDGETS.index(candidate.budget)
                options.setdefault(key, [None] * len(BUDGETS))[at] = option(column, candidate)
        own = None if column.keep is not None else column.chosen.settings["domain_size"]
        found.append(
            {"name": column.promise.column, "points": own, "chosen": option(column, column.chosen), "options": options}
        )
    first = next((column.chosen for column in columns if column.keep is None), columns[0].chosen)
    spent = min(first.promise.domain_loss, max(BUDGETS))
    odds_of = (2, 10, 100, 1_000, 10_000)
    return {
        "words": [word for word, *_ in GRADES],
        "budgets": BUDGETS,
        "said": [
            f"{budget}: the two ends of a column are told apart with odds of {odds(budget).partition(', which')[0]}"
            for budget in BUDGETS
        ],
        "start": min(range(len(BUDGETS)), key=lambda at: abs(BUDGETS[at] - spent)),
        "mechanisms": MECHANISMS,
        "mechanism": first.settings["mechanism"],
        "points": FEW_POINTS,
        "columns": found,
        "curves": list(curves),
        "ticks": [(round(_y(math.log(odds_value)), 1), f"{odds_value:,}:1") for odds_value in odds_of],
        "shares": [
            (round(_x(share)), f"{100 * share:g} %") for share in CURVE_SHARES if share in (0.1, 0.3, 0.5, 0.75, 1)
        ],
    }


def _x(share: float) -> float:
    return _LEFT + share * (_RIGHT - _LEFT)


def _y(loss: float) -> float:
    return _LOW * (1 - min(loss / _TOP_LOSS, 1.02)) + 6


def _polyline(losses: Sequence[float]) -> str:
    return " ".join(f"{_x(share):.0f},{_y(loss):.1f}" for share, loss in zip(CURVE_SHARES, losses, strict=True))


def what_if_grid(columns: Sequence[ColumnPlan]) -> FigureGrid:
    """Table of the what-ifs that keep the chosen mechanisms and points."""
    rows = []
    for column in columns:
        by_budget = {
            candidate.budget: candidate
            for candidate in column.candidates
            if candidate.budget and shape_of(candidate) == shape_of(column.chosen)
        }
        verdicts = [by_budget[budget].verdict if budget in by_budget else None for budget in BUDGETS]
        rows.append(
            (
                column.promise.column,
                *(f"{verdict.word}, {verdict.cases[0]}" if verdict else "-" for verdict in verdicts),
            )
        )
    caption = "Verdict and the attacker's exact guess, by the loss over a column's whole range"
    return FigureGrid(caption, ("column", *map(str, BUDGETS)), tuple(rows))
