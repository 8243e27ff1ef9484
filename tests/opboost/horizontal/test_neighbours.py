"""What is public of a training does not depend on the records: models, shapes, noise, promises and refusals.

Every table of one and two records of a small domain is fitted; scikit-learn refuses an empty one. Any two of them are
joined by records that are added or removed one at a time, so one view that is common to all is the statement for every
pair of neighbours. Where a promise is for records that are replaced, tables of one size have a view in common.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import combinations_with_replacement
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone

from opboost import (
    DPBoostClassifier,
    DPBoostRegressor,
    FederatedGBDTClassifier,
    FederatedGBDTRegressor,
    InPrivateClassifier,
    InPrivateRegressor,
    SGBDTClassifier,
    SGBDTRegressor,
)
from opboost.privacy.additive import DiscreteLaplace, RoundedGaussian
from opboost.privacy.selection import ExponentialMechanism

pytestmark = pytest.mark.usefixtures("one_thread")

Record = tuple[float, Any]
Table = Sequence[Record]
Fit = Callable[[Table], Any]

# A cell within the bounds (0, 1), one beyond them, and an empty one.
CELLS = (0.2, 7.0, np.nan)
PROBES = np.array([[0.1], [0.9], [np.nan]])

SMALL = {"n_estimators": 2, "max_depth": 1}
PURE = {"epsilon": 1.0, "bounds": (0, 1), "random_state": 0}
GAUSSIAN = {**PURE, "delta": 1e-5}
CLASSIFIERS = [
    SGBDTClassifier(**GAUSSIAN, **SMALL, cells_share=0.1),
    SGBDTClassifier(**GAUSSIAN, **SMALL, use_filter=True),
    SGBDTClassifier(**GAUSSIAN, **SMALL, mode="paper", subsample=0.5),
    DPBoostClassifier(**PURE, **SMALL, trees_per_ensemble=2),
    DPBoostClassifier(**PURE, **SMALL, mode="paper"),
    InPrivateClassifier(**PURE, max_depth=1, n_rounds=2),
    FederatedGBDTClassifier(**GAUSSIAN, **SMALL, n_clients=2),
    FederatedGBDTClassifier(**GAUSSIAN, **SMALL, split_method="hist", split_candidates="ih"),
    FederatedGBDTClassifier(**GAUSSIAN, **SMALL, weight_update="averaging"),
    FederatedGBDTClassifier(**PURE, **SMALL, mode="paper"),
]
NUMBERS = {"label_bounds": (-1, 1)}
REGRESSORS = [
    SGBDTRegressor(**GAUSSIAN, **NUMBERS, **SMALL),
    SGBDTRegressor(**GAUSSIAN, **NUMBERS, **SMALL, mode="paper", subsample=0.5),
    DPBoostRegressor(**PURE, **NUMBERS, **SMALL),
    DPBoostRegressor(**PURE, **NUMBERS, **SMALL, mode="paper"),
    InPrivateRegressor(**PURE, **NUMBERS, max_depth=1),
    FederatedGBDTRegressor(**GAUSSIAN, **NUMBERS, **SMALL),
    FederatedGBDTRegressor(**PURE, **NUMBERS, **SMALL, mode="paper"),
]


@pytest.fixture(autouse=True)
def noises(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Every noise distribution and mechanism of choice that is made, with its scale."""
    found: set[str] = set()
    for kind in (DiscreteLaplace, RoundedGaussian, ExponentialMechanism):

        def noted(self: Any, check: Callable[[Any], None] = kind.__post_init__) -> None:
            check(self)
            found.add(repr(self))

        monkeypatch.setattr(kind, "__post_init__", noted)
    return found


def tables(domain: Iterable[Record]) -> Iterator[Table]:
    """All tables of one record, and of two."""
    records = list(domain)
    for size in (1, 2):
        yield from combinations_with_replacement(records, size)


def domain(labels: Sequence[Any]) -> list[Record]:
    return [(cell, label) for cell in CELLS for label in labels]


def columns(table: Table) -> tuple[np.ndarray, np.ndarray]:
    return np.array([[cell] for cell, _ in table]), np.array([label for _, label in table])


def public_view(fit: Fit, table: Table, noises: set[str]) -> dict[str, str]:
    """All that may be known of a training without its records; of a refusal its words."""
    noises.clear()
    try:
        model = fit(table)
    except ValueError as error:
        return {"refused": f"{type(error).__name__}: {error}"}
    task = model._task
    view = {
        "classes": getattr(model, "classes_", None),
        "trees": [len(each.trees) for each in model.models_],
        "shape": model.predict(PROBES).shape,
        "columns": (model.n_features_in_, task.names, task.grid.bounds, task.grid.axes.n_bins),
        "scale": (task.centre, task.spread, task.epsilon, task.bounds_are_public),
        "noise": sorted(noises),
        "promise": model.guarantee_.to_dict(),
        # Histograms end branches where their noise says so, which is a function of what was released.
        "messages": None if getattr(model, "split_method", "") == "hist" else getattr(model, "communication_", None),
    }
    if hasattr(model, "predict_proba"):
        view["probabilities"] = model.predict_proba(PROBES).shape
    return {name: repr(value) for name, value in view.items()}


def differences(fit: Fit, some: Iterable[Table], noises: set[str]) -> set[str]:
    """What of the public view is not the same for all tables, or for all of one size where that is public."""
    views = [(len(table), public_view(fit, table, noises)) for table in some]
    is_of_one_size = any("public, size" in view.get("promise", "") for _, view in views)
    first: dict[int, dict[str, str]] = {}
    found: set[str] = set()
    for size, view in views:
        other = first.setdefault(size if is_of_one_size else 0, view)
        found |= {name for name in other.keys() | view.keys() if other.get(name) != view.get(name)}
    return found


