"""A table whose noised columns are filled in: which versions trees see by turns, and in which bins."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from opboost.denoise.channel import ColumnRelease
from opboost.denoise.sources import RankSource
from opboost.fitting.noised_table import (
    Blend,
    FilledTable,
    NoiseChoice,
    NoisedRows,
    bins_of_ranks,
    held_out_table,
    plain_bins,
)
from opboost.privacy.domain import IntegerDomain
from opboost.privacy.order_preserving import GlobalMap
from opboost.trees.alternating import Alternates
from opboost.trees.binning import BinnedColumn, BinnedTable, bin_values
from opboost.trees.tree import LEAF, Tree

TURNS = {
    NoiseChoice.ALONE: (4,),
    NoiseChoice.PLAIN: (3,),
    NoiseChoice.CORRECTED: (0, 1, 2),
    NoiseChoice.CORRECTED_AND_PLAIN: (0, 3, 1, 3, 2, 3),
}


@pytest.mark.parametrize("choice", NoiseChoice)
def test_trees_see_the_versions_of_a_choice_by_turns(choice: NoiseChoice) -> None:
    assert choice.turns(3) == TURNS[choice]
    assert choice.sentence


def test_filling_a_table_leaves_the_unfilled_one_as_it_is() -> None:
    """Its noised columns have one bin: with other bins in them, histograms would be written out of bounds."""
    ranks = np.random.default_rng(0).integers(0, 20, 500).astype(np.uint32)
    release = ColumnRelease(GlobalMap(epsilon=1.0, domain=IntegerDomain(1, 20)), None, np.arange(20))
    own = bin_values(np.arange(500.0), max_bin=8)
    unfilled = BinnedTable.of([own, BinnedColumn(np.zeros(500, np.uint8), np.empty(0))])
    noised = NoisedRows(unfilled, (1,), (RankSource(ranks, 20, release),), np.arange(500.0), np.ones(500))
    filled = noised.filled(plain_bins(noised, 64))
    assert filled.bins[1].tolist() == ranks.tolist()
    assert (filled.axes.sizes[1], unfilled.axes.sizes[1]) == (21, 2)
    np.testing.assert_array_equal(filled.bins[0], unfilled.bins[0])
    assert not unfilled.bins[1].any()
    rows = np.array([3, 400])
    some = noised.of_rows(rows)
    assert some.columns[0].ranks.tolist() == ranks[rows].tolist()
    assert (some.labels.tolist(), some.weights.tolist()) == ([3.0, 400.0], [1.0, 1.0])


def test_held_out_rows_come_once_per_draw() -> None:
    table = BinnedTable.of([bin_values(np.arange(6.0), max_bin=9), bin_values(np.arange(6.0)[::-1], max_bin=9)])
    versions = np.arange(18, dtype=np.uint8).reshape(3, 1, 6) % 6
    filled = FilledTable(Blend(NoiseChoice.CORRECTED), table, Alternates(np.array([1]), versions, (0, 1, 2)))
    rows = np.array([True, False, False, False, True, False])
    found = held_out_table(filled, rows, n_draws=2)
    assert found.bins[0].tolist() == [0, 4, 0, 4]
    assert found.bins[1].tolist() == [versions[0, 0, 0], versions[0, 0, 4], versions[1, 0, 0], versions[1, 0, 4]]
    assert held_out_table(FilledTable(None, table), rows, n_draws=2).bins.tolist() == table.bins[:, rows].tolist()


def test_ranks_lie_between_cuts_and_the_missing_one_behind_all() -> None:
    assert bins_of_ranks(np.arange(6, dtype=np.uint32), 5, np.array([0.5, 2.5])).tolist() == [0, 1, 1, 2, 2, 3]


def test_own_trees_have_the_share_of_the_scores_that_others_leave() -> None:
    def leaf(value: float) -> Tree:
        return replace(LEAF, values=np.array([value]))

    table = BinnedTable.of([bin_values(np.arange(4.0), max_bin=4)])
    filled = FilledTable(Blend(NoiseChoice.CORRECTED, 0.75), table, own_trees=(leaf(8.0),))
    assert [tree.values.tolist() for tree in filled.shared([leaf(4.0)])] == [[3.0], [2.0]]
    (same,) = FilledTable(None, table).shared([leaf(4.0)])
    assert same.values.tolist() == [4.0]
