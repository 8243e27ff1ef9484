"""Shares of a secret against pycryptodome's; fewer than the threshold say nothing of it."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
from Crypto.Protocol.SecretSharing import Shamir
from hypothesis import given, settings
from hypothesis import strategies as st

from protocols.secure_aggregation import sharing
from protocols.secure_aggregation.sharing import MAX_SHARES, combine, split

SECRET = bytes(range(16))


@given(st.binary(min_size=16, max_size=16), st.integers(1, 9), st.integers(0, 3), st.randoms(use_true_random=False))
@settings(max_examples=30, deadline=None)
def test_pycryptodome_reads_the_shares_and_deals_ones_that_are_read(secret, threshold, n_more, chance) -> None:  # type: ignore[no-untyped-def]
    n_shares = max(threshold + n_more, 2)
    ours = split(secret, threshold=threshold, n_shares=n_shares)
    theirs = [share for _, share in Shamir.split(threshold, n_shares, secret)]
    holders = chance.sample(range(n_shares), threshold)
    assert Shamir.combine([(place + 1, ours[place]) for place in holders]) == secret
    assert combine({place: theirs[place] for place in holders}) == secret


def test_every_set_of_enough_shares_gives_the_secret_in_any_order_and_no_smaller_or_altered_one() -> None:
    shares = split(SECRET, threshold=3, n_shares=4)
    for holders in permutations(range(4), 3):
        some = {holder: shares[holder] for holder in holders}
        assert combine(some) == SECRET
        assert combine({**some, holders[1]: bytes(16)}) != SECRET
        assert combine({holder: shares[holder] for holder in holders[:2]}) != SECRET


@pytest.mark.parametrize(("threshold", "n_shares"), [(101, 200), (130, MAX_SHARES)])
def test_as_many_workers_as_there_may_be_share_a_secret(threshold: int, n_shares: int) -> None:
    shares = dict(enumerate(split(SECRET, threshold=threshold, n_shares=n_shares)))
    last = dict(list(shares.items())[-threshold:])
    assert combine(last) == SECRET
    assert combine({**last, n_shares - 1: shares[0]}) != SECRET


def _largest_bias(n: int) -> float:
    """How far the mean of a bit of one share is from one half, over so many sharings of one secret."""
    draws = [split(bytes(16), threshold=2, n_shares=3)[0] for _ in range(n)]
    bits = np.unpackbits(np.frombuffer(b"".join(draws), np.uint8).reshape(n, 16), axis=1)
    return float(abs(bits.mean(axis=0) - 0.5).max())


def test_fewer_shares_than_the_threshold_say_nothing_of_a_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    # One share of a threshold of 2 is uniform whatever the secret: of 4000 shares, each bit about half the time. By
    # Hoeffding one of 128 bits is off by 0.045 with probability below 128 * 2 exp(-2 * 4000 * 0.045^2) = 3e-5.
    assert _largest_bias(4000) < 0.045
    monkeypatch.setattr(sharing, "token_bytes", lambda n: bytes([1] * n))
    assert _largest_bias(10) == 0.5
