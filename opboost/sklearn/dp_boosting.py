"""The recommended private boosting behind scikit-learn's interface: budget and bounds in, a certified model out."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import field, replace
from functools import partial
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import ClassifierMixin, RegressorMixin

from opboost.arrays import Values
from opboost.column_positions import ColumnKey
from opboost.errors import ParameterError, check_integer
from opboost.horizontal.public_task import PublicTask
from opboost.horizontal.recommended.counted_forest import train_forest
from opboost.horizontal.recommended.later_records import margins_of, with_later_records
from opboost.horizontal.recommended.training import TrainedBatches, train_classes, train_numbers
from opboost.horizontal.recommended.tree_sizes import GivenSizes
from opboost.privacy.accounting import by_gaussian, by_pure
from opboost.sklearn.class_labels import CLASSES, ClassLabels
from opboost.sklearn.simulated_rows import BoundedNumbers, DividedRows
from opboost.sklearn.whole_fits import whole, with_parameters
from opboost.trees.complete import check_depth
from opboost.trees.losses import Logistic, Loss, Softmax, SquaredError
from opboost.trees.tree import Ensemble, Feature

# Records times mu, per output, below which AUC is about .6 and R^2 below .1 on inner folds.
_LEAST_SIGNAL = 30.0

_PARAMETERS = """
    Parameters
    ----------
    epsilon : float, optional
        Budget per record; ``inf`` for no noise. By default 1 if there are bounds; without them nothing is protected.
    delta : float
        Of classes, 0 for pure differential privacy: random trees with noisy counts of the classes take the place of
        boosting (`opboost.horizontal.recommended.counted_forest`).
    bounds : mapping of column to (lower, upper), pair of numbers or arrays, or "from_data"
        Public bounds of the columns; values beyond them count as the bounds, and bounds that are a thousand times too
        wide cost little. ``"from_data"`` reveals the extremes of the data and is not certified.
    categorical_features : sequence of int or str, optional
        Columns that hold categories, numbered 0, 1, 2, ...; their public bounds (0, K - 1) say how many there are. A
        split parts one category from all others.
    n_estimators, max_depth : int, optional
        Trees, and their levels of splits, without those that look at many columns or count several classes first. By
        default set from the budget and a noisy count of the records.
    mode : {"certified"}
    max_cells : int
        Cells per column, which follow noisy counts of the records.
    random_state : int, RandomState or None
        None draws secure bits. A seed makes the noise repeatable, and `guarantee_` then says "not for release".

    Attributes
    ----------
    guarantee_ : RecordGuarantee
    remarks_ : tuple of str
        What released counts tell of the bounds and the budget: columns or labels between bounds that are far too wide,
        or a budget that shrinks predictions to nearly a constant.
    model_ : Ensemble
        Holds no counts, no covers and nothing per record.
    models_ : tuple of Ensemble
        The same.
    n_features_in_ : int
    feature_names_in_ : ndarray of str
        If the training table had column names.

    Notes
    -----
    Privacy: (epsilon, delta)-DP between data sets that differ by one record, added or removed, for everybody who sees
    the model. First scores and a count of the records, cells, a number for each of more than 40 columns, and the
    leaves' sums of every tree (for numbers, the range of the labels too) are Gaussian releases whose squared mu add up
    to the budget's (`opboost.horizontal.recommended`); with a delta of 0, they are Laplace releases whose epsilons add
    up. Several classes share the trees, and a record's gradients of all of them are one vector; where records are few
    for so many classes and columns, trees with noisy counts of the classes come first. Which classes there are is
    public.

    With `partial_fit` every record is in one training, so that the guarantee is for all of them together. The steps of
    few new records count less (`opboost.horizontal.recommended.later_records`).
