"""Shares of a secret: fewer than the threshold say nothing of it."""

from __future__ import annotations

import numpy as np

from protocols.secure_aggregation.masking import combine, split


def test_fewer_shares_than_the_threshold_say_nothing_of_a_secret() -> None:
    secret = bytes(range(16))
    shares = split(secret, threshold=3, n_shares=4)
    assert combine(dict(enumerate(shares[:3]))) == secret
    assert combine({1: shares[1], 3: shares[3], 2: shares[2]}) == secret
    assert combine(dict(enumerate(shares[:2]))) != secret
    # One share of a threshold of 2 is uniform whatever the secret: 4000 shares, each bit about half the time. By
    # Hoeffding one of 128 bits is off by 0.045 with probability below 128 * 2 exp(-2 * 4000 * 0.045^2) = 3e-5.
    draws = [split(bytes(16), threshold=2, n_shares=3)[0] for _ in range(4000)]
    bits = np.unpackbits(np.frombuffer(b"".join(draws), np.uint8).reshape(4000, 16), axis=1)
    assert abs(bits.mean(axis=0) - 0.5).max() < 0.045
