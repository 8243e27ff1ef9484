"""scikit-learn estimators of OpBoost: boosting on own columns and on desensitized ranks of a passive party."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from opboost.arrays import Values
from opboost.errors import DataError, ParameterError, shown
from opboost.mechanism_settings import MechanismSettings
from opboost.sklearn.class_labels import check_class_labels
from opboost.sklearn.simulated_parties import SimulatedParties
from opboost.trees.losses import Logistic, Loss, Ordinal, Softmax, SquaredError, loss_by_name
from opboost.trees.losses.several import of_labels
from opboost.trees.parameters import BoostingParameters
from opboost.trees.tree import Ensemble

_PARAMETERS = """
    Parameters
    ----------
    epsilon : float, optional
        Budget per point of the mapped domain; ``inf`` for no noise. By default none: `whole_range` counts.
    mechanism : {"global", "local", "adj"}
        Order-preserving map.
    law : {"clamped", "exponential", "calibrated", "bounded_laplace"}
        Law of the noise.
    theta : int, optional
        Width of the cells of ``local`` and ``adj``; by default a tenth of the domain.
    alpha : float
        Share of the budget between cells, for ``adj``.
    domain_size : int, optional
        Passive columns are mapped to ``1 .. domain_size``, by default 100 points, or 1,000 with `epsilon`; ordered
        categories to one point each, but with `epsilon`.
    category_epsilon : float, optional
        Budget of randomised response on categories and on missingness; by default 2.3 (odds of 10 to 1), or with
        `epsilon` the larger of 3 and `epsilon`.
    whole_range : float, optional
        Budget of a whole column, in place of `epsilon`: no two values lose more. By default 8, of ordered categories
        2.3 per step if that is less.
    budgets : mapping of column to mapping, optional
        Budgets of single passive columns in the words of a run file: ``{"epsilon": 0.1}``,
        ``{"whole_range": 8}``, ``{"cost": 0.5, "per": 1000}`` or ``{"odds": {"within": 100, "at_most": 2}}``.
    passive_columns : sequence of int or str, optional
        Columns that the passive party holds. By default those that `bounds` names; without bounds, none, and the
        model is plain boosting on one party's columns.
    bounds : mapping of column to (lower, upper), or pair of numbers or arrays
        Public bounds of the passive columns. There is no default: bounds taken from data reveal its extremes. Dates are
        bounded by dates. Texts have a public list of their categories, or pandas' ``CategoricalDtype``, ordered or not.
    missing : {"refuse", "category"}
        What an empty cell of a passive column means.
    prediction : {"routed", "desensitized", "local"}
        How new records are scored: by exact routing bits of the passive party, by its desensitized values, or by
        the active party alone with shared thresholds.
    answers : {"tests", "cells"}
        What the passive party says of new records: the answer to each split test of the trees, which it is told; or in
        which cell of every column they lie, of a grid that is made before training and depends on no label.
    cells : int
        Cells of a column, at most, with ``answers="cells"``.
    correct_noise : bool
        Whether to learn through the noise: trees grow on draws of the exact codes, where that is likely to help. It
        costs no privacy. False takes the released codes for exact ones, as objectives of quantiles, of survival times
        and your own do.
    objective : str or Loss, optional
        For the regressor one of XGBoost's for numbers, quantiles, survival times or rankings, by default
        ``reg:squarederror``, or a loss with settings of `opboost.trees.losses`: ``Quantiles((0.1, 0.9))``,
        ``Tweedie(1.3)``, ``Custom(slopes)``. The classifier's follows from the labels; classes in order may have
        ``ordinal:logistic``.
    engine : {"native", "xgboost"}
        What grows the trees.
    n_estimators, max_depth, max_leaves, learning_rate, reg_lambda, reg_alpha, gamma, min_child_weight, \
