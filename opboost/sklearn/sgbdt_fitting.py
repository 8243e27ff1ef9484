"""Fitting of the S-GBDT estimators: from parameters to noise, trees and a guarantee."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import field, replace
from typing import Any, Literal

from opboost.arrays import Values
from opboost.column_positions import ColumnKey
from opboost.errors import AccountError, ParameterError, check_choice, check_integer, check_not_negative, check_positive
from opboost.horizontal.noise.initial_score import InitialScore, score_of_classes, score_of_nothing, score_of_numbers
from opboost.horizontal.noise.leaf_noise import LeafNoise, leaf_noise
from opboost.horizontal.noise.leaf_sensitivity import leaf_clipping
from opboost.horizontal.noise.noisy_holder import gaussian_noise
from opboost.horizontal.rows.public_grid import check_categories
from opboost.horizontal.rows.record_holder import (
    Gradients,
    counted_logistic_gradients,
    logistic_gradients,
    squared_gradients,
)
from opboost.horizontal.sgbdt.as_published import printed_noise
from opboost.horizontal.sgbdt.defaults import FOR_CLASSES, LATER_RATE
from opboost.horizontal.sgbdt.training import SGBDT, SGBDTSettings, printed_mean
from opboost.horizontal.splits.noisy_cells import counts_sensitivity, placed_cells
from opboost.sklearn.simulated_rows import DividedRows, PublicTask, bits_of_models
from opboost.sklearn.whole_fits import whole, with_parameters
from opboost.trees.complete import check_depth
from opboost.trees.tree import Ensemble


@with_parameters
class SGBDTFitting(DividedRows):
    """Base of the S-GBDT estimators: from parameters to noise, trees and a guarantee."""

    delta: float = 1e-6
    categorical_features: Sequence[ColumnKey] | None = None
    n_estimators: int = FOR_CLASSES.n_estimators
    n_extra_estimators: int = 0
    use_filter: bool | None = None
    max_depth: int = FOR_CLASSES.max_depth
    learning_rate: float = FOR_CLASSES.learning_rate
    later_rate: float = LATER_RATE
    max_grad: float = FOR_CLASSES.max_grad
    denominator_noise: float = FOR_CLASSES.denominator_noise
    initial_share: float = 0.05
    cells_share: float = 0.05
    reg_lambda: float = 1.0
    noise_lambda: float = FOR_CLASSES.noise_lambda
    max_leaf: float = 2.0
    leaf_noise: Literal["dynamic", "static"] = "dynamic"
    columns_per_tree: int = FOR_CLASSES.columns_per_tree
    learn_columns: bool = True
    subsample: float = 1.0
    max_cells: int = FOR_CLASSES.max_cells
    _trainings: list[SGBDT] = field(init=False)

    def __getstate__(self) -> dict[str, Any]:
        """State of a copy: the model, without the training rows and their privacy filters."""
        return {key: value for key, value in super().__getstate__().items() if key != "_trainings"}

    def _go_on(self, rows: Values, targets: Sequence[Values]) -> None:
        """Train on newly arrived records, and on earlier ones as long as they can pay."""
        if not hasattr(self, "_trainings"):
            raise AccountError(
                "a copied or loaded model, or one whose training broke off, has no accounts of its records any more; "
                "nothing was released"
            )
        n_trees = self.n_extra_estimators or self.n_estimators
        _check(self._task, self._trainings, n_trees)
        check_categories(rows, self._task.grid.bounds, self._task.grid.categorical)
        # Should this break off, some of the records have paid for trees; used again, they would pay from new accounts.
        trainings = self.__dict__.pop("_trainings")
        self._keep(self._task, _grown(self._task, trainings, rows, targets, n_trees))
        self._trainings = trainings

    @whole
    def _train(self, X: Values, targets: Sequence[Values]) -> None:
        task = self._public(X, targets[0])
        settings, bits = self._settings(task), self._bits()
        is_printed = self.mode == "paper" and math.isfinite(task.epsilon)
        noise = self._noise(task, len(targets), is_printed=is_printed)
        initial = self._initial(noise, is_classification=task.is_classification, is_printed=is_printed)
        if self.cells_share and self.mode == "certified":
            std = noise.cells_std * counts_sensitivity(len(task.names))
            task = replace(task, grid=placed_cells(task.grid, X, std=std, rng=bits.fork("cells")))
        trainings = [
            SGBDT(
                task.grid,
                gradients=self._gradients(task.is_classification),
                settings=settings,
                noise=noise,
                initial=initial,
                rng=source,
            )
            for source in bits_of_models(bits, len(targets))
        ]
        n_trees = self.n_estimators + self.n_extra_estimators
        _check(task, trainings, n_trees)
        self._keep(task, _grown(task, trainings, X, targets, n_trees))
        self._trainings = trainings
        self.guarantee_ = self._guarantee(
            task,
            epsilon=noise.epsilon(self.delta),
            account=noise.basis,
            is_secure=bits.is_secure,
            claimed=task.epsilon if is_printed else None,
            delta=self.delta,
            neighbours=noise.neighbours,
        )

    def _settings(self, task: PublicTask) -> SGBDTSettings:
        for name in ("n_estimators", "n_extra_estimators", "columns_per_tree"):
            check_integer(name, getattr(self, name), least=0)
        check_depth(self.max_depth)
        for name in ("learning_rate", "later_rate", "max_grad", "max_leaf", "denominator_noise"):
            check_positive(name, getattr(self, name))
        for name in ("reg_lambda", "noise_lambda"):
            check_not_negative(name, getattr(self, name))
        is_printed = self.mode == "paper"
        return SGBDTSettings(
            max_depth=self.max_depth,
            learning_rate=self.learning_rate,
            reg_lambda=self.reg_lambda,
            noise_lambda=0.0 if is_printed else self.noise_lambda,
            max_leaf=self.max_leaf,
            columns_per_tree=min(self.columns_per_tree, len(task.names)),
            learns_columns=bool(self.learn_columns) and not is_printed,
            later_rate=1.0 if is_printed else self.later_rate,
            floor=is_printed,
        )

    def _gradients(self, is_classification: bool) -> Gradients:
        if not is_classification:
            return squared_gradients
        # A Hessian under a static value's gradients would leave no bound on how far one record moves it.
        return counted_logistic_gradients if self.leaf_noise == "static" else logistic_gradients

    def _noise(self, task: PublicTask, n_models: int, *, is_printed: bool) -> LeafNoise:
        has_filter = self.n_extra_estimators > 0 if self.use_filter is None else self.use_filter
        if self.n_extra_estimators and not has_filter:
            raise ParameterError("n_extra_estimators needs the filter; got use_filter=False")
        check_choice("leaf_noise", self.leaf_noise, "dynamic", "static")
        is_static = self.leaf_noise == "static"
        max_grad = float(self.max_grad)
        if is_printed:
            return printed_noise(
                max_grad=max_grad,
                epsilon=task.epsilon,
                delta=self.delta,
                n_trees=self.n_estimators,
                rate=self.subsample,
                initial_share=self.initial_share,
                has_filter=has_filter,
                is_classification=task.is_classification,
                n_models=n_models,
            )
        clipping = leaf_clipping(
            max_grad, self.denominator_noise, is_classification=task.is_classification, counts=is_static
        )
        return leaf_noise(
            clipping,
            epsilon=task.epsilon,
            delta=self.delta,
            n_trees=max(self.n_estimators, 1),
            rate=float(self.subsample),
            initial_share=self.initial_share,
            cells_share=self.cells_share,
            has_filter=has_filter,
            static_lambda=self.reg_lambda if is_static else None,
            n_models=n_models,
        )

    def _initial(self, noise: LeafNoise, *, is_classification: bool, is_printed: bool) -> InitialScore:
        """The release of the initial score."""
        if is_printed and noise.initial_epsilon:
            return functools.partial(printed_mean, epsilon=noise.initial_epsilon)
        if is_printed or self.initial_share == 0:
            return score_of_nothing
        start = score_of_classes if is_classification else score_of_numbers
        return functools.partial(start, noise=functools.partial(gaussian_noise, noise.initial_std))


def _check(task: PublicTask, trainings: Sequence[SGBDT], n_trees: int) -> None:
    """Refuse trees that nobody can pay for, or whose scores could be infinite."""
    for training in trainings:
        training.check_paid(n_trees)
        task.check_scores(len(training.trees) + n_trees, training.max_value)


def _grown(
    task: PublicTask, trainings: Sequence[SGBDT], X: Values, targets: Sequence[Values], n_trees: int
) -> list[Ensemble]:
    """The models of all classes after so many more trees on these and earlier records."""
    models = []
    for training, target in zip(trainings, targets, strict=True):
        training.enrol(X, task.scaled(target))
        training.grow(n_trees)
        assert training.initial_score is not None
        models.append(task.ensemble(training.trees, training.initial_score))
    return models
