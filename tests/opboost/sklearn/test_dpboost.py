"""DPBoost's two estimators: what they refuse, and that their releases spend the budget and no more."""

from __future__ import annotations

import math

import pytest

from opboost import DPBoostClassifier, DPBoostRegressor
from opboost.errors import ParameterError
from tests.support.ages import BOUNDS, frame

pytestmark = pytest.mark.usefixtures("one_thread")

PUBLIC = {"bounds": BOUNDS, "label_bounds": (0, 10)}


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"n_estimators": -1}, "n_estimators must be"),
        ({"trees_per_ensemble": 0}, "trees_per_ensemble must be"),
        ({"max_depth": -1}, "max_depth must be"),
        ({"max_grad": 0.0}, "max_grad must be"),
        ({"learning_rate": 1.0}, "learning_rate must lie between 0 and 1"),
        ({"initial_share": 1.0}, "initial_share be at least 0 and less than 1"),
        ({"scheme": "all"}, "scheme must be"),
        ({"leaf": "mean"}, "leaf must be"),
        ({"candidates": "all"}, "candidates must be"),
        ({"delta": 1e-6}, "purely private and needs no delta"),
    ],
)
def test_a_parameter_out_of_range_is_refused(settings, words):
    with pytest.raises(ParameterError, match=words):
        DPBoostRegressor(**PUBLIC, epsilon=1.0, **settings).fit(*frame())


@pytest.mark.parametrize(("scheme", "n_estimators"), [("eoe", 0), ("eoe", 1), ("eoe", 4), ("seq", 4), ("para", 4)])
@pytest.mark.parametrize("initial_share", [0.0, 0.1])
def test_all_releases_together_spend_the_budget(scheme, n_estimators, initial_share):
    settings = {"scheme": scheme, "n_estimators": n_estimators, "initial_share": initial_share, "trees_per_ensemble": 2}
    guarantee = DPBoostRegressor(**PUBLIC, epsilon=0.5, **settings).fit(*frame(40)).guarantee_
    spends = 1.0 if n_estimators else initial_share
    assert guarantee.epsilon == (pytest.approx(0.5 * spends, rel=1e-6) if spends else math.inf)
    assert guarantee.delta == 0


def test_classes_share_the_budget():
    X, y = frame(60)
    model = DPBoostClassifier(bounds=BOUNDS, classes=(0, 1, 2), epsilon=0.9, n_estimators=2).fit(
        X, (y // 3.1).clip(0, 2).astype(int)
    )
    assert len(model.models_) == 3
    assert 0.9 * (1 - 1e-6) < model.guarantee_.epsilon <= 0.9
