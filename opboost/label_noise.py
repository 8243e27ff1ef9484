"""What a passive party can learn of labels from the split tests that it resolves."""

from __future__ import annotations

import math


def bits_of_tests(n_possible: int, n_asked: int) -> float:
    """Bits that a choice of so many tests among the possible ones, and their number, can tell at most."""
    left = max(0, n_possible - n_asked)
    choices = math.lgamma(n_asked + left + 1) - math.lgamma(n_asked + 1) - math.lgamma(left + 1)
    return (choices + math.log(n_possible + 1)) / math.log(2)


def most_guessed(bits: float, n_rows: int) -> float:
    """Largest mean share of labels that so many bits let anybody guess, of labels that are 0 or 1 with equal chance.

    Fano's inequality, record by record: what is told of `n_rows` labels in all leaves an entropy of
    ``1 - bits / n_rows`` each on average, and the binary entropy is concave.
    """
    entropy = max(0.0, 1.0 - bits / n_rows)
    low, high = 0.0, 0.5
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if _binary_entropy(middle) < entropy else (low, middle)
    return 1.0 - high


def _binary_entropy(share: float) -> float:
    if share in (0.0, 1.0):
        return 0.0
    return -share * math.log2(share) - (1 - share) * math.log2(1 - share)
