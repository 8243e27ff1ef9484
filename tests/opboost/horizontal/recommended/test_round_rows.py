"""An owner's rows in rounds: the questions of each round and no others, and copies that answer on their own."""

from __future__ import annotations

import numpy as np
import pytest

from opboost.errors import AccountError
from opboost.horizontal.recommended.round_rows import RoundRows
from opboost.trees.complete import tree_of
from tests.support.recommended_owners import GRID, ROOT, begun, recipe, records_of

pytestmark = pytest.mark.usefixtures("one_thread")


def test_questions_that_a_round_does_not_have_are_refused() -> None:
    out = np.zeros((1, 2, GRID.axes.n_bins), np.int64)
    of = recipe(2)
    with pytest.raises(AccountError, match="does not have; nothing was released"):
        begun(of).write_histograms(ROOT, out)
    with pytest.raises(AccountError, match="does not have"):
        begun(of, 2).totals(ROOT)
    for n_trees in (1, 2):
        twice = begun(of, n_trees)
        ask = twice.totals if n_trees == 1 else lambda nodes, twice=twice: twice.write_histograms(nodes, out)
        ask(ROOT)
        with pytest.raises(AccountError, match="does not have"):
            ask(ROOT)
    with pytest.raises(AccountError, match="single leaf"):
        begun(of).divide(None)
    with pytest.raises(AccountError, match="histograms are not in the account"):
        begun(of, of.rounds.n_trees + 1).write_histograms(ROOT, out)
    assert not out.any() or np.count_nonzero(out) <= 32
    with pytest.raises(AccountError, match="before this one"):
        begun(of, of.n_trees + 1)


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
    of = recipe(n_classes, n_records=n_records, sizes=(40, 2))
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
