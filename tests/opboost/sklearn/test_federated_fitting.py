"""Fits of the framework: clients, batches, and what depends on no data."""

from __future__ import annotations

import numpy as np
import pytest

from opboost import FederatedGBDTClassifier
from opboost.horizontal.federated.training import Choices
from opboost.horizontal.noise.query_account import query_account
from opboost.privacy.accounting import by_gaussian
from opboost.privacy.releases import gaussian
from tests.support.incomes import PRIVATE, incomes

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.mark.parametrize("split_method", ["tr", "hist", "pr"])
@pytest.mark.parametrize("candidates", ["uniform", "ih"])
def test_clients_do_not_change_the_model(split_method, candidates):
    X, y = incomes()
    settings = PRIVATE | {
        "split_method": split_method,
        "split_candidates": candidates,
        "n_estimators": 6,
        "random_state": 0,
    }
    one, many = (FederatedGBDTClassifier(**settings, n_clients=n).fit(X, y) for n in (1, 13))
    np.testing.assert_array_equal(one.predict_proba(X), many.predict_proba(X))


def test_trees_do_not_depend_on_the_number_of_records():
    """What is random about a random tree is drawn without the data; only values differ."""
    settings = PRIVATE | {"n_estimators": 6, "random_state": 0}
    one, other = (FederatedGBDTClassifier(**settings).fit(*incomes(n)) for n in (300, 40))
    for a, b in zip(one.model_.trees, other.model_.trees, strict=True):
        np.testing.assert_array_equal(a.columns, b.columns)
        np.testing.assert_array_equal(a.thresholds, b.thresholds)
        assert (a.values != b.values).any()


def test_the_regulariser_grows_with_the_noise_and_not_as_printed():
    """Deviation of the noise times five; the least is one."""
    X, y = incomes()
    multiplier = query_account(20, epsilon=2.0, delta=1e-5).multiplier
    for mode, strength in (("default", None), ("default", 5 * multiplier), ("paper", None), ("paper", 1.0)):
        model = FederatedGBDTClassifier(**PRIVATE, mode=mode, reg_lambda=strength, n_estimators=20, random_state=0)
        shares = model.fit(X, y).predict_proba(X)
        if strength is None:
            before = shares
        else:
            np.testing.assert_allclose(shares, before, atol=1e-9)


def test_a_share_of_all_trees_is_a_batch():
    model = FederatedGBDTClassifier(n_estimators=10, batch_size=0.25)
    update = model._update(is_classification=True)
    assert model._choices(2, update).batch_size == 3
    assert FederatedGBDTClassifier(weight_update="averaging")._choices(
        2, FederatedGBDTClassifier(weight_update="averaging")._update(is_classification=True)
    ) == Choices(split_method="tr", n_trees=200, max_depth=4, batch_size=200)


def test_sums_of_hessians_have_no_more_noise_than_their_sensitivity_as_printed():
    """A record's pair is shorter than the paper takes it to be; its Hessian alone is as large as it says."""
    X, y = incomes()
    settings = PRIVATE | {"n_estimators": 5, "split_candidates": "ih", "hessian_rounds": 3}
    model = FederatedGBDTClassifier(**settings, mode="paper").fit(X, y)
    n_hessians = model.n_queries_ - 5
    assert n_hessians == 3 * X.shape[1]
    budget = {"epsilon": settings["epsilon"], "delta": settings["delta"]}
    multiplier = query_account(model.n_queries_, **budget, is_printed=True).multiplier
    pairs = gaussian(1.0, multiplier * np.sqrt(17) / 4, count=5)
    exact = by_gaussian((pairs, gaussian(1.0, multiplier, count=n_hessians)), settings["delta"])
    assert model.guarantee_.epsilon == pytest.approx(exact, rel=1e-9)
