"""Page of a passive party's plan."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from opboost.map_analysis import BETA_RECORDS, LossPoint, SplitOutlook
from parties.reports.choices import label
from parties.reports.figures import Axis, Series, bars, lines
from parties.reports.page import Figure, FigureGrid, Page, PageBlock, PageSection, Prose
from parties.reports.plan_facts import Candidate, ColumnPlan, Plan
from parties.reports.words import columns_grid, guarantee_blocks, leakage_section, ledger_section, number, percent

# Loss curves in one drawing.
MOST_CURVES = 5


def plan_page(plan: Plan) -> Page:
    """Page of a passive party's plan; matplotlib is loaded here and not before."""
    return Page(
        title=f"Before run {plan.run_id}: what {plan.party} would release",
        lead=(
            f"Computed at {plan.party} from its own file and schema; nothing was drawn, charged or sent. This page "
            f"shows distributions of the data: it is for {plan.party} alone."
        ),
        sections=(
            _summary(plan),
            PageSection("Guarantee", (*guarantee_blocks(plan.guarantee), columns_grid(plan.guarantee.columns))),
            ledger_section(plan.ledger),
            leakage_section(by_cells=plan.n_cells is not None),
            _example_record(plan),
            *(PageSection(f"Column {column.promise.column}", tuple(_column_blocks(column))) for column in plan.columns),
            _how_to_read(),
        ),
    )


def _summary(plan: Plan) -> PageSection:
    rows = tuple((column.promise.column, column.sentence) for column in plan.columns)
    number_of_tests = "as many tests as its model has, which it says at the handshake"
    if plan.most_tests is not None:
        number_of_tests = f"at most {plan.most_tests} tests, as was agreed on"
    routed = f"answered, one bit per split test and record: {number_of_tests}"
    if plan.n_cells is not None:
        routed = f"answered by the number of a cell, of at most {plan.n_cells} in each column, and nothing finer"
    routed = routed if plan.allow_routed else "refused"
    lets_out = (
        f"Column names travel {'under numbers' if plan.opaque_names else 'as they are'}; thresholds "
        f"{'go to' if plan.share_thresholds else 'are kept from'} {plan.peer}; the released codes that ranks stand for "
        f"{'go to it' if plan.share_codes else 'are kept from it'} (it can learn through the noise from them; computed "
        f"from the release, they cost no privacy); exact routing bits for new records are {routed}."
    )
    changes = (
        f"What was changed since it was released is drawn anew, which tells {plan.peer} that it was changed "
        "(`changed_values: redraw`)."
        if plan.redraws
        else "The first draw of every record and column stays, even if the value is changed (`changed_values: keep`)."
    )
    labels = (
        f"{plan.party} learns nothing of the labels: the cells are made of the release, before training."
        if plan.n_cells is not None
        else f"{plan.party} learns which of its ranks trees split on, which depends on the labels of {plan.peer}; "
        "`answers: cells` on both sides tells it nothing, and bounds what it tells of a record."
    )
    told = (
        f"{plan.party} would release ranks of {len(plan.columns)} desensitized columns of at most "
        f"{plan.n_records:,} records to {plan.peer}. {lets_out} {labels} {changes}"
    )
    return PageSection(
        "In plain words", (Prose(told), FigureGrid("Each column's promise", ("column", "in words"), rows))
    )


