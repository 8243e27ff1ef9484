"""Fitting of the federated framework's estimators: from parameters to noise, trees and a guarantee."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from opboost.arrays import Values
from opboost.column_positions import ColumnKey
from opboost.errors import ParameterError, check_integer, check_not_negative, check_positive
from opboost.horizontal.federated.local_noise import LocallyNoisedRows, label_distance
from opboost.horizontal.federated.training import Choices, Refining, SplitMethod, Trained, train, trees_per_batch
from opboost.horizontal.federated.weight_updates import LeafRule, UpdateName, WeightUpdate, strength_for, weight_update
from opboost.horizontal.noise.query_account import QueryAccount, query_account
from opboost.horizontal.rows.client_rows import ClientHolder, ClientRows, SummedClients
from opboost.horizontal.rows.public_grid import PublicGrid
from opboost.horizontal.splits.column_schedule import Interaction
from opboost.horizontal.splits.split_candidates import log_candidates, quantile_candidates, uniform_candidates
from opboost.rng import BitSource
from opboost.sklearn.federated_methods import NamedMethods
from opboost.sklearn.federated_promise import delta_for, promise
from opboost.sklearn.shape_functions import Shapes, shapes_of
from opboost.sklearn.simulated_rows import DividedRows, PublicTask
from opboost.sklearn.whole_fits import with_parameters
from opboost.trees.kernels.threads import threads_for

Candidates = Literal["uniform", "log", "quantile", "ih", "ih_equal_mass", "ih_printed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Communication:
    """Communication of one client that takes part in every round of a training.

    Attributes
    ----------
    n_rounds : int
        Messages, if trees of a batch are asked together (Maddock et al., appendix B).
    n_bytes : int
        Of all of them, 8 per number, without what secure aggregation adds.
    """

    n_rounds: int
    n_bytes: int


@with_parameters
class FederatedFitting(NamedMethods, DividedRows):
    """Base of the estimators of the federated framework: from parameters to noise, trees and a guarantee."""

    _modes: ClassVar[tuple[str, ...]] = ("default", "paper")

    delta: float | None = None
    mode: Literal["default", "paper"] = "default"  # type: ignore[assignment]
    split_method: SplitMethod = "tr"
    weight_update: UpdateName = "newton"
    split_candidates: Candidates = "uniform"
    interaction: Interaction = "all"
    columns_per_tree: int = 1
    batch_size: int | float = 1
    n_estimators: int = 200
    trees_per_column: bool = False
    max_depth: int = 4
    learning_rate: float = 0.3
    reg_lambda: float | None = None
    max_leaf: float = 2.0
    n_candidates: int = 32
    hessian_rounds: int = 5
    mirrored: Sequence[ColumnKey] = ()
    local_noise: bool = False
    n_clients: int = 1

    def explain(self) -> Shapes:
        """Shape functions, where every tree uses one column (``cyclical``, ``columns_per_tree=1``).

        Of several classes, the shapes of one are those of its entry in `models_`: ``shapes_of(model.models_[k])``.

        Notes
        -----
        Privacy: post-processing of the model.
        """
        check_is_fitted(self, "models_")
        if len(self.models_) > 1:
            raise ParameterError(
                "every class has shapes of its own; take opboost.sklearn.shape_functions.shapes_of(models_[k])"
            )
        return shapes_of(self.models_[0])

    def _train(self, X: Values, targets: Sequence[Values]) -> None:
        task = self._public(X, targets[0])
        bits = self._bits()
        delta = delta_for(task.epsilon, self.delta, is_printed=self.mode == "paper", n_rows=len(X))
        update = self._update(task.is_classification)
        choices = self._choices(len(task.names), update)
        account = self._account(task, choices, update, delta, n_models=len(targets))
        columns = self._columns(task, X)
        leaf = self._leaf(update, account, len(X))
        task.check_scores(choices.n_trees, update.max_value(leaf))
        trained = []
        for number, target in enumerate(targets):
            source = bits.fork(f"model {number}")
            clients = self._clients(X, task.scaled(target), columns, choices, update, account, source)
            multiplier = 0.0 if self.local_noise else account.multiplier
            with threads_for(X.size):
                trained.append(
                    train(clients, columns, choices, update=update, leaf=leaf, multiplier=multiplier, rng=source)
                )
        self._publish(task, trained, update)
        self.n_queries_ = account.n_queries if self.local_noise else sum(each.n_queries for each in trained)
        self.guarantee_ = promise(
            task,
            account,
            delta,
            n_models=len(targets),
            is_printed=self.mode == "paper",
            is_local=self.local_noise,
            reveals_quantiles=self.split_candidates == "quantile",
            delta_is_said=self.delta is not None,
            is_secure=bits.is_secure,
        )

    def _publish(self, task: PublicTask, trained: Sequence[Trained], update: WeightUpdate) -> None:
        self._keep(task, [task.model(each.trees, has_scores=update.name != "averaging") for each in trained])
        self.communication_ = Communication(
            n_rounds=max(each.n_rounds for each in trained), n_bytes=sum(each.n_bytes for each in trained)
        )

    def _clients(
        self,
        X: Values,
        labels: Values,
        columns: PublicGrid,
        choices: Choices,
        update: WeightUpdate,
        account: QueryAccount,
        bits: BitSource,
    ) -> ClientHolder:
        """The rows, dealt to clients in their order."""
        check_integer("n_clients", self.n_clients, least=1)
        parts = np.array_split(np.arange(len(X)), min(self.n_clients, len(X)))

        def client(number: int, rows: NDArray[np.intp]) -> ClientHolder:
            if self.local_noise:
                return LocallyNoisedRows(
                    X[rows],
                    labels[rows],
                    columns=columns,
                    update=update,
                    multiplier=account.multiplier,
                    n_releases=choices.n_batches,
                    rng=bits.fork(f"client {number}"),
                )
            return ClientRows(
                X[rows],
                labels[rows],
                columns=columns,
                gradients=update.gradients,
                clipping=update.clipping,
                walks=choices.split_method == "tr",
            )

        clients = [client(number, rows) for number, rows in enumerate(parts)]
        return clients[0] if len(clients) == 1 else SummedClients(clients)

    def _n_cells(self) -> int:
        return check_integer("n_candidates", self.n_candidates, least=2) + 1

    def _update(self, is_classification: bool) -> WeightUpdate:
        return weight_update(
            self.weight_update,
            is_classification=is_classification,
            is_printed=self.mode == "paper",
            max_grad=check_positive("max_grad", getattr(self, "max_grad", 1.0)),
        )

    def _choices(self, n_columns: int, update: WeightUpdate) -> Choices:
        check_integer("n_estimators", self.n_estimators, least=0)
        n_trees = self.n_estimators * (n_columns if self.trees_per_column else 1)
        batch = trees_per_batch(self.batch_size, n_trees, update)
        return Choices(
            split_method=self.split_method,
            refining=self._refining(),
            hessian_rounds=self.hessian_rounds,
            interaction=self.interaction,
            columns_per_tree=self.columns_per_tree,
            batch_size=batch,
            n_trees=n_trees,
            max_depth=self.max_depth,
        )

    def _refining(self) -> Refining:
        match self.split_candidates:
            case "uniform" | "log" | "quantile":
                return "none"
            case "ih":
                return "printed" if self.mode == "paper" else "equal_mass"
            case "ih_printed":
                return "printed"
            case "ih_equal_mass":
                return "equal_mass"
            case other:
                known = "uniform, log, quantile, ih, ih_equal_mass or ih_printed"
                raise ParameterError(f"split_candidates must be {known}; got {other!r}")

    def _columns(self, task: PublicTask, X: Values) -> PublicGrid:
        bounds, n = task.grid.bounds, self.n_candidates
        if self.split_candidates == "log":
            mirrored = [self._positions.of(column) for column in self.mirrored]
            is_mirrored = np.isin(np.arange(len(task.names)), mirrored)
            return log_candidates(bounds, n, mirrored=is_mirrored)
        if self.split_candidates != "quantile":
            return uniform_candidates(bounds, n)
        if math.isfinite(task.epsilon) and self.mode != "paper":
            raise ParameterError(
                "quantiles are a function of the data, so that nothing grown on them is private; they are for "
                "comparison, in paper mode or without noise. Take ih. Nothing was released"
            )
        return quantile_candidates(bounds, n, X)

    def _leaf(self, update: WeightUpdate, account: QueryAccount, n_rows: int) -> LeafRule:
        check_positive("learning_rate", self.learning_rate)
        check_positive("max_leaf", self.max_leaf)
        strength = self.reg_lambda
        if strength is None:
            std = account.multiplier * update.clipping.sensitivity
            if self.local_noise:
                # Records of one leaf, as if all leaves had as many; whoever adds up knows how many there are.
                std = account.multiplier * label_distance(update) * math.sqrt(n_rows / 2**self.max_depth)
            strength = strength_for(std, is_classification=update.is_classification, is_printed=self.mode == "paper")
        return LeafRule(
            learning_rate=self.learning_rate,
            reg_lambda=check_not_negative("reg_lambda", strength),
            max_leaf=self.max_leaf,
            is_printed=self.mode == "paper",
        )

    def _account(
        self, task: PublicTask, choices: Choices, update: WeightUpdate, delta: float, *, n_models: int
    ) -> QueryAccount:
        """Query account of all models together, one per class."""
        n_queries = choices.n_batches if self.local_noise else choices.n_queries(len(task.names))
        is_scaled_up = self.mode == "paper" and not self.local_noise
        return query_account(
            n_models * n_queries,
            epsilon=task.epsilon,
            delta=delta,
            is_printed=self.mode == "paper",
            excess=update.clipping.sensitivity / update.true_sensitivity if is_scaled_up else 1.0,
            n_hessians=n_models * choices.n_hessian_queries(len(task.names)) if is_scaled_up else 0,
        )
