"""Result of a tuning: the own parameters are kept unless the best trial's score better."""

from __future__ import annotations

import pytest

from parties.tuning.result import Tuned


@pytest.mark.parametrize(
    ("is_higher_better", "best", "is_kept"),
    [(True, 0.74, False), (True, 0.7, True), (True, 0.6, True), (False, 0.74, True), (False, 0.6, False)],
)
def test_the_parameters_to_train_with_are_those_that_score_better(
    is_higher_better: bool, best: float, is_kept: bool
) -> None:
    tuned = Tuned(
        metric="any",
        is_higher_better=is_higher_better,
        parameters={"max_depth": 3},
        own_parameters={"max_depth": 6},
        scores=(0.7,),
        own=0.7,
        best=best,
    )
    assert tuned.to_train_with == {"max_depth": 6 if is_kept else 3}
    assert tuned.advice.startswith("keep the run's own" if is_kept else "train with the parameters of the best trial")
