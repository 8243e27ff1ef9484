"""Sections of a plan's page on single columns: mechanisms compared, exact losses, order kept, distributions."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from opboost.map_analysis import BETA_RECORDS, LossPoint, SplitOutlook
from opboost.table_format.times import difference_in_words, rough_difference, time_in_words
from parties.reports.figures import Axis, Series, bars, lines
from parties.reports.page import Figure, FigureGrid, PageBlock, Prose
from parties.reports.plan.candidates import Candidate
from parties.reports.plan.choices import label
from parties.reports.plan.facts import ColumnPlan
from parties.reports.plan.what_if import shape_of
from parties.reports.words import fraction, loss, number, percent

# Loss curves in one drawing.
MOST_CURVES = 5

# The loss over the whole range at which other mechanisms and points are compared.
COMPARED_BUDGET = 8


def value_in_words(column: ColumnPlan, value: float) -> str:
    """A value in the column's own words."""
    if column.categories:
        return column.categories[min(len(column.categories) - 1, max(0, round(value)))]
    if column.unit_s is not None:
        return time_in_words(value, column.unit_s)
    return number(round(value) if column.step == 1 else value)


def size_in_words(column: ColumnPlan, difference: float) -> str:
    """A difference of numbers in three digits, of times with its unit."""
    return number(difference, 3) if column.unit_s is None else rough_difference(difference, column.unit_s)


def unless_empty(column: ColumnPlan) -> str:
    """The condition of a value's examples, in words: a release may also say that the cell is empty."""
    return " where it does not say empty" if column.promise.missing_epsilon else ""


def column_blocks(column: ColumnPlan) -> Iterator[PageBlock]:
    """Blocks on a column."""
    yield Prose(column.sentence, is_strong=True)
    yield from (Prose(f"{warning[0].upper()}{warning[1:]}.") for warning in column.warnings)
    yield _facts_grid(column)
    yield _comparison_grid(column)
    # Unordered categories have no distance and no order.
    if column.keep is None:
        yield _loss_grid(column)
        if column.chosen.promise.gammas:
            yield _gamma_grid(column)
        if column.chosen.outlook and (splits := column.chosen.outlook.splits):
            yield _splits_grid(column, splits)
    if column.least:
        yield _orders_grid(column)
    if column.examples:
        yield _examples_grid(column)
    yield from _drawings(column)


def _facts_grid(column: ColumnPlan) -> FigureGrid:
    rows = [
        ("values", f"{column.n_values:,}"),
        ("empty cells", f"{column.n_missing:,}"),
        ("moved to the public bounds", f"{column.n_clipped:,}"),
        ("mechanism", label(column.chosen.settings)),
    ]
    if column.unit is not None and column.difference is not None:
        size = "one category" if column.categories else number(column.difference.size)
        point = f"{number(column.unit)} of the column's own units"
        if column.unit_s is not None:
            size = difference_in_words(column.difference.size, column.unit_s)
            point = rough_difference(column.unit, column.unit_s)
        n, spanned = column.difference.points, len(column.categories) - 1
        rows += [
            ("categories", f"{len(column.categories)}, {spanned} steps apart at most")
            if column.categories
            else ("one point of the domain", point),
            (f"a difference of {size} costs", f"{loss(column.difference.loss)} ({n} point{'s' * (n != 1)})"),
        ]
    return FigureGrid(f"{column.promise.column}: the column and its mechanism", ("what", "value"), tuple(rows))


def _comparison_grid(column: ColumnPlan) -> FigureGrid:
    """Mechanisms compared; unordered categories have no distance and no order."""
    one_step = "loss one category apart" if _apart(column) == "categories apart" else "loss one point apart"
    headings: tuple[str, ...] = (one_step, "worst case (LDP)", "order kept", "attacker's error")
    if column.keep is not None:
        headings = ("loss between two categories",)
    rows = []
    for k, candidate in enumerate(_compared(column)):
        cells = (
            loss(candidate.promise.tight) + (" in a cell" if candidate.settings["mechanism"] == "local" else ""),
            loss(candidate.promise.domain_loss),
            fraction(candidate.outlook.kendall if candidate.outlook else None),
            _error(column, candidate),
        )
        named = percent(candidate.outlook.attack.success) if candidate.outlook else "-"
        rows.append((label(candidate.settings) + (" (chosen)" if k == 0 else ""), *cells[: len(headings)], named))
    headings = ("mechanism", *headings, "attacker names the value")
    return FigureGrid(f"{column.promise.column}: mechanisms compared", headings, tuple(rows))


def _compared(column: ColumnPlan) -> list[Candidate]:
    """The chosen mechanism, at every budget, and the others at one budget."""
    shape = shape_of(column.chosen)
    return [
        candidate
        for candidate in column.candidates
        if candidate.budget in (None, COMPARED_BUDGET) or shape_of(candidate) == shape
    ]


def _error(column: ColumnPlan, candidate: Candidate) -> str:
    if candidate.outlook is None or column.unit is None:
        return "-"
    error, blind = (
        points * column.unit for points in (candidate.outlook.attack.error, candidate.outlook.attack.blind_error)
    )
    told = "under 0.001" if error < 1e-3 <= blind and column.unit_s is None else size_in_words(column, error)
    return f"{told} ({size_in_words(column, blind)} without the release)"


