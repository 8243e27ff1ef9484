"""Parameters of the S-GBDT estimators, and records that arrive later."""

from __future__ import annotations

import copy
import math

import numpy as np
import pytest

from opboost import SGBDTClassifier, SGBDTRegressor
from opboost.arrays import Sums, Values
from opboost.errors import AccountError, DataError, ParameterError
from opboost.horizontal.sgbdt.training import SGBDT
from tests.support.ages import BOUNDS, frame

pytestmark = pytest.mark.usefixtures("one_thread")


def test_classes_can_be_said_beforehand_and_others_are_refused():
    X, _ = frame()
    settings = {"bounds": BOUNDS, "epsilon": 5.0, "random_state": 0, "use_filter": True, "n_estimators": 5}
    model = SGBDTClassifier(**settings).partial_fit(X, np.zeros(200, int), classes=[0, 1])
    assert model.partial_fit(X, np.ones(200, int)).predict(X).max() <= 1
    with pytest.raises(DataError, match="labels beyond the classes"):
        model.partial_fit(X, np.full(200, 2))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("epsilon", 0.0),
        ("epsilon", -1.0),
        ("epsilon", math.nan),
        ("epsilon", "much"),
        ("epsilon", True),
        ("label_bounds", (3, 3)),
        ("label_bounds", 7),
        ("label_bounds", (0, math.inf)),
        ("mode", "loose"),
        ("random_state", -1),
        ("n_estimators", -1),
        ("max_depth", 1.5),
        ("max_grad", 0.0),
        ("max_leaf", math.inf),
        ("reg_lambda", -1.0),
        ("leaf_noise", "some"),
        ("max_cells", 1),
    ],
)
def test_a_parameter_out_of_range_is_refused(name, value):
    settings = {"bounds": BOUNDS, "label_bounds": (0, 10), "epsilon": 1.0, name: value}
    with pytest.raises(ParameterError, match="grid needs between" if name == "max_cells" else rf"^{name} must be"):
        SGBDTRegressor(**settings).fit(*frame())


def test_a_copy_has_no_accounts_of_its_records_and_trains_no_further() -> None:
    X, y = frame()
    model = SGBDTRegressor(bounds=BOUNDS, label_bounds=(0, 10), epsilon=1.0, random_state=0, n_estimators=2).fit(X, y)
    again = copy.deepcopy(model)
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
    with pytest.raises(AccountError, match="nothing was released"):
        again.partial_fit(X, y)


@pytest.mark.parametrize("use_filter", [False, True])
def test_a_stream_that_broke_off_goes_on_with_none_of_its_accounts(monkeypatch, use_filter: bool) -> None:
    """Its records would be in trees of both attempts, and pay for those of one."""
    X, y = frame()
    settings = {"bounds": BOUNDS, "label_bounds": (0, 10), "epsilon": 1.0, "random_state": 0, "n_estimators": 3}
    model = SGBDTRegressor(**settings, use_filter=use_filter).fit(X, y)
    accounts, whole = model._trainings, SGBDT._leaf_values

    def one_tree(training: SGBDT, totals: Sums) -> Values:
        if len(training.trees) == 4:
            raise KeyboardInterrupt
        return whole(training, totals)

    with monkeypatch.context() as breaking:
        breaking.setattr(SGBDT, "_leaf_values", one_tree)
        with pytest.raises(KeyboardInterrupt):
            model.partial_fit(X, y)
    with pytest.raises(AccountError, match="broke off, has no accounts"):
        model.partial_fit(X, y)
    assert len(model.model_.trees) == 3
    model._trainings = accounts
    assert len(model.partial_fit(X, y).model_.trees) == 3 + 1 + 3


def test_a_stream_goes_on_after_records_and_numbers_of_trees_that_were_refused() -> None:
    rows, labels = np.tile(np.arange(4.0), 50)[:, None], np.arange(200.0)
    settings = {"bounds": (0, 3), "label_bounds": (0, 200), "epsilon": 1.0, "n_estimators": 3, "random_state": 0}
    model = SGBDTRegressor(**settings, categorical_features=[0]).fit(rows, labels)
    with pytest.raises(DataError, match="not among its categories"):
        model.partial_fit(rows + 1, labels)
    with pytest.raises(AccountError, match="the account is for 3 trees"):
        model.set_params(n_estimators=4).partial_fit(rows, labels)
    assert len(model.set_params(n_estimators=3).partial_fit(rows, labels).model_.trees) == 6


def test_a_second_fit_that_is_broken_off_leaves_everything_of_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """Or later records would train on with the second one's budget under the first one's guarantee."""
    X, y = frame()
    settings = {"bounds": BOUNDS, "label_bounds": (0, 10), "random_state": 0, "n_estimators": 2, "use_filter": True}
    model = SGBDTRegressor(**settings, epsilon=1.0).fit(X, y)
    kept = [getattr(model, name) for name in ("model_", "guarantee_", "_task", "_trainings")]

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    model.set_params(epsilon=50.0)
    with monkeypatch.context() as changed:
        changed.setattr(SGBDT, "grow", stop)
        with pytest.raises(KeyboardInterrupt):
            model.fit(X, y)
    assert [getattr(model, name) for name in ("model_", "guarantee_", "_task", "_trainings")] == kept
    other = SGBDTRegressor(**settings, epsilon=1.0).fit(X, y)
    more = X[:50] + 1, y[:50]
    np.testing.assert_array_equal(model.partial_fit(*more).predict(X), other.partial_fit(*more).predict(X))


def test_more_trees_than_were_paid_for_need_the_filter() -> None:
    settings = {"bounds": BOUNDS, "label_bounds": (0, 10), "epsilon": 1.0, "n_extra_estimators": 3, "n_estimators": 2}
    with pytest.raises(ParameterError, match="n_extra_estimators needs the filter"):
        SGBDTRegressor(**settings, use_filter=False).fit(*frame())
    assert len(SGBDTRegressor(**settings).fit(*frame()).model_.trees) == 5
