"""Division of the budget among the releases of the recipe.

The budget is one Gaussian release of `mu`, divided by shares of ``mu^2``. The number of trees and their depth follow a
noisy count of the records, which is released before any tree; whatever that count says, all trees together have the
same mu. So given the earlier releases the trees are Gaussian of a fixed mu, and the total is exact.

Constants were chosen on inner folds (of the first training fold) of nine tables at epsilon .1, .5, 1 and 4, by the mean
AUC or R^2. Twice or half of one constant moved that mean by at most .006.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from opboost.horizontal.noise.query_account import query_account
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

# More columns than these are screened before boosting, where so many records times mu stand behind each at least, of
# two classes and of others. Where even fewer do, trees of two classes have one column each, which tells more (Spambase
# at epsilon .1: .902 for .871).
_MANY_COLUMNS, _LEAST_TO_SCREEN = 40, {True: 4.0, False: 1.0}

# The screen's share of what boosting gets, at most; less where more than so many records times mu stand behind each
# column. With 100 columns of noise at epsilon .1 (ten fits of inner folds), a share of .45 in place of .3 loses .005 of
# R^2 and AUC on average; at .5, .2 in place of .1 loses .004.
_SCREEN_SHARE, _ENOUGH_TO_SCREEN = 0.3, 6.0

# Fixed-point bits of a gradient in the screen's numbers, at most. With so few the sums of 2**36 records are exact in
# floating point, and norms of 2**34 records are off by less than a step.
_SCREEN_BITS = 16

# Fixed-point bits of the deviation of noise, at most.
_NOISE_BITS = 28

StageKind = Literal["counts", "sums", "bound"]


class ScreenRelease(NamedTuple):
    """One number per column, of all gradients at the first scores (`opboost.horizontal.splits.column_screen`).

    Attributes
    ----------
    steps : float
        Of a gradient of 1.
    bound : float
        By how much a record moves each number, rounding included.
    l2 : float
        The same, of all numbers together.
    std : float
        Of the noise on each.
    """

    steps: float
    bound: float
    l2: float
    std: float


@dataclass(frozen=True, slots=True)
class Stage:
    """Trees of which sums are released under noise of one deviation.

    Attributes
    ----------
    kind : {"counts", "sums", "bound"}
        Counts of classes; sums of gradients; or nothing but a smaller bound, which a coordinator tells owners by a tree
        of a single leaf.
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
        Columns, if they are so many that a release says which of them to boost with; otherwise 0.
    screen_share : float
        Of what boosting gets, for that release.
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
        can_tell = _LEAST_TO_SCREEN[self.n_classes == 2] * n_columns <= signal < math.inf
        plan = replace(self, n_counted=N_COUNTED_TREES if is_counted else 0)
        if not (n_columns > _MANY_COLUMNS and can_tell):
            return plan
        share = _SCREEN_SHARE * min(1.0, _ENOUGH_TO_SCREEN * n_columns / signal)
        return replace(plan, n_screened=n_columns, screen_share=share)

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
        parts: tuple[tuple[StageKind, int, float, float], ...] = (
            ("counts", self.n_counted, 1.0, self._counts_share),
            ("sums", n_trees, sensitivity, (1 - self.screen_share) * self._sums_share),
        )
        return tuple(
            Stage(kind, count, moved, self._std(moved, share, count)) for kind, count, moved, share in parts if count
        )

    def screen(self, sensitivity: float) -> ScreenRelease:
        """The screen of columns, for gradients of this norm; only of a plan that has one."""
        share, l2 = self.screen_share * self._sums_share, sensitivity * math.sqrt(self.n_screened)
        steps = fixed_point_steps(self._std(l2, share, 1), _SCREEN_BITS)
        # Norms over several outputs are rounded.
        bound = sensitivity + 2 / steps
        l2 = bound * math.sqrt(self.n_screened)
        return ScreenRelease(steps, bound, l2, self._std(l2, share, 1))

    @property
    def _counts_share(self) -> float:
        return _COUNTED_SHARE * self._rest if self.n_counted else 0.0

    @property
    def _sums_share(self) -> float:
        """Of the screen and of boosting."""
        return self._rest - self._counts_share

    @property
    def _rest(self) -> float:
        """What the first rounds leave."""
        rest = 1.0 - SCORE_SHARES[self._is_of_several]
        return rest - LABELS_SHARE * (self.n_classes == 0) - CELLS_SHARE * (self.cells_l2 > 0)

    def releases(self, sensitivity: float, n_trees: int) -> tuple[Release, ...]:
        """All that is released; empty without noise."""
        if math.isinf(self.mu):
            return ()
        releases = [(1.0, self.score_std, 1)]
        if not self.n_classes:
            releases.append((1.0, self.labels_std, 2))
        if self.cells_l2:
            releases.append((self.cells_l2, self.cells_std, 1))
        if self.n_screened:
            screen = self.screen(sensitivity)
            releases.append((screen.l2, screen.std, 1))
        releases += [(stage.sensitivity, stage.std, stage.n_trees) for stage in self.stages(sensitivity, n_trees)]
        return tuple(gaussian(l2, std, count=count) for l2, std, count in releases)

    def _std(self, sensitivity: float, share: float, count: int) -> float:
        return 0.0 if math.isinf(self.mu) else sensitivity * math.sqrt(count / share) / self.mu


def fixed_point_steps(std: float, most_bits: int) -> float:
    """Steps of 1 under noise of a deviation, a power of 2: of so many bits at most, fewer where noise is large."""
    return 2.0 ** min(most_bits, math.floor(_NOISE_BITS - math.log2(std)))
