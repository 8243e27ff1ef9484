"""DPBoost as its publication has it: sensitivities of the gain, draws of fixed sizes, and what that is worth."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from opboost.arrays import Mask
from opboost.errors import ParameterError
from opboost.horizontal.dpboost.training import Deals, DPBoostSettings
from opboost.privacy.published import dpboost_gain_sensitivity
from opboost.rng import BitSource


def printed_sensitivity(which: Literal["3", "slides"], *, reg_lambda: float, max_grad: float) -> float:
    """Of the gain: the authors' later constant, or the one of their slides, which is too small."""
    if which not in ("3", "slides"):
        raise ParameterError(f"gain_sensitivity must be '3' or 'slides'; got {which!r}")
    return 3 * max_grad**2 if which == "3" else dpboost_gain_sensitivity(reg_lambda, max_grad)


def replacement_epsilon(claimed: float, sensitivity: float, *, max_grad: float) -> float:
    """What a claimed epsilon is worth when a record is replaced in data of a public size.

    Replacing a record is removing one and adding one, and may touch two nodes of a level; half of the budget is for
    splits, whose gain has a range of ``4 max_grad^2`` where the publication takes ``2 sensitivity``.
    """
    worth = 4 * max_grad**2 / (2 * sensitivity)
    return 2 * claimed * (worth * 0.5 + 0.5)


def by_fixed_sizes(settings: DPBoostSettings) -> Deals:
    """Algorithm 2's draws, of sizes that follow from the number of records: no parallel composition holds for them.

    With one record more, sizes change and other records move between trees.
    """

    def begin(n_records: int, rng: BitSource) -> Callable[[Mask], NDArray[np.int64]]:
        order = np.argsort(rng.words(n_records))
        ends = np.floor(np.cumsum(settings.coins.probabilities) * n_records + 1e-9).astype(np.int64)
        parts = iter(np.split(order, ends[:-1]))

        def next_part(is_eligible: Mask) -> NDArray[np.int64]:
            part = next(parts)
            return np.sort(part[is_eligible[part]])

        return next_part

    return begin
