"""What the estimators of the framework promise."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from opboost import FederatedGBDTClassifier
from opboost.errors import ParameterError, SchemaError
from opboost.privacy.gaussian import gaussian_epsilon
from opboost.privacy.record_guarantee import ADDED_OR_REMOVED, REPLACED
from tests.support.gaussian_budget import gaussian_mu
from tests.support.incomes import BOUNDS, PRIVATE, incomes

pytestmark = pytest.mark.usefixtures("one_thread")


def test_the_noise_is_calibrated_to_the_account_and_to_all_classes():
    X, _ = incomes()
    y = np.arange(300) % 3
    model = FederatedGBDTClassifier(**PRIVATE, classes=(0, 1, 2), n_estimators=6).fit(X, y)
    assert model.n_queries_ == 18  # three models share the budget
    assert model.guarantee_.epsilon <= 2.0
    shares = model.predict_proba(X)
    assert shares.shape == (300, 3)
    np.testing.assert_allclose(shares.sum(axis=1), 1.0)


def test_bounds_from_the_data_are_refused_or_said():
    """Trap 4."""
    with pytest.raises(SchemaError, match="these have none: income"):
        FederatedGBDTClassifier(epsilon=1.0, delta=1e-5, bounds={"age": (18, 90)}).fit(*incomes())
    model = FederatedGBDTClassifier(epsilon=1.0, delta=1e-5, bounds="from_data", n_estimators=3).fit(*incomes())
    assert not model.guarantee_.certified


def test_delta_must_be_said_or_is_said():
    """Trap 6."""
    with pytest.raises(ParameterError, match=r"needs a delta.*Nothing was released"):
        FederatedGBDTClassifier(epsilon=1.0, bounds=BOUNDS).fit(*incomes())
    model = FederatedGBDTClassifier(epsilon=1.0, bounds=BOUNDS, mode="paper", n_estimators=3).fit(*incomes())
    assert model.guarantee_.delta == 1 / 300
    assert "the number of records" in str(model.guarantee_)


def test_a_delta_of_one_over_the_number_of_records_is_for_records_that_are_replaced():
    """It makes the noise, which a record more or less changes; one in place of another moves every answer twice."""
    settings: dict[str, Any] = {"epsilon": 1.0, "bounds": BOUNDS, "mode": "paper", "n_estimators": 3}
    implied, said = (FederatedGBDTClassifier(**settings, delta=d).fit(*incomes()).guarantee_ for d in (None, 1 / 300))
    assert said.neighbours == ADDED_OR_REMOVED
    assert implied.neighbours == REPLACED
    # Epsilon of mu is that of 2 mu for half of the noise.
    mu = gaussian_mu(said.epsilon, 1 / 300)
    assert implied.epsilon == pytest.approx(gaussian_epsilon(2 * mu, 1 / 300), rel=1e-6)
    local = FederatedGBDTClassifier.ldp(**settings).fit(*incomes()).guarantee_
    assert local.neighbours == "two data sets that differ in one record's label"


def test_bits_are_secure_unless_there_is_a_seed():
    """Trap 9."""
    assert FederatedGBDTClassifier(**PRIVATE, n_estimators=3).fit(*incomes()).guarantee_.certified
    assert not FederatedGBDTClassifier(**PRIVATE, n_estimators=3, random_state=1).fit(*incomes()).guarantee_.is_secure


def test_quantiles_are_refused_where_something_is_promised():
    X, y = incomes()
    with pytest.raises(ParameterError, match=r"quantiles are a function of the data.*Nothing was released"):
        FederatedGBDTClassifier(**PRIVATE, split_candidates="quantile").fit(X, y)
    model = FederatedGBDTClassifier(**PRIVATE, mode="paper", split_candidates="quantile", n_estimators=3).fit(X, y)
    assert model.guarantee_.notion == "none"
