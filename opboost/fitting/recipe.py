"""Recipe of the trees on a table with noised columns: parameters that suit noise, and shortened ones for trials."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from opboost.arrays import Values
from opboost.trees.alternating import Alternates, FollowedVersions
from opboost.trees.binning import BinnedTable
from opboost.trees.boosting import BoostingParameters, boost_table
from opboost.trees.constraints import Constraints
from opboost.trees.kernels.threads import threads_for
from opboost.trees.losses import Logistic, Loss, Ordinal, Softmax
from opboost.trees.tree import Tree

# Rows above which time counts: trees on the own columns are fewer and flat, and nothing is drawn anew, which costs a
# row as much as some hundred rounds of training.
MANY_ROWS = 50_000

# Parts of the rows, each of which is scored by trees that were grown on the others; and of many rows.
FOLDS, FEW_FOLDS = 3, 2

# Highest rate of fewer rounds unless a higher one is chosen, and their deepest trees.
_BRIEF_RATE, _BRIEF_DEPTH = 0.15, 4

# Parameters for those that are left open, of trees on the own columns and of any trees on many rows: chosen by
# cross-validation inside the training parts of ten tables, once for all budgets (`docs/architecture/noise-trials.md`).
OWN_DEFAULTS: dict[str, Any] = {"max_depth": 4, "n_estimators": 200, "learning_rate": 0.05, "subsample": 0.5}

# The same for trees on noised columns of fewer rows: these learn in small steps, and from many records or hardly. The
# rounds take as many steps as those of `OWN_DEFAULTS`.
NOISE_DEFAULTS: dict[str, Any] = {"max_depth": 5, "n_estimators": 1000, "learning_rate": 0.01, "subsample": 0.75}

# Records whose curvature regularises every leaf of such trees, and the largest curvature of a record with a class.
_REGULARISING_RECORDS, _CURVATURE_OF_CLASSES = 50.0, 0.25

# Names of the parameters that have such defaults.
LEFT_OPEN = frozenset({*OWN_DEFAULTS, *NOISE_DEFAULTS, "reg_lambda"})

# Depths of trees on the own columns, which carry no noise, where the depth is left open: held-out rows say which.
OWN_DEPTHS = (4, 6, 8)


def with_own_defaults(parameters: BoostingParameters, left_open: Collection[str]) -> BoostingParameters:
    """The parameters, those that are left open set for trees on the own columns, or for many rows."""
    return _set(parameters, left_open, OWN_DEFAULTS)


def with_noise_defaults(
    parameters: BoostingParameters, left_open: Collection[str], loss: Loss, n_rows: int
) -> BoostingParameters:
    """The parameters, those that are left open set for trees on noised columns of `n_rows` rows."""
    if n_rows > MANY_ROWS:
        return with_own_defaults(parameters, left_open)
    curvature = _CURVATURE_OF_CLASSES if isinstance(loss, Logistic | Softmax | Ordinal) else 1.0
    return _set(parameters, left_open, NOISE_DEFAULTS | {"reg_lambda": _REGULARISING_RECORDS * curvature})


def _set(parameters: BoostingParameters, left_open: Collection[str], values: dict[str, Any]) -> BoostingParameters:
    changed = {name: value for name, value in values.items() if name in left_open}
    # Learning rate and rounds go together: where one of them is given, the other one keeps their product.
    steps = values["n_estimators"] * values["learning_rate"]
    match "n_estimators" in changed, "learning_rate" in changed:
        case False, True:
            rate = steps / max(parameters.n_estimators, 1)
            changed["learning_rate"] = min(rate, parameters.learning_rate)
        case True, False:
            n_rounds = math.ceil(steps / parameters.learning_rate)
            changed["n_estimators"] = max(n_rounds, parameters.n_estimators)
    return replace(parameters, **changed)


@dataclass(frozen=True, slots=True, eq=False)
class Recipe:
    """Everything but the rows that growing trees needs.

    Attributes
    ----------
    parameters : BoostingParameters
    loss : Loss
    constraints : Constraints
    seed : int or None
    watch : callable
        Called after every tree that `grow` adds; may end training by raising.
    own : BoostingParameters, optional
        For trees on the own columns alone; None for the same parameters.
    own_depths : tuple of int
        Candidate depths of trees on the own columns; empty to keep that of their parameters.
    """

    parameters: BoostingParameters
    loss: Loss
    constraints: Constraints
    seed: int | None
    watch: Callable[[], None] = lambda: None
    own: BoostingParameters | None = None
    own_depths: tuple[int, ...] = ()

    @property
    def n_classes(self) -> int:
        """Number of classes of the label; 0 for a number."""
        match self.loss:
            case Logistic():
                return 2
            case Softmax(n) | Ordinal(n):
                return n
        return 0

    def targets(self, labels: Values) -> Values:
        """Labels as predictions estimate them, shape ``(n_rows, n_outputs)``; of several classes, indicators."""
        return (labels[:, None] == np.arange(self.n_classes)).astype(float) if self.n_classes > 2 else labels[:, None]

    def brief(self, most_rounds: int) -> Recipe:
        """The same with at most `most_rounds` rounds of shallower trees, at a learning rate as much higher."""
        own = None if self.own is None else _brief(self.own, most_rounds)
        return replace(self, parameters=_brief(self.parameters, most_rounds), own=own)

    def on_own(self, depth: int | None = None) -> Recipe:
        """The recipe of trees on the own columns alone; `depth` None leaves theirs as it is."""
        parameters = self.own or self.parameters
        return replace(self, parameters=parameters if depth is None else replace(parameters, max_depth=depth))

    def base_scores(self, labels: Values, weights: Values) -> Values:
        """Base scores, shape ``(n_outputs,)``."""
        return self.parameters.base_scores(self.loss, labels, weights)

    def grow(
        self,
        table: BinnedTable,
        labels: Values,
        weights: Values,
        alternates: Alternates | None = None,
        *,
        margins: Values | float = 0.0,
    ) -> tuple[list[Tree], Values]:
        """Grow trees on these rows, from base scores plus `margins`, and return both; no row is held out."""
        parameters = replace(self.parameters, early_stopping_rounds=None)
        base_scores = self.base_scores(labels, weights)
        trees, _ = boost_table(
            table,
            labels,
            weights,
            parameters,
            loss=self.loss,
            base_scores=base_scores,
            constraints=self.constraints,
            alternates=alternates,
            margins=margins,
            seed=self.seed,
            on_round=lambda _: self.watch(),
        )
        return trees, base_scores

    def margins(self, table: BinnedTable, labels: Values, weights: Values) -> Values:
        """Out-of-fold scores without base scores: by trees that have not seen a row, shape ``(n_outputs, n_rows)``."""
        n_folds = FOLDS if len(labels) <= MANY_ROWS else FEW_FOLDS
        fold = np.random.default_rng(self.seed).permutation(len(labels)) % n_folds
        margins, zeros = np.empty((self.loss.n_outputs, len(labels))), np.zeros(self.loss.n_outputs)
        for k in range(n_folds):
            others, here = np.flatnonzero(fold != k), np.flatnonzero(fold == k)
            trees, _ = self.grow(table.of_rows(others), labels[others], weights[others])
            margins[:, here] = table_scores(table.of_rows(here), trees, zeros)
        return margins


def _brief(parameters: BoostingParameters, most_rounds: int) -> BoostingParameters:
    n_rounds, rate = parameters.n_estimators, parameters.learning_rate
    n_brief = min(n_rounds, most_rounds)
    rate = max(rate, min(rate * n_rounds / max(n_brief, 1), _BRIEF_RATE))
    depth = min(parameters.max_depth or _BRIEF_DEPTH, _BRIEF_DEPTH)
    return replace(parameters, n_estimators=n_brief, learning_rate=rate, max_depth=depth, max_leaves=0)


def table_scores(table: BinnedTable, trees: Sequence[Tree], base_scores: Values) -> Values:
    """Scores ``(n_outputs, n_rows)`` of trees on a table whose columns have one version each."""
    return raw_scores(table, trees, base_scores, no_versions(table.n_rows))[0]


def raw_scores(table: BinnedTable, trees: Sequence[Tree], base_scores: Values, alternates: Alternates) -> list[Values]:
    """Scores ``(n_outputs, n_rows)`` of trees in the bins of a table, for each version of its rows."""
    followed = FollowedVersions(table, alternates, np.repeat(base_scores[:, None], table.n_rows, axis=1))
    for t, tree in enumerate(trees):
        followed.add(tree, t % len(base_scores))
    with threads_for(table.bins.size):
        return [followed.up_to_date(version).astype(np.float64) for version in range(len(alternates))]


def no_versions(n_rows: int) -> Alternates:
    """Alternates of a table none of whose columns has several versions."""
    return Alternates(np.empty(0, np.int64), np.empty((1, 0, n_rows), np.uint8), (0,))
