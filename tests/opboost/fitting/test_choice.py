"""Which share of the scores trees on draws are given, and how deep those beside them are."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from opboost.fitting import choice
from opboost.fitting.choice import SHARES, _by_depth, _most_likely
from opboost.fitting.noised_table import Blend, NoiseChoice


@pytest.mark.parametrize("best", [0.0, 0.4, 1.3])
def test_many_rows_decide_on_the_share_and_few_do_not(best: float) -> None:
    """Errors of a blend are quadratic in the share; a few rows leave it near what is usual."""
    errors = 1 + (SHARES - best) ** 2
    assert SHARES[_most_likely(SHARES, errors, 10_000)] == pytest.approx(best)
    few = SHARES[_most_likely(SHARES, errors, 1)]
    assert abs(few - best) > 0.05
    assert min(best, 1.0) <= few <= max(best, 1.0)


@pytest.mark.parametrize(("harm", "share"), [(0.0, 1.0), (0.02, 0.0)])
def test_shares_are_small_where_the_whole_does_harm(harm: float, share: float) -> None:
    """Held-out rows prefer .4 by little; many of them decide only if the whole is clearly worse than nothing."""
    errors = 1 + 0.005 * (SHARES - 0.4) ** 2
    errors[SHARES == 0] = errors[SHARES == 1] / (1 + harm)
    assert SHARES[_most_likely(SHARES, errors, 10_000)] == pytest.approx(share, abs=0.11)


@dataclass(frozen=True)
class Tried:
    """A trial whose trees on the own columns have known errors."""

    of_depth: dict[int | None, float]
    own_depth: int | None = None

    def scores(self, choice: NoiseChoice) -> np.ndarray:
        assert choice is NoiseChoice.ALONE
        return np.array([self.of_depth[self.own_depth]])

    def errors(self, scores: np.ndarray) -> np.ndarray:
        return scores


@pytest.mark.parametrize(
    ("errors", "depths"),
    [
        ({4: 1.0, 6: 0.99, 8: 1.2}, [4]),
        ({4: 1.0, 6: 0.95, 8: 0.9}, [4, 8]),
        ({4: 1.0, 6: 0.9, 8: 0.95}, [4, 6]),
        ({None: 1.0}, [None]),
    ],
)
def test_candidates_are_compared_beside_the_usual_depth_and_another_that_wins_enough(
    errors: dict[int | None, float], depths: list[int | None]
) -> None:
    trial: Any = Tried(errors)
    found = _by_depth([trial], () if None in errors else (4, 6, 8))
    assert [(trials[0].own_depth, scores[0].item()) for trials, scores in found] == [(d, errors[d]) for d in depths]


@pytest.mark.parametrize("better", [0, 1])
def test_the_depth_is_taken_with_which_the_whole_is_better(better: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Deeper trees on the own columns may win alone, and lose beside others."""
    blends = [Blend(NoiseChoice.CORRECTED, 1.1, own_depth=depth) for depth in (4, 8)]
    results = iter([(0.5 - 0.1 * (k == better), blend) for k, blend in enumerate(blends)])
    monkeypatch.setattr(choice, "trials_of", lambda *_, **__: ([], 0.5))
    monkeypatch.setattr(choice, "_by_depth", lambda *_: [([], []), ([], [])])
    monkeypatch.setattr(choice, "_best_candidate", lambda *_: next(results))
    nothing: Any = SimpleNamespace(has_own=True, own_depths=(4, 8))
    found = choice.choose(nothing, nothing, None, nothing, rng=np.random.default_rng(0))
    assert found == blends[better]


class Harmed:
    """A trial on whose rows draws do a little harm, trees that go on much, and trees on released codes none.

    A score's parts are how far each of these three has its whole share.
    """

    recipe = SimpleNamespace(constraints=SimpleNamespace(monotone=np.zeros(1)))
    own_depth, base_scores = 4, 0.0
    scored = SimpleNamespace(targets=np.zeros(5000))

    def margins(self) -> None:
        return None

    def scores(self, choice: NoiseChoice, *continues_own: object) -> np.ndarray:
        return np.eye(3)[1 if continues_own else 2 if choice is NoiseChoice.PLAIN else 0]

    def errors(self, scores: np.ndarray) -> np.ndarray:
        return np.array([1 + scores @ [0.0005, 0.02, -0.002]])


def test_a_candidate_that_would_be_left_out_takes_no_place_from_one_with_a_share() -> None:
    """Adult at .02: draws are worth .008 of AUC on exact codes, and held-out rows see .02 percent of harm."""
    trial: Any = Harmed()
    _, blend = choice._best_candidate([trial], [np.zeros(3)], lambda of: [trial.scores(of)], 0.85, (False, True))
    assert blend.choice is NoiseChoice.CORRECTED
    assert not blend.continues_own
    assert blend.share == pytest.approx(1.0, abs=0.11)


class ReleasedGoOn(Harmed):
    """The same, and trees on released codes that go on win a part of the error."""

    def __init__(self, won: float) -> None:
        self.won = won

    def scores(self, choice: NoiseChoice, *continues_own: object) -> np.ndarray:
        return np.eye(3)[2] if choice is NoiseChoice.PLAIN else super().scores(choice, *continues_own)

    def errors(self, scores: np.ndarray) -> np.ndarray:
        return np.array([1 + scores @ [0.0005, 0.02, -self.won]])


@pytest.mark.parametrize(
    ("won", "taken"), [(0.002, NoiseChoice.CORRECTED), (0.02, NoiseChoice.PLAIN), (0.0005, NoiseChoice.CORRECTED)]
)
def test_released_codes_need_a_lead_where_draws_leave_much_open(won: float, taken: NoiseChoice) -> None:
    """Adult at .04: chance put released codes ahead by .1 percent, and draws are worth .016 of AUC more."""
    trial: Any = ReleasedGoOn(won)
    _, blend = choice._best_candidate([trial], [np.zeros(3)], lambda of: [trial.scores(of)], 0.73, (False, True))
    assert blend.choice is taken
