"""An owner's rows in rounds: outputs in their turn, and copies that answer on their own."""

from __future__ import annotations

import numpy as np
import pytest

from opboost.errors import AccountError
from opboost.horizontal.recommended.round_rows import RoundRows
from opboost.horizontal.recommended.tree_sizes import GivenSizes
from opboost.trees.complete import tree_of
from tests.support.recommended_owners import GRID, ROOT, recipe, records_of

pytestmark = pytest.mark.usefixtures("one_thread")


def test_an_output_out_of_its_turn_is_refused() -> None:
    """Or rounds of counts would become rounds of gradients under the noise of counts."""
    of = recipe(4, n_records=90)
    for outputs in ([1], [0, 0], [0, 1, 3], [0, 1, 2, 3, 1]):
        rows = of.records(*records_of(4, 30), coins=None)
        for output in outputs[:-1]:
            rows.start_tree(output)
        with pytest.raises(AccountError, match="one after the other"):
            rows.start_tree(outputs[-1])


@pytest.mark.parametrize(("n_classes", "n_records"), [(0, 900), (4, 900), (4, 90)])
def test_a_copy_of_the_records_answers_on_its_own(n_classes: int, n_records: int) -> None:
    """As tasks of a cluster do that run again."""
    of = recipe(n_classes, n_records=n_records, sizes=GivenSizes(40, 2))
    rows, n_outputs = of.records(*records_of(n_classes, 30), coins=None), of.rounds.n_outputs
    told = iter([-1.0, 1.0, 1.0, 0.0] if not n_classes else [])

    def begin(rows: RoundRows) -> list[list[int]]:
        found = []
        for output in range(n_outputs):
            rows.start_tree(output)
            found += rows.totals(ROOT).tolist()
        return found

    def finish(rows: RoundRows) -> None:
        for number in range(n_outputs):
            rows.finish_tree(tree_of([], np.array([(number + 1) / 100]), GRID.axes))

    for number in range(of.rounds.n_trees):
        rows.start_tree(number % n_outputs)
        rows.finish_tree(tree_of([], np.array([next(told, 0.0)]), GRID.axes))
    for _ in range(of.plan.n_counted + 1):
        before = begin(rows)
        twin = rows.copied()
        finish(rows)
    assert twin.totals(ROOT).tolist() == before[-1:]
    after = begin(rows)
    assert after != before
    finish(twin)
    assert begin(twin) == after
