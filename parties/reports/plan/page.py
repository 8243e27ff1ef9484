"""Page of a passive party's plan."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from parties.reports.page import Blanks, FigureGrid, Page, PageBlock, PageSection, Prose, VerdictRow, Verdicts, WhatIf
from parties.reports.plan.columns import column_blocks, size_in_words, unless_empty, value_in_words
from parties.reports.plan.facts import ColumnPlan, Plan
from parties.reports.plan.what_if import shape_of, what_if_data, what_if_grid
from parties.reports.sentences import GRADES
from parties.reports.words import guarantee_section, leakage_section, ledger_section, loss

# The worst grade that a plan recommends.
_RECOMMENDED = 1

_HASHED = "as keyed hashes, on which whoever has the shared secret can try out any other"


def plan_page(plan: Plan) -> Page:
    """Page of a passive party's plan; matplotlib is loaded here and not before."""
    columns = _worst_first(plan)
    what_ifs = [candidate for column in columns for candidate in column.candidates if candidate.budget is not None]
    return Page(
        title=f"Before run {plan.run_id}: what {plan.party} would release",
        lead=(
            f"Computed at {plan.party} from its own file and schema; nothing was drawn, charged or sent for it. This "
            f"page shows distributions of the data: it is for {plan.party} alone."
        ),
        sections=(
            signature_section(plan),
            *([PageSection("What if", (WhatIf(what_if_data(columns), what_if_grid(columns)),))] if what_ifs else []),
            words_section(plan),
            guarantee_section(plan.guarantee),
            ledger_section(plan.ledger),
            leakage_section(by_cells=plan.n_cells is not None),
            *(
                PageSection(f"Column {column.promise.column}", tuple(column_blocks(column)), is_folded=True)
                for column in columns
            ),
            _how_to_read(),
        ),
    )


def _worst_first(plan: Plan) -> list[ColumnPlan]:
    return sorted(
        plan.columns, key=lambda column: column.chosen.verdict.order if column.chosen.verdict else (0, 0), reverse=True
    )


def signature_section(plan: Plan) -> PageSection:
    """Section that a person signs: verdicts, what else leaves, what to do."""
    return PageSection("For signature", tuple(_signed_blocks(plan, _worst_first(plan))))


def _signed_blocks(plan: Plan, columns: Sequence[ColumnPlan]) -> Iterator[PageBlock]:
    rows = tuple(_verdict_row(plan, column) for column in columns)
    n_bad = sum(row.grade > _RECOMMENDED for row in rows)
    good = (column for column, row in zip(columns, rows, strict=True) if row.grade <= _RECOMMENDED)
    warnings = (*plan.warnings, *(warning for column in good for warning in column.warnings))
    advice = (
        f"Recommended: do not sign yet; change {n_bad} of {len(rows)} columns as said below."
        if n_bad
        else f"Recommended: nothing speaks against signing{' but what stands below this' * bool(warnings)}."
    )
    yield Prose(f"The worst column is {rows[0].column}. {_told(plan, columns[0])} {advice}", is_strong=True)
    yield from (Prose(f"{warning[0].upper()}{warning[1:]}.") for warning in warnings)
    yield Verdicts(
        f"Verdicts, the worst first: what {plan.peer} could guess. The example person is nobody: its values are the "
        "middles of the public ranges.",
        rows,
    )
    yield Prose(_thresholds())
    yield FigureGrid("What else leaves", ("what", "how much"), tuple(_else_rows(plan)))
    yield Blanks(("Name", "Date", "Signature"))


def _told(plan: Plan, column: ColumnPlan) -> str:
    name, verdict = column.promise.column, column.chosen.verdict
    if verdict is None:
        return f"{name} has no value in the data."
    right, blind = verdict.cases
    knows = ", and everything else about a person," if verdict.knows_others else ""
    return (
        f"An attacker who sees the release{knows} guesses the exact value of {name} in {right} cases; in {blind} "
        "without it."
    )


def _thresholds() -> str:
    allowed = [
        f"{word}, at most {times:g} times as often right as without the release, in at most {round(100 * most)} of "
        f"100 cases more, and two people a little apart are told apart at odds of at most {most_odds:,.0f} to 1"
        for word, times, most, most_odds in GRADES[:-1]
    ]
    return (
        f"What the words mean: {'; '.join(allowed)}; {GRADES[-1][0]}, beyond that. The attacker knows how often every "
        "value occurs and how the noise is made, and guesses best. The exact value is a value of the column or, where "
        "a step is said that it is exact to, that step. A budget is for any two values of the column: `whole_range` in "
        "the run file, of categories without an order `category_epsilon`."
    )


