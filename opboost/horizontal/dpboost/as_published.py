"""DPBoost as published: sensitivities of the gain, draws of fixed sizes, and the epsilon that these really cost."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from opboost.arrays import Mask
from opboost.errors import check_choice
from opboost.horizontal.dpboost.training import Deals, DPBoostSettings
from opboost.privacy.published import dpboost_gain_sensitivity
from opboost.rng import BitSource


def printed_sensitivity(which: Literal["3", "slides"], *, reg_lambda: float, max_grad: float) -> float:
    """Published sensitivity of the gain: the authors' later constant, or that of their slides, which is too small."""
    check_choice("gain_sensitivity", which, "3", "slides")
    return 3 * max_grad**2 if which == "3" else dpboost_gain_sensitivity(reg_lambda, max_grad)


def replacement_epsilon(claimed: float, sensitivity: float, settings: DPBoostSettings) -> float:
    """Epsilon of the published noise between data sets of a public size that differ in one record's values.

    Replacing a record is removing one and adding one, and may touch two nodes of a level. What is not for leaves is for
    splits, whose gain has a range of ``4 max_grad^2`` where the publication takes ``2 sensitivity``.
    """
    worth, of_leaves = 4 * settings.max_grad**2 / (2 * sensitivity), settings.leaf_epsilon(1.0)
    return 2 * claimed * (worth * (1 - of_leaves) + of_leaves)


def by_fixed_sizes(settings: DPBoostSettings) -> Deals:
    """Draws of algorithm 2, of sizes fixed by the number of records; parallel composition does not hold for them.

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
