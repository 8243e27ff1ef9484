"""scikit-learn estimators of the federated DP-GBDT framework."""

from __future__ import annotations

from sklearn.base import ClassifierMixin, RegressorMixin

from opboost.sklearn.class_labels import CLASSES, ClassLabels
from opboost.sklearn.federated_fitting import FederatedFitting
from opboost.sklearn.simulated_rows import BoundedNumbers
from opboost.sklearn.whole_fits import with_parameters

_PARAMETERS = """
    Parameters
    ----------
    epsilon : float, optional
        Budget per record; ``inf`` for no noise. By default 1 if there are bounds; without them nothing is protected.
    delta : float
        To be said for a private fit. In the mode ``paper`` it is one over the number of records by default, and
        `guarantee_` says so: it is then for a record that is replaced in data of a public size.
    bounds : mapping of column to (lower, upper), pair of numbers or arrays, or "from_data"
        Public bounds of the columns. ``"from_data"`` reveals the extremes of the data and is not certified.
    mode : {"default", "paper"}
        ``paper`` has the publication's account, sensitivities, regulariser and Iterative Hessian rule; `guarantee_`
        then states the epsilon that its noise is really worth. ``default`` has exact composition, true sensitivities,
        class counts for averaging, a regulariser of five deviations of the noise (twenty for
        numbers), candidates of equal mass.
    split_method : {"hist", "pr", "tr"}
        By noisy histograms; among one random cut per column (partially random); totally random.
    weight_update : {"averaging", "gradient", "newton"}
    split_candidates : {"uniform", "log", "quantile", "ih", "ih_equal_mass", "ih_printed"}
        ``ih``: Iterative Hessian, as the mode has it. ``quantile`` is not private and for comparison only.
    interaction : {"all", "cyclical", "random"}
        Whether a tree uses all columns, the next `columns_per_tree` ones in turn, or as many that are drawn.
    columns_per_tree : int
    batch_size : int or float
        Trees on the same gradients; a float is a share of all trees.
    n_estimators : int
    trees_per_column : bool
        Whether `n_estimators` counts the trees of each column.
    max_depth : int
    learning_rate : float
    reg_lambda : float, optional
        By default as the mode has it.
    max_leaf : float
        Bound of a leaf's value before the learning rate.
    n_candidates : int
        Split candidates per column.
    hessian_rounds : int
        Rounds of Iterative Hessian, for ``pr`` and ``tr``; ``hist`` has the histograms anyway.
    mirrored : sequence of int or str
        Columns whose values crowd near the upper bound, for ``log``. Public knowledge.
    local_noise : bool
        Whether every record puts noise on its own contribution, features being in the clear: label-LDP only.
    n_clients : int
        Simulated clients that the rows are divided among. The model is the same to the last bit.
    random_state : int, RandomState or None
        None draws secure bits. A seed makes the noise repeatable, and `guarantee_` then says "not for release".

    Attributes
    ----------
    guarantee_ : RecordGuarantee
    models_ : tuple of Ensemble
        One, or for more than two classes one per class. No counts, no covers, nothing per record.
    model_ : Ensemble
        The first of them.
    n_queries_ : int
        Questions that were answered under noise; for `local_noise`, releases of every record.
    communication_ : Communication
        Rounds, and bytes that one client sent.
    n_features_in_ : int
    feature_names_in_ : ndarray of str
        If the training table had column names.

    Notes
    -----
    Privacy: (epsilon, delta)-DP between data sets that differ by one record, added or removed, for everybody who sees
    the model. All questions are Gaussian queries of one multiplier; several classes share the budget, each being a
    model of its own against the rest. Which classes there are is public.
"""


@with_parameters
class FederatedGBDTClassifier(ClassLabels, ClassifierMixin, FederatedFitting):  # type: ignore[misc]
    __doc__ = f"""Private boosting by sums over clients' rows, for two or more classes (Maddock et al., CCS 2022).
{CLASSES}{_PARAMETERS}
    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from opboost import FederatedGBDTClassifier
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> model = FederatedGBDTClassifier.dp_tr_newton(epsilon=1.0, delta=1e-5, bounds=(0, 5000)).fit(X, y)
    >>> model.guarantee_.certified
    True
    """


@with_parameters
class FederatedGBDTRegressor(BoundedNumbers, RegressorMixin, FederatedFitting):  # type: ignore[misc]
    __doc__ = f"""Private boosting by sums over clients' rows, for numbers (Maddock et al., CCS 2022).

    `label_bounds` are public bounds of the label, which they scale to [-1, 1]; `max_grad` bounds the gradients of
    scaled labels.
{_PARAMETERS}
    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from opboost import FederatedGBDTRegressor
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = FederatedGBDTRegressor(epsilon=1.0, delta=1e-5, bounds=(-0.2, 0.2), label_bounds=(0, 400)).fit(X, y)
    >>> model.guarantee_.certified
    True
    """

    max_grad: float = 1.0
