"""Limits of a recipe's trees: whatever they allow, scores stay finite."""

from __future__ import annotations

import math

import pytest

from opboost.errors import ParameterError
from opboost.horizontal.tree_rules import TreeRules


@pytest.mark.parametrize(
    ("n_trees", "max_value", "is_taken"),
    [(10, 1e307, True), (100, 1e307, False), (1, math.inf, False), (1, math.nan, False), (0, 5.0, True)],
)
def test_leaves_of_all_trees_together_are_finite(n_trees: int, max_value: float, is_taken: bool) -> None:
    if is_taken:
        assert math.isfinite(TreeRules(n_trees=n_trees, max_depth=3, max_value=max_value).max_value * n_trees)
        return
    with pytest.raises(ParameterError, match="have no finite scores"):
        TreeRules(n_trees=n_trees, max_depth=3, max_value=max_value)
