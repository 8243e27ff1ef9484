"""The `federated` section of a horizontal run file."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from opboost.column_positions import ColumnPositions
from opboost.horizontal.federated.owners import FederatedAmongOwners, check_noise_in_shares
from opboost.horizontal.federated.training import Choices, Refining, trees_per_batch
from opboost.horizontal.federated.weight_updates import LeafRule, WeightUpdate, strength_for, weight_update
from opboost.horizontal.noise.distributed_noise import shared_leaf_noise
from opboost.horizontal.noise.leaf_noise import LeafNoise
from opboost.horizontal.noise.query_account import QueryAccount, query_account
from opboost.horizontal.public_task import PublicTask
from opboost.horizontal.rows.public_grid import PublicGrid
from opboost.horizontal.splits.split_candidates import ColumnBounds, log_candidates, uniform_candidates
from parties.config.section import NonNegative, Positive, PositiveCount, Section

_REFINING: dict[str, Refining] = {
    "uniform": "none",
    "log": "none",
    "ih": "equal_mass",
    "ih_equal_mass": "equal_mass",
    "ih_printed": "printed",
}


class FederatedSection(Section):
    """Parameters of the federated framework, under the estimators' names and with their defaults."""

    split_method: Literal["hist", "pr", "tr"] = Field(
        "tr", description="Splits by histograms, partially or totally random."
    )
    weight_update: Literal["averaging", "gradient", "newton"] = Field(
        "newton", description="Leaf values by averaging, gradient or Newton step."
    )
    split_candidates: Literal["uniform", "log", "ih", "ih_equal_mass", "ih_printed"] = Field(
        "uniform", description="Where split candidates lie: evenly, by logarithm, or by Iterative Hessian."
    )
    interaction: Literal["all", "cyclical", "random"] = Field(
        "all", description="Columns of a tree: all, in turns, or at random."
    )
    columns_per_tree: PositiveCount = Field(1, description="Columns of a tree, where not all.")
    batch_size: PositiveCount | Annotated[float, Field(gt=0, le=1)] = Field(
        1, description="Trees on the same gradients, as a number or a share of all."
    )
    n_estimators: PositiveCount = Field(200, description="Number of trees.")
    trees_per_column: bool = Field(False, description="Whether that number counts per column.")
    max_depth: int = Field(4, ge=1, le=12, description="Levels of a tree.")
    learning_rate: Positive = Field(0.3, description="Factor of every leaf value.")
    reg_lambda: NonNegative | None = Field(
        None, description="L2 regularisation of leaf values; by default from the noise."
    )
    max_leaf: Positive = Field(2.0, description="Bound on leaf values.")
    max_grad: Positive = Field(1.0, description="Bound on a record's gradient.")
    n_candidates: int = Field(32, ge=2, le=65534, description="Split candidates of a column.")
    hessian_rounds: PositiveCount = Field(5, description="Rounds of Iterative Hessian.")
    mirrored: tuple[str, ...] = Field((), description="Columns whose values crowd near the upper bound, for `log`.")

    def grid(self, names: tuple[str, ...], bounds: ColumnBounds, unordered: tuple[int, ...] = ()) -> PublicGrid:
        """The initial split candidates.

        Of columns of `unordered` categories one is parted from the others; methods that read histograms or move the
        candidates take their places in the list for numbers.
        """
        grid = uniform_candidates(bounds, self.n_candidates)
        if self.split_candidates == "log":
            positions = ColumnPositions(names)
            is_mirrored = np.isin(np.arange(len(names)), [positions.of(column) for column in self.mirrored])
            grid = log_candidates(bounds, self.n_candidates, mirrored=is_mirrored)
        if self.split_method != "tr" or _REFINING[self.split_candidates] != "none":
            return grid
        return replace(grid, categorical=unordered)

    def recipe(
        self, task: PublicTask, *, delta: float, n_honest: int | None, are_owners_known: bool = True
    ) -> FederatedAmongOwners:
        """The recipe for a task on `grid`; with `n_honest`, owners add the noise in shares."""
        update = weight_update(self.weight_update, is_classification=task.is_classification, max_grad=self.max_grad)
        choices = self.choices(len(task.names), update)
        noise: QueryAccount | LeafNoise
        if n_honest is None:
            noise = query_account(choices.n_queries(len(task.names)), epsilon=task.epsilon, delta=delta)
            std = noise.multiplier * update.clipping.sensitivity
        else:
            check_noise_in_shares(choices)
            noise = shared_leaf_noise(
                update.clipping, epsilon=task.epsilon, delta=delta, n_trees=choices.n_trees, n_honest=n_honest
            )
            update, std = replace(update, clipping=noise.clipping), noise.grad_std
        strength = self.reg_lambda
        if strength is None:
            strength = strength_for(std, is_classification=update.is_classification)
        leaf = LeafRule(learning_rate=self.learning_rate, reg_lambda=strength, max_leaf=self.max_leaf)
        return FederatedAmongOwners(
            task=task,
            choices=choices,
            update=update,
            leaf=leaf,
            noise=noise,
            delta=delta,
            are_owners_known=are_owners_known,
        )

    def choices(self, n_columns: int, update: WeightUpdate) -> Choices:
        """The choices among the framework's methods."""
        n_trees = self.n_estimators * (n_columns if self.trees_per_column else 1)
        return Choices(
            split_method=self.split_method,
            refining=_REFINING[self.split_candidates],
            hessian_rounds=self.hessian_rounds,
            interaction=self.interaction,
            columns_per_tree=self.columns_per_tree,
            batch_size=trees_per_batch(self.batch_size, n_trees, update),
            n_trees=n_trees,
            max_depth=self.max_depth,
        )
