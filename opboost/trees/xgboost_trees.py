"""One tree to and from the form that XGBoost's model files give it: parallel lists, leaves in `split_conditions`.

XGBoost lists the categories that go right, ours those that go left, and neither lists categories that training has not
seen. So that these go the same way too, a split by category changes its children's sides.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from opboost.arrays import Mask
from opboost.errors import ModelFileError
from opboost.trees.binning import BinnedTable
from opboost.trees.tree import Tree
from opboost.trees.xgboost_numbers import conditions_above, singles, thresholds_below

# XGBoost's parent of a root.
NO_PARENT = 2**31 - 1


def tree_to_dict(tree: Tree, *, number: int, n_features: int) -> dict[str, Any]:
    """A tree as XGBoost writes it, the `number`-th of a model with so many features.

    Raises
    ------
    ParameterError
        If it has leaves beyond float32.
    """
    tree = _with_changed_sides(tree).in_levels()
    is_leaf, nodes = tree.is_leaf, np.arange(tree.n_nodes)
    by_category = np.isin(nodes, list(tree.left_categories))
    values = singles(tree.values, "leaf values")
    parents = np.full(tree.n_nodes, NO_PARENT)
    for children in (tree.lefts, tree.rights):
        parents[children[~is_leaf]] = nodes[~is_leaf]
    largest = np.finfo(np.float32).max
    arrays: dict[str, NDArray[Any]] = {
        "base_weights": values,
        "default_left": (tree.missing_left & ~is_leaf).astype(np.int64),
        "left_children": np.where(is_leaf, -1, tree.lefts),
        "loss_changes": np.clip(tree.gains, -largest, largest),
        "parents": parents,
        "right_children": np.where(is_leaf, -1, tree.rights),
        "split_conditions": np.where(is_leaf, values, conditions_above(tree.thresholds)),
        "split_indices": np.where(is_leaf, 0, tree.columns),
        "split_type": by_category.astype(np.int64),
        "sum_hessian": np.clip(tree.covers, -largest, largest),
    }
    counts = {"num_deleted": 0, "num_feature": n_features, "num_nodes": tree.n_nodes, "size_leaf_vector": 1}
    return {
        **{name: array.tolist() for name, array in arrays.items()},
        **_categories_to_dict(tree),
        "id": number,
        "tree_param": {name: str(count) for name, count in counts.items()},
    }


def tree_from_dict(document: Mapping[str, Any], *, n_features: int) -> Tree:
    """The tree that XGBoost wrote, its nodes numbered level by level.

    Raises
    ------
    ModelFileError
        If it is no tree on so many features, or has several values per leaf.
    """
    if int(document["tree_param"]["size_leaf_vector"]) > 1:
        raise ModelFileError("its leaves have several values; an ensemble's have one")
    categories = _categories_from_dict(document)
    left, right = (_array(document, name, np.int64) for name in ("left_children", "right_children"))
    by_category = np.isin(np.arange(len(left)), list(categories)) & (left != -1)
    nodes, inner = _reachable(left, right)
    position = np.zeros(len(left), np.int32)
    position[nodes] = np.arange(len(nodes))
    numbers = _array(document, "split_conditions", np.float32)[nodes]
    columns = _array(document, "split_indices", np.int64)[nodes]
    if (inner & ((columns < 0) | (columns >= n_features))).any():
        raise ModelFileError(f"a tree splits on a column that does not exist; there are {n_features}")
    tree = Tree(
        columns=np.where(inner, columns, -1).astype(np.int32),
        thresholds=np.where(inner & ~by_category[nodes], thresholds_below(numbers), 0.0),
        missing_left=inner & (_array(document, "default_left", np.int64)[nodes] != 0),
        lefts=np.where(inner, position[left[nodes]], 0).astype(np.int32),
        rights=np.where(inner, position[right[nodes]], 0).astype(np.int32),
        values=np.where(inner, 0.0, numbers.astype(np.float64)),
        gains=np.where(inner, _array(document, "loss_changes", np.float32)[nodes], 0.0).astype(np.float64),
        covers=_array(document, "sum_hessian", np.float32)[nodes].astype(np.float64),
        left_categories={int(position[node]): categories[node] for node in nodes[by_category[nodes]].tolist()},
    )
    return _with_changed_sides(tree)


def _with_changed_sides(tree: Tree) -> Tree:
    """The tree with the children of splits by category exchanged."""
    return tree.with_children_swapped(np.isin(np.arange(tree.n_nodes), list(tree.left_categories)))


def _categories_to_dict(tree: Tree) -> dict[str, list[int]]:
    """All nodes' categories, one behind the other, with the begin and the size of each."""
    splits = sorted(tree.left_categories.items())
    sizes = [len(categories) for _, categories in splits]
    return {
        "categories": [category for _, categories in splits for category in categories],
        "categories_nodes": [node for node, _ in splits],
        "categories_segments": [sum(sizes[:place]) for place in range(len(sizes))],
        "categories_sizes": sizes,
    }


