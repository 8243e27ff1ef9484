"""How the recipe divides its budget among its releases, and how large the trees are.

The budget is one Gaussian release of `mu`, divided by shares of ``mu^2``. The number of trees and their depth follow a
noisy count of the records, which is released before any tree; whatever that count says, all trees together have the
same mu. So given the earlier releases the trees are Gaussian of a fixed mu, and the total is exact.

Constants were chosen on inner folds (of the first training fold) of nine tables at epsilon .1, .5, 1 and 4, by the mean
AUC or R^2. The optimum is flat: twice or half of a constant moves the mean by at most .006.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from opboost.horizontal.noise.query_account import query_account
from opboost.privacy.releases import Release, gaussian

# Shares of mu^2: two rounds of label counts (of numbers), the first scores, the columns' cells; the rest is for trees.
LABELS_SHARE, SCORE_SHARE, CELLS_SHARE = 0.06, 0.05, 0.1

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
    """

    mu: float
    has_numbers: bool
    counted: float

    @classmethod
    def for_budget(cls, epsilon: float, delta: float, *, has_numbers: bool, counted: float) -> TrainingPlan:
        """Divide (epsilon, delta); an infinite epsilon for no noise."""
        multiplier = query_account(1, epsilon=epsilon, delta=delta).multiplier
        mu = (1 - 1e-9) / multiplier if multiplier else math.inf
        return cls(mu=mu, has_numbers=has_numbers, counted=counted)

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

    def sums_std(self, sensitivity: float, n_trees: int) -> float:
        """Of the sums of gradients of each tree."""
        spent = SCORE_SHARE + LABELS_SHARE * self.has_numbers + CELLS_SHARE * (self.counted > 0)
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
        if n_trees:
            made.append((sensitivity, self.sums_std(sensitivity, n_trees), n_trees))
        return tuple(gaussian(l2, std, count=count) for l2, std, count in made)

    def _std(self, sensitivity: float, share: float, count: int) -> float:
        return 0.0 if math.isinf(self.mu) else sensitivity * math.sqrt(count / share) / self.mu


def tree_sizes(n_records: float, mu: float, n_classes: int) -> tuple[int, int]:
    """Number and depth of the trees, from a noisy number of records, the budget and the number of outputs.

    Of several classes, each has a part of the records, and a record moves two of the sums.
    """
    signal = min(max(n_records, 1.0) * mu, 1e9)
    if n_classes > 1:
        signal /= n_classes / math.sqrt(2)
    digits = math.log10(max(signal, 1.0))
    depth = min(max(math.floor(digits) + 1, _DEPTHS[0]), _DEPTHS[1])
    return round(min(max(25 * 10 ** (0.3 * digits), _TREES[0]), _TREES[1])), depth
