"""Tests of the trees as owners see them: where bounds are told, what may be asked there, and what the model gets."""

from __future__ import annotations

import numpy as np
import pytest

from opboost.errors import AccountError
from opboost.horizontal.noise.noisy_holder import NoisyHolder
from opboost.horizontal.recommended.plan import Stage
from opboost.horizontal.recommended.residual_size import tightening_places
from opboost.horizontal.recommended.wire_stages import bound_trees, model_steps, wire_stages
from opboost.rng import seeded
from opboost.trees.complete import tree_of
from tests.support.recommended_owners import GRID, ROOT, recipe, records_of

pytestmark = pytest.mark.usefixtures("one_thread")

COUNTS, SUMS = Stage("counts", 9, 1.0, 5.0), Stage("sums", 40, 1.0, 3.0)


def test_boosting_is_cut_where_a_bound_is_told_and_nothing_is_released_there() -> None:
    found = wire_stages((COUNTS, SUMS), is_numbers=True)
    assert [(stage.kind, stage.n_trees) for stage in found] == [
        ("counts", 9),
        ("sums", 4),
        ("bound", 1),
        ("sums", 8),
        ("bound", 1),
        ("sums", 12),
        ("bound", 1),
        ("sums", 16),
    ]
    assert bound_trees(found) == [13, 22, 35]
    # In the trees of boosting alone, they lie where one process tightens its bound.
    assert [number - 9 - i for i, number in enumerate(bound_trees(found))] == tightening_places(40)
    assert all(stage.std == (3.0 if stage.kind == "sums" else 0.0) for stage in found[1:])
    assert wire_stages((COUNTS, SUMS), is_numbers=False) == (COUNTS, SUMS)
    assert wire_stages((), is_numbers=True) == ()


def test_steps_of_the_model_are_in_the_first_unit() -> None:
    stages = (Stage("counts", 1, 1.0, 1.0), *wire_stages((Stage("sums", 4, 1.0, 1.0),), is_numbers=True))
    assert [stage.kind for stage in stages] == ["counts", "sums", "bound", "sums", "bound", "sums"]
    trees = [tree_of([], np.array([value]), GRID.axes) for value in (7.0, 1.0, 0.5, 1.0, 0.75, 1.0, 2.0)]
    assert [tree.values[0] for tree in model_steps(stages, trees, 1)] == [7.0, 1.0, 0.5, 0.375, 0.75]


def begun_at_a_bound() -> tuple[object, int]:
    """Rows whose next tree tells a bound, and how many trees there were."""
    of = recipe(0)
    rows, n_before = of.rows(*records_of(0, 30), rng=seeded(0)), of.rounds.n_trees + bound_trees(of.stages)[0]
    told = iter([-1.0, 1.0, 0.5, 0.0])
    for _ in range(n_before):
        rows.start_tree(0)
        rows.finish_tree(tree_of([], np.array([next(told, 0.0)]), GRID.axes))
    return rows, n_before


def test_a_tree_that_tells_a_bound_answers_nothing() -> None:
    """It has no noise: twin, which a question there would ask."""
    rows, _ = begun_at_a_bound()
    rows.start_tree(0)
    for ask in (
        lambda: rows.totals(ROOT),
        lambda: rows.totals_later(ROOT),
        lambda: rows.write_histograms(ROOT, np.empty((1, 2, GRID.axes.n_bins), np.int64)),
        lambda: rows.divide(None),
    ):
        with pytest.raises(AccountError, match="a bound is told by this tree, and nothing is asked"):
            ask()
    of = recipe(0)
    exact = of.records(*records_of(0, 30), coins=None)
    twin = NoisyHolder(exact, noises=of._tree_shares(Stage("bound", 1, 0.0, 0.0)), n_trees=1, rng=seeded(0))
    twin.start_tree(0)
    assert twin.totals(ROOT).tolist() == exact.totals(ROOT).tolist()


@pytest.mark.parametrize("factor", [0.49, 1.01, 0.0, -1.0])
def test_another_factor_is_refused_and_changes_nothing(factor: float) -> None:
    answers = []
    for is_tried in (False, True):
        rows, _ = begun_at_a_bound()
        rows.start_tree(0)
        if is_tried:
            with pytest.raises(AccountError, match=r"multiplied by 0\.5 to 1; found"):
                rows.finish_tree(tree_of([], np.array([factor]), GRID.axes))
        rows.finish_tree(tree_of([], np.array([0.5]), GRID.axes))
        rows.start_tree(0)
        answers.append(rows.totals(ROOT).tolist())
    assert answers[0] == answers[1]