def _loss_grid(column: ColumnPlan) -> FigureGrid:
    points = column.chosen.promise.losses
    has_bound = any(point.bound is not None for point in points)
    has_cell = any(point.loss_in_cell is not None for point in points)
    headings = [_apart(column), "exact loss"]
    headings += ["Partition-dLDP bound"] if has_bound else []
    headings += ["exact loss inside a cell"] if has_cell else []
    rows = []
    for point in points:
        row = [str(point.t), loss(point.loss)]
        row += [loss(point.bound)] if has_bound else []
        row += [loss(point.loss_in_cell)] if has_cell else []
        rows.append(tuple(row))
    return FigureGrid(f"{column.promise.column}: loss curve of the chosen mechanism", tuple(headings), tuple(rows))


def _gamma_grid(column: ColumnPlan) -> FigureGrid:
    rows = tuple((str(t), f"{chance:.4f}") for t, chance in column.chosen.promise.gammas)
    headings = (_apart(column), "least chance of the same order, gamma(t)")
    return FigureGrid(f"{column.promise.column}: order of two values", headings, rows)


def _apart(column: ColumnPlan) -> str:
    return "categories apart" if column.categories and column.unit == 1 else "points apart"


def _splits_grid(column: ColumnPlan, splits: Sequence[SplitOutlook]) -> FigureGrid:
    headings = ("split after", "records on the wrong side", f"none of {BETA_RECORDS} crosses, beta")
    rows = tuple((_point(column, split.position), percent(split.crossing), f"{split.beta:.3f}") for split in splits)
    return FigureGrid(f"{column.promise.column}: split points at the quartiles", headings, rows)


def _point(column: ColumnPlan, position: int) -> str:
    """A point of the domain as a value of the column."""
    return value_in_words(column, column.bounds[0] + position * (column.unit or 1.0))


def _orders_grid(column: ColumnPlan) -> FigureGrid:
    wanted = tuple(
        (
            f"at least {order:g}",
            f"{number(epsilon)} is the smallest budget" if epsilon is not None else "no budget keeps so much",
        )
        for order, epsilon in column.least
    )
    headings = ("order kept (expected weighted Kendall)", "epsilon per point")
    return FigureGrid(f"{column.promise.column}: budget for an order", headings, wanted)


def _examples_grid(column: ColumnPlan) -> FigureGrid:
    rows = tuple(
        (words[0], words[1], f"{words[2]} to {words[3]}")
        for example in column.examples
        if (words := [value_in_words(column, x) for x in (example.value, example.middle, example.low, example.high)])
    )
    headings = ("true value", "released, middle", "released, 9 of 10 times")
    return FigureGrid(
        f"{column.promise.column}: what becomes of an example{unless_empty(column)} (an observer sees its rank alone)",
        headings,
        rows,
    )


def _drawings(column: ColumnPlan) -> Iterator[Figure]:
    name = column.promise.column
    # The what-ifs draw theirs.
    curves = _loss_series(column) if all(candidate.budget is None for candidate in column.candidates) else []
    if curves:
        yield Figure(
            lines(
                curves,
                x=Axis(label="points apart", is_log=True),
                y=Axis(label="exact loss", is_log=True),
                alt=f"{name}: exact privacy loss against distance, {len(curves)} mechanisms",
            ),
            f"{name}: exact loss against distance; lower is more private. Compare mechanisms by these curves.",
        )
    orders = [
        (candidate.settings["epsilon"], candidate.outlook.kendall)
        for candidate in column.candidates
        if shape_of(candidate) == shape_of(column.chosen)
        and candidate.outlook
        and candidate.outlook.kendall is not None
    ]
    if column.keep is None and len(orders) > 1:
        xs, ys = zip(*sorted(orders), strict=True)
        yield Figure(
            lines(
                [Series("order", xs, ys)],
                x=Axis(label="epsilon per point", is_log=True),
                y=Axis(label="weighted Kendall", limits=(0, 1.02)),
                alt=f"{name}: expected order kept, {ys[0]:.2f} at epsilon {xs[0]:.3g}, {ys[-1]:.2f} at {xs[-1]:.3g}",
            ),
            f"{name}: order that the chosen mechanism keeps of this column, for budgets around the chosen one.",
        )
    heights = {"before": column.histogram.before}
    if column.histogram.after:
        heights["after, expected"] = column.histogram.after
    yield Figure(
        bars(
            column.histogram.labels,
            heights,
            x=Axis(label=name),
            y=Axis(label="records"),
            alt=f"{name}: histogram of {column.n_values} values before and after the noise",
        ),
        f"{name}: how often values occur, before the noise and expected after it.",
    )


def _loss_series(column: ColumnPlan) -> list[Series]:
    """Loss curves of the chosen mechanism and of the first others that are finite and differ."""
    curves: dict[tuple[float, ...], Series] = {}
    for candidate in _compared(column):
        points = [
            (point.t, loss) for point in candidate.promise.losses if math.isfinite(loss := _finite(point)) and loss > 0
        ]
        if len(points) > 1:
            ts, losses = zip(*points, strict=True)
            curves.setdefault(losses, Series(label(candidate.settings), ts, losses))
    return list(curves.values())[:MOST_CURVES]


def _finite(point: LossPoint) -> float:
    return point.loss if point.loss_in_cell is None else point.loss_in_cell
