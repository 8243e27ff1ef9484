"""Complete trees: numbers of nodes, leaves and children, and splits as holders carry them out."""

from __future__ import annotations

import numpy as np
import pytest

from opboost.arrays import HistogramAxes
from opboost.errors import DataError, ParameterError
from opboost.trees.complete import Cuts, RandomRule, drawn_columns, grow_complete_shape, grow_complete_tree, splits_of
from opboost.trees.splitting import Splits
from opboost.trees.walked_rows import WalkedRows

AXES = HistogramAxes.from_bin_counts([5, 4], [False, True])


def random_rule(axes: HistogramAxes = AXES) -> RandomRule:
    return RandomRule(axes, uniforms=np.random.default_rng(0).random)


class DividedNodes:
    """Holder that notes the splits."""

    def __init__(self) -> None:
        self.levels: list[Splits] = []

    def divide(self, splits: Splits) -> None:
        self.levels.append(splits)


def test_the_shape_is_the_tree_of_its_splits() -> None:
    holder = DividedNodes()
    shape = grow_complete_shape(holder, rule=random_rule(), axes=AXES, depth=3)  # type: ignore[arg-type]
    assert shape.leaves.tolist() == list(range(7, 15))
    tree = shape.with_leaf_values(np.arange(8.0))
    assert (tree.depth, tree.n_nodes) == (3, 15)
    assert tree.values.tolist() == [0] * 7 + list(range(8))
    assert tree.lefts.tolist() == [*range(1, 15, 2), *[0] * 8]
    assert tree.rights.tolist() == [*range(2, 16, 2), *[0] * 8]
    for name, of_tree in (("columns", tree.columns), ("cuts", tree.thresholds), ("missing_left", tree.missing_left)):
        of_splits = np.concatenate([getattr(level, name) for level in holder.levels])
        np.testing.assert_array_equal(of_tree[:7], of_splits, err_msg=name)
    categories = {node: (int(tree.thresholds[node]),) for node in np.flatnonzero(tree.columns == 1).tolist()}
    assert tree.left_categories == categories


def test_a_cut_parts_ordered_bins_and_a_category_all_others() -> None:
    chosen = Cuts(np.array([0, 1], np.int32), np.array([1, 2], np.int32), np.array([True, False]))
    splits = splits_of(np.array([1, 2], np.int32), chosen, AXES, first_child=3)
    assert splits.goes_left.astype(int).tolist() == [[1, 1, 0, 0, 0, 1], [0, 0, 1, 0, 0, 0]]
    assert (splits.lefts.tolist(), splits.rights.tolist()) == ([3, 5], [4, 6])


@pytest.mark.parametrize(("n_drawn", "expected"), [(0, None), (3, None), (2, 2)])
def test_columns_are_drawn_for_every_tree_unless_all_are_used(n_drawn: int, expected: int | None) -> None:
    turns = drawn_columns(3, n_drawn, np.random.default_rng(1).random)
    drawn = [] if turns is None else [frozenset(turns().tolist()) for _ in range(50)]
    assert (turns is None) == (expected is None)
    assert {len(one) for one in drawn} == ({expected} if expected else set())
    assert len(set(drawn)) == (3 if expected else 0)


def test_a_column_of_one_bin_cannot_be_cut() -> None:
    with pytest.raises(ParameterError, match="at least two bins"):
        random_rule(HistogramAxes.from_bin_counts([1]))


def test_a_deeper_tree_than_nodes_have_numbers_for_is_refused() -> None:
    axes = HistogramAxes.from_bin_counts([1000])
    walked = WalkedRows(np.zeros((1, 10), np.uint16), axes, np.zeros(10))
    walked.start_tree()
    with pytest.raises(DataError, match="depth 15 at most; got 16"):
        grow_complete_tree(walked, rule=random_rule(axes), leaf_values=lambda sums: sums[:, 0], axes=axes, depth=16)
