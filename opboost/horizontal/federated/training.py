"""The federated DP-GBDT framework (Maddock et al., CCS 2022): five choices, one recipe.

====  ====================  =====================================================================================
C1    split method          histograms, one random cut per column (partially random), or totally random
C2    weight update         averaging, gradient, Newton (`opboost.horizontal.federated.weight_updates`)
C3    split candidates      even, logarithmic, quantiles, Iterative Hessian (`splits.split_candidates`)
A1    feature interactions  all columns, k in turn, k drawn (`opboost.horizontal.splits.column_schedule`)
A2    batched updates       gradients are computed once for B trees, whose values are averaged
====  ====================  =====================================================================================

Clients are asked for sums alone, through a `QueryHolder` that counts the questions, adds the noise and refuses what
was not paid for. Everything else is post-processing of its answers or drawn without the data. Scores begin at 0.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from opboost.arrays import HistogramAxes, Sums, Values
from opboost.errors import ParameterError, check_choice, check_integer
from opboost.horizontal.federated.noisy_trees import HistogramRule, NoisyRule, OneCutRule, grow_noisy_tree
from opboost.horizontal.federated.query_holder import QueryHolder
from opboost.horizontal.federated.weight_updates import LeafRule, WeightUpdate
from opboost.horizontal.rows.client_rows import ClientHolder, Later
from opboost.horizontal.rows.public_grid import PublicGrid
from opboost.horizontal.splits.column_schedule import Interaction, column_turns, uniforms_ahead
from opboost.horizontal.splits.split_candidates import Refinement
from opboost.rng import BitSource
from opboost.trees.complete import ColumnTurns, CompleteShape, RandomRule, Uniforms, check_depth, grow_complete_shape
from opboost.trees.tree import Tree

SplitMethod = Literal["hist", "pr", "tr"]
Refining = Literal["none", "printed", "equal_mass"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Choices:
    """The choices of the framework, except the weight update.

    Attributes
    ----------
    split_method : {"hist", "pr", "tr"}
    refining : {"none", "printed", "equal_mass"}
        Whether candidates follow noisy Hessians, and by which rule.
    hessian_rounds : int
        Number of first trees that begin with a query of Hessians, unless the split method asks for histograms anyway.
    interaction : {"all", "cyclical", "random"}
    columns_per_tree : int
        For ``cyclical`` and ``random``.
    batch_size : int
        Trees on the same gradients.
    n_trees, max_depth : int
    """

    split_method: SplitMethod
    refining: Refining = "none"
    hessian_rounds: int = 5
    interaction: Interaction = "all"
    columns_per_tree: int = 1
    batch_size: int = 1
    n_trees: int
    max_depth: int

    def __post_init__(self) -> None:
        check_choice("split_method", self.split_method, "hist", "pr", "tr")
        for name, least in (("hessian_rounds", 1), ("columns_per_tree", 1), ("batch_size", 1), ("n_trees", 0)):
            check_integer(name, getattr(self, name), least=least)
        check_depth(self.max_depth, least=1)

    def n_columns_of_a_tree(self, n_columns: int) -> int:
        return n_columns if self.interaction == "all" else min(self.columns_per_tree, n_columns)

    @property
    def n_batches(self) -> int:
        """Number of batches, each of which computes gradients once."""
        return math.ceil(self.n_trees / self.batch_size)

    def n_queries(self, n_columns: int) -> int:
        """Number of queries that the account must cover, the paper's kappa (table 1)."""
        k = self.n_columns_of_a_tree(n_columns)
        match self.split_method:
            case "hist":
                return self.n_trees * (1 if k == 1 else self.max_depth * k)
            case "pr":
                per_tree = self.max_depth * k + 1
            case "tr":
                per_tree = 1
        return self.n_trees * per_tree + self.n_hessian_queries(n_columns)

    def n_hessian_queries(self, n_columns: int) -> int:
        """How many of `n_queries` are for Hessians alone."""
        if self.split_method == "hist" or self.refining == "none":
            return 0
        refined = self.n_columns_of_a_tree(n_columns) if self.interaction == "random" else n_columns
        return min(self.hessian_rounds, self.n_trees) * refined


