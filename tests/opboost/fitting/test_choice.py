"""Which share of the scores trees on draws are given."""

from __future__ import annotations

import pytest

from opboost.fitting.choice import SHARES, _most_likely


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
