"""Number formats, and the sections that several reports share."""

from __future__ import annotations

import math
from dataclasses import replace

from opboost.privacy.guarantee import ColumnGuarantee, Guarantee, exposed, rounded_up, with_tests
from parties.reports.ledger_statement import Spending, Statement, left_over
from parties.reports.page import FigureGrid, PageBlock, PageSection, Prose

# What A learns of changed values.
_LEAKAGE_OF_CHANGES = (
    "whether a record or a column was changed since it was released before, unless B keeps its first draws; exact "
    "answers are about values as they are when A asks, so that two of them can show a change"
)

# What each side learns in a vertical run, in the words under which such leaks are known.
_LEAKAGE = (
    ("gradient leakage", "none: gradients, Hessians and leaf values never leave A", "none: no gradient of B exists"),
    (
        "histogram leakage",
        "none: A builds its histograms on ranks that it holds; B is sent none",
        "A sees how often each rank occurs among B's noised values, and so their histogram: on the mapped domain where "
        "B shares codes, else up to the scale",
    ),
    (
        "model-statistics leakage",
        "B sees which of its ranks the trees split on; these were chosen by A's labels. No gain, cover or leaf value",
        "A sees the trees whole; thresholds in B's units, with its columns' names, only if B shares them",
    ),
    (
        "record values",
        "none",
        "ranks of desensitized values, and where B shares codes these values on the mapped domain, within the "
        "guarantee; held-out records and mode routed: one exact bit per test",
    ),
    (
        "changes of values",
        "that something of A's was changed between two runs, labels too: trees then split on other ranks",
        _LEAKAGE_OF_CHANGES,
    ),
    (
        "who is in the data",
        "B learns which of its records all parties know, with several `align.keys` also by which of them, and how many "
        "A has; at prediction, which ids or keys are scored",
        "A learns which of its records B knows, with several `align.keys` also by which of them, so that B has others "
        "or none of those before it, and how many B has; at prediction, whether B's data file holds any id that A asks "
        "for, or any key",
    ),
)


# Where records are answered by cells of an agreed grid.
_LEAKAGE_BY_CELLS = {
    "changes of values": ("none", _LEAKAGE_OF_CHANGES),
    "model-statistics leakage": (
        "none: B answers with cells of a grid that is made of its release, before training; nothing comes back to it",
        "A sees the trees whole; the grid's thresholds in B's units, with its columns' names, only if B shares them",
    ),
    "record values": (
        "none",
        "ranks of desensitized values, and where B shares codes these values on the mapped domain, within the "
        "guarantee; held-out records and mode routed: the cell of every column, once and for all",
    ),
}


def number(value: float | None, digits: int = 4) -> str:
    """Format a number in few digits, and no power of ten; infinity as a word."""
    if value is None:
        return "-"
    if math.isinf(value):
        return "infinite"
    return f"{value:,.{digits}g}" if abs(value) < 10**digits - 0.5 else f"{value:,.0f}"


def loss(epsilon: float | None) -> str:
    """Format a privacy loss, rounded up; infinity as a word."""
    return number(epsilon) if epsilon is None or math.isinf(epsilon) else rounded_up(epsilon)


def fraction(value: float | None) -> str:
    """Format a number between 0 and 1."""
    return "-" if value is None else f"{value:.3f}"


def percent(share: float) -> str:
    """Format a share in percent."""
    return f"{100 * share:.1f} %"


def most_percent(share: float) -> str:
    """Format a share in percent, rounded up."""
    return percent(math.ceil(1000 * share - 1e-9) / 1000)


def chance(delta: float) -> str:
    """Format a small probability as one in so many, no smaller than it is."""
    return f"one in {math.floor(1 / delta * (1 + 1e-9)):,}"


def metric_name(metric: str) -> str:
    """A metric's name as people write it."""
    return {"auc": "AUC", "gini": "Gini", "ks": "KS", "logloss": "log loss"}.get(metric, metric)


def size(n_bytes: int) -> str:
    """Format a number of bytes with a decimal unit."""
    for unit, factor in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if n_bytes >= factor:
            return f"{n_bytes / factor:.1f} {unit}"
    return f"{n_bytes} bytes"


def leakage_section(*, by_cells: bool = False) -> PageSection:
    """Section on leakage: what each side of a vertical run learns."""
    changed = _LEAKAGE_BY_CELLS if by_cells else {}
    rows = tuple((name, *changed.get(name, sides)) for name, *sides in _LEAKAGE)
    grid = FigureGrid("What each side learns", ("kind", "B learns of A", "A learns of B"), rows)
    return PageSection("Who sees what", (grid,), is_folded=True)


