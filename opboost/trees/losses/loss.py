"""Base class of objectives: what the tree core needs to know of one.

SciPy is imported by the functions that call it: a passive party reads the same run file without labels, and starts a
sixth of a second faster without SciPy.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from opboost.arrays import Scores, Values
from opboost.errors import DataError
from opboost.trees.losses.grid import GradientGrid

# Squares of gradients must not overflow.
MAX_LABEL = 1e100


WriteGradients = Callable[[Scores, NDArray[np.int64]], None]
"""Takes scores, and where to write packed gradients and Hessians; both have shape ``(n_outputs, n_rows)``."""


class Loss:
    """Objective. Defaults are those of one raw score per row, which is the prediction."""

    __slots__ = ()

    name: ClassVar[str]
    score_type: ClassVar[type[np.floating]] = np.float32
    """Type of raw scores while trees grow."""
    most_margin: ClassVar[float] = 1e18
    """Largest magnitude of a raw score that a row may start at: squares fit into single precision."""
    max_delta_step: ClassVar[float] = 0.0
    """Bound of the leaves' magnitude that suits the loss; 0 for none."""
    longest_step: ClassVar[float] = 0.0
    """Bound of the leaves' magnitude behind which XGBoost's single precision overflows; 0 for none."""
    predicts_labels: ClassVar[bool] = True
    """True if predictions estimate labels or their probabilities, so that squared errors compare models."""

    takes_pairs: ClassVar[bool] = False
    """True if a label may be two numbers, shape ``(n_rows, 2)``: bounds, or a label and its group."""

    @property
    def n_outputs(self) -> int:
        """Trees per round."""
        return 1

    @property
    def singles(self) -> tuple[Loss, ...]:
        """The losses that trees are grown for one after the other: of several labels, one each."""
        return (self,)

    @property
    def settings(self) -> dict[str, Any]:
        """Parameters of the loss under XGBoost's names, as `loss_by_name` takes them."""
        return {}

    @property
    def leaf_quantiles(self) -> tuple[float, ...]:
        """Per output, the quantile of the rows' residuals that a leaf's value becomes; empty for Newton steps."""
        return ()

    def check_labels(self, labels: Values) -> None:
        """Refuse labels that the objective is not defined for."""
        if not (np.abs(labels) <= MAX_LABEL).all():
            raise DataError(f"{self.name} needs labels of magnitude {MAX_LABEL:g} at most; found others")

    def check_margins(self, margins: Sequence[Values]) -> None:
        """Refuse raw scores to start at, one array per output, of which gradients would overflow."""
        if len(margins) not in (0, self.n_outputs):
            raise DataError(
                f"{self.name} needs base margins in one column for each of its {self.n_outputs} outputs; found "
                f"{len(margins)} columns"
            )
        most = self.singles[0].most_margin
        if not all((np.abs(one) <= most).all() for one in margins):
            raise DataError(f"{self.name} needs base margins of magnitude {most:g} at most; found others")

    def labels_of_xgboost(self, labels: Values) -> Mapping[str, NDArray[Any]]:
        """Labels as XGBoost's matrices take them, by argument."""
        return {"label": labels}

    def weights_of_xgboost(self, labels: Values, weights: Values) -> Values:
        """Weights as XGBoost's matrices take them."""
        return weights

    def initial_scores(self, labels: Values, weights: Values) -> Values:
        """Best constant raw score per output, shape ``(n_outputs,)``."""
        return np.array([np.average(labels, weights=weights)])

    def score_of(self, base_score: float) -> float:
        """Raw score of a prediction that the user gives as a start."""
        return float(base_score)

    def grid(self, labels: Values, weights: Values, initial_scores: Values) -> GradientGrid:
        """A grid that holds the gradients of these rows."""
        raise NotImplementedError

    def gradients(
        self, scores: Scores, labels: Values, weights: Values, grid: GradientGrid, *, out: NDArray[np.int64]
    ) -> None:
        """Write packed gradients and Hessians to `out`; it and `scores` have shape ``(n_outputs, n_rows)``."""
        self.gradients_of(labels, weights, grid)(scores, out)

    def gradients_of(self, labels: Values, weights: Values, grid: GradientGrid) -> WriteGradients:
        """The same as a function of the scores; what depends on the rows alone is computed once.

        A loss defines this or `gradients`.
        """
        return lambda scores, out: self.gradients(scores, labels, weights, grid, out=out)

    def predictions(self, scores: Scores) -> Values:
        """Raw scores of shape ``(n_rows, n_outputs)`` to what users expect: probabilities or values."""
        return np.array(scores[:, 0], dtype=np.float64)
