"""First rounds among owners: what cannot be scaled by is refused."""

from __future__ import annotations

import math

import numpy as np
import pytest

from opboost.errors import AccountError, ParameterError
from opboost.horizontal.recommended.first_rounds import FirstRounds
from opboost.horizontal.rows.public_grid import PublicGrid
from opboost.trees.complete import tree_of
from tests.support.digests import digest
from tests.support.recommended_owners import GRID, begun, recipe

pytestmark = pytest.mark.usefixtures("one_thread")


def test_ranges_and_units_that_nothing_can_be_scaled_by_are_refused() -> None:
    rounds = recipe(0).rounds
    for told in ([0.5, 0.5], [0.5, 0.6], [-64.0, 64.0], [-1.0, 1.1], [0.0, 5e-324], [math.nan, 1.0]):
        with pytest.raises(AccountError, match="has no cell in the bounds"):
            rounds.check(told)
    for unit in (0.0, 2.0, math.nan):
        with pytest.raises(AccountError, match="bound of gradients"):
            rounds.check([-1.0, 1.0, unit])
    holder = begun(recipe(0), 2)
    for wrong, words in ((-1.0, "has no cell"), (0.0, "bound of gradients")):
        before = digest(holder)
        with pytest.raises(AccountError, match=words):
            holder.finish_tree(tree_of([], np.array([wrong]), GRID.axes))
        assert digest(holder) == before
        holder.finish_tree(tree_of([], np.array([0.5]), GRID.axes))
        holder.start_tree(0)
    with pytest.raises(ParameterError, match="no finite scores"):
        recipe(0, bounds=(-1e307, 1e307))
    with pytest.raises(ParameterError, match="at least 16 cells"):
        FirstRounds(grid=PublicGrid([(0, 1)], 8), label_bounds=(0, 1), n_classes=2, plan=rounds.plan)
