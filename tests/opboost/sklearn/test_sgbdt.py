"""S-GBDT's two estimators: each has the defaults of its task and trains further on records that arrive."""

from __future__ import annotations

from dataclasses import asdict

import numpy as np
import pytest

from opboost import SGBDTClassifier, SGBDTRegressor
from opboost.errors import DataError
from opboost.horizontal.sgbdt.defaults import FOR_CLASSES, FOR_NUMBERS
from tests.support.ages import BOUNDS, frame

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.mark.parametrize(("kind", "defaults"), [(SGBDTClassifier, FOR_CLASSES), (SGBDTRegressor, FOR_NUMBERS)])
def test_the_defaults_are_those_of_the_task(kind, defaults):
    wanted = {name: value for name, value in asdict(defaults).items() if name in kind().get_params()}
    assert len(wanted) > 5
    assert {name: value for name, value in kind().get_params().items() if name in wanted} == wanted


@pytest.mark.parametrize("kind", [SGBDTClassifier, SGBDTRegressor])
def test_a_first_part_is_a_fit_and_a_second_one_adds_trees(kind):
    X, y = frame()
    labels = y > 5 if kind is SGBDTClassifier else y
    public = {} if kind is SGBDTClassifier else {"label_bounds": (0, 10)}
    settings = {"bounds": BOUNDS, "epsilon": 5.0, "random_state": 0, "n_estimators": 3, "use_filter": True, **public}
    whole, parted = kind(**settings).fit(X, labels), kind(**settings).partial_fit(X, labels)
    np.testing.assert_array_equal(whole.predict(X), parted.predict(X))
    parted.partial_fit(*(each[:50] for each in (X + 1, labels)))
    assert len(parted.model_.trees) > len(whole.model_.trees)


@pytest.mark.parametrize("odd", [None, "three", b"three", 10**400, float("inf")])
def test_a_label_that_is_no_number_is_refused_and_the_records_accounts_stay(odd):
    X, y = frame()
    settings = {"bounds": BOUNDS, "label_bounds": (0, 10), "epsilon": 5.0, "random_state": 0, "n_estimators": 3}
    model = SGBDTRegressor(**settings, use_filter=True).partial_fit(X, y)
    labels = np.array([odd, *y[1:50]], dtype=object)
    with pytest.raises((DataError, ValueError), match=r"not (a )?finite number|infinity"):
        model.partial_fit(X[:50], labels)
    model.partial_fit(X[:50] + 1, y[:50])
    assert len(model.model_.trees) == 6
