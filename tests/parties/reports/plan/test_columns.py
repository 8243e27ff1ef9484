"""A plan's sections on single columns: one per column, with the chosen mechanism first and few curves."""

from __future__ import annotations

from dataclasses import replace

from parties.reports.page import Figure, FigureGrid, Prose
from parties.reports.plan.columns import MOST_CURVES, _loss_series, column_blocks, value_in_words
from parties.reports.plan.facts import Plan


def test_a_drawing_has_few_curves_and_each_once(plan: Plan) -> None:
    for column in plan.columns:
        series = _loss_series(column)
        assert len(series) <= MOST_CURVES
        assert len({one.ys for one in series}) == len(series)


def test_a_column_begins_with_its_sentence_and_warnings_and_the_chosen_mechanism_stands_first(plan: Plan) -> None:
    for column in plan.columns:
        blocks = list(column_blocks(replace(column, warnings=("cells are few",))))
        assert [block.text for block in blocks[:2] if isinstance(block, Prose)] == [column.sentence, "Cells are few."]
        grids = {grid.caption.partition(": ")[2]: grid for grid in blocks if isinstance(grid, FigureGrid)}
        assert all(grid.caption.startswith(column.promise.column) for grid in grids.values())
        compared = grids["mechanisms compared"].rows
        assert [row[0].endswith("(chosen)") for row in compared] == [True] + [False] * (len(compared) - 1)
        assert all(len(row) == len(grid.headings) for grid in grids.values() for row in grid.rows)
        assert sum(isinstance(block, Figure) for block in blocks) >= 1


def test_no_loss_is_shown_smaller_than_it_is(plan: Plan) -> None:
    for column in plan.columns:
        captions = {one.caption.partition(": ")[2]: one for one in column_blocks(column) if isinstance(one, FigureGrid)}
        promise = column.chosen.promise
        if (curve := captions.get("loss curve of the chosen mechanism")) is not None:
            for row, point in zip(curve.rows, promise.losses, strict=True):
                assert float(row[1].replace("infinite", "inf")) >= point.loss * (1 - 1e-8)
        worst = captions["mechanisms compared"].rows[0][2 if column.keep is None else 1]
        assert float(worst.replace("infinite", "inf")) >= promise.domain_loss * (1 - 1e-8)


def test_values_are_words_of_the_column(plan: Plan) -> None:
    column = plan.columns[0]
    named = replace(column, categories=("low", "mid", "top"))
    assert [value_in_words(named, value) for value in (-1.0, 0.4, 1.6, 9.0)] == ["low", "low", "top", "top"]
    assert value_in_words(replace(column, categories=(), step=1), 3.4) == "3"
    assert value_in_words(replace(column, categories=(), step=1, unit_s=86400), 19_358.4) == "2023-01-01"
