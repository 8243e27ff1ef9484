"""scikit-learn estimators of DPBoost."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from sklearn.base import ClassifierMixin, RegressorMixin

from opboost.arrays import Values
from opboost.column_positions import ColumnKey
from opboost.errors import ParameterError, check_choice, check_integer, check_positive
from opboost.horizontal.dpboost import training as dpboost
from opboost.horizontal.dpboost.as_published import by_fixed_sizes, printed_sensitivity, replacement_epsilon
from opboost.horizontal.dpboost.training import DPBoostSettings, Scheme
from opboost.horizontal.noise.initial_score import InitialScore, score_of_classes, score_of_nothing, score_of_numbers
from opboost.horizontal.noise.noisy_holder import laplace_noise
from opboost.horizontal.rows.record_holder import counted_logistic_gradients, squared_gradients
from opboost.horizontal.splits.gridless import GridlessColumns
from opboost.privacy.accounting import by_pure
from opboost.privacy.record_guarantee import REPLACED
from opboost.privacy.releases import PureRelease, Release
from opboost.sklearn.class_labels import CLASSES, ClassLabels
from opboost.sklearn.simulated_rows import BoundedNumbers, DividedRows, PublicTask, bits_of_models
from opboost.sklearn.whole_fits import with_parameters
from opboost.trees.complete import check_depth

# Budgets are split into shares whose sum, rounded up, must not exceed the whole.
_ROUND_DOWN = 1 - 1e-12

_PARAMETERS = """
    Parameters
    ----------
    epsilon : float, optional
        Budget per record; ``inf`` for no noise. By default 1 if there are bounds; without them nothing is protected.
    delta : float
        Pure differential privacy needs none: 0.
    bounds : mapping of column to (lower, upper), pair of numbers or arrays, or "from_data"
        Public bounds of the columns; values beyond them count as the bounds. ``"from_data"`` reveals the extremes of
        the data and is not certified.
    categorical_features : sequence of int or str, optional
        Columns that hold categories, numbered 0, 1, 2, ...; their public bounds (0, K - 1) say how many there are. A
        split parts one category from all others.
    mode : {"certified", "paper"}
        ``paper`` takes the publication's sensitivity of the gain and its draws of fixed sizes; `guarantee_` then states
        what that is worth, for records that are replaced in data of a public size.
    scheme : {"eoe", "seq", "para"}
        Ensemble of ensembles, or the paper's baselines.
    n_estimators, trees_per_ensemble, max_depth : int
    learning_rate, reg_lambda : float
    max_grad : float, optional
        Bound of a gradient. By default 1 for classes (and in the mode ``paper``), and 0.3 for numbers, whose bounds are
        scaled to [-1, 1].
    leaf : {"sums", "value"}
        Whether noise goes to a leaf's sum and count, or to its value as in the paper.
    noise_lambda : float
        For ``sums``: the regulariser of a leaf is at least so many scales of the noise on its count.
    filter_gradients : bool
        Leave out records with gradients beyond the bound, rather than clip them (GDF).
    clip_leaves : bool
        Geometric clipping of the leaves (GLC).
    initial_share : float
        Share of epsilon for the first score; 0 to begin at 0.
    gain_sensitivity : {"3", "slides"}
        For the mode ``paper``: the authors' later constant or the one of their slides.
    candidates : {"grid", "gridless"}
        Whether splits are chosen among the cuts of a public grid or among 32,768 thresholds per column.
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
    Privacy: epsilon-DP between data sets that differ by one record, added or removed, for everybody who sees the model:
    trees on disjoint records by coins of the records' own cost as much as one, ensembles add up
    (`opboost.horizontal.dpboost.training`). Several classes share the budget in equal parts, each being a model of
    its own against the rest; which classes there are is public.
