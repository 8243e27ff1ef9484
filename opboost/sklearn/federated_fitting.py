"""What both estimators of the federated framework do: from parameters to noise, to trees, to a promise."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from opboost.arrays import Values
from opboost.column_positions import Bounds, Column, ColumnPositions
from opboost.errors import ParameterError
from opboost.horizontal.federated.local_noise import LocallyNoisedRows, label_distance
from opboost.horizontal.federated.training import Choices, Refining, SplitMethod, Trained, train, trees_per_batch
from opboost.horizontal.federated.weight_updates import LeafRule, UpdateName, WeightUpdate, strength_for, weight_update
from opboost.horizontal.noise.query_account import QueryAccount, query_account
from opboost.horizontal.rows.client_rows import ClientHolder, ClientRows, SummedClients
from opboost.horizontal.rows.public_grid import PublicGrid
from opboost.horizontal.splits.column_schedule import Interaction
from opboost.horizontal.splits.split_candidates import log_candidates, quantile_candidates, uniform_candidates
from opboost.rng import BitSource
from opboost.shape_functions import Shapes, shapes_of
from opboost.sklearn.federated_methods import NamedMethods
from opboost.sklearn.federated_promise import delta_for, promise
from opboost.sklearn.simulated_rows import DividedRows, PublicTask
from opboost.trees.kernels.threads import threads_for
from opboost.trees.losses import Logistic, SquaredError
from opboost.trees.tree import Ensemble, Feature, Tree

Candidates = Literal["uniform", "log", "quantile", "ih", "ih_equal_mass", "ih_printed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Communication:
    """What one client sends in a training, if it takes part in every round.

    Attributes
    ----------
    n_rounds : int
        Messages, if trees of a batch are asked together (Maddock et al., appendix B).
    n_bytes : int
        Of all of them, 8 per number, without what secure aggregation adds.
    """

    n_rounds: int
    n_bytes: int


class FederatedFitting(NamedMethods, DividedRows):
    """What classifier and regressor share."""

    _modes: ClassVar[tuple[str, ...]] = ("default", "paper")

    def __init__(
        self,
        *,
        epsilon: float | None = None,
        delta: float | None = None,
        bounds: Bounds | Literal["from_data"] = None,
        classes: Sequence[Any] | None = None,
        mode: Literal["default", "paper"] = "default",
        split_method: SplitMethod = "tr",
        weight_update: UpdateName = "newton",
        split_candidates: Candidates = "uniform",
        interaction: Interaction = "all",
        columns_per_tree: int = 1,
        batch_size: int | float = 1,
        n_estimators: int = 200,
        trees_per_column: bool = False,
        max_depth: int = 4,
        learning_rate: float = 0.3,
        reg_lambda: float | None = None,
        max_leaf: float = 2.0,
        n_candidates: int = 32,
        hessian_rounds: int = 5,
        mirrored: Sequence[Column] = (),
        local_noise: bool = False,
        n_clients: int = 1,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.bounds = bounds
        self.classes = classes
        self.mode = mode
        self.split_method = split_method
        self.weight_update = weight_update
        self.split_candidates = split_candidates
        self.interaction = interaction
        self.columns_per_tree = columns_per_tree
        self.batch_size = batch_size
        self.n_estimators = n_estimators
        self.trees_per_column = trees_per_column
        self.max_depth = max_depth
        self.learning_rate = learning_rate
        self.reg_lambda = reg_lambda
        self.max_leaf = max_leaf
        self.n_candidates = n_candidates
        self.hessian_rounds = hessian_rounds
        self.mirrored = mirrored
        self.local_noise = local_noise
        self.n_clients = n_clients
        self.random_state = random_state

    def explain(self) -> Shapes:
        """What each column adds to the score, where every tree uses one column (``cyclical``, ``columns_per_tree=1``).

        Of several classes, the shapes of one are those of its entry in `models_`: ``shapes_of(model.models_[k])``.

        Notes
        -----
        Privacy: post-processing of the model.
        """
        check_is_fitted(self, "models_")
        if len(self.models_) > 1:
            raise ParameterError(
                "every class has shapes of its own; take opboost.shape_functions.shapes_of(models_[k])"
            )
        return shapes_of(self.models_[0])

    def _train(self, X: Values, targets: Sequence[Values], *, is_classification: bool) -> None:
        """Train one model per target: one for two classes or numbers, one per class against the rest."""
        task = self._public(X, targets[0], is_classification=is_classification)
        bits = self._bits()
        delta = delta_for(task.epsilon, self.delta, is_printed=self.mode == "paper", n_rows=len(X))
        update = self._update(is_classification)
        choices = self._choices(len(task.names), update)
        account = self._account(task, choices, update, delta, n_models=len(targets))
        columns = self._columns(task, X)
        leaf = self._leaf(update, account, len(X))
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
            task, account, delta, n_models=len(targets), is_printed=self.mode == "paper", is_local=self.local_noise,
            reveals_quantiles=self.split_candidates == "quantile", delta_is_said=self.delta is not None,
            is_secure=bits.is_secure,
        )  # fmt: skip

    def _publish(self, task: PublicTask, trained: Sequence[Trained], update: WeightUpdate) -> None:
        loss = Logistic() if task.is_classification and update.name != "averaging" else SquaredError()
        base = np.array([0.0 if task.is_classification else task.centre])
        features = tuple(Feature(name) for name in task.names)

        def scaled(trees: tuple[Tree, ...]) -> tuple[Tree, ...]:
            return tuple(tree.scaled(task.spread) for tree in trees)

        models = [
            Ensemble(each.trees if task.is_classification else scaled(each.trees), base, loss, features)
            for each in trained
        ]
        self._keep(task, models)
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
        self._check_integer("n_clients", 1)
        parts = np.array_split(np.arange(len(X)), min(self.n_clients, len(X)))

        def client(number: int, rows: NDArray[np.intp]) -> ClientHolder:
            if self.local_noise:
                return LocallyNoisedRows(
                    X[rows], labels[rows], columns=columns, update=update, multiplier=account.multiplier,
                    n_releases=choices.n_batches, rng=bits.fork(f"client {number}"),
                )  # fmt: skip
            return ClientRows(
                X[rows], labels[rows], columns=columns, gradients=update.gradients, clipping=update.clipping,
                walks=choices.split_method == "tr",
            )  # fmt: skip

        clients = [client(number, rows) for number, rows in enumerate(parts)]
        return clients[0] if len(clients) == 1 else SummedClients(clients)

    def _n_cells(self) -> int:
        self._check_integer("n_candidates", 2)
        return self.n_candidates + 1

    def _update(self, is_classification: bool) -> WeightUpdate:
        max_grad = float(getattr(self, "max_grad", 1.0))
        if not (max_grad > 0 and math.isfinite(max_grad)):
            raise ParameterError(f"max_grad must be positive and finite; got {max_grad!r}")
        return weight_update(
            self.weight_update, is_classification=is_classification, is_printed=self.mode == "paper",
            max_grad=max_grad,
        )  # fmt: skip

    def _choices(self, n_columns: int, update: WeightUpdate) -> Choices:
        self._check_integer("n_estimators", 0)
        n_trees = self.n_estimators * (n_columns if self.trees_per_column else 1)
        batch = trees_per_batch(self.batch_size, n_trees, update)
        return Choices(
            split_method=self.split_method, refining=self._refining(), hessian_rounds=self.hessian_rounds,
            interaction=self.interaction, columns_per_tree=self.columns_per_tree, batch_size=batch, n_trees=n_trees,
            max_depth=self.max_depth,
        )  # fmt: skip

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
            positions = ColumnPositions(task.names)
            is_mirrored = np.isin(np.arange(len(task.names)), [positions.of(column) for column in self.mirrored])
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
        for name in ("learning_rate", "max_leaf"):
            if not (getattr(self, name) > 0 and math.isfinite(getattr(self, name))):
                raise ParameterError(f"{name} must be positive and finite; got {getattr(self, name)!r}")
        strength = self.reg_lambda
        if strength is None:
            std = account.multiplier * update.clipping.sensitivity
            if self.local_noise:
                # Records of one leaf, as if all leaves had as many; whoever adds up knows how many there are.
                std = account.multiplier * label_distance(update) * math.sqrt(n_rows / 2**self.max_depth)
            strength = strength_for(std, is_classification=update.is_classification, is_printed=self.mode == "paper")
        if not (strength >= 0 and math.isfinite(strength)):
            raise ParameterError(f"reg_lambda must be at least 0 and finite; got {self.reg_lambda!r}")
        return LeafRule(
            learning_rate=self.learning_rate, reg_lambda=float(strength), max_leaf=self.max_leaf,
            is_printed=self.mode == "paper",
        )  # fmt: skip

    def _account(
        self, task: PublicTask, choices: Choices, update: WeightUpdate, delta: float, *, n_models: int
    ) -> QueryAccount:
        """All models together: each of several classes is as many queries more."""
        n_queries = choices.n_batches if self.local_noise else choices.n_queries(len(task.names))
        is_scaled_up = self.mode == "paper" and not self.local_noise
        excess = update.clipping.sensitivity / update.true_sensitivity if is_scaled_up else 1.0
        return query_account(
            n_models * n_queries, epsilon=task.epsilon, delta=delta, is_printed=self.mode == "paper", excess=excess
        )

    def _check_integer(self, name: str, least: int) -> None:
        value = getattr(self, name)
        if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < least:
            raise ParameterError(f"{name} must be an integer of at least {least}; got {value!r}")