def _verdict_row(plan: Plan, column: ColumnPlan) -> VerdictRow:
    verdict, name = column.chosen.verdict, column.promise.column
    grade, word, guess = 0, "-", "no value in the data"
    if verdict is not None:
        right, blind = verdict.cases
        grade, word, guess = verdict.grade, verdict.word, f"{right} cases; {blind} without the release"
        guess += _exact_to(column, column.exact_to)
        if verdict.knows_others:
            guess += "; the attacker knows the record's other values"
    example, strip = _example(column)
    return VerdictRow(
        column=name, grade=grade, word=word, guess=guess, example=example, action=_action(column), strip=strip
    )


def _exact_to(column: ColumnPlan, step: float | None) -> str:
    """To what a guess of the exact value is exact, where that is more than the difference of two values."""
    if column.kind != "numeric" or step is None or step <= (column.step or 0):
        return ""
    return f"; exact to {size_in_words(column, step)}"


def _example(column: ColumnPlan) -> tuple[str, tuple[float, float, float] | None]:
    """Release of a value in the middle of the public range, in words and as shares of the range."""
    if column.keep is not None:
        shown = f"{column.categories[0]}: the release says so in {math.ceil(100 * column.keep - 1e-9)} of 100 cases"
        return shown, None
    middle, (lower, upper) = column.examples[len(column.examples) // 2], column.bounds
    value, low, high = (value_in_words(column, value) for value in (middle.value, middle.low, middle.high))
    between = f"the release says {low}" if low == high else f"the release says between {low} and {high}"
    places = [(value - lower) / (upper - lower) for value in (middle.value, middle.low, middle.high)]
    return f"{value}: {between}, nine times of ten{unless_empty(column)}", (places[0], places[1], places[2])


def _action(column: ColumnPlan) -> str:
    """The mildest change that the plan recommends: of the budget alone, or else of the mechanism and the points too."""
    chosen = column.chosen
    if chosen.verdict is None or chosen.verdict.grade <= _RECOMMENDED:
        return "none needed"
    good = [
        candidate
        for candidate in column.candidates
        if candidate.budget is not None and candidate.verdict is not None and candidate.verdict.grade <= _RECOMMENDED
    ]
    kept = [candidate for candidate in good if shape_of(candidate) == shape_of(chosen)]
    alike = [candidate for candidate in good if shape_of(candidate)[1] == shape_of(chosen)[1]]
    best = max(
        kept or alike or good,
        key=lambda candidate: (candidate.budget or 0, candidate.outlook.kendall or 0 if candidate.outlook else 0),
        default=None,
    )
    if best is None or best.verdict is None:
        return (
            "lower its budget"
            if all(candidate.budget is None for candidate in column.candidates)
            else "leave the column out"
        )
    change = (
        f"budget {best.budget}"
        if math.isinf(now := chosen.promise.domain_loss)
        else (f"budget {best.budget} in place of {loss(now)}")
    )
    if not kept:
        change += f", mechanism {best.settings['mechanism']}, {best.settings['domain_size']} points"
    then = f"{change}: then {best.verdict.word}, {best.verdict.cases[0]} cases"
    if kept or alike:
        return then
    return then + _exact_to(column, (column.bounds[1] - column.bounds[0]) / (best.settings["domain_size"] - 1))


def _else_rows(plan: Plan) -> Iterator[tuple[str, str]]:
    n, n_columns = plan.n_records, len(plan.columns)
    # Chance holds records out one by one, so that of few records none may be.
    without = f", about {plan.n_held_out:,} records fewer where some are held out" if plan.n_held_out else ""
    yield "noised values, as ranks", f"at most {n:,} records x {n_columns} columns = {n * n_columns:,}{without}"
    blinded = "blinded, so that only common ones show"
    ids = {"psi": blinded, "psi-dh": blinded, "hashed": _HASHED, "prealigned": "as one digest"}
    shown = f"{ids[plan.alignment]}; how many there are shows"
    if plan.keys:
        yield (
            "keys, in place of ids",
            f"{', else '.join(plan.keys)} of {plan.n_records:,} records, {shown}{_order(plan)}",
        )
    else:
        yield "ids", f"{plan.n_records:,}, {shown}"
    per_record = "one bit per split test, " + (
        f"at most {plan.most_tests}" if plan.most_tests is not None else "as many as the model has, no limit agreed"
    )
    if plan.n_cells is not None:
        n_bits = sum(_bits_of_a_cell(column, plan.n_cells) for column in plan.columns)
        per_record = f"the cell of each column, at most {n_bits} bits"
    held_out = f"about {plan.n_held_out:,} records; {per_record}" if plan.n_held_out else "none"
    yield "exact answers about held-out records", held_out if plan.allow_routed else "none: refused"
    others = f"of each, {per_record}" if plan.allow_routed else "none: refused"
    yield f"exact answers about {plan.answered_records}", others
    charged = "of each, under this plan's noise; what was not drawn before is charged to the ledger"
    yield "desensitized answers about any record that is asked for", charged
    yield "column names", f"{n_columns}, {_how_named(plan)}"
    yield "thresholds of the model", "all" if plan.share_thresholds else "none"


def _order(plan: Plan) -> str:
    """What several keys reveal of a record by their order, in words; empty if there is one key."""
    if len(plan.keys) < 2:
        return ""
    return f"; of a record that a later key finds, {plan.peer} learns that {plan.party} has other earlier ones or none"


def _bits_of_a_cell(column: ColumnPlan, n_cells: int) -> int:
    """Bits that leave of a record: a cell's number and that of a missing one, of categories without order for each."""
    if column.kind == "unordered":
        return 2 * len(column.categories)
    return min(n_cells, round(column.promise.parameters["domain_size"])).bit_length()


def _how_named(plan: Plan) -> str:
    """How column names travel: what reads a record by thresholds holds the columns' schemas."""
    if plan.share_thresholds:
        return "as they are, with bounds, categories and formats, beside the thresholds"
    if plan.opaque_names:
        return "under numbers"
    has_unordered = any(column.kind == "unordered" for column in plan.columns)
    return "as they are" + (" with those of unordered categories" if has_unordered else "")


def words_section(plan: Plan) -> PageSection:
    """Section on what is let out, and each column's promise, in sentences."""
    rows = tuple((column.promise.column, column.sentence) for column in plan.columns)
    number_of_tests = "as many tests as its model has, which it says at the handshake"
    if plan.most_tests is not None:
        number_of_tests = f"at most {plan.most_tests} tests, as was agreed on"
    routed = f"answered, one bit per split test and record: {number_of_tests}"
    if plan.n_cells is not None:
        routed = (
            f"answered by the number of a cell, of at most {plan.n_cells} in each column, or one for each unordered "
            "category, and nothing finer in runs with these cells"
        )
    routed = routed if plan.allow_routed else "refused"
    lets_out = (
        f"Column names travel {_how_named(plan)}; thresholds "
        f"{'go to' if plan.share_thresholds else 'are kept from'} {plan.peer}; the released codes that ranks stand for "
        f"{'go to it' if plan.share_codes else 'are kept from it'} (it can learn through the noise from them; computed "
        f"from the release, they cost no privacy); exact routing bits for {plan.answered_records} are {routed}; "
        "desensitized answers about any record are given, under this noise, and charged."
    )
    changes = (
        f"What was changed since it was released is drawn anew, which tells {plan.peer} that it was changed "
        "(`changed_values: redraw`)."
        if plan.redraws
        else "The first draw of every record and column stays, even if the value is changed (`changed_values: keep`)."
    )
    labels = (
        f"{plan.party} learns nothing of the labels, but for which records have one where {plan.peer} drops the "
        "others: the cells are made of the release, before training."
        if plan.n_cells is not None
        else f"{plan.party} learns which of its ranks trees split on, which depends on the labels of {plan.peer}; "
        "`answers: cells` on both sides tells it nothing, and bounds what it tells of a record."
    )
    told = (
        f"{plan.party} would release ranks of {len(plan.columns)} desensitized columns of at most "
        f"{plan.n_records:,} records to {plan.peer}. {lets_out} {labels} {changes}"
    )
    grid = FigureGrid("Each column's promise", ("column", "in words"), rows)
    return PageSection("In plain words", (Prose(told), grid), is_folded=True)


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
        is_folded=True,
    )
