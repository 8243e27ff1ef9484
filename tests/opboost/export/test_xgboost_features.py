"""Feature names in XGBoost's form: each once, none that it refuses, and the features themselves come back."""

from __future__ import annotations

import json
from dataclasses import asdict
from types import SimpleNamespace
from typing import Any
from urllib.parse import quote

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from opboost.errors import ModelFileError
from opboost.export.xgboost_features import FEATURES, feature_names, feature_types, read_features
from opboost.trees.tree import Feature


@given(st.lists(st.text(max_size=8), max_size=6))
def test_names_are_what_xgboost_takes_and_no_two_alike(names: list[str]) -> None:
    found = feature_names([Feature(name) for name in names])
    assert len(set(found)) == len(names)
    assert not [name for name in found if set(name) & set("[]<\\") or any(ord(one) < 32 for one in name)]


def test_a_split_test_is_named_by_owner_column_and_rank() -> None:
    tests = [Feature("c0", "shop", 3, True), Feature("c0", "shop", 3, False)]
    assert feature_names(tests) == ["shop: c0 above rank 3", "shop: c0 above rank 3 or missing"]


def test_features_come_back_as_long_as_the_model_has_their_names() -> None:
    features = (Feature("age"), Feature("c0", "shop", 3, True), Feature("a[b]"))
    written = quote(json.dumps([asdict(one) for one in features]))
    learner: dict[str, Any] = {"feature_names": feature_names(features), "attributes": {FEATURES: written}}
    assert read_features(learner, 3) == features
    renamed = {**learner, "feature_names": ["x", "y", "z"]}
    assert read_features(renamed, 3) == (Feature("x"), Feature("y"), Feature("z"))
    assert read_features({}, 2) == (Feature("f0"), Feature("f1"))
    with pytest.raises(ModelFileError, match="2 features and 3 names"):
        read_features(learner, 2)


def test_types_are_told_where_a_column_has_categories() -> None:
    def ensemble(*sets: dict[int, Any]) -> Any:
        trees = [SimpleNamespace(columns=np.array([1, -1, -1]), left_categories=one) for one in sets]
        return SimpleNamespace(trees=trees, features=("a", "b"))

    assert feature_types(ensemble({})) == []
    assert feature_types(ensemble({}, {0: ()})) == ["q", "c"]
