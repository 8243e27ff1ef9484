"""The `federated` section: what its keys mean to the framework, and noise in shares only where there is an account."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from opboost.errors import OpBoostError
from opboost.horizontal.public_task import PublicTask
from parties.config.federated_section import FederatedSection

NAMES = ("a", "b", "c")
BOUNDS = [(0.0, 1.0), (0.0, 8.0), (-4.0, 4.0)]


def task(section: FederatedSection, epsilon: float = 2.0) -> PublicTask:
    return PublicTask(NAMES, section.grid(NAMES, BOUNDS), 0.5, 0.5, epsilon, True, True)


def test_candidates_lie_evenly_unless_by_logarithm_and_mirrored_ones_crowd_above() -> None:
    even = FederatedSection(n_candidates=8).grid(NAMES, BOUNDS).cuts
    assert np.allclose(np.diff(even[1]), np.diff(even[1])[0])
    section = FederatedSection(n_candidates=8, split_candidates="log", mirrored=("b",))
    below, above = np.diff(section.grid(NAMES, BOUNDS).cuts[0]), np.diff(section.grid(NAMES, BOUNDS).cuts[1])
    assert below[0] < below[-1]
    assert above[0] > above[-1]


def test_a_mirrored_column_must_be_there() -> None:
    with pytest.raises(OpBoostError, match="height"):
        FederatedSection(split_candidates="log", mirrored=("height",)).grid(NAMES, BOUNDS)


@pytest.mark.parametrize(("per_column", "n_trees"), [(False, 7), (True, 21)])
def test_trees_may_be_counted_per_column(per_column: bool, n_trees: int) -> None:
    section = FederatedSection(n_estimators=7, trees_per_column=per_column)
    assert section.recipe(task(section), delta=1e-6, n_honest=None).choices.n_trees == n_trees


def test_a_leafs_regularisation_grows_with_the_noise_unless_it_is_given() -> None:
    section = FederatedSection(n_estimators=5)
    strengths = [section.recipe(task(section, e), delta=1e-6, n_honest=None).leaf.reg_lambda for e in (0.5, 4.0)]
    assert strengths[0] > strengths[1] > 0
    given = FederatedSection(n_estimators=5, reg_lambda=3.0)
    assert given.recipe(task(given), delta=1e-6, n_honest=None).leaf.reg_lambda == 3.0


def test_noise_in_shares_is_refused_where_splits_need_noise_too() -> None:
    assert FederatedSection(n_estimators=5).recipe(task(FederatedSection()), delta=1e-6, n_honest=2) is not None
    section = FederatedSection(n_estimators=5, split_method="hist")
    with pytest.raises(OpBoostError):
        section.recipe(task(section), delta=1e-6, n_honest=2)


@pytest.mark.parametrize(
    "given",
    [
        {"batch_size": 0},
        {"batch_size": 1.5},
        {"n_candidates": 1},
        {"max_depth": 13},
        {"max_grad": 0},
        *({key: 2**64} for key in ("n_estimators", "columns_per_tree", "batch_size", "hessian_rounds")),
    ],
)
def test_a_number_out_of_its_range_is_refused(given: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        FederatedSection(**given)
