"""Splits that are drawn: against the same rule written with lists, for every node by itself."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from numpy.typing import NDArray

from opboost.trees.kernels.random_cuts import draw_cuts

Range = tuple[int, int]


def drawn_by_hand(
    ranges: list[Range], whole: list[Range], is_alone: list[bool], which: float, where: float
) -> tuple[int, int, list[Range], list[Range]]:
    """Column, cut and the children's ranges of one node."""
    can_cut = [place for place, (low, high) in enumerate(ranges) if low < high]
    if not can_cut:
        ranges, can_cut = whole, list(range(len(whole)))
    place = can_cut[int(which * len(can_cut))]
    low, high = ranges[place]
    left, right = list(ranges), list(ranges)
    if is_alone[place]:
        cut = range(low, high + 1)[int(where * (high - low + 1))]
        left[place] = cut, cut
        others = [category for category in range(low, high + 1) if category != cut]
        right[place] = others[0], others[-1]
    else:
        cut = range(low, high)[int(where * (high - low))]
        left[place], right[place] = (low, cut), (cut + 1, high)
    return place, cut, left, right


def as_limits(nodes: list[list[Range]]) -> NDArray[np.int64]:
    return np.array(nodes, np.int64).transpose(0, 2, 1).copy()


@pytest.mark.parametrize("is_alone", list(product([False, True], repeat=3)))
def test_columns_cuts_and_ranges_are_those_drawn_by_hand(is_alone: tuple[bool, ...]) -> None:
    generator = np.random.default_rng(sum(is_alone))
    whole = [(0, 4), (0, 1), (0, 7)]
    for _ in range(200):
        nodes = [[tuple(sorted(generator.integers(0, high + 1, 2).tolist())) for _, high in whole] for _ in range(4)]
        nodes[0] = [(3, 3), (0, 0), (7, 7)]  # Nothing is left to cut.
        drawn = generator.random((3, 4))
        places, cuts = np.empty(4, np.int64), np.empty(4, np.int32)
        children = draw_cuts(as_limits(nodes), as_limits([whole])[0], np.array(is_alone), drawn, places, cuts)
        expected = [drawn_by_hand(ranges, whole, list(is_alone), *drawn[:2, node]) for node, ranges in enumerate(nodes)]
        assert list(zip(places, cuts, strict=True)) == [each[:2] for each in expected]
        np.testing.assert_array_equal(children, as_limits([child for each in expected for child in each[2:]]))


def test_every_column_and_every_cut_is_as_likely_as_the_others() -> None:
    whole = as_limits([[(0, 1), (2, 2), (0, 3)]])[0]
    shares = (np.arange(60) + 0.5) / 60
    drawn = np.array(list(product(shares, shares))).T.copy()
    n = drawn.shape[1]
    places, cuts = np.empty(n, np.int64), np.empty(n, np.int32)
    draw_cuts(np.tile(whole, (n, 1, 1)), whole, np.zeros(3, np.bool_), drawn, places, cuts)
    pairs, counts = np.unique(np.stack([places, cuts]), axis=1, return_counts=True)
    assert pairs.T.tolist() == [[0, 0], [2, 0], [2, 1], [2, 2]]
    assert counts.tolist() == [n // 2, n // 6, n // 6, n // 6]
