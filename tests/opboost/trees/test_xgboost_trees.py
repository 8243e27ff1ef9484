"""Single trees as XGBoost writes them: what goes there comes back, and what is no tree is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from opboost.errors import ModelFileError
from opboost.trees.tree import Tree
from opboost.trees.xgboost_trees import NO_PARENT, tree_from_dict, tree_to_dict

TREE = Tree(
    columns=np.array([0, 1, -1, -1, -1], np.int32),
    thresholds=np.array([0.0, 0.5, 0.0, 0.0, 0.0]),
    missing_left=np.array([False, True, False, False, False]),
    lefts=np.array([1, 3, 0, 0, 0], np.int32),
    rights=np.array([2, 4, 0, 0, 0], np.int32),
    values=np.array([0.0, 0.0, 1.0, 2.0, 3.0]),
    gains=np.array([4.0, 2.0, 0.0, 0.0, 0.0]),
    covers=np.array([9.0, 5.0, 4.0, 3.0, 2.0]),
    left_categories={0: (0, 2)},
)


def written(**changes: Any) -> dict[str, Any]:
    return tree_to_dict(TREE, number=3, n_features=2) | changes


def test_a_tree_comes_back_as_it_went() -> None:
    back = tree_from_dict(written(), n_features=2).in_levels()
    for name in Tree.__dataclass_fields__:
        if name != "thresholds":
            np.testing.assert_array_equal(getattr(back, name), getattr(TREE, name), err_msg=name)
    np.testing.assert_allclose(back.thresholds, TREE.thresholds, rtol=1e-7)


def test_parents_sides_and_categories_are_as_xgboost_has_them() -> None:
    document = written()
    assert document["parents"] == [NO_PARENT, 0, 0, 2, 2]
    # Who is in the list goes right there.
    assert (document["split_type"], document["categories"]) == ([1, 0, 0, 0, 0], [0, 2])
    assert document["id"] == 3


def test_nodes_that_pruning_left_behind_are_left_out() -> None:
    pruned = written(left_children=[1, -1, -1, -1, -1], right_children=[2, -1, -1, -1, -1])
    assert tree_from_dict(pruned, n_features=2).n_nodes == 3


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"left_children": [1, -1, 0, -1, -1]}, "do not form a tree"),
        ({"right_children": [9, -1, 4, -1, -1]}, "do not form a tree"),
        ({"split_indices": [0, 0, 7, 0, 0]}, "a column that does not exist; there are 2"),
        ({"split_indices": [0.5, 0, 1, 0, 0]}, "split_indices must be one number per node"),
        ({"sum_hessian": [1.0]}, "sum_hessian must be one number per node"),
        ({"categories_nodes": [1]}, "lists of categories differ"),
        ({"tree_param": {"size_leaf_vector": "3"}}, "several values"),
    ],
)
def test_what_is_no_tree_is_refused(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ModelFileError, match=words):
        tree_from_dict(written(**changes), n_features=2)
