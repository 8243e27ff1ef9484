"""First rounds among owners: what cannot be scaled by is refused."""

from __future__ import annotations

import math

import numpy as np
import pytest

from opboost.errors import AccountError, ParameterError
from opboost.horizontal.recommended.first_rounds import FirstRounds
from opboost.horizontal.rows.public_grid import PublicGrid
from opboost.trees.complete import tree_of
from tests.support.recommended_owners import GRID, begun, recipe

pytestmark = pytest.mark.usefixtures("one_thread")


def test_ranges_and_units_that_nothing_can_be_scaled_by_are_refused() -> None:
    rounds = recipe(0).rounds
    with pytest.raises(AccountError, match="range of labels that was told is empty"):
        rounds.range_of([0.5, 0.5])
    for unit in (0.0, 2.0, math.nan):
        with pytest.raises(AccountError, match="bound of gradients"):
            rounds.start([-1.0, 1.0, unit, 0.0])
    holder = begun(recipe(0), 2)
    with pytest.raises(AccountError, match="is empty"):
        holder.finish_tree(tree_of([], np.array([-1.0]), GRID.axes))
    with pytest.raises(ParameterError, match="at least 16 cells"):
        FirstRounds(grid=PublicGrid([(0, 1)], 8), label_bounds=(0, 1), n_classes=2, plan=rounds.plan)
