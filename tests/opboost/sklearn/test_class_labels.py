"""Several classes: what all models together cost, and that they tell the classes apart."""

from __future__ import annotations

import math

import numpy as np
import pytest

from opboost import DPBoostClassifier, FederatedGBDTClassifier, InPrivateClassifier, OpBoostClassifier, SGBDTClassifier
from opboost.errors import DataError, ParameterError
from opboost.horizontal.noise.leaf_noise import leaf_noise
from opboost.horizontal.rows.record_holder import Clipping
from opboost.horizontal.sgbdt.as_published import printed_noise
from opboost.privacy.accounting import by_gaussian
from opboost.sklearn import dpboost, inprivate
from tests.support.gaussian_budget import gaussian_mu

pytestmark = pytest.mark.usefixtures("one_thread")

CLASSIFIERS = (SGBDTClassifier, DPBoostClassifier, InPrivateClassifier, FederatedGBDTClassifier)
CLIPPING = Clipping(max_grad=0.5, max_hess=0.25, ratio=2.0)
DELTA = 1e-6


def table(n_rows: int = 900) -> tuple[np.ndarray, np.ndarray]:
    X = np.random.default_rng(0).random((n_rows, 3))
    return X, np.array(["low", "mid", "top"])[np.digitize(X[:, 0], [0.33, 0.66])]


@pytest.mark.parametrize("kind", CLASSIFIERS)
def test_three_classes_are_told_apart_and_the_promise_says_that_they_share(kind):
    X, y = table()
    is_pure = kind in (DPBoostClassifier, InPrivateClassifier)
    settings = {} if is_pure else {"n_estimators": 60}
    assert kind(random_state=0, **settings).fit(X, y).score(X, y) > 0.85
    settings |= {} if is_pure else {"delta": DELTA}
    model = kind(epsilon=3.0, bounds=(0, 1), classes=["top", "mid", "low"], **settings).fit(X, y)
    assert model.guarantee_.certified
    assert 2.99 < model.guarantee_.epsilon <= 3.0
    assert "shared by one model for each of 3 classes" in str(model.guarantee_)
    assert "shared" not in str(kind(epsilon=3.0, bounds=(0, 1), **settings).fit(X, y == "low").guarantee_)
    assert len(model.models_) == 3
    shares = model.predict_proba(X)
    np.testing.assert_allclose(shares.sum(axis=1), 1.0)
    assert set(model.predict(X)) <= set(y)


@pytest.mark.parametrize(
    "settings",
    [{}, {"has_filter": True}, {"rate": 0.2}, {"rate": 0.2, "has_filter": True}, {"cells_share": 0.2}],
    ids=str,
)
def test_gaussian_noise_is_made_for_all_models_and_cells_are_counted_once(settings):
    budget = {"epsilon": 1.0, "delta": DELTA, "n_trees": 10, **settings}
    one, three = (leaf_noise(CLIPPING, **budget, n_models=n) for n in (1, 3))
    assert 0.98 < three.epsilon(DELTA) <= 1.0
    assert three.grad_std > 1.5 * one.grad_std
    if "rate" not in settings:
        mus = [1 / three.initial_std] * 3 + [three.mu] * 30 + [1 / three.cells_std if three.cells_std else 0.0]
        assert by_gaussian(three.releases, DELTA) >= 1.0 - 1e-4
        assert math.hypot(*mus) == pytest.approx(gaussian_mu(1.0, DELTA), rel=1e-4)
        # Twin: the noise of one model, drawn three times, costs more than the budget.
        assert by_gaussian(one.releases * 3, DELTA) > 1.5


def test_a_publications_claim_is_shared_too():
    settings = {
        "max_grad": 0.5,
        "epsilon": 0.6,
        "delta": 3e-6,
        "n_trees": 20,
        "rate": 0.1,
        "initial_share": 0.0,
        "has_filter": False,
        "is_classification": True,
    }
    three = printed_noise(**settings, n_models=3)
    alone = printed_noise(**settings | {"epsilon": 0.2, "delta": 1e-6})
    assert three.grad_std == alone.grad_std
    assert three.releases == alone.releases * 3


@pytest.mark.parametrize(
    ("kind", "module", "name", "per_model"),
    [(DPBoostClassifier, dpboost.dpboost, "train", 0.9), (InPrivateClassifier, inprivate, "run_chain", 0.9)],
)
def test_pure_budgets_are_shared_in_equal_parts(kind, module, name, per_model, monkeypatch):
    seen, real = [], getattr(module, name)

    def noted(*args, **settings):
        seen.append(settings["epsilon"])
        return real(*args, **settings)

    monkeypatch.setattr(module, name, noted)
    X, y = table(200)
    kind(epsilon=3.0, bounds=(0, 1), classes=("low", "mid", "top")).fit(X, y)
    assert len(seen) == 3
    assert sum(seen) <= 3.0 * per_model
    assert sum(seen) == pytest.approx(3.0 * per_model)


