"""The `model` section: defaults of the boosting parameters, and partitions take what XGBoost does there."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import pytest

from opboost.trees.boosting import BoostingParameters
from parties.config.model_section import ModelSection


def test_an_empty_section_has_the_defaults_of_the_parameters() -> None:
    assert asdict(ModelSection().parameters()) == asdict(BoostingParameters())
    assert ModelSection().left_open == frozenset(ModelSection.model_fields)
    assert "max_depth" not in ModelSection(max_depth=6).left_open


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"objective": "reg:pseudohubererror"}, "engine: dask has the objectives binary:logistic"),
        ({"class_weight": "balanced"}, "leave class_weight out"),
        ({"validation_fraction": 0.2}, r"leave model\.validation_fraction out"),
    ],
)
def test_on_partitions_what_is_not_supported_is_refused(given: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        ModelSection(**given).check_partitions()


@pytest.mark.parametrize("given", [{}, {"engine": "xgboost"}, {"objective": "reg:squarederror"}])
def test_on_partitions_the_rest_is_taken(given: dict[str, Any]) -> None:
    ModelSection(**given).check_partitions()


def test_a_seed_draws_the_same_held_out_rows_again() -> None:
    plans = [ModelSection(validation_fraction=0.25, seed=seed).validation(40) for seed in (1, 1, 2)]
    shares = [plan.is_held_out.tolist() for plan in plans if plan is not None]
    assert shares[0] == shares[1] != shares[2]
    assert sum(shares[0]) == 10
