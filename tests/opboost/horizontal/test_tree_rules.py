"""Limits of a recipe's trees: whatever they allow, scores stay finite."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from opboost.errors import ParameterError
from tests.support import federated_workers, workers


@pytest.mark.parametrize("of", [workers.recipe(), federated_workers.recipe(), federated_workers.recipe(n_honest=2)])
def test_leaves_of_all_trees_together_are_finite_on_the_scale_of_training_and_of_labels(of: Any) -> None:
    rules = of.tree_rules
    largest = 0.9 * math.ldexp(1.0, 1023) / (rules.n_trees * rules.max_value)
    assert math.isfinite(replace(of, task=replace(of.task, spread=largest)).task.spread)
    with pytest.raises(ParameterError, match=f"{rules.n_trees} trees with leaves of up to .* have no finite scores"):
        replace(of, task=replace(of.task, spread=4 * largest))