def test_records_that_arrive_later_train_all_models_on():
    X, y = table()
    settings = {"bounds": (0, 1), "epsilon": 5.0, "use_filter": True, "n_estimators": 20, "random_state": 0}
    model = SGBDTClassifier(**settings).partial_fit(X[:400], y[:400], classes=["low", "mid", "rare", "top"])
    model.partial_fit(X[400:], y[400:])
    assert [len(each.trees) for each in model.models_] == [40] * 4
    assert model.predict_proba(X).shape == (900, 4)
    with pytest.raises(DataError, match="labels beyond the classes"):
        model.partial_fit(X, np.full(900, "none"))


def test_classes_of_the_labels_are_for_fits_without_a_budget_and_one_is_too_few():
    X, y = table(20)[0], np.zeros(20)
    assert list(DPBoostClassifier().fit(X, y + (X[:, 0] > 0.5)).classes_) == [0, 1]
    with pytest.raises(DataError, match="at least two classes; found 1 class"):
        DPBoostClassifier().fit(X, y)
    assert DPBoostClassifier(classes=[0, 5]).fit(X, y).predict_proba(X).shape == (20, 2)


@pytest.mark.parametrize("kind", CLASSIFIERS)
def test_labels_in_other_words_need_the_parameter_and_a_single_class_fits(kind):
    settings = {"epsilon": 1.0, "bounds": (0, 1)} | ({"delta": DELTA} if kind is FederatedGBDTClassifier else {})
    settings |= {} if kind in (DPBoostClassifier, InPrivateClassifier) else {"n_estimators": 3}
    X, words = table(30)
    for y in (words, np.where(X[:, 0] > 0.5, 1, -1), np.where(X[:, 0] > 0.5, 1.5, 0)):
        with pytest.raises(DataError, match=r"List all classes as the parameter `classes`.*Nothing was released"):
            kind(**settings).fit(X, y)
    assert kind(**settings).fit(X, X[:, 0] > 0.5).classes_.tolist() == [0, 1]
    signed = kind(**settings, classes=[1, -1]).fit(X, np.ones(30))
    assert signed.classes_.tolist() == [-1, 1]
    assert set(signed.predict(X)) <= {-1, 1}
    model = kind(**settings, classes=["top", "mid", "low"]).fit(X, np.full(30, "mid"))
    assert model.classes_.tolist() == ["low", "mid", "top"]
    assert model.predict_proba(X).shape == (30, 3)


def test_a_refused_fit_leaves_the_classes_of_the_model():
    X, y = table(30)
    model = DPBoostClassifier(epsilon=1.0, bounds=(0, 1), classes=["low", "mid", "top"]).fit(X, y)
    with pytest.raises(DataError):
        model.set_params(classes=[0, 1]).fit(X, y)
    assert set(model.predict(X)) <= {"low", "mid", "top"}


@pytest.mark.parametrize("classes", [[], [1], [1, 1], 2, "no", [["no", "yes"]], [0, math.nan], [0, None]])
def test_a_list_of_classes_that_says_nothing_is_refused(classes):
    with pytest.raises(ParameterError, match=r"^classes must list at least 2 labels of one type"):
        DPBoostClassifier(epsilon=1.0, bounds=(0, 1), classes=classes).fit(table(20)[0], np.zeros(20))


def test_partial_fit_is_told_the_same_classes_as_the_parameter_or_none():
    X, y = table(30)
    settings = {"epsilon": 1.0, "bounds": (0, 1), "n_estimators": 2, "classes": ("low", "mid", "top")}
    with pytest.raises(ParameterError, match="other classes than those that are known"):
        SGBDTClassifier(**settings).partial_fit(X, y, classes=["low", "mid"])
    model = SGBDTClassifier(**settings).partial_fit(X, y, classes=["top", "mid", "low"]).partial_fit(X, y)
    with pytest.raises(ParameterError, match="other classes than those that are known"):
        model.partial_fit(X, y, classes=["low", "mid", "top", "rare"])


@pytest.mark.parametrize("kind", [*CLASSIFIERS, OpBoostClassifier])
def test_labels_that_are_objects_and_no_texts_are_refused_with_what_to_do(kind):
    X, y = table(60)
    for labels in (y == "low", np.where(y == "low", 10, 2), np.where(y == "low", None, y)):
        with pytest.raises(DataError, match=r"of dtype object.* y\.astype\(int\) .* Nothing was trained"):
            kind().fit(X, labels.astype(object))
    assert kind().fit(X, np.where(y == "low", 10, 2)).classes_.tolist() == [2, 10]