def trees_per_batch(batch_size: int | float, n_trees: int, update: WeightUpdate) -> int:
    """Trees per batch from a number or a share of all trees; all trees if contributions do not depend on scores.

    Raises
    ------
    ParameterError
        If a share is not in (0, 1].
    """
    if update.name == "averaging":
        return max(n_trees, 1)
    if not isinstance(batch_size, (float, np.floating)):
        return batch_size
    if not 0 < batch_size <= 1:
        raise ParameterError(f"batch_size must be a number of trees or a share of them in (0, 1]; got {batch_size!r}")
    return max(math.ceil(batch_size * n_trees), 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trained:
    """Result of a training: trees and what they cost in queries and messages.

    Attributes
    ----------
    trees : tuple of Tree
        On values, their leaves on the scale of training; sums of values are scores.
    n_queries : int
        Queries asked.
    n_rounds, n_bytes : int
        Messages of one client, and their size, without the overhead of secure aggregation.
    """

    trees: tuple[Tree, ...]
    n_queries: int
    n_rounds: int
    n_bytes: int


def train(
    clients: ClientHolder,
    columns: PublicGrid,
    choices: Choices,
    *,
    update: WeightUpdate,
    leaf: LeafRule,
    multiplier: float,
    rng: BitSource,
    shape_bits: BitSource | None = None,
) -> Trained:
    """Train on the rows of clients.

    Parameters
    ----------
    clients : ClientHolder
        Their rows placed in `columns`, their contributions those of `update`.
    columns : PublicGrid
        The split candidates to begin with.
    choices : Choices
    update : WeightUpdate
    leaf : LeafRule
    multiplier : float
        Deviation of the noise on a query over its sensitivity; 0 for no noise.
    rng : BitSource
    shape_bits : BitSource, optional
        Where random columns and cuts come from; by default a part of `rng`. They may be known to everybody.

    Notes
    -----
    Privacy: ``choices.n_queries(n_columns)`` Gaussian releases of ``mu = 1 / multiplier`` at most, between data that
    differ by one record, added or removed. The data are used in no other way.
    """
    bits, axes = shape_bits or rng.fork("shape"), columns.axes
    holder = QueryHolder(
        clients,
        axes=axes,
        update=update,
        multiplier=multiplier,
        n_queries=choices.n_queries(axes.n_columns),
        rng=rng.fork("noise"),
    )
    return _Training(columns, choices, update, leaf, holder, uniforms_ahead(bits)).run()


@dataclass(frozen=True, slots=True)
class _Unfinished:
    """A tree whose leaf sums were asked for but not yet read, in the bins of that time."""

    shape: CompleteShape
    columns: PublicGrid
    sums: Later


@dataclass(slots=True)
class _Training:
    """The state of a training, and its steps."""

    columns: PublicGrid
    choices: Choices
    update: WeightUpdate
    leaf: LeafRule
    holder: QueryHolder
    uniforms: Uniforms
    axes: HistogramAxes = field(init=False)
    turns: ColumnTurns = field(init=False)
    turn: NDArray[np.int64] = field(init=False)
    random: RandomRule = field(init=False)
    noisy: NoisyRule | None = field(init=False, default=None)
    refinement: Refinement | None = field(init=False, default=None)
    unfinished: list[_Unfinished] = field(init=False, default_factory=list)
    trees: list[Tree] = field(init=False, default_factory=list)

    def __post_init__(self) -> None:
        choices, axes = self.choices, self.columns.axes
        self.axes, self.turn = axes, np.arange(axes.n_columns)
        self.turns = column_turns(choices.interaction, axes.n_columns, choices.columns_per_tree, uniforms=self.uniforms)
        self.random = RandomRule(axes, columns=lambda: self.turn, uniforms=self.uniforms)
        if choices.split_method == "hist":
            self.noisy = HistogramRule(self.update, self.leaf)
        elif choices.split_method == "pr":
            self.noisy = OneCutRule(self.update, self.leaf, uniforms=self.uniforms)
        if choices.refining != "none":
            self.refinement = Refinement(self.columns, equal_mass=choices.refining == "equal_mass")

    def run(self) -> Trained:
        for number in range(self.choices.n_trees):
            in_batch = number % self.choices.batch_size
            self.turn = self.turns()
            self.holder.start_tree(in_batch)
            refined = self._refined(number)
            if self.noisy is None:
                self._grow_at_random()
                if number + 1 in (number - in_batch + self.choices.batch_size, self.choices.n_trees):
                    self._finish_batch(self._share(number))
            else:
                self._finish(self._grow(self.noisy, self._share(number)), self.columns)
            self._take(refined if self.choices.split_method != "hist" else self._refined_by_root())
        return Trained(
            trees=tuple(self.trees),
            n_queries=self.holder.n_asked,
            n_rounds=self.holder.n_rounds,
            n_bytes=self.holder.n_bytes,
        )

    def _share(self, number: int) -> float:
        """Factor of a tree's values: the trees of a batch, or of a whole forest, are averaged."""
        choices = self.choices
        if self.update.name == "averaging":
            return 1.0 / choices.n_trees
        begin = number - number % choices.batch_size
        return 1.0 / min(choices.batch_size, choices.n_trees - begin)

    def _leaf_values(self, sums: Sums, share: float) -> Values:
        return share * self.update.values(*self.update.read(sums), self.leaf)

    def _grow(self, rule: NoisyRule, share: float) -> Tree:
        return grow_noisy_tree(
            self.holder,
            rule=rule,
            columns=self.turn,
            update=self.update,
            leaf_values=lambda sums: self._leaf_values(sums, share),
            axes=self.axes,
            depth=self.choices.max_depth,
        )

    def _grow_at_random(self) -> None:
        """Grow a random tree's shape; the leaf sums of a batch are asked for together."""
        depth = self.choices.max_depth
        shape = grow_complete_shape(self.holder, rule=self.random, axes=self.axes, depth=depth)
        self.unfinished.append(_Unfinished(shape, self.columns, self.holder.totals_later(shape.leaves)))

    def _finish_batch(self, share: float) -> None:
        for tree in self.unfinished:
            self._finish(tree.shape.with_leaf_values(self._leaf_values(tree.sums(), share)), tree.columns)
        self.unfinished.clear()

    def _finish(self, tree: Tree, columns: PublicGrid) -> None:
        self.holder.finish_tree(tree)
        self.trees.append(columns.in_values(tree))

    def _refined(self, number: int) -> PublicGrid | None:
        """Refined candidates for the next tree, from a query of their own."""
        choices, refinement = self.choices, self.refinement
        if refinement is None or choices.split_method == "hist" or number >= choices.hessian_rounds:
            return None
        which = self.turn if choices.interaction == "random" else np.arange(self.axes.n_columns)
        return refinement.learn(which, self.holder.weights(which))

    def _refined_by_root(self) -> PublicGrid | None:
        """Refined candidates for the next tree, from the released histograms of this tree's root; no privacy cost."""
        if self.refinement is None:
            return None
        assert isinstance(self.noisy, HistogramRule)
        return self.refinement.learn(self.turn, self.update.read(self.noisy.root)[1][0])

    def _take(self, columns: PublicGrid | None) -> None:
        if columns is not None:
            self.columns = columns
            self.holder.place(columns)