"""


@with_parameters
class _DPBoosting(DividedRows):
    """Base of the recommended estimators."""

    _modes: ClassVar[tuple[str, ...]] = ("certified",)

    delta: float = 1e-6
    categorical_features: Sequence[ColumnKey] | None = None
    n_estimators: int | None = None
    max_depth: int | None = None
    max_cells: int = 64
    remarks_: tuple[str, ...] = field(init=False)
    _n_records: float = field(init=False)

    def _go_on(self, rows: Values, targets: Sequence[Values]) -> None:
        """Go on from the fitted model, on newly arrived records alone."""
        earlier, promise = self.model_, self.guarantee_
        self._train(rows, targets, earlier)
        self.guarantee_ = self.guarantee_.beside(promise)

    @abstractmethod
    def _train(self, X: Values, targets: Sequence[Values], earlier: Ensemble | None = None) -> None:
        """Train, or go on from an earlier model."""

    def _keep_trained(
        self,
        task: PublicTask,
        train: Callable[..., TrainedBatches],
        *labels: Any,
        loss: Loss,
        earlier: Ensemble | None = None,
        are_steps: bool = True,
    ) -> None:
        """Train on the columns of a task; set the model, its guarantee and the remarks."""
        if self.n_estimators is not None:
            check_integer("n_estimators", self.n_estimators, least=0)
        if self.max_depth is not None:
            check_depth(self.max_depth)
        bits = self._bits() if earlier is None else self._bits().fork(f"after {len(earlier.trees)} trees")
        sizes = GivenSizes(self.n_estimators, self.max_depth)
        trained = train(task.grid, *labels, epsilon=task.epsilon, sizes=sizes, rng=bits)
        model = Ensemble(trained.trees, trained.base_scores, loss, tuple(Feature(name) for name in task.names))
        if earlier is None:
            self._keep(replace(task, centre=trained.centre, spread=trained.spread), [model])
            self._n_records = trained.n_records
        else:
            joint = with_later_records(earlier, model, self._n_records, trained.n_records, are_steps=are_steps)
            self._keep(task, [joint])
            self._n_records += trained.n_records
        self.remarks_ = tuple(_remarks(task, trained, is_first=earlier is None))
        compose, account = (by_gaussian, "exact Gaussian composition") if self.delta else (by_pure, "pure composition")
        self.guarantee_ = self._guarantee(
            task,
            epsilon=compose(trained.releases, self.delta) if trained.releases else math.inf,
            delta=self.delta,
            account=account if trained.releases else "no noise",
            is_secure=bits.is_secure,
        )


def _spanning(task: PublicTask, earlier: PublicTask) -> PublicTask:
    """The task with label bounds widened to include those of an earlier training."""
    lower = min(task.centre - task.spread, earlier.centre - earlier.spread)
    upper = max(task.centre + task.spread, earlier.centre + earlier.spread)
    return replace(task, centre=(lower + upper) / 2, spread=(upper - lower) / 2)


def _remarks(task: PublicTask, trained: TrainedBatches, *, is_first: bool) -> Iterator[str]:
    """Sentences about bounds and budget, from what was released."""
    for column in trained.crowded:
        yield (
            f"column {task.names[column]!r}: half of its cells lie in less than a hundredth of its bounds; narrower "
            "public bounds leave more of the budget to the trees"
        )
    if is_first and trained.spread <= task.spread / 4:
        yield f"most labels lie in {trained.spread / task.spread:.0%} of label_bounds; narrower public bounds cost less"
    if trained.signal < _LEAST_SIGNAL:
        yield "the budget is small for so few records: noise shrinks predictions to nearly a constant"


@with_parameters
class DPBoostingClassifier(ClassLabels, ClassifierMixin, _DPBoosting):  # type: ignore[misc]
    __doc__ = f"""The recommended private boosting for two or more classes: one recipe whose sizes follow the budget.
{CLASSES}{_PARAMETERS}
    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from opboost import DPBoostingClassifier
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> model = DPBoostingClassifier(epsilon=1.0, delta=1e-5, bounds=(0, 5000)).fit(X, y)
    >>> model.guarantee_.certified
    True
    """

    @whole
    def partial_fit(self, X: ArrayLike, y: ArrayLike, classes: ArrayLike | None = None) -> Self:
        """Train on; X and y are records that arrived since and are no copies of earlier ones. They train alone."""
        return self._fit_further(X, y, classes)

    def _train(self, X: Values, targets: Sequence[Values], earlier: Ensemble | None = None) -> None:
        labels = np.stack([1 - targets[0], targets[0]] if len(targets) == 1 else targets)
        loss: Loss = Logistic() if len(targets) == 1 else Softmax(len(targets))
        margins = None if earlier is None or self.delta == 0 else margins_of(earlier, X)
        train = train_forest if self.delta == 0 else partial(train_classes, delta=self.delta, margins=margins)
        task, are_steps = self._public(X, targets[0]), margins is not None
        self._keep_trained(task, train, X, labels, loss=loss, earlier=earlier, are_steps=are_steps)


@with_parameters
class DPBoostingRegressor(BoundedNumbers, RegressorMixin, _DPBoosting):  # type: ignore[misc]
    __doc__ = f"""The recommended private boosting for numbers: one recipe whose sizes follow the budget.

    `label_bounds` are public bounds of the label. Where most labels are in between is found out for a little of the
    budget, so that round numbers do; predictions lie in that range.
{_PARAMETERS}
    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from opboost import DPBoostingRegressor
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = DPBoostingRegressor(epsilon=1.0, delta=1e-5, bounds=(-0.2, 0.2), label_bounds=(0, 400)).fit(X, y)
    >>> model.guarantee_.certified
    True
    """

    @whole
    def partial_fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Train on; X and y are records that arrived since and are no copies of earlier ones. They train alone."""
        return self._fit_further(X, y)

    def _train(self, X: Values, targets: Sequence[Values], earlier: Ensemble | None = None) -> None:
        task = self._public(X, targets[0])
        labels, bounds = targets[0], (task.centre - task.spread, task.centre + task.spread)
        if earlier is not None:
            task = _spanning(task, self._task)
            # Residuals of the earlier model have bounds twice as wide.
            labels, bounds = labels - earlier.scores(X)[:, 0], (-2 * task.spread, 2 * task.spread)
        if self.delta == 0:
            raise ParameterError(
                "a delta of 0 is for classes; for numbers, DPBoostRegressor is purely private. Nothing was released"
            )
        train = partial(train_numbers, delta=self.delta)
        self._keep_trained(task, train, X, labels, bounds, loss=SquaredError(), earlier=earlier)