max_delta_step, subsample, colsample_bytree, colsample_bylevel, colsample_bynode, max_bin, max_cat_to_onehot, \
scale_pos_weight, base_score, early_stopping_rounds, eval_metric, booster, rate_drop, skip_drop, one_drop, \
sample_type, normalize_type, device, n_jobs
        As in XGBoost, with DART as ``booster="dart"``; `max_leaves` grows the leaf with the largest gain first. A
        metric may be an `opboost.trees.validation.Metric` of your own. Rounds, depth, rate, `subsample` and
        `reg_lambda` of None are XGBoost's defaults (100, 6, 0.3, 1, 1); where trees learn through noise, 500, 5, 0.02,
        0.75 and 50 (12.5 of classes) up to 50,000 rows, and 200, 4, 0.05, 0.5 and 1 above and on the own columns.
    callbacks : sequence of callable, optional
        Each takes an `opboost.trees.boosting.RoundReport` after every round, with the scores of the validation rows;
        training ends if one returns True.
    class_weight : mapping of class to float, or "balanced", optional
        Weights of classes, beside those of rows; those not named have 1.
    monotone_constraints : mapping of column to -1, 0 or 1, or one number for each column, optional
    interaction_constraints : sequence of sequences of columns, optional
        Groups of columns that may meet on one way through a tree.
    categorical_features : sequence of int or str, optional
        Columns of the active party that hold categories, numbered 0, 1, 2, ... Columns of categories and of texts in a
        data frame (pandas, polars, Arrow) are such without being named.
    continue_from : estimator, optional
        A fitted estimator of the same objective, whose trees the new ones follow; `n_estimators` more rounds are grown.
        Classes are those of that estimator: some may not occur any more, and others are refused.
        Where it has passive columns, their release must be the very same: the same rows and the same seed.
    random_state : int, RandomState or None
        None draws secure bits. A seed makes the noise repeatable, and `guarantee_` then says "not for release".

    Attributes
    ----------
    guarantee_ : Guarantee
        What the fit promises about the passive columns.
    model_ : JointModel
        The active party's share of the model.
    noise_choice_ : str or None
        What of the passive columns the trees were grown on: ``corrected``, ``corrected and plain``, ``plain``, or
        ``alone`` where the passive columns add nothing at this budget; None where none are noised.
    feature_importances_ : ndarray of float64, shape (n_features,)
        Shares in the gain of all splits.
    evals_result_ : dict of str to list of float
        Scores of the validation rows by metric, round by round.
    best_iteration_ : int
    n_features_in_ : int
    feature_names_in_ : ndarray of str
        If the training table had column names.

    Notes
    -----
    Privacy: the passive columns are released once per fit, under `guarantee_`. Labels and the model itself are not
    protected.