def _example_record(plan: Plan) -> PageSection:
    """Section on an example record in the middle of every public range, and the ranks that an observer would see."""
    rows = []
    for column in plan.columns:
        name, seen = column.promise.column, "not tabulated: the domain is too large"
        value = "-"
        if column.keep is not None:
            value = column.histogram.labels[0]
            seen = f"this category with probability {column.keep:.2f}, else another one"
        elif column.examples:
            middle = column.examples[len(column.examples) // 2]
            value = number(middle.value)
            seen = f"a rank between {percent(middle.rank_low)} and {percent(middle.rank_high)} of all releases"
        rows.append((name, value, seen))
    told = (
        f"A record that is not from the data, with a value in the middle of every public range, and what {plan.peer} "
        "would see of it: one rank per column, and 9 of 10 times as here."
    )
    return PageSection(
        "An example record",
        (
            Prose(told),
            FigureGrid("What an observer sees of an example record", ("column", "value", "seen"), tuple(rows)),
        ),
    )


def _column_blocks(column: ColumnPlan) -> Iterator[PageBlock]:
    yield Prose(column.sentence, is_strong=True)
    yield _facts_grid(column)
    yield _comparison_grid(column)
    yield _loss_grid(column)
    if column.chosen.promise.gammas:
        yield _gamma_grid(column)
    if column.chosen.outlook and (splits := column.chosen.outlook.splits):
        yield _splits_grid(column.promise.column, splits)
    if column.orders:
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
        rows += [
            ("one point of the domain", f"{number(column.unit)} original units"),
            (
                f"a difference of {number(column.difference.size)} costs",
                f"{number(column.difference.loss)} ({column.difference.points} points)",
            ),
        ]
    return FigureGrid(f"{column.promise.column}: the column and its mechanism", ("", "value"), tuple(rows))


def _comparison_grid(column: ColumnPlan) -> FigureGrid:
    headings = (
        "mechanism",
        "loss 1 point apart",
        "worst case (LDP)",
        "order kept, this data",
        "order kept, uniform",
        "attacker's error",
        "attacker names the value",
    )
    rows = tuple(
        (
            label(one.settings) + (" (chosen)" if k == 0 else ""),
            number(one.promise.tight) + (" in a cell" if one.settings["mechanism"] == "local" else ""),
            number(one.promise.domain_loss),
            _three(one.outlook.kendall if one.outlook else None),
            _three(one.promise.kendall),
            _error(one, column.unit),
            percent(one.outlook.attack.success) if one.outlook else "-",
        )
        for k, one in enumerate(column.candidates)
    )
    return FigureGrid(f"{column.promise.column}: mechanisms compared", headings, rows)


def _three(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def _error(one: Candidate, unit: float | None) -> str:
    if one.outlook is None or unit is None:
        return "-"
    attack = one.outlook.attack
    return f"{number(attack.error * unit, 3)} ({number(attack.blind_error * unit, 3)} without the release)"


def _loss_grid(column: ColumnPlan) -> FigureGrid:
    points = column.chosen.promise.losses
    has_bound = any(point.bound is not None for point in points)
    has_cell = any(point.loss_in_cell is not None for point in points)
    headings = ["points apart", "exact loss"]
    headings += ["Partition-dLDP bound"] if has_bound else []
    headings += ["exact loss inside a cell"] if has_cell else []
    rows = []
    for point in points:
        row = [str(point.t), number(point.loss)]
        row += [number(point.bound)] if has_bound else []
        row += [number(point.loss_in_cell)] if has_cell else []
        rows.append(tuple(row))
    return FigureGrid(f"{column.promise.column}: loss curve of the chosen mechanism", tuple(headings), tuple(rows))


def _gamma_grid(column: ColumnPlan) -> FigureGrid:
    rows = tuple((str(t), f"{chance:.4f}") for t, chance in column.chosen.promise.gammas)
    headings = ("points apart", "least chance of the same order, gamma(t)")
    return FigureGrid(f"{column.promise.column}: order of two values", headings, rows)


def _splits_grid(name: str, splits: Sequence[SplitOutlook]) -> FigureGrid:
    headings = ("split after point", "records on the wrong side", f"none of {BETA_RECORDS} crosses, beta")
    rows = tuple((str(one.position + 1), percent(one.crossing), f"{one.beta:.3f}") for one in splits)
    return FigureGrid(f"{name}: split points at the quartiles", headings, rows)


def _orders_grid(column: ColumnPlan) -> FigureGrid:
    wanted = tuple(
        (
            f"at least {order:g}",
            f"{number(epsilon)} is the smallest budget" if epsilon is not None else "no budget keeps so much",
        )
        for order, epsilon in column.least
    )
    found = tuple((f"{order:.3f}", number(epsilon)) for epsilon, order in column.orders)
    headings = ("order kept (expected weighted Kendall)", "epsilon per point")
    return FigureGrid(f"{column.promise.column}: budget for an order, order for a budget", headings, wanted + found)


def _examples_grid(column: ColumnPlan) -> FigureGrid:
    rows = tuple(
        (number(one.value), number(one.middle), f"{number(one.low)} to {number(one.high)}") for one in column.examples
    )
    headings = ("true value", "released, middle", "released, 9 of 10 times")
    return FigureGrid(
        f"{column.promise.column}: what becomes of an example (an observer sees its rank alone)", headings, rows
    )


def _drawings(column: ColumnPlan) -> Iterator[Figure]:
    name = column.promise.column
    curves = _loss_series(column)
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
    if column.orders:
        xs, ys = zip(*column.orders, strict=True)
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
    found: dict[tuple[float, ...], Series] = {}
    for one in column.candidates:
        points = [(point.t, loss) for point in one.promise.losses if math.isfinite(loss := _finite(point)) and loss > 0]
        if len(points) > 1:
            ts, losses = zip(*points, strict=True)
            found.setdefault(losses, Series(label(one.settings), ts, losses))
    return list(found.values())[:MOST_CURVES]


def _finite(point: LossPoint) -> float:
    return point.loss if point.loss_in_cell is None else point.loss_in_cell


def _how_to_read() -> PageSection:
    return PageSection(
        "How to read this",
        (
            Prose(
                "Loss: whatever an observer believed before, seeing the release multiplies its odds between two values "
                "by at most e to the loss. Odds in the sentences are rounded up."
            ),
            Prose(
                "Attacker: knows the mechanism and how often each value occurs, and guesses best. Error is the "
                "expected distance of the guess in the column's own unit."
            ),
            Prose(
                "Order kept: expected weighted Kendall coefficient between the column and its release; 1 is all of it, "
                "0 none. Mechanisms with the same epsilon differ in their losses: compare them by their exact curves."
            ),
        ),
    )
