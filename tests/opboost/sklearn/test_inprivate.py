"""The first score of InPrivate: all owners pay for it, and labels far from the middle of their bounds are reached."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from opboost import InPrivateClassifier, InPrivateRegressor
from opboost.errors import ParameterError
from opboost.horizontal.noise.noisy_holder import laplace_release
from opboost.privacy.additive import DiscreteLaplace

DRAW = np.random.default_rng(0)
X = DRAW.random((1500, 2))
Y = 8 + X[:, 0]


def regressor(**settings: Any) -> InPrivateRegressor:
    return InPrivateRegressor(epsilon=2.0, bounds=(0, 1), label_bounds=(-10, 10), random_state=0, **settings)


def test_labels_far_from_the_middle_of_their_bounds_are_reached() -> None:
    errors = [abs(regressor(initial_share=share).fit(X, Y).predict(X) - Y).mean() for share in (0.1, 0.0)]
    assert errors[0] < 0.6 < 1.2 < errors[1]
    rare = (X[:, 0] > 0.98).astype(int)
    model = InPrivateClassifier(epsilon=4.0, bounds=(0, 1), random_state=0, owners=2).fit(X, rare)
    assert model.predict_proba(X)[:, 1].mean() < 0.15


@pytest.mark.parametrize("share", [0.0, 0.1, 0.4])
def test_first_scores_and_trees_share_epsilon(share: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Noise of the first scores is drawn once for every owner, at their part of epsilon."""
    scales: list[float] = []
    draw = DiscreteLaplace.draw

    def noted(self: DiscreteLaplace, count: int, **others: Any) -> Any:
        scales.extend([self.scale] if count == 2 else [])
        return draw(self, count, **others)

    monkeypatch.setattr(DiscreteLaplace, "draw", noted)
    model = regressor(initial_share=share, owners=3).fit(X, Y)
    due = [laplace_release(1.0, 2.0 * share, 2.0**20).scale] * 3 if share else []
    assert scales == pytest.approx(due)
    assert 1.999 < model.guarantee_.epsilon <= 2.0
    # The broken twin: trees that spend all of epsilon beside the first score.
    assert model.guarantee_.epsilon + 2.0 * share > 2.0 or not share


def test_shares_that_leave_nothing_for_trees_are_refused_and_the_paper_has_none() -> None:
    with pytest.raises(ParameterError, match="initial_share"):
        regressor(initial_share=1.0).fit(X, Y)
    model = InPrivateRegressor(epsilon=math.inf, bounds=(0, 1), label_bounds=(-10, 10), mode="paper").fit(X, Y)
    assert model.model_.base_scores.tolist() == [0.0]