"""


class _Explained(SimulatedParties):
    @property
    def feature_importances_(self) -> Values:
        """Share of each column in the gain of all splits, shape ``(n_features_in_,)``."""
        check_is_fitted(self, "model_")
        ensemble, shares = self.model_.ensemble, np.zeros(self.n_features_in_)
        for feature, gain in zip(ensemble.features, ensemble.importance("total_gain"), strict=True):
            if not gain:
                continue
            shares[self._names.index(self._inputs[feature.name])] += gain
        return shares / (shares.sum() or 1)

    @property
    def evals_result_(self) -> dict[str, list[float]]:
        """Scores of the validation rows by metric, round by round."""
        check_is_fitted(self, "model_")
        return self.model_.history.scores

    @property
    def best_iteration_(self) -> int:
        """Number, from 0, of the round with the best score of the last metric; -1 without validation rows."""
        check_is_fitted(self, "model_")
        return self.model_.history.best_round - 1

    def apply(self, X: ArrayLike, *, base_margin: ArrayLike | None = None) -> NDArray[np.int64]:
        """The leaf that each row reaches in each tree, shape ``(n_rows, n_trees)``, as numbers of its own per tree."""
        return self._predictions(X, Ensemble.leaves, base_margin=base_margin).astype(np.int64)

    def contributions(self, X: ArrayLike, *, in_pairs: bool = False, base_margin: ArrayLike | None = None) -> Values:
        """Shapley values of the columns for raw scores, shape ``(n_rows, n_columns + 1)``, the mean score last.

        Of several classes the shape is ``(n_rows, n_classes, n_columns + 1)``. `in_pairs` gives what every two columns
        contribute together, with one more axis as long as the last; both are XGBoost's `pred_contribs` and
        `pred_interactions`. A passive column counts as one column, however many of its tests the model asks.
        """
        by_input = self._predictions(X, partial(Ensemble.contributions, in_pairs=in_pairs), base_margin=base_margin)
        places_of = {column: self._names.index(name) for column, name in self._inputs.items()}
        last = self.n_features_in_
        places = [*(places_of.get(column.name, last) for column in self.model_.ensemble.columns), last]
        by_column = np.eye(self.n_features_in_ + 1)[places]
        out = by_column.T @ by_input @ by_column if in_pairs else by_input @ by_column
        return out[:, 0] if out.shape[1] == 1 else out


class OpBoostClassifier(ClassifierMixin, _Explained):  # type: ignore[misc]
    __doc__ = f"""Boosted trees for classes, on own columns and on desensitized ranks of a passive party's columns.
{_PARAMETERS}
    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from opboost import OpBoostClassifier
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> model = OpBoostClassifier(epsilon=1.0, bounds={{0: (5, 30), 1: (5, 40)}}, random_state=0).fit(X, y)
    >>> model.guarantee_.notion
    'dLDP'
    """

    def _learn_labels(self, targets: NDArray[Any]) -> tuple[Loss, Values]:
        check_class_labels(targets)
        occurring = np.unique(targets)
        if len(occurring) < 2:
            raise DataError("a classifier needs at least two classes in the labels; found one class")
        self.classes_ = self._classes_of(occurring)
        n_classes = len(self.classes_)
        loss: Loss = Logistic() if n_classes == 2 else Softmax(n_classes)
        if self.objective == Ordinal.name and n_classes > 2:
            loss = Ordinal(n_classes)
        if self.objective not in (None, loss.name):
            allowed = loss.name if n_classes == 2 else f"{Softmax.name} or {Ordinal.name}"
            raise ParameterError(
                f"{n_classes} classes need the objective {allowed}; got {shown(self.objective)}. An objective of your "
                "own (Custom) is for OpBoostRegressor. Nothing was trained"
            )
        return loss, self._numbered(targets)

    def _classes_of(self, occurring: NDArray[Any]) -> NDArray[Any]:
        """Classes in the order of their numbers: of a model to continue its own, whose trees are for these numbers."""
        known: NDArray[Any] = getattr(self.continue_from, "classes_", occurring)
        if unknown := occurring[~np.isin(occurring, known)].tolist():
            found = f"labels {shown(unknown)[1:-1]} are" if len(unknown) > 1 else f"label {shown(unknown[0])} is"
            raise DataError(
                f"{found} none of {shown(known.tolist())}, the classes of the model to continue. Nothing was trained"
            )
        return known

    def _numbered(self, targets: NDArray[Any]) -> Values:
        if not np.isin(targets, self.classes_).all():
            raise DataError("eval_set has classes that the training labels lack")
        return np.searchsorted(self.classes_, targets).astype(np.float64)

    def _parameters_of(self, settings: type[BoostingParameters | MechanismSettings]) -> dict[str, Any]:
        found = super()._parameters_of(settings)
        if isinstance(by_class := found.get("class_weight"), Mapping):
            if unknown := sorted(map(str, set(by_class) - set(self.classes_.tolist()))):
                raise ParameterError(f"class_weight names classes that the labels lack: {', '.join(unknown)}")
            found["class_weight"] = {i: by_class[c] for i, c in enumerate(self.classes_.tolist()) if c in by_class}
        return found

    def predict_proba(self, X: ArrayLike, *, base_margin: ArrayLike | None = None) -> Values:
        """Probabilities of the classes, shape ``(n_rows, n_classes)``."""
        probabilities = self._predictions(X, base_margin=base_margin)
        if probabilities.ndim == 1:
            return np.column_stack([1 - probabilities, probabilities])
        return probabilities

    def predict(self, X: ArrayLike, *, base_margin: ArrayLike | None = None) -> NDArray[Any]:
        """The most probable class of every row, shape ``(n_rows,)``."""
        probabilities = self.predict_proba(X, base_margin=base_margin)
        return np.asarray(self.classes_[probabilities.argmax(axis=1)])


class OpBoostRegressor(RegressorMixin, _Explained):  # type: ignore[misc]
    __doc__ = f"""Boosted trees for numbers, on own columns and on desensitized ranks of a passive party's columns.

    Labels of shape ``(n_rows, n_labels)`` get trees of their own each, in common bins, on the codes as released. Two
    labels with ``survival:aft`` are bounds of the time instead: an upper one of 0 or infinity stands for none.
    Objectives that rank order the rows of a group, which `qid` names in `fit`; labels are degrees of relevance.
{_PARAMETERS}
    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from opboost import OpBoostRegressor
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = OpBoostRegressor(passive_columns=[2, 3], bounds=(-0.2, 0.2), n_estimators=20).fit(X, y)
    >>> model.guarantee_.certified
    True
    """

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def _learn_labels(self, targets: NDArray[Any]) -> tuple[Loss, Values]:
        loss = self.objective
        if not isinstance(loss, Loss):
            loss = loss_by_name(SquaredError.name if loss is None else loss)
        if isinstance(loss, Logistic | Ordinal | Softmax):
            raise ParameterError(
                f"a regressor's objective is for numbers; got {loss.name}, which is for classes: use OpBoostClassifier"
            )
        labels = self._numbered(targets)
        return of_labels(loss, 1 if labels.ndim == 1 else labels.shape[1]), labels

    def _numbered(self, targets: NDArray[Any]) -> Values:
        labels = np.asarray(targets, dtype=np.float64)
        return labels[:, 0] if labels.ndim == 2 and labels.shape[1] == 1 else labels

    def predict(self, X: ArrayLike, *, base_margin: ArrayLike | None = None) -> Values:
        """Predicted numbers, shape ``(n_rows,)``, or one column for each of several labels or quantiles."""
        return self._predictions(X, base_margin=base_margin)
