"""Models that a run goes on from: the same release, taken as their own trees took it."""

from __future__ import annotations

import numpy as np
import pytest

from opboost.columns import RankColumn
from opboost.denoise.channel import ColumnRelease
from opboost.errors import ParameterError
from opboost.fitting.noised_table import NoiseChoice
from opboost.trees.losses import Logistic, Softmax
from opboost.trees.tree import Ensemble, Feature
from parties.runs.earlier_model import Earlier
from parties.runs.joint_model import JointModel

RANKS = np.array([0, 1, 2], np.uint32)


def earlier(choice: NoiseChoice | None) -> Earlier:
    return Earlier.of(JointModel(ensemble=Ensemble((), np.zeros(1), Logistic(), ()), choice=choice))


def column(*, shares_codes: bool) -> RankColumn:
    release = ColumnRelease.__new__(ColumnRelease) if shares_codes else None
    return RankColumn("shop", 0, "c0", RANKS, 3, release)


@pytest.mark.parametrize(("correct_noise", "shares_codes"), [(False, True), (True, False)])
def test_released_codes_do_not_follow_trees_that_learned_through_the_noise(
    correct_noise: bool, shares_codes: bool
) -> None:
    received = [column(shares_codes=shares_codes)]
    for choice in NoiseChoice:
        with pytest.raises(ParameterError, match=r"new trees would see other values than its own did\. Nothing was"):
            earlier(choice).check(received, correct_noise=correct_noise)
    earlier(None).check(received, correct_noise=correct_noise)


def test_shared_codes_follow_any_model_and_own_columns_a_model_on_own_ones() -> None:
    for choice in (None, *NoiseChoice):
        earlier(choice).check([column(shares_codes=True)], correct_noise=True)
        earlier(choice).check([], correct_noise=False)


@pytest.mark.parametrize("now", [("n", "m", "o"), ("m", "n", "p"), ()])
def test_scores_of_a_model_that_goes_on_start_at_the_same_margins_in_their_order(now: tuple[str, ...]) -> None:
    loss, features = Softmax(3), tuple(map(Feature, "mno"))
    begun = Earlier.of(JointModel(ensemble=Ensemble((), np.zeros(3), loss, features, (0, 1, 2))))
    begun.check_own(loss, (), margins=("m", "n", "o"))
    with pytest.raises(ParameterError, match=r"with the margins m, n, o; this run has .* Nothing was trained"):
        begun.check_own(loss, (), margins=now)