def _categories_from_dict(document: Mapping[str, Any]) -> dict[int, tuple[int, ...]]:
    """The categories of every node that splits by category, in ascending order."""
    by_category = [node for node, kind in enumerate(document.get("split_type", ())) if kind == 1]
    if not by_category:
        return {}
    nodes, begins, sizes = (document[f"categories_{name}"] for name in ("nodes", "segments", "sizes"))
    found = {
        int(node): tuple(sorted(int(category) for category in document["categories"][begin : begin + size]))
        for node, begin, size in zip(nodes, begins, sizes, strict=True)
    }
    if sorted(found) != by_category:
        raise ModelFileError("its splits by category and its lists of categories differ")
    return found


def _reachable(left: NDArray[np.int64], right: NDArray[np.int64]) -> tuple[NDArray[np.int64], Mask]:
    """Nodes in the order of their levels, without those that pruning left behind, and which of them have children."""
    level, levels, n_seen = np.zeros(1, np.int64), [], 0
    while len(level):
        n_seen += len(level)
        if n_seen > len(left) or level.min() < 0 or level.max() >= len(left):
            raise ModelFileError("a tree's nodes do not form a tree")
        levels.append(level)
        parents = level[left[level] != -1]
        level = np.stack([left[parents], right[parents]], axis=1).ravel()
    nodes = np.concatenate(levels)
    if len(np.unique(nodes)) != n_seen:
        raise ModelFileError("a tree's nodes do not form a tree")
    return nodes, left[nodes] != -1


def _array(document: Mapping[str, Any], name: str, dtype: type[np.generic]) -> NDArray[Any]:
    raw = np.array(document[name])
    kinds = "biuf" if dtype is np.float32 else "biu"
    if raw.ndim != 1 or raw.dtype.kind not in kinds or len(raw) != len(document["left_children"]):
        raise ModelFileError(f"a tree's {name} must be one number per node")
    with np.errstate(over="ignore"):
        return raw.astype(dtype)


def trees_of_booster(saved: bytearray, table: BinnedTable) -> list[Tree]:
    """The trees of a booster that was trained on the bins of a table, in bins, with DART's weights in their values."""
    grown = json.loads(saved)["learner"]["gradient_booster"]
    document = grown.get("gbtree", grown)["model"]["trees"]
    trees = [_in_bins(tree_from_dict(tree, n_features=table.axes.n_columns), table) for tree in document]
    weights = grown.get("weight_drop", [1.0] * len(trees))
    return [tree.scaled(float(weight)) for tree, weight in zip(trees, weights, strict=True)]


def _in_bins(tree: Tree, table: BinnedTable) -> Tree:
    """The tree with cuts in place of thresholds between bins."""
    is_numeric = ~tree.is_leaf & ~np.isin(np.arange(tree.n_nodes), list(tree.left_categories))
    cuts: NDArray[np.float64] = np.clip(np.floor(tree.thresholds), -1, table.axes.sizes[tree.columns] - 2)
    return replace(tree, thresholds=np.where(is_numeric, cuts, 0.0))
