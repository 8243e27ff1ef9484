"""Numbers, depths and shapes of the recipe's trees, from a noisy number of records and public numbers.

Constants were chosen as those of the budget's division (`opboost.horizontal.recommended.plan`).
"""

from __future__ import annotations

import math
from typing import NamedTuple

# Records times mu per column below which trees of two classes have one column each: Spambase (57 columns) at epsilon .1
# and .5 gains .07 and .01 AUC by it, others lose or gain less than .01 at any budget, and .01 at 4.
_LEAST_SIGNAL = 15.0

# Depth 2 to 6: a level for each digit of the records' number times mu, and one more than the digits of 10.
_DEPTHS = 2, 6

# Trees over s^0.3, and their least and largest number, of several classes and of others. Of two classes and of numbers,
# 100 s^0.3 trees with about twice the regulariser (`tree_training`) are a finer mean over random cuts than 25 s^0.3:
# mean AUC of five tables on inner folds .862, .890, .897 and .906 to .867, .893, .899 and .908 at epsilon .1, .5, 1
# and 4, mean R^2 of five tables .509, .573, .601 and .648 to .517, .581, .610 and .656. 200 s^0.3 win .001 more. Of
# several classes they win nothing (Letter .294, .643, .724 and .795 to .283, .636, .711 and .812).
_TREES = {True: (25, 30, 600), False: (100, 200, 1000)}

# Levels of trees with counts, at least and at most; in between, so many fewer than give each record a leaf of its own.
_COUNTED_DEPTHS, _FEWER_LEVELS = (3, 10), 6

# Numbers of columns and of levels of consecutive trees, in turn.
TreeShapes = tuple[tuple[int, int], ...]


class TreeSizes(NamedTuple):
    """Number and depth of trees."""

    n_trees: int
    depth: int


class GivenSizes(NamedTuple):
    """Number and depth of trees where they are given; None where they follow from the budget."""

    n_trees: int | None = None
    depth: int | None = None

    def or_else(self, default: TreeSizes) -> TreeSizes:
        n_trees = default.n_trees if self.n_trees is None else self.n_trees
        return TreeSizes(n_trees, default.depth if self.depth is None else self.depth)


NOT_GIVEN = GivenSizes()


def usual_sizes(n_records: float, mu: float, n_classes: int) -> TreeSizes:
    """Number and depth of the trees, from a noisy number of records, the budget and the number of outputs.

    Of several classes, each has a part of the records, and a record moves two of the sums. They need one more level.
    """
    signal = min(max(n_records, 1.0) * mu, 1e9)
    if n_classes > 1:
        signal /= n_classes / math.sqrt(2)
    digits = math.log10(max(signal, 1.0))
    depth = min(max(math.floor(digits) + 1, _DEPTHS[0]), _DEPTHS[1])
    factor, least, most = _TREES[n_classes > 1]
    n_trees = round(min(max(factor * 10 ** (0.3 * digits), least), most))
    return TreeSizes(n_trees, depth + (n_classes > 1))


def counted_depth(n_records: float) -> int:
    """Levels of trees with counts of classes, from about the number of records."""
    return levels_of(n_records, n_fewer=_FEWER_LEVELS, limits=_COUNTED_DEPTHS)


def levels_of(n_records: float, *, n_fewer: int, limits: tuple[int, int]) -> int:
    """So many levels fewer than give each record a leaf of its own, within limits."""
    levels = round(math.log2(max(n_records, 1.0))) - n_fewer
    return min(max(levels, limits[0]), limits[1])


def tree_shapes(n_records: float, mu: float, n_columns: int, depth: int, *, is_of_two: bool) -> TreeShapes:
    """Numbers of columns and of levels of consecutive trees.

    Of two classes, trees have one column each where few records stand out of the noise per column. Beside wider ones,
    those on one column have a level less (inner folds of the sample and of magic gain .004 and .000 AUC at epsilon .5,
    the mean of five tables .001 or less).
    """
    if not is_of_two:
        return tuple((width, depth) for width in (2, 3, 4))
    if n_records * mu < _LEAST_SIGNAL * n_columns:
        return ((1, depth),)
    return (1, max(depth - 1, min(depth, _DEPTHS[0]))), (2, depth), (3, depth)