def guarantee_blocks(guarantee: Guarantee) -> tuple[PageBlock, ...]:
    """Blocks on a guarantee: its unit, its neighbours, what it does not cover, and its columns."""
    blocks: list[PageBlock] = [Prose(guarantee.protected, is_strong=True)]
    if guarantee.notion != "none":
        rows = (
            ("definition", guarantee.notion),
            ("between neighbouring records", f"epsilon {loss(guarantee.epsilon)}"),
            ("between any two records (plain LDP)", f"epsilon {loss(guarantee.domain_loss)}"),
            ("neighbours", guarantee.neighbours),
            ("unit of distance", guarantee.unit),
            ("certified", "yes" if guarantee.certified else "no"),
        )
        blocks.append(FigureGrid("The guarantee of all columns together", ("what", "value"), rows))
        blocks.append(
            Prose(
                "Epsilon is per unit of distance, a step of the column: t steps apart it is at most t times as much. "
                "It is a weaker promise than plain epsilon-LDP with the same number; that would promise the worst case "
                "between any two records."
            )
        )
    if not guarantee.is_secure:
        blocks.append(Prose("Drawn from seeded bits: NOT FOR RELEASE.", is_strong=True))
    blocks += [Prose(f"Not protected: {'; '.join(guarantee.not_protected)}."), columns_grid(guarantee.columns)]
    return tuple(blocks)


def as_answered(guarantee: Guarantee, *, n_tests: int, n_cells: int | None) -> Guarantee:
    """Add exact answers to a guarantee's `not_protected`, for a run that refused them at first and gives some now."""
    (routed,) = exposed(allow_routed=True, redraws=False, n_cells=n_cells)
    if any(sentence.startswith(routed) for sentence in guarantee.not_protected):
        return guarantee
    return with_tests(replace(guarantee, not_protected=(*guarantee.not_protected, routed)), n_tests)


def guarantee_section(guarantee: Guarantee) -> PageSection:
    """Section on a guarantee."""
    return PageSection("Guarantee", guarantee_blocks(guarantee), is_folded=True)


def columns_grid(columns: tuple[ColumnGuarantee, ...]) -> FigureGrid:
    """Table of the guarantees of single columns."""
    return FigureGrid(
        "The promise, column by column",
        ("column", "mechanism", "epsilon per unit", "one unit", "worst case over the domain", "emptiness", "cells"),
        tuple(
            (
                column.column,
                f"{column.mechanism.replace('_', ' ')} {column.law}".strip(),
                loss(column.epsilon),
                column.unit,
                loss(column.domain_loss),
                loss(column.missing_epsilon) if column.missing_epsilon else "-",
                _cells_words(column),
            )
            for column in columns
        ),
    )


def _cells_words(column: ColumnGuarantee) -> str:
    """The cells that a mechanism publishes of a column, in words; a dash if it publishes none."""
    if not column.n_cells:
        return "-"
    bits, n_points = loss(column.cell_bits), column.narrowest_cell
    return f"{column.n_cells} published, {bits} bits, the narrowest of {n_points} points"


def ledger_section(statement: Statement | None, *, is_over: bool = False) -> PageSection:
    """Section on the ledger of releases: spent over all runs, and remaining."""
    if statement is None:
        sentence = "There is no ledger yet: nothing has been released."
        if is_over:
            sentence = (
                "The run's ledger is not there: what the run file names is absent, another ledger, or an older copy. "
                "What was spent is not known here, and nothing more is answered or released for this run without it."
            )
        return PageSection("Ledger", (Prose(sentence, is_strong=is_over),), is_folded=not is_over)
    return PageSection("Ledger", (Prose(spent_words(statement)), spent_grid(statement)), is_folded=True)


def spent_words(statement: Statement) -> str:
    """Summary of a ledger in a few sentences."""
    summary = (
        f"{statement.n_lines:,} lines, verified; released to {', '.join(statement.peers) or 'nobody'}. Of "
        f"{statement.n_records:,} records, the one that spent most has spent {loss(statement.record.spent)} over all "
        f"columns; remaining: {_remaining(statement.record, statement)}."
    )
    bits = statement.record_cell_bits
    if bits.spent > 0 or bits.limit is not None:
        bits_left = _remaining(bits, statement)
        summary += f" Of its cells at most {loss(bits.spent)} bits were published exactly; remaining: {bits_left}."
    if statement.n_spared > 0:
        summary += f" {statement.n_spared:,} cells of its records were never charged."
    return summary


def spent_grid(statement: Statement) -> FigureGrid:
    """Table of spent and remaining budget, column by column; kinds of which nothing was spent are left out."""
    kinds = {
        "epsilon per unit": [column.epsilon for column in statement.columns],
        "categories": [column.category_epsilon for column in statement.columns],
        "cells, bits": [column.cell_bits for column in statement.columns],
    }
    used = {
        kind: spendings
        for kind, spendings in kinds.items()
        if any(spending.spent or spending.remaining is not None for spending in spendings)
    }
    counts = ("records", "draws", "used again", "tests resolved", "cuts of cells", "values answered")
    return FigureGrid(
        "Spent over all runs, and remaining",
        ("column", "one unit", *(text for kind in used for text in (kind, "remaining")), *counts),
        tuple(
            (
                column.column,
                column.unit.words if column.unit is not None else "-",
                *(
                    text
                    for spendings in used.values()
                    for text in (loss(spendings[k].spent), _remaining(spendings[k], statement))
                ),
                *(
                    f"{n:,}"
                    for n in (
                        column.n_records,
                        column.n_releases,
                        column.n_reuses,
                        column.n_tests,
                        column.n_cuts,
                        column.n_answered,
                    )
                ),
            )
            for k, column in enumerate(statement.columns)
        ),
    )


def _remaining(spending: Spending, statement: Statement) -> str:
    if spending.remaining is None:
        return "no limit" if statement.knows_limits else "unknown without a run file"
    return left_over(spending.remaining)
