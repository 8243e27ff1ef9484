"""Columns side by side at the active party: its own values, and ranks that passive parties released."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from opboost.arrays import RankRows, Values
from opboost.denoise.channel import ColumnRelease
from opboost.denoise.sources import RankSource


@dataclass(frozen=True, slots=True)
class OwnColumn:
    """A column that the active party holds.

    Attributes
    ----------
    name : str
    values : ndarray of float64, shape (n_rows,)
        NaN for missing. Categories are numbered 0, 1, 2, ...
    is_categorical : bool
        Whether splits divide a set of categories rather than an ordered range.
    categories : tuple of str
        What the values are numbers of, where they are.
    unit_s : int, optional
        Of times, which are units of so many seconds since 1970.
    """

    name: str
    values: Values
    is_categorical: bool = False
    categories: tuple[str, ...] = ()
    unit_s: int | None = None


@dataclass(frozen=True, slots=True)
class RankColumn:
    """A column of ranks that a passive party released.

    Attributes
    ----------
    owner : str
        The passive party.
    index : int
        Its number among the owner's columns.
    name : str
    ranks : RankRows
        Unsigned integers ``0 .. n_ranks - 1``; missing rows hold ``n_ranks``. An array, or what maps a file.
    n_ranks : int
    release : ColumnRelease, optional
        What the owner tells of the release: with it, training learns through the noise.
    cuts : ndarray of int64, optional
        The agreed grid: ranks behind which alone trees may cut. The owner answers with the number of a cell.
    """

    owner: str
    index: int
    name: str
    ranks: RankRows
    n_ranks: int
    release: ColumnRelease | None = None
    cuts: NDArray[np.int64] | None = None


Column = OwnColumn | RankColumn


def noised_sources(columns: Sequence[Column]) -> dict[int, RankSource]:
    """The noised columns whose release is known, by number."""
    return {
        c: source
        for c, column in enumerate(columns)
        if isinstance(column, RankColumn) and column.release is not None
        if not (source := RankSource(column.ranks, column.n_ranks, column.release, column.cuts)).is_exact
    }
