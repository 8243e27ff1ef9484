"""What draws leave open, and trees of the own columns in trials."""

from __future__ import annotations

import numpy as np
import pytest

from opboost.fitting.trials import open_share


def test_the_open_share_is_what_lies_between_draws_of_the_same_row() -> None:
    rng = np.random.default_rng(0)
    known = np.broadcast_to(rng.integers(0, 100, size=500).astype(np.uint8), (10, 1, 500))
    drawn = rng.integers(0, 100, size=(10, 1, 500)).astype(np.uint8)
    assert open_share(known) == 0
    assert open_share(drawn) == pytest.approx(1, abs=0.05)
    assert open_share(np.concatenate([known, drawn], axis=1)) == pytest.approx(0.5, abs=0.03)
