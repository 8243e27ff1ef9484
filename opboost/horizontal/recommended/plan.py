"""How the recipe divides its budget among its releases, and how large the trees are.

The budget is one Gaussian release of `mu`, divided by shares of ``mu^2``. The number of trees and their depth follow a
noisy count of the records, which is released before any tree; whatever that count says, all trees together have the
same mu. So given the earlier releases the trees are Gaussian of a fixed mu, and the total is exact.

Constants were chosen on inner folds (of the first training fold) of nine tables at epsilon .1, .5, 1 and 4, by the mean
AUC or R^2. The optimum is flat: twice or half of a constant moves the mean by at most .006.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from opboost.horizontal.noise.query_account import query_account
from opboost.privacy.releases import Release, gaussian

# Shares of mu^2: two rounds of label counts (of numbers), the first scores, the columns' cells, and the first tree of
# each of many columns; the rest is for the other trees.
LABELS_SHARE, SCORE_SHARE, CELLS_SHARE, SCREEN_SHARE = 0.06, 0.05, 0.1, 0.4

# More columns than these are looked at in short before most trees are drawn. With 100 columns of noise, AUC on Adult at
# epsilon .5 and 1 is .890 and .899 so (inner folds; .905 and .910 without them), and .838 and .873 where every column
# has a tree at the full price; epsilon .1: .834 and .804 for .890. Where even fewer records times mu stand behind each
# column, trees of two classes have one column each, which tells more (Spambase at .1: .902 for .871).
_MANY_COLUMNS, _LEAST_TO_SCREEN = 40, {True: 4.0, False: 1.0}

# Levels of the first tree of each of many columns, of numbers and of categories, of which a split parts one. With 100
# columns of noise and a share of .4 or .2, mean R^2 of three tables at epsilon .1, .5, 1 is .443, .583, .621 and .229,
# .559, .598 (with 3 levels: .439, .556, .604); with 2 levels for categories too, Adult falls by .026, .010, .006.
SCREEN_DEPTHS = {False: 2, True: 3}

# Records times mu per column below which trees of two classes have one column each: Spambase (57 columns) at epsilon .1
# and .5 gains .07 and .01 AUC by it, others lose or gain less than .01 at any budget, and .01 at 4.
_LEAST_SIGNAL = 15.0

# Depth 2 to 6: a level for each digit of the records' number times mu, and one more than the digits of 10.
_DEPTHS = 2, 6

# 25 s^0.3 trees, within these limits.
_TREES = 30, 600


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingPlan:
    """The division of a budget.

    Attributes
    ----------
    mu : float
        Of all releases together; infinite for no noise.
    has_numbers : bool
        Whether labels are numbers, whose range is looked for.
    counted : float
        L2 sensitivity of the cells' counts; 0 for columns of categories alone.
    n_screened : int
        Columns that have a short tree each before the others; 0 if there are few.
    """

    mu: float
    has_numbers: bool
    counted: float
    n_screened: int = 0

    @classmethod
    def for_budget(cls, epsilon: float, delta: float, *, has_numbers: bool, counted: float) -> TrainingPlan:
        """Divide (epsilon, delta); an infinite epsilon for no noise."""
        multiplier = query_account(1, epsilon=epsilon, delta=delta).multiplier
        mu = (1 - 1e-9) / multiplier if multiplier else math.inf
        return cls(mu=mu, has_numbers=has_numbers, counted=counted)

    def screening(self, n_columns: int, n_records: float, *, is_of_two: bool) -> TrainingPlan:
        """The plan once the noisy number of records is known: many columns are looked at if that can tell anything."""
        is_worth_it = n_columns > _MANY_COLUMNS and n_records * self.mu >= _LEAST_TO_SCREEN[is_of_two] * n_columns
        return replace(self, n_screened=n_columns if is_worth_it else 0)

    @property
    def labels_std(self) -> float:
        """Of each of two rounds of counts."""
        return self._std(1.0, LABELS_SHARE, 2)

    @property
    def score_std(self) -> float:
        return self._std(1.0, SCORE_SHARE, 1)

    @property
    def cells_std(self) -> float:
        """Of every count of all rounds."""
        return self._std(self.counted, CELLS_SHARE, 1)

    def screen_std(self, sensitivity: float) -> float:
        """Of the sums of gradients of the first tree of each of many columns."""
        return self._std(sensitivity, SCREEN_SHARE, self.n_screened)

    def sums_std(self, sensitivity: float, n_trees: int) -> float:
        """Of the sums of gradients of each of the other trees."""
        spent = SCORE_SHARE + LABELS_SHARE * self.has_numbers + CELLS_SHARE * (self.counted > 0)
        spent += SCREEN_SHARE * (self.n_screened > 0)
        return self._std(sensitivity, 1.0 - spent, n_trees)

    def releases(self, sensitivity: float, n_trees: int) -> tuple[Release, ...]:
        """All that is released; empty without noise."""
        if math.isinf(self.mu):
            return ()
        made = [(1.0, self.score_std, 1)]
        if self.has_numbers:
            made.append((1.0, self.labels_std, 2))
        if self.counted:
            made.append((self.counted, self.cells_std, 1))
        if self.n_screened and n_trees:
            made.append((sensitivity, self.screen_std(sensitivity), self.n_screened))
        if n_trees:
            made.append((sensitivity, self.sums_std(sensitivity, n_trees), n_trees))
        return tuple(gaussian(l2, std, count=count) for l2, std, count in made)

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
    return round(min(max(25 * 10 ** (0.3 * digits), _TREES[0]), _TREES[1])), depth + (n_classes > 1)


def tree_columns(n_records: float, mu: float, n_columns: int, *, is_of_two: bool) -> tuple[int, ...]:
    """Columns of consecutive trees: one each, of two classes, where few records stand out of the noise per column."""
    if not is_of_two:
        return (2, 3, 4)
    return (1,) if n_records * mu < _LEAST_SIGNAL * n_columns else (1, 2, 3)
