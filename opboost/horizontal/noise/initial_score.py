"""Initial score from two noisy half-sums, which need no count of the records.

A record with share a in [0, 1] adds ``a`` to one sum and ``1 - a`` to the other. That is at most 1 in both together, in
L1 as in L2, and noise of that size keeps the mean accurate; dividing a noisy sum by the exact number of records would
not even be private, since the number is a function of the data.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from scipy.special import logit

from opboost.arrays import Values
from opboost.privacy.additive import Noise
from opboost.rng import BitSource

# Noise for integers of ``1 / scale`` each; None for none.
NoiseOnGrid = Callable[[float], Noise | None]

# From labels to the first score of all records.
InitialScore = Callable[[Values, BitSource], float]

# Fixed-point bits of the shares.
_BITS = 20

# Probabilities that a score may stand for.
_LEAST_SHARE = 0.01


def score_of_numbers(labels: Values, rng: BitSource, *, noise: NoiseOnGrid) -> float:
    """The mean of labels in [-1, 1].

    Notes
    -----
    Privacy: one release of L1 and L2 sensitivity 1 under `noise`.
    """
    return score_of_owners([labels], [rng], noise=noise, is_classification=False)


def score_of_classes(labels: Values, rng: BitSource, *, noise: NoiseOnGrid) -> float:
    """The log odds of label 1 among labels 0 and 1.

    Notes
    -----
    Privacy: one release of L1 and L2 sensitivity 1 under `noise`.
    """
    return score_of_owners([labels], [rng], noise=noise, is_classification=True)


def score_of_owners(
    labels: Sequence[Values], rngs: Sequence[BitSource], *, noise: NoiseOnGrid, is_classification: bool
) -> float:
    """The score of all owners' labels, each of whom draws noise of its own.

    Notes
    -----
    Privacy: one release of L1 and L2 sensitivity 1 under `noise` for every owner's records.
    """
    shares = labels if is_classification else [(1 + np.clip(own, -1, 1)) / 2 for own in labels]
    sums = [half_sums(own, noise=noise, rng=rng) for own, rng in zip(shares, rngs, strict=True)]
    high, low = np.sum(sums, axis=0).tolist()
    if not is_classification:
        return min(max((high - low) / max(1.0, high + low), -1.0), 1.0)
    ones, zeros = max(high, 0.0), max(low, 0.0)
    share = ones / (ones + zeros) if ones + zeros else 0.5
    return float(logit(min(max(share, _LEAST_SHARE), 1 - _LEAST_SHARE)))


def score_of_nothing(labels: Values, rng: BitSource) -> float:
    """Begin at 0, and release nothing."""
    return 0.0


def half_sums(shares: Values, *, noise: NoiseOnGrid, rng: BitSource) -> tuple[float, float]:
    """Sums of ``a`` and of ``1 - a`` over the records, with noise.

    Notes
    -----
    Privacy: one release of L1 and L2 sensitivity 1 under `noise`; a record's two codes sum to 1 exactly.
    """
    unit = 2**_BITS
    codes = np.trunc(np.clip(np.nan_to_num(shares), 0, 1) * unit).astype(np.int64)
    sums = np.array([codes.sum(), (unit - codes).sum()])
    law = noise(float(unit))
    if law is not None:
        sums += law.draw(2, rng=rng)
    return float(sums[0] / unit), float(sums[1] / unit)
