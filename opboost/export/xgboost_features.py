"""Feature names and types in XGBoost's form, and back."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import unquote

from opboost.errors import ModelFileError
from opboost.trees.tree import Ensemble, Feature

# Attribute of an exported model: the features as they were, if XGBoost does not take their names. Percent-encoded, for
# XGBoost's JSON leaves a backslash before "u" as it is, which reads back as another letter.
FEATURES = "opboost_features"


def feature_names(features: Sequence[Feature]) -> list[str]:
    """Names that XGBoost takes, one for each feature: no brackets, backslashes or control characters, no two alike."""
    names: dict[str, None] = {}
    for feature in features:
        question = feature.name
        if feature.n_cells is not None:
            question = f"{feature.owner}: cell of {feature.name}"
        elif feature.owner is not None:
            missing = "" if feature.missing_left else " or missing"
            question = f"{feature.owner}: {feature.name} above rank {feature.rank}{missing}"
        stem = name = re.sub(r"[\[\]<\\\x00-\x1f\x7f\ud800-\udfff]", "_", question)
        number = 2
        while name in names:
            name, number = f"{stem}_{number}", number + 1
        names[name] = None
    return list(names)


def feature_types(ensemble: Ensemble) -> list[str]:
    """XGBoost's type of every feature; none where all are numbers."""
    of_categories = {int(tree.columns[node]) for tree in ensemble.trees for node in tree.left_categories}
    return ["c" if i in of_categories else "q" for i in range(len(ensemble.features))] if of_categories else []


def read_features(learner: Mapping[str, Any], n_features: int) -> tuple[Feature, ...]:
    """The features that were exported, as long as the model still has their names; else its own names."""
    names = learner.get("feature_names") or [f"f{i}" for i in range(n_features)]
    if len(names) != n_features:
        raise ModelFileError(f"it has {n_features} features and {len(names)} names of features")
    if FEATURES in learner.get("attributes", {}):
        features = tuple(Feature(**feature) for feature in json.loads(unquote(learner["attributes"][FEATURES])))
        if feature_names(features) == names:
            return features
    return tuple(Feature(name) for name in names)
