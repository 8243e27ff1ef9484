"""Numbers, depths and shapes of trees: what follows from public numbers, and what is given."""

from __future__ import annotations

import math

from opboost.horizontal.recommended.tree_sizes import GivenSizes, TreeSizes, counted_depth, tree_shapes, usual_sizes


def test_sizes_that_are_not_given_are_the_usual_ones() -> None:
    usual = TreeSizes(200, 4)
    assert GivenSizes().or_else(usual) == usual
    assert GivenSizes(n_trees=0).or_else(usual) == (0, 4)
    assert GivenSizes(depth=0).or_else(usual) == (200, 0)
    assert GivenSizes(3, 2).or_else(usual) == (3, 2)


def test_counted_trees_are_as_deep_as_records_fill_them() -> None:
    assert [counted_depth(n) for n in (0.0, 500.0, 16_000.0, 1e6, 1e9)] == [3, 3, 8, 10, 10]


def test_sizes_grow_with_what_stands_out_of_the_noise() -> None:
    found = [usual_sizes(n, 0.1, 1) for n in (1, 1e3, 1e4, 1e5, 1e9)]
    assert found == sorted(found)
    assert found[0] == (200, 2)
    assert found[-1] == (1000, 6)
    assert usual_sizes(1e5, 0.1, 26) < usual_sizes(1e5, 0.1, 1)
    assert usual_sizes(5000, math.inf, 1) == (1000, 6)


def test_trees_on_one_column_have_a_level_less_beside_wider_ones() -> None:
    assert tree_shapes(1e4, 0.5, 10, 4, is_of_two=True) == ((1, 3), (2, 4), (3, 4))
    assert tree_shapes(100, 0.1, 50, 3, is_of_two=True) == ((1, 3),)
    assert tree_shapes(1e4, 0.5, 10, 4, is_of_two=False) == ((2, 4), (3, 4), (4, 4))
    # Never fewer than two, unless fewer are given.
    assert [tree_shapes(1e4, 0.5, 10, depth, is_of_two=True)[0] for depth in (0, 1, 2, 3)] == [
        (1, 0),
        (1, 1),
        (1, 2),
        (1, 2),
    ]
