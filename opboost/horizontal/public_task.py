"""Public description of a training on horizontally partitioned rows, and the model made of its trees."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from opboost.arrays import Values
from opboost.errors import ParameterError
from opboost.horizontal.rows.public_grid import PublicGrid
from opboost.horizontal.splits.gridless import GridlessColumns
from opboost.trees.losses import Logistic, SquaredError
from opboost.trees.tree import Ensemble, Feature, Tree


@dataclass(frozen=True, slots=True)
class PublicTask:
    """Public description of a training: columns, scale of the labels, budget.

    Attributes
    ----------
    names : tuple of str
    grid : PublicGrid
    centre, spread : float
        Labels are ``centre + spread * t`` for t in [-1, 1]; 0 and 1 for classes.
    epsilon : float
    bounds_are_public : bool
    is_classification : bool

    Raises
    ------
    ParameterError
        If labels cannot be scaled: their middle is infinite, or half of the way between their bounds is 0.
    """

    names: tuple[str, ...]
    grid: PublicGrid
    centre: float
    spread: float
    epsilon: float
    bounds_are_public: bool
    is_classification: bool

    def __post_init__(self) -> None:
        if not (math.isfinite(self.centre) and self.spread > 0):
            raise ParameterError(
                f"bounds of labels need a finite middle and a distance to it above 0; got {self.centre} and "
                f"{self.spread}. Nothing was released"
            )

    def scaled(self, labels: Values) -> Values:
        """Labels in [-1, 1]; classes stay 0 and 1."""
        return labels if self.is_classification else scaled_between(labels, self.centre, self.spread)

    def check_scores(self, n_trees: int, max_value: float) -> None:
        """Refuse trees whose scores, on the scale of training or of labels, could be infinite.

        Otherwise gradients could be refused because of them: that would tell whether some record is in a chosen set of
        leaves.

        Parameters
        ----------
        n_trees : int
        max_value : float
            Largest absolute value of a leaf.

        Raises
        ------
        ParameterError
        """
        if not math.isfinite(abs(self.centre) + max(self.spread, 1.0) * n_trees * max_value):
            raise ParameterError(
                f"{n_trees} trees with leaves of up to {max_value:.3g} on labels within {self.spread:.3g} have no "
                "finite scores. Nothing was released"
            )

    def model(self, trees: Sequence[Tree], *, has_scores: bool = True) -> Ensemble:
        """Make a model of trees on values, whose leaves are on the scale of training; the initial score is 0.

        Without scores the sum of the leaves is the probability itself.
        """
        return Ensemble(
            tuple(tree.scaled(self.spread) for tree in trees),
            np.array([self.centre]),
            Logistic() if self.is_classification and has_scores else SquaredError(),
            tuple(Feature(name) for name in self.names),
        )

    def ensemble(
        self,
        trees: Sequence[Tree],
        initial_score: float,
        *,
        score_scale: float = 1.0,
        columns: GridlessColumns | None = None,
    ) -> Ensemble:
        """Make a model on values of trees in bins (or points of `columns`) on the scale of training.

        Leaves and base are multiplied by `score_scale`.
        """
        scale = self.spread * score_scale
        columns_of_trees = columns or self.grid
        return Ensemble(
            tuple(columns_of_trees.in_values(tree, scale=scale) for tree in trees),
            np.array([self.centre + scale * initial_score]),
            Logistic() if self.is_classification else SquaredError(),
            tuple(Feature(name) for name in self.names),
        )


def scaled_between(numbers: Values, centre: float, spread: float) -> Values:
    """Numbers in [-1, 1] for those at most `spread` from the centre; others count as the ends, with no word of it."""
    with np.errstate(over="ignore"):
        return np.clip((numbers - centre) / spread, -1.0, 1.0)
