"""The methods of the framework that have names."""

from __future__ import annotations

import pytest

from opboost import FederatedGBDTClassifier
from tests.support.incomes import PRIVATE, incomes

pytestmark = pytest.mark.usefixtures("one_thread")


METHODS = {
    "feverless": lambda T, m: T * 4 * m,
    "dp_gbm": lambda T, m: T * 4 * m,
    "dp_rf": lambda T, m: T,
    "dp_ebm": lambda T, m: T * m,
    "dp_ebm_newton": lambda T, m: T,
    "dp_tr_newton": lambda T, m: T,
    "dp_tr_newton_ih": lambda T, m: T + 5 * m,
    "dp_tr_newton_ih_ebm": lambda T, m: T + 5 * m,
    "dp_tr_batch_newton_ih_ebm": lambda T, m: T + 5 * m,
    "ldp": lambda T, m: T,
}


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("mode", ["default", "paper"])
def test_a_named_method_asks_as_often_as_the_paper_says(name, mode):
    X, y = incomes(1000)
    settings = PRIVATE | {"mode": mode, "n_estimators": 8, "random_state": 0}
    model = getattr(FederatedGBDTClassifier, name)(**settings).fit(X, y)
    allowed = METHODS[name](8, 2)
    assert model.n_queries_ <= allowed
    if model.split_method == "tr":
        assert model.n_queries_ == allowed
    promise = model.guarantee_
    assert promise.epsilon <= 2.0
    assert promise.epsilon > (1.6 if mode == "paper" else 1.99)
    assert promise.claimed_epsilon == (2.0 if mode == "paper" else None)
