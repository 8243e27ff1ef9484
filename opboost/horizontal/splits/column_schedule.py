"""Column schedule of the trees: all columns, the next k in turn, or k at random (Maddock et al., section 5.1)."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from opboost.errors import check_choice
from opboost.rng import BitSource, DrawnAhead
from opboost.trees.complete import ColumnTurns, Uniforms, drawn_columns

# Uniform numbers that are drawn at a time.
_AHEAD = 1 << 12

Interaction = Literal["all", "cyclical", "random"]


def column_turns(interaction: Interaction, n_columns: int, k: int, *, uniforms: Uniforms) -> ColumnTurns:
    """Make the schedule that gives each tree's columns.

    Parameters
    ----------
    interaction : {"all", "cyclical", "random"}
        ``cyclical``: consecutive trees use the next k columns, in a circle.
    n_columns : int
    k : int
        Columns per tree, for ``cyclical`` and ``random``.
    uniforms : callable
    """
    everything: NDArray[np.int64] = np.arange(n_columns)
    check_choice("interaction", interaction, "all", "cyclical", "random")
    if interaction == "all" or k >= n_columns:
        return lambda: everything
    if interaction == "random":
        drawn = drawn_columns(n_columns, k, uniforms)
        assert drawn is not None
        return drawn
    begin = -k

    def following() -> NDArray[np.int64]:
        nonlocal begin
        begin = (begin + k) % n_columns
        # A last turn that is too short goes on with the first columns, so that every tree has as many.
        return np.sort((begin + np.arange(k)) % n_columns)

    return following


def uniforms_ahead(rng: BitSource) -> Uniforms:
    """Uniform numbers in [0, 1) from a bit source, drawn ahead."""
    return DrawnAhead(rng.uniforms, rng, n_ahead=_AHEAD).take