def fitted(estimator: Any) -> Fit:
    return lambda table: estimator.fit(*columns(table))


def name(value: Any) -> str:
    """Of a test's parameter."""
    if not hasattr(value, "get_params"):
        return str(value)
    choices = ("mode", "split_method", "weight_update", "cells_share", "use_filter")
    return "-".join([type(value).__name__, *(str(getattr(value, each)) for each in choices if hasattr(value, each))])


@pytest.mark.parametrize("estimator", CLASSIFIERS, ids=name)
@pytest.mark.parametrize("classes", [None, ("high", "low", "mid")], ids=name)
def test_no_record_changes_what_is_public_of_a_classifier(estimator, classes, noises):
    estimator = clone(estimator).set_params(classes=classes)
    assert differences(fitted(estimator), tables(domain(classes or (0, 1))), noises) == set()
    n_classes = len(classes or (0, 1))
    assert estimator.predict_proba(PROBES).shape == (3, n_classes)
    assert len(estimator.models_) == (1 if n_classes == 2 else n_classes)


@pytest.mark.parametrize("estimator", REGRESSORS, ids=name)
def test_no_record_changes_what_is_public_of_a_regressor(estimator, noises):
    assert differences(fitted(clone(estimator)), tables(domain((-0.5, 0.5, 40.0))), noises) == set()


@pytest.mark.parametrize("kind", [SGBDTClassifier, DPBoostClassifier, InPrivateClassifier, FederatedGBDTClassifier])
def test_classes_from_the_labels_would_change_models_noise_and_refusals(kind, noises):
    """The broken twin: what occurs among the labels, as without a budget."""
    settings = next(each for each in CLASSIFIERS if type(each) is kind).get_params()

    def fit(table: Table) -> Any:
        X, y = columns(table)
        return kind(**settings | {"classes": np.unique(y)}).fit(X, y)

    found = differences(fit, tables(domain((0, 1, 2))), noises)
    assert {"refused", "classes", "probabilities"} <= found
    some = [table for table in tables([(0.2, 0), (0.2, 1), (7.0, 2)]) if len({label for _, label in table}) == 2]
    some += [(*some[0], (7.0, 2))]
    assert {"trees", "promise", "noise", "probabilities"} <= differences(fit, some, noises)


def test_bounds_from_the_data_would_change_cells_and_scale(noises):
    """The twin for numbers."""
    leaky = DPBoostRegressor(**PURE | {"bounds": "from_data"}, **SMALL)
    assert {"columns", "scale"} <= differences(fitted(leaky), tables(domain((-0.5, 0.5))), noises)


@pytest.mark.parametrize("estimator", CLASSIFIERS, ids=name)
@pytest.mark.parametrize(
    ("classes", "inside", "outside"),
    [
        *((None, 0, 2), (None, 1.0, -1.0), (None, 1.0, 0.5), (None, True, 3)),
        *((("no", "yes"), "no", "maybe"), ((0, 1), 1, "1")),
    ],
)
def test_a_label_beyond_the_classes_is_refused_whatever_else_there_is_and_nothing_is_drawn(
    estimator, classes, inside, outside, noises, monkeypatch
):
    estimator = clone(estimator).set_params(classes=classes)
    monkeypatch.setattr(estimator, "_bits", lambda: pytest.fail("bits were asked for"))
    refused = [table for table in tables(domain((inside, outside))) if outside in [label for _, label in table]]
    views = [public_view(fitted(estimator), table, noises) for table in refused]
    assert all(view == views[0] for view in views)
    assert "List all classes as the parameter `classes`" in views[0]["refused"]
    assert "Nothing was released" in views[0]["refused"]
    assert not noises


def whose(table: Table) -> list[str]:
    """The owner of each record: the last thing that it holds."""
    return [record[-1] for record in table]


@pytest.mark.parametrize("kind", [InPrivateClassifier, InPrivateRegressor])
def test_no_record_changes_who_the_owners_are(kind, noises):
    numbers = NUMBERS if kind is InPrivateRegressor else {}
    records = [(cell, label, owner) for cell in CELLS for label in (0, 1) for owner in ("north", "south")]

    def fit(table: Table, owners: Any = ("south", "west", "north")) -> Any:
        model = kind(**PURE, **numbers, max_depth=1, owners=owners)
        return model.fit(*columns([record[:2] for record in table]), owners=whose(table))

    assert differences(fit, tables(records), noises) == set()
    assert fit(records[:1]).communication_ == (3, 2)
    # The broken twin: the owners of the rows.
    found = differences(lambda table: fit(table, sorted(set(whose(table)))), tables(records), noises)
    assert {"trees", "messages"} <= found


def test_rows_of_owners_that_are_not_listed_are_refused_with_the_same_words(noises):
    def fit(table: Table) -> Any:
        model = InPrivateClassifier(**PURE, owners=("north", "south"))
        return model.fit(*columns([record[:2] for record in table]), owners=whose(table))

    views = [
        public_view(fit, table, noises)
        for table in tables([(0.2, 1, "north"), (0.2, 0, "south"), (0.2, 1, "west")])
        if "west" in whose(table)
    ]
    assert all(view == views[0] for view in views)
    assert "List all of them as the parameter `owners`" in views[0]["refused"]
    assert not noises