"""


@with_parameters
class _DPBoost(DividedRows):
    """Base of the DPBoost estimators."""

    delta: float = 0.0
    categorical_features: Sequence[ColumnKey] | None = None
    scheme: Scheme = "eoe"
    n_estimators: int = 10
    trees_per_ensemble: int = 10
    max_depth: int = 2
    learning_rate: float = 0.3
    reg_lambda: float = 1.0
    max_grad: float | None = None
    leaf: Literal["sums", "value"] = "sums"
    noise_lambda: float = 2.0
    filter_gradients: bool = False
    clip_leaves: bool = False
    initial_share: float = 0.1
    gain_sensitivity: Literal["3", "slides"] = "3"
    candidates: Literal["grid", "gridless"] = "grid"
    max_cells: int = 32

    def _train(self, X: Values, targets: Sequence[Values]) -> None:
        task = self._public(X, targets[0])
        settings, bits = self._settings(task), self._bits()
        task.check_scores(settings.n_trees, settings.max_value)
        tree_epsilon, initial, spent = self._budgets(task, settings, n_models=len(targets))
        is_gridless = self.candidates == "gridless"
        columns = GridlessColumns(task.grid.bounds, categorical=task.grid.categorical) if is_gridless else None
        is_printed = self.mode == "paper" and math.isfinite(task.epsilon)
        if is_printed:
            settings = replace(settings, utility_range=2 * self._printed_sensitivity(settings.max_grad))
        models = []
        for target, source in zip(targets, bits_of_models(bits, len(targets)), strict=True):
            trees, score = dpboost.train(
                X,
                task.scaled(target),
                columns or task.grid,
                settings,
                gradients=counted_logistic_gradients if task.is_classification else squared_gradients,
                epsilon=tree_epsilon,
                initial=initial,
                deals=by_fixed_sizes(settings) if is_printed else None,
                rng=source,
            )
            models.append(task.ensemble(trees, score, columns=columns))
        self._keep(task, models)
        if not is_printed:
            epsilon = by_pure(spent) if spent else math.inf
            account = "pure composition" if spent else "no noise"
            self.guarantee_ = self._guarantee(
                task, epsilon=epsilon, delta=0.0, account=account, is_secure=bits.is_secure
            )
            return
        epsilon = replacement_epsilon(task.epsilon, self._printed_sensitivity(settings.max_grad), settings)
        self.guarantee_ = self._guarantee(
            task,
            epsilon=epsilon,
            delta=0.0,
            account="pure composition",
            is_secure=bits.is_secure,
            claimed=task.epsilon,
            neighbours=REPLACED,
        )

    def _max_grad(self, task: PublicTask) -> float:
        if self.max_grad is None:
            return 1.0 if task.is_classification or self.mode == "paper" else 0.3
        return check_positive("max_grad", self.max_grad)

    def _printed_sensitivity(self, max_grad: float) -> float:
        return printed_sensitivity(self.gain_sensitivity, reg_lambda=self.reg_lambda, max_grad=max_grad)

    def _settings(self, task: PublicTask) -> DPBoostSettings:
        check_integer("n_estimators", self.n_estimators, least=0)
        check_integer("trees_per_ensemble", self.trees_per_ensemble, least=1)
        check_depth(self.max_depth)
        if not 0 < self.learning_rate < 1 or not 0 <= self.initial_share < 1:
            raise ParameterError(
                "learning_rate must lie between 0 and 1, and initial_share be at least 0 and less than 1; got "
                f"{self.learning_rate!r} and {self.initial_share!r}"
            )
        check_choice("scheme", self.scheme, "eoe", "seq", "para")
        check_choice("leaf", self.leaf, "sums", "value")
        check_choice("candidates", self.candidates, "grid", "gridless")
        if self.delta != 0:
            raise ParameterError(f"this model is purely private and needs no delta: 0; got {self.delta!r}")
        return DPBoostSettings(
            n_trees=self.n_estimators,
            trees_per_ensemble=self.trees_per_ensemble,
            max_depth=self.max_depth,
            scheme=self.scheme,
            learning_rate=self.learning_rate,
            reg_lambda=self.reg_lambda,
            max_grad=self._max_grad(task),
            leaf=self.leaf,
            noise_lambda=self.noise_lambda,
            filters_gradients=self.filter_gradients,
            clips_leaves=self.clip_leaves,
        )

    def _budgets(
        self, task: PublicTask, settings: DPBoostSettings, *, n_models: int
    ) -> tuple[float, InitialScore, list[Release]]:
        """Epsilon of a tree, how the first scores are found, and everything that will be released of all models."""
        whole = task.epsilon / n_models
        if self.initial_share == 0 or self.mode == "paper":
            first, initial = 0.0, score_of_nothing
        else:
            first = self.initial_share * whole
            start = score_of_classes if task.is_classification else score_of_numbers
            initial = functools.partial(start, noise=functools.partial(laplace_noise, 1.0, first))
        if math.isinf(task.epsilon):
            return math.inf, initial, []
        tree = (whole - first) / max(settings.n_ensembles, 1) * _ROUND_DOWN
        spent: list[Release] = [PureRelease(epsilon=first)] if first else []
        if settings.n_trees:
            spent += dpboost.releases(settings, tree)
        return tree, initial, spent * n_models


@with_parameters
class DPBoostClassifier(ClassLabels, ClassifierMixin, _DPBoost):  # type: ignore[misc]
    __doc__ = f"""Boosting for two or more classes with private splits and leaves (DPBoost).
{CLASSES}{_PARAMETERS}"""


@with_parameters
class DPBoostRegressor(BoundedNumbers, RegressorMixin, _DPBoost):  # type: ignore[misc]
    __doc__ = f"""Boosting for numbers with private splits and leaves (DPBoost).
{_PARAMETERS}"""

    def _scores_poorly(self) -> bool:
        return True
