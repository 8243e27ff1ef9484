"""Seeds and bit sources from an estimator's `random_state`."""

from __future__ import annotations

import numpy as np

from opboost import rng
from opboost.errors import ParameterError


def seed_of(random_state: int | np.random.RandomState | None) -> int | None:
    """One number from a `random_state`, or None for bits from the operating system."""
    if random_state is None:
        return None
    if isinstance(random_state, (int, np.integer)) and random_state >= 0:
        return int(random_state)
    if not isinstance(random_state, np.random.RandomState):
        raise ParameterError(
            f"random_state must be None, an integer of at least 0 or a RandomState; got {random_state!r}"
        )
    return int(random_state.randint(np.iinfo(np.int32).max))


def bit_source(seed: int | None) -> rng.BitSource:
    """Secure bits, or with a seed bits that can be drawn again and that no guarantee rests on."""
    return rng.secure() if seed is None else rng.seeded(seed)
