"""scikit-learn estimators of S-GBDT."""

from __future__ import annotations

from typing import Self

from numpy.typing import ArrayLike
from sklearn.base import ClassifierMixin, RegressorMixin

from opboost.horizontal.sgbdt.defaults import FOR_NUMBERS
from opboost.sklearn.class_labels import CLASSES, ClassLabels
from opboost.sklearn.sgbdt_fitting import SGBDTFitting
from opboost.sklearn.simulated_rows import BoundedNumbers
from opboost.sklearn.whole_fits import with_parameters

_PARAMETERS = """
    Parameters
    ----------
    epsilon : float, optional
        Budget per record; ``inf`` for no noise. By default 1 if there are bounds; without them nothing is protected.
    delta : float
    bounds : mapping of column to (lower, upper), pair of numbers or arrays, or "from_data"
        Public bounds of the columns; values beyond them count as the bounds. ``"from_data"`` reveals the extremes of
        the data and is not certified.
    categorical_features : sequence of int or str, optional
        Columns that hold categories, numbered 0, 1, 2, ...; their public bounds (0, K - 1) say how many there are. A
        split parts one category from all others.
    mode : {"certified", "paper"}
        ``paper`` follows the publication's account, noise and initial score to the letter; `guarantee_` then states the
        epsilon that the noise is really worth. The noise of a first score of numbers depends on how many records there
        are, so that with one it is for a record that is replaced in data of a public size.
    n_estimators : int
        Trees, for which every record is sure to be able to pay.
    n_extra_estimators : int
        Further trees, on records whose account has something left: their own contributions were smaller than the bound.
        Any number above 0, or a later `partial_fit`, needs the individual filter.
    use_filter : bool, optional
        Whether records have accounts of their own; by default if there are extra trees.
    max_depth : int
    learning_rate : float
    later_rate : float
        Without the filter, `partial_fit` trains on the new records alone, with this share of the learning rate: their
        trees see nothing of the records before. The mode ``paper`` has 1.
    max_grad : float
        Bound of a gradient; for numbers, the label's bounds are scaled to [-1, 1].
    denominator_noise : float
        Deviation of the noise on a leaf's count or Hessians over that of the gradients, in units of their bounds'
        ratio: how little of the budget the denominators get.
    initial_share : float
        Share of the budget (of the squared mu) for the first score; 0 to begin at 0.
    cells_share : float
        Share of the budget for noisy counts of the records in the cells of every column, by which cuts are then
        placed where records are; 0 for even cells. The mode ``paper`` has even cells.
    reg_lambda : float
        Least regulariser of a leaf.
    noise_lambda : float
        The regulariser is at least this many times the largest Hessian times the noise multiplier.
    max_leaf : float
        Bound of a leaf's value before the learning rate.
    leaf_noise : {"dynamic", "static"}
        Noise on a leaf's sums, or for comparison on its value, for the worst case.
    columns_per_tree : int
        0 for all.
    learn_columns : bool
        Draw the columns of a tree by how far the released sums of earlier trees of theirs stood out of the noise,
        rather than evenly. Costs nothing, and does nothing where a tree takes all columns. The mode ``paper`` draws
        evenly.
    subsample : float
        Probability that a record is in a round (Poisson sampling).
    max_cells : int
        Cells of the public grid per column.
    random_state : int, RandomState or None
        None draws secure bits. A seed makes the noise repeatable, and `guarantee_` then says "not for release".

    Attributes
    ----------
    guarantee_ : RecordGuarantee
    models_ : tuple of Ensemble
        One, or for more than two classes one per class. They hold no counts, no covers and nothing per record.
    model_ : Ensemble
        The first of them.
    n_features_in_ : int
    feature_names_in_ : ndarray of str
        If the training table had column names.

    Notes
    -----
    Privacy: (epsilon, delta)-DP between data sets that differ by one record, added or removed, for everybody who sees
    the model (`opboost.horizontal.noise.leaf_noise` has the proof). Number and depth of the trees do not depend on
    the data, and their columns and cuts only on what was released, and paid for, before. Several classes share the
    budget, each being a model of its own against the rest; which classes there are is public.

    `opboost.horizontal.sgbdt.defaults` says how the defaults were chosen.
"""


@with_parameters
class SGBDTClassifier(ClassLabels, ClassifierMixin, SGBDTFitting):  # type: ignore[misc]
    __doc__ = f"""Private boosting of random trees for two or more classes (S-GBDT).
{CLASSES}{_PARAMETERS}
    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from opboost import SGBDTClassifier
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> model = SGBDTClassifier(epsilon=1.0, delta=1e-5, bounds=(0, 5000)).fit(X, y)
    >>> model.guarantee_.notion
    '(epsilon, delta)-DP'
    """

    def partial_fit(self, X: ArrayLike, y: ArrayLike, classes: ArrayLike | None = None) -> Self:
        """Train on; X and y are records that arrived since and are no copies of earlier ones.

        With the filter, earlier records go on as long as they can pay; without it, the new ones train alone.
        """
        return self._fit_further(X, y, classes)


@with_parameters
class SGBDTRegressor(BoundedNumbers, RegressorMixin, SGBDTFitting):  # type: ignore[misc]
    __doc__ = f"""Private boosting of random trees for numbers (S-GBDT).
{_PARAMETERS}
    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from opboost import SGBDTRegressor
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = SGBDTRegressor(epsilon=1.0, delta=1e-5, bounds=(-0.2, 0.2), label_bounds=(0, 400)).fit(X, y)
    >>> model.guarantee_.certified
    True
    """

    n_estimators: int = FOR_NUMBERS.n_estimators
    learning_rate: float = FOR_NUMBERS.learning_rate
    max_grad: float = FOR_NUMBERS.max_grad
    denominator_noise: float = FOR_NUMBERS.denominator_noise
    noise_lambda: float = FOR_NUMBERS.noise_lambda
    columns_per_tree: int = FOR_NUMBERS.columns_per_tree
    max_depth: int = FOR_NUMBERS.max_depth
    max_cells: int = FOR_NUMBERS.max_cells

    def partial_fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Train on; X and y are records that arrived since and are no copies of earlier ones.

        With the filter, earlier records go on as long as they can pay; without it, the new ones train alone.
        """
        return self._fit_further(X, y)
