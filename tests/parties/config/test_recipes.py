"""Recipes of run files: their promises, and the estimators' defaults and noise."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from opboost import FederatedGBDTClassifier, FederatedGBDTRegressor, SGBDTClassifier, SGBDTRegressor
from opboost.horizontal.federated.owners import FederatedAmongOwners
from parties.config.federated_section import FederatedSection
from parties.config.sgbdt_section import _DEFAULTS, SGBDTSection
from parties.errors import ConfigError
from tests.support.clinics import Clinics


@pytest.mark.parametrize(
    ("training", "words"),
    [
        ({"noise": "aggregator", "honest": None}, "not against the coordinator"),
        ({}, "the coordinator too, as long as 2"),
        ({"mode": "paper", "honest": None, "sgbdt": {"n_estimators": 5, "subsample": 0.5}}, "claims epsilon 2"),
        ({"objective": "reg:squarederror", "label_bounds": [0, 10]}, "Skellam noise in shares"),
        ({"recipe": "federated"}, "the coordinator too, as long as 2"),
        ({"recipe": "recommended", "recommended": {"records": 240}}, "Skellam noise in shares"),
        (
            {
                "recipe": "recommended",
                "recommended": {"records": 240},
                "objective": "multi:softprob",
                "classes": 5,
                "honest": None,
                "noise": "aggregator",
            },
            "not against the coordinator",
        ),
        ({"recipe": "federated", "federated": {"weight_update": "averaging"}}, "Skellam noise in shares"),
        (
            {
                "recipe": "federated",
                "objective": "reg:squarederror",
                "label_bounds": [0, 10],
                "honest": None,
                "noise": "aggregator",
                "federated": {"split_method": "pr", "split_candidates": "ih", "batch_size": 0.25},
            },
            "exact Gaussian composition",
        ),
    ],
)
def test_every_kind_of_run_file_becomes_a_recipe_that_says_what_it_promises(
    tmp_path: Path, training: dict[str, Any], words: str
) -> None:
    promise = Clinics(tmp_path, **training).recipe().guarantee(is_secure=True)
    assert words in str(promise)
    assert promise.certified == (training.get("mode") != "paper")


def test_defaults_are_those_of_the_estimators() -> None:
    for is_classification, estimator in ((True, SGBDTClassifier), (False, SGBDTRegressor)):
        known = {name: p.default for name, p in inspect.signature(estimator).parameters.items()}
        section = SGBDTSection().completed(is_classification=is_classification).model_dump()
        assert {name: known[name] for name in section} == section
        assert set(_DEFAULTS[is_classification]) <= set(section)
    known = {name: p.default for name, p in inspect.signature(FederatedGBDTRegressor).parameters.items()}
    section = FederatedSection().model_dump()
    assert {name: known[name] for name in section} == section


def test_the_noise_of_a_run_file_is_that_of_the_estimator(tmp_path: Path) -> None:
    settings = {"split_method": "hist", "interaction": "cyclical", "split_candidates": "ih", "n_estimators": 20}
    of = Clinics(tmp_path, recipe="federated", noise="aggregator", honest=None, federated=settings).recipe()
    draw = np.random.default_rng(0)
    X = draw.random((60, 3))
    model = FederatedGBDTClassifier(epsilon=2.0, delta=1e-6, bounds=(0, 1), random_state=0, **settings)
    model.fit(X, X[:, 0] > 0.5)
    assert of.guarantee(is_secure=True).epsilon == model.guarantee_.epsilon
    assert isinstance(of, FederatedAmongOwners)
    assert of.choices == model._choices(3, of.update)
    assert of.leaf == model._leaf(of.update, of.noise, 60)


@pytest.mark.parametrize(
    ("federated", "n_more", "words"),
    [
        ({"split_method": "pr", "interaction": "all", "max_depth": 9}, {"max_depth": 10}, "101 MiB.*columns"),
        ({"split_method": "hist", "interaction": "all", "max_depth": 9}, {"max_depth": 10}, "101 MiB.*columns"),
        ({"split_method": "hist", "interaction": "random", "max_depth": 12}, {"interaction": "all"}, "402 MiB.*cells"),
        ({"split_method": "tr", "max_depth": 12, "n_estimators": 1024}, {"n_estimators": 1025}, "65 MiB.*classes"),
    ],
)
def test_a_plan_whose_answers_could_be_longer_than_a_message_is_refused(
    tmp_path: Path, federated: dict[str, Any], n_more: dict[str, Any], words: str
) -> None:
    clinics = Clinics(tmp_path, recipe="federated", noise="aggregator", honest=None)
    common = {"n_candidates": 4280, "batch_size": 1.0, "n_estimators": 2}
    clinics.training["federated"] = {**common, **federated}
    assert clinics.recipe()
    clinics.training["federated"] = {**common, **federated, **n_more}
    with pytest.raises(ConfigError, match=f"{words}.*Nothing was sent"):
        clinics.recipe()
