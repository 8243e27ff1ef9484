"""What both S-GBDT estimators do: from parameters to noise, to trees, to a promise."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np

from opboost.arrays import Values
from opboost.column_positions import Bounds, Column
from opboost.errors import AccountError, ParameterError
from opboost.horizontal.noise.initial_score import InitialScore, score_of_classes, score_of_nothing, score_of_numbers
from opboost.horizontal.noise.leaf_noise import LeafNoise, leaf_noise
from opboost.horizontal.noise.leaf_sensitivity import leaf_clipping
from opboost.horizontal.noise.noisy_holder import gaussian_noise
from opboost.horizontal.rows.record_holder import (
    Gradients,
    counted_logistic_gradients,
    cross_entropy_gradients,
    squared_error_gradients,
)
from opboost.horizontal.sgbdt.as_published import printed_noise
from opboost.horizontal.sgbdt.training import SGBDT, Shape, printed_mean
from opboost.horizontal.splits.noisy_cells import counts_sensitivity, placed_cells
from opboost.sklearn.simulated_rows import DividedRows, PublicTask, bits_of_models


class SGBDTFitting(DividedRows):
    """What classifier and regressor share."""

    def __init__(
        self,
        *,
        epsilon: float | None = None,
        delta: float = 1e-6,
        bounds: Bounds | Literal["from_data"] = None,
        classes: Sequence[Any] | None = None,
        categorical_features: Sequence[Column] | None = None,
        mode: Literal["certified", "paper"] = "certified",
        n_estimators: int = 300,
        n_extra_estimators: int = 0,
        use_filter: bool | None = None,
        max_depth: int = 3,
        learning_rate: float = 0.4,
        later_rate: float = 0.25,
        max_grad: float = 0.5,
        denominator_noise: float = 2.0,
        initial_share: float = 0.05,
        cells_share: float = 0.05,
        reg_lambda: float = 1.0,
        noise_lambda: float = 20.0,
        max_leaf: float = 2.0,
        leaf_noise: Literal["dynamic", "static"] = "dynamic",
        columns_per_tree: int = 1,
        learn_columns: bool = True,
        subsample: float = 1.0,
        max_cells: int = 64,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.bounds = bounds
        self.classes = classes
        self.categorical_features = categorical_features
        self.mode = mode
        self.n_estimators = n_estimators
        self.n_extra_estimators = n_extra_estimators
        self.use_filter = use_filter
        self.max_depth = max_depth
        self.learning_rate = learning_rate
        self.later_rate = later_rate
        self.max_grad = max_grad
        self.denominator_noise = denominator_noise
        self.initial_share = initial_share
        self.cells_share = cells_share
        self.reg_lambda = reg_lambda
        self.noise_lambda = noise_lambda
        self.max_leaf = max_leaf
        self.leaf_noise = leaf_noise
        self.columns_per_tree = columns_per_tree
        self.learn_columns = learn_columns
        self.subsample = subsample
        self.max_cells = max_cells
        self.random_state = random_state

    def __getstate__(self) -> dict[str, Any]:
        """A copy takes along the model, not the training rows and their accounts."""
        return {key: value for key, value in super().__getstate__().items() if key != "_trainings"}

    def _start(self, X: Values, targets: Sequence[Values], *, is_classification: bool) -> None:
        """Train the first trees, of one model per target."""
        task = self._public(X, targets[0], is_classification=is_classification)
        shape, bits = self._shape(task), self._bits()
        is_printed = self.mode == "paper" and math.isfinite(task.epsilon)
        noise = self._noise(task, len(targets), is_printed=is_printed)
        initial = self._initial(noise, is_classification=is_classification, is_printed=is_printed)
        if self.cells_share and self.mode == "certified":
            std = noise.cells_std * counts_sensitivity(len(task.names))
            task = replace(task, grid=placed_cells(task.grid, X, std=std, rng=bits.fork("cells")))
        self._trainings = [
            SGBDT(
                task.grid,
                gradients=self._gradients(is_classification),
                shape=shape,
                noise=noise,
                initial=initial,
                rng=source,
            )
            for source in bits_of_models(bits, len(targets))
        ]
        self._task = task
        self._grow(X, targets, self.n_estimators + self.n_extra_estimators)
        self.guarantee_ = self._guarantee(
            task,
            epsilon=noise.epsilon(self.delta),
            account=noise.basis,
            is_secure=bits.is_secure,
            claimed=task.epsilon if is_printed else None,
            neighbours=noise.neighbours,
        )

    def _continue(self, X: Values, targets: Sequence[Values]) -> None:
        """Let newly arrived records in, and train further."""
        if not hasattr(self, "_trainings"):
            raise AccountError("a copied or loaded model has no accounts of its records any more; nothing was released")
        self._grow(X, targets, self.n_extra_estimators or self.n_estimators)

    def _grow(self, X: Values, targets: Sequence[Values], n_trees: int) -> None:
        task, models = self._task, []
        for training, target in zip(self._trainings, targets, strict=True):
            training.enrol(X, task.scaled(target))
            training.grow(n_trees)
            assert training.initial_score is not None
            models.append(task.ensemble(training.trees, training.initial_score))
        self._keep(task, models)

    def _shape(self, task: PublicTask) -> Shape:
        for name, least in (("n_estimators", 0), ("n_extra_estimators", 0), ("max_depth", 0), ("columns_per_tree", 0)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < least:
                raise ParameterError(f"{name} must be an integer of at least {least}; got {value!r}")
        for name in ("learning_rate", "later_rate", "max_grad", "max_leaf", "denominator_noise"):
            if not (getattr(self, name) > 0 and math.isfinite(getattr(self, name))):
                raise ParameterError(f"{name} must be positive and finite; got {getattr(self, name)!r}")
        for name in ("reg_lambda", "noise_lambda"):
            if not (getattr(self, name) >= 0 and math.isfinite(getattr(self, name))):
                raise ParameterError(f"{name} must be at least 0 and finite; got {getattr(self, name)!r}")
        is_printed = self.mode == "paper"
        return Shape(
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
            return squared_error_gradients
        # A Hessian under a static value's gradients would leave no bound on how far one record moves it.
        return counted_logistic_gradients if self.leaf_noise == "static" else cross_entropy_gradients

    def _noise(self, task: PublicTask, n_models: int, *, is_printed: bool) -> LeafNoise:
        has_filter = self.n_extra_estimators > 0 if self.use_filter is None else self.use_filter
        if self.n_extra_estimators and not has_filter:
            raise ParameterError("n_extra_estimators needs the filter; got use_filter=False")
        if self.leaf_noise not in ("dynamic", "static"):
            raise ParameterError(f"leaf_noise must be dynamic or static; got {self.leaf_noise!r}")
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
        """How the first score is found."""
        if is_printed and noise.initial_epsilon:
            return functools.partial(printed_mean, epsilon=noise.initial_epsilon)
        if is_printed or self.initial_share == 0:
            return score_of_nothing
        start = score_of_classes if is_classification else score_of_numbers
        return functools.partial(start, noise=functools.partial(gaussian_noise, noise.initial_std))
