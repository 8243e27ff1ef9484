"""Records dealt by coins: at most one part each, whatever the others do, with the probabilities stated."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy.stats import chisquare

from opboost.errors import AccountError, ParameterError
from opboost.privacy.coins import RecordCoins
from opboost.rng import BitSource, seeded

FALSE_ALARM = 1e-6
SHARES = RecordCoins((0.4, 0.3, 0.2))


def parts_of(coins: RecordCoins, n_records: int, seed: int, eligible=None) -> np.ndarray:
    """The part of every record; `n_parts` for those that were left."""
    deal, out = coins.deal(n_records, rng=seeded(seed)), np.full(n_records, coins.n_parts)
    for part in range(coins.n_parts):
        rows = deal.next_part(None if eligible is None else eligible[part])
        assert (out[rows] == coins.n_parts).all(), "a record was dealt twice"
        out[rows] = part
    return out


def test_parts_have_the_probabilities_stated():
    """Chi-square of 100,000 records; see `FALSE_ALARM`."""
    counts = np.bincount(parts_of(SHARES, 100_000, 1), minlength=4)
    assert chisquare(counts, [40_000, 30_000, 20_000, 10_000]).pvalue > FALSE_ALARM
    assert chisquare(counts, [40_000, 29_000, 21_000, 10_000]).pvalue < FALSE_ALARM


def test_a_record_is_dealt_at_most_once_and_with_shares_of_one_exactly_once():
    for n_parts in (1, 2, 7, 50):
        parts = parts_of(RecordCoins.geometric(n_parts, ratio=0.9), 2000, n_parts)
        assert parts.max() < n_parts


def test_records_that_are_not_eligible_wait_for_a_later_part():
    eligible = [np.arange(1000) % 2 == 0, np.ones(1000, bool), np.ones(1000, bool)]
    parts = parts_of(RecordCoins((0.5, 0.25, 0.25)), 1000, 3, eligible)
    assert (parts[1::2] > 0).all()
    assert (parts < 3).all()


def influence(deal_parts) -> int:
    """By how many parts of other records one more record, last in the table, changes what is dealt, over many seeds."""
    return max(
        sum(int(a != b) for a, b in itertools.zip_longest(deal_parts(20, seed), deal_parts(21, seed)[:20]))
        for seed in range(50)
    )


def by_coins_read_in_advance(n_records: int, seed: int) -> np.ndarray:
    """The deal with every record's words fixed, as the proof has it."""
    words = seeded(seed).words(3 * 40).reshape(3, 40)

    class Fixed:
        is_secure = False

        def __init__(self) -> None:
            self.part = -1

        def words(self, count: int) -> np.ndarray:
            self.part += 1
            return words[self.part, :count].copy()

        uniforms = BitSource.uniforms

    deal, out = SHARES.deal(n_records, rng=Fixed()), np.full(n_records, 3)
    for part in range(3):
        out[deal.next_part()] = part
    return out


def by_fixed_sizes(n_records: int, seed: int) -> np.ndarray:
    """A fixed fraction of the records per part, as publications have it."""
    order = np.argsort(seeded(seed).words(40)[:n_records])
    return np.searchsorted([round(n_records * share) for share in (0.4, 0.7, 0.9)], np.argsort(order), side="right")


def test_one_record_more_moves_no_other_record_given_the_coins():
    assert influence(by_coins_read_in_advance) == 0


def test_shares_of_a_fixed_size_are_caught_by_the_same_comparison():
    assert influence(by_fixed_sizes) > 0


def test_hazards_multiply_to_the_probabilities():
    left = 1.0
    for part, probability in enumerate(SHARES.probabilities):
        assert left * SHARES.hazard(part) == pytest.approx(probability)
        left *= 1 - SHARES.hazard(part)
    assert RecordCoins.geometric(30, ratio=0.9).hazard(29) == 1.0


def test_geometric_shares_are_in_proportion_and_even_with_a_ratio_of_one():
    assert RecordCoins.geometric(3, ratio=0.5).probabilities == pytest.approx((4 / 7, 2 / 7, 1 / 7))
    assert RecordCoins.geometric(4, ratio=1.0).probabilities == (0.25,) * 4


def test_no_part_is_dealt_beyond_the_last_and_none_twice():
    deal = SHARES.deal(10, rng=seeded(1))
    for _ in range(3):
        deal.next_part()
    with pytest.raises(AccountError, match="must not be used twice"):
        deal.next_part()


@pytest.mark.parametrize("probabilities", [(), (0.5, 0.6), (-0.1, 0.5), (math.nan,), (math.inf,)])
def test_probabilities_that_are_none_are_refused(probabilities):
    with pytest.raises(ParameterError, match="coins need probabilities"):
        RecordCoins(probabilities)


@pytest.mark.parametrize("eligible", [np.ones(9, bool), np.ones(10), np.ones((10, 1), bool)])
def test_eligibility_that_is_not_one_truth_value_per_record_is_refused(eligible):
    with pytest.raises(ParameterError, match="one truth value per record"):
        SHARES.deal(10, rng=seeded(1)).next_part(eligible)
