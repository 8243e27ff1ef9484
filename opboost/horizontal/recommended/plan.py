"""Division of the budget among the releases of the recipe, and sizes of the trees.

The budget is one Gaussian release of `mu`, divided by shares of ``mu^2``. The number of trees and their depth follow a
noisy count of the records, which is released before any tree; whatever that count says, all trees together have the
same mu. So given the earlier releases the trees are Gaussian of a fixed mu, and the total is exact.

Constants were chosen on inner folds (of the first training fold) of nine tables at epsilon .1, .5, 1 and 4, by the mean
AUC or R^2. Twice or half of one constant moved that mean by at most .006.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

from opboost.horizontal.noise.query_account import query_account
from opboost.horizontal.splits.column_screen import TREES_PER_COLUMN
from opboost.privacy.releases import Release, gaussian

# Shares of mu^2: two rounds of label counts (of numbers), the first scores (of several classes, each of which has fewer
# records, and of others), and the columns' cells.
LABELS_SHARE, CELLS_SHARE = 0.06, 0.1
SCORE_SHARES = {True: 0.1, False: 0.05}

# Of several classes, trees with noisy counts come before boosting where fewer records times mu than this stand behind
# each class and column: boosting sees little of each column then. How many trees, and their share of what the first
# releases leave. Inside the first training fold (numbers cut into classes of equal shares), mean accuracy at epsilon
# .1, .5 and 1 with and without them: ten digits .25, .63, .74 and .19, .50, .60; Letter .24, .64, .71 and .27, .61,
# .69; abalone's rings in nine classes .20, .27, .27 and .22, .24, .27; wine's quality in four .42, .49, .50 and .43,
# .49, .50; bike sharing in ten .21, .31, .35 and .23, .31, .35. Counted at every budget, bike sharing has .27, .31 and
# .41 at .5, 1 and 4, where it has .31, .35 and .44. Shares of .35 and .65 and half as many trees move the mean of the
# five by .012 at most, a level more by .003, -.018 and .000.
N_COUNTED_TREES, _COUNTED_SHARE, _LEAST_TO_BOOST = 80, 0.5, 10.0

# Levels of these trees, at least and at most; in between, so many fewer than give each record a leaf of its own.
_COUNTED_DEPTHS, _FEWER_LEVELS = (3, 10), 6

# More columns than these are screened before boosting, where so many records times mu stand behind each at least, of
# two classes and of others. Where even fewer do, trees of two classes have one column each, which tells more (Spambase
# at epsilon .1: .902 for .871).
_MANY_COLUMNS, _LEAST_TO_SCREEN = 40, {True: 4.0, False: 1.0}

# The screen's share of what boosting gets, at most; less where more than so many records times mu stand behind each
# column; of several classes and of others. With 100 columns of noise at epsilon .5, 1 and 4, California housing has R^2
# of .670, .697 and .736 (.662, .682 and .723 at .45 throughout), Magic AUC of .889, .900 and .915 (.889, .901 and
# .912). At .1, .6 in place of .45 wins .004, .016 and .020 AUC (Adult, Magic, the sample) and .011, .095, .144, -.006
# and -.012 of R^2 (California housing, bike sharing, Abalone, Power Plant, Wine); ten digits lose .020 and .011 by it
# at .5 and 1.
_SCREEN_SHARES = {True: (0.45, 12.0), False: (0.6, 9.0)}

# Levels of the screen's trees on a column of numbers and on one of categories, of which a split parts one. Numbers have
# one level less of two classes with fewer records times mu than this behind each column: with 100 columns of noise at
# epsilon .1, Adult has .858 so and .839 with two levels, Magic .816 and .801 (at .5 .900 for .899, and .877 for .890).
SCREEN_DEPTHS, _LEAST_TO_DIVIDE = {False: 2, True: 3}, 7.0

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


# Numbers of columns and of levels of consecutive trees, in turn.
TreeShapes = tuple[tuple[int, int], ...]

StageKind = Literal["counts", "screen", "sums", "bound"]


@dataclass(frozen=True, slots=True)
class Stage:
    """Trees of which sums are released under noise of one deviation.

    Attributes
    ----------
    kind : {"counts", "screen", "sums", "bound"}
        Counts of classes; sums of gradients, of the screen's trees, which are no steps of the model, and of boosting's;
        or nothing but a smaller bound, which a coordinator tells owners by a tree of a single leaf.
    n_trees : int
    sensitivity : float
        L2 norm of what a record adds to the sums of a tree.
    std : float
        Of the noise on each sum; 0 for none.
    """

    kind: StageKind
    n_trees: int
    sensitivity: float
    std: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingPlan:
    """The division of a budget.

    Attributes
    ----------
    mu : float
        Of all releases together; infinite for no noise.
    n_classes : int
        0 for numbers, whose range is looked for.
    cells_l2 : float
        L2 sensitivity of the cells' counts; 0 for columns of categories alone.
    n_counted : int
        Trees with counts of several classes; 0 if boosting does without.
    n_screened : int
        Trees that say which of many columns to boost with; 0 if there are few.
    screen_share : float
        Of what boosting gets, for these trees.
    """

    mu: float
    n_classes: int
    cells_l2: float
    n_counted: int = 0
    n_screened: int = 0
    screen_share: float = 0.0

    @classmethod
    def for_budget(cls, epsilon: float, delta: float, *, n_classes: int, cells_l2: float) -> TrainingPlan:
        """Divide (epsilon, delta); an infinite epsilon for no noise, and no classes for numbers."""
        multiplier = query_account(1, epsilon=epsilon, delta=delta).multiplier
        mu = (1 - 1e-9) / multiplier if multiplier else math.inf
        return cls(mu=mu, n_classes=n_classes, cells_l2=cells_l2)

    def for_records(self, n_records: float, n_columns: int) -> TrainingPlan:
        """The plan once the noisy number of records is known.

        Several classes are counted where boosting would see little of each column, and many columns are looked at if
        that can tell anything.
        """
        signal = n_records * self.mu
        is_counted = self._is_of_several and signal < _LEAST_TO_BOOST * self.n_classes * n_columns
        is_screened = n_columns > _MANY_COLUMNS and signal >= _LEAST_TO_SCREEN[self.n_classes == 2] * n_columns
        plan = replace(self, n_counted=N_COUNTED_TREES if is_counted else 0)
        if not is_screened:
            return plan
        most, enough = _SCREEN_SHARES[self._is_of_several]
        share = most * min(1.0, enough * n_columns / signal)
        return replace(plan, n_screened=math.ceil(TREES_PER_COLUMN * n_columns), screen_share=share)

    @property
    def _is_of_several(self) -> bool:
        return self.n_classes > 2

    @property
    def labels_std(self) -> float:
        """Of each of two rounds of counts."""
        return self._std(1.0, LABELS_SHARE, 2)

    @property
    def score_std(self) -> float:
        return self._std(1.0, SCORE_SHARES[self._is_of_several], 1)

    @property
    def cells_std(self) -> float:
        """Of every count of all rounds."""
        return self._std(self.cells_l2, CELLS_SHARE, 1)

    def stages(self, sensitivity: float, n_trees: int) -> tuple[Stage, ...]:
        """All trees in their order; `n_trees` are grown last, without which there are none.

        Parameters
        ----------
        sensitivity : float
            L2 norm of a record's gradients.
        n_trees : int
        """
        if not n_trees:
            return ()
        rest = 1.0 - SCORE_SHARES[self._is_of_several]
        rest -= LABELS_SHARE * (self.n_classes == 0) + CELLS_SHARE * (self.cells_l2 > 0)
        counts_share = _COUNTED_SHARE * rest if self.n_counted else 0.0
        screen_share = self.screen_share * (rest - counts_share)
        parts: tuple[tuple[StageKind, int, float, float], ...] = (
            ("counts", self.n_counted, 1.0, counts_share),
            ("screen", self.n_screened, sensitivity, screen_share),
            ("sums", n_trees, sensitivity, rest - counts_share - screen_share),
        )
        return tuple(
            Stage(kind, count, moved, self._std(moved, share, count)) for kind, count, moved, share in parts if count
        )

    def releases(self, sensitivity: float, n_trees: int) -> tuple[Release, ...]:
        """All that is released; empty without noise."""
        if math.isinf(self.mu):
            return ()
        releases = [(1.0, self.score_std, 1)]
        if not self.n_classes:
            releases.append((1.0, self.labels_std, 2))
        if self.cells_l2:
            releases.append((self.cells_l2, self.cells_std, 1))
        releases += [(stage.sensitivity, stage.std, stage.n_trees) for stage in self.stages(sensitivity, n_trees)]
        return tuple(gaussian(l2, std, count=count) for l2, std, count in releases)

    def _std(self, sensitivity: float, share: float, count: int) -> float:
        return 0.0 if math.isinf(self.mu) else sensitivity * math.sqrt(count / share) / self.mu


def tree_sizes(n_records: float, mu: float, n_classes: int) -> tuple[int, int]:
    """Number and depth of the trees, from a noisy number of records, the budget and the number of outputs.

    Of several classes, each has a part of the records, and a record moves two of the sums. They need one more level.
    """
    signal = min(max(n_records, 1.0) * mu, 1e9)
    if n_classes > 1:
        signal /= n_classes / math.sqrt(2)
    digits = math.log10(max(signal, 1.0))
    depth = min(max(math.floor(digits) + 1, _DEPTHS[0]), _DEPTHS[1])
    factor, least, most = _TREES[n_classes > 1]
    return round(min(max(factor * 10 ** (0.3 * digits), least), most)), depth + (n_classes > 1)


def sizes_or(sizes: tuple[int | None, int | None], default: tuple[int, int]) -> tuple[int, int]:
    """Number and depth of the trees: those that are given, and the default ones where they are None."""
    (n_trees, depth), (default_trees, default_depth) = sizes, default
    return default_trees if n_trees is None else n_trees, default_depth if depth is None else depth


def screen_depths(n_records: float, mu: float, n_columns: int, *, is_of_two: bool) -> dict[bool, int]:
    """Levels of a screen's tree on a column of numbers (False) and of categories, of which a split parts one."""
    is_short = is_of_two and n_records * mu < _LEAST_TO_DIVIDE * n_columns
    return {False: 1, True: SCREEN_DEPTHS[True]} if is_short else SCREEN_DEPTHS


def counted_depth(n_records: float) -> int:
    """Levels of trees with counts of classes, from about the number of records."""
    levels = round(math.log2(max(n_records, 1.0))) - _FEWER_LEVELS
    return min(max(levels, _COUNTED_DEPTHS[0]), _COUNTED_DEPTHS[1])


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
