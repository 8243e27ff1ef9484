"""Trees in numbers of cuts: every record goes where XGBoost's threshold sent it."""

from __future__ import annotations

import numpy as np
import pytest

from opboost.columns import OwnColumn, RankColumn
from opboost.trees.tree import Tree
from parties.cluster.tree_cuts import by_cuts

RANKS = RankColumn("shop", 0, "spend", np.arange(5, dtype=np.uint8), 4)
OWN = OwnColumn("age", np.arange(5.0))


def stump(column: int, threshold: float, *, missing_left: bool = False) -> Tree:
    return Tree(
        columns=np.array([column, -1, -1], np.int32),
        thresholds=np.array([threshold, 0, 0]),
        missing_left=np.array([missing_left, False, False]),
        lefts=np.array([1, 0, 0], np.int32),
        rights=np.array([2, 0, 0], np.int32),
        values=np.array([0, 1.0, -1.0]),
        gains=np.zeros(3),
        covers=np.zeros(3),
    )


def goes(tree: Tree, is_left: bool) -> float:
    return float(tree.values[tree.lefts[0] if is_left else tree.rights[0]])


@pytest.mark.parametrize("threshold", [-0.5, 0.0, 0.5, 1.0, 2.25, 3.0, 7.0])
@pytest.mark.parametrize("missing_left", [False, True])
def test_ranks_and_missing_cells_go_where_they_went(threshold: float, missing_left: bool) -> None:
    before = stump(0, threshold, missing_left=missing_left)
    (after,), (cuts, _) = by_cuts([before], [RANKS, OWN])
    cut = cuts[int(after.thresholds[0])]
    assert cut == int(cut)
    assert 0 <= cut <= 3
    for rank in range(4):
        assert goes(after, rank <= cut) == goes(before, rank <= threshold)
    assert goes(after, bool(after.missing_left[0])) == goes(before, missing_left)


def test_cuts_of_own_columns_are_their_thresholds_each_once_ascending() -> None:
    trees, (of_ranks, of_age) = by_cuts([stump(1, 30.25), stump(1, 20.5), stump(1, 30.25)], [RANKS, OWN])
    assert (of_ranks.tolist(), of_age.tolist()) == ([], [20.5, 30.25])
    assert [tree.thresholds[0] for tree in trees] == [1, 0, 1]
