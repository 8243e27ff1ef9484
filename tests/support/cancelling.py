"""Wrong shares of two workers whose errors cancel: one set of holders still gives the secret, and others do not."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from protocols.secure_aggregation import sharing


def cancelling(liars: tuple[int, int], holders: Sequence[int]) -> dict[int, np.ndarray]:
    """What the two add to their shares, by worker; it cancels in the secret from the shares of these holders."""
    weights = dict(zip(holders, sharing._lagrange(tuple(holders)), strict=True))
    first, second = (weights[liar][None] for liar in liars)
    inverse = sharing._inverse(int.from_bytes(sharing._bytes(second[0]))).to_bytes(sharing.SECRET_BYTES)
    one = np.array([[0, 1]], np.uint64)
    errors = one, sharing._product(sharing._product(one, first), sharing._elements(inverse))
    return {liar: np.frombuffer(sharing._bytes(each[0]), np.uint8) for liar, each in zip(liars, errors, strict=True)}
