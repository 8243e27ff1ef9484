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
from dataclasses import dataclass
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
from opboost.horizontal.splits.column_schedule import Interaction, column_turns, uniforms_of
from opboost.horizontal.splits.split_candidates import Refinement
from opboost.rng import BitSource
from opboost.trees.complete import CompleteShape, RandomRule, Uniforms, grow_complete_shape
from opboost.trees.tree import Tree

SplitMethod = Literal["hist", "pr", "tr"]
Refining = Literal["none", "printed", "equal_mass"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Choices:
    """A point in the framework's space, but for the weight update.

    Attributes
    ----------
    split_method : {"hist", "pr", "tr"}
    refining : {"none", "printed", "equal_mass"}
        Whether candidates follow noisy Hessians, and by which rule.
    hessian_rounds : int
        Trees that begin with a question for Hessians, where no histograms are asked for anyway.
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
        least = {"hessian_rounds": 1, "columns_per_tree": 1, "batch_size": 1, "n_trees": 0, "max_depth": 1}
        for name, low in least.items():
            check_integer(name, getattr(self, name), least=low)

    def n_columns_of_a_tree(self, n_columns: int) -> int:
        return n_columns if self.interaction == "all" else min(self.columns_per_tree, n_columns)

    @property
    def n_batches(self) -> int:
        """How often gradients are computed."""
        return math.ceil(self.n_trees / self.batch_size)

    def n_queries(self, n_columns: int) -> int:
        """The paper's kappa: how many queries the account must be for (table 1)."""
        k = self.n_columns_of_a_tree(n_columns)
        match self.split_method:
            case "hist":
                return self.n_trees * (1 if k == 1 else self.max_depth * k)
            case "pr":
                per_tree = self.max_depth * k + 1
            case "tr":
                per_tree = 1
        refined = k if self.interaction == "random" else n_columns
        n_refinements = min(self.hessian_rounds, self.n_trees) if self.refining != "none" else 0
        return self.n_trees * per_tree + n_refinements * refined


def trees_per_batch(batch_size: int | float, n_trees: int, update: WeightUpdate) -> int:
    """A number of trees, or a share of all of them; all of them if vectors do not depend on scores.

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
    """What a training ends with.

    Attributes
    ----------
    trees : tuple of Tree
        On values, their leaves on the scale of training; sums of values are scores.
    n_queries : int
        That were asked.
    n_rounds, n_bytes : int
        Messages of one client, and their size, without what secure aggregation adds.
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
    differ by one record, added or removed. No other answer about the data is had.
    """
    bits = shape_bits or rng.fork("shape")
    return _Training(clients, columns, choices, update, leaf, multiplier, bits, rng.fork("noise")).run()


@dataclass(frozen=True, slots=True)
class _Unfinished:
    """A tree whose leaves were asked for, in the bins of its time."""

    shape: CompleteShape
    columns: PublicGrid
    sums: Later


class _Training:
    """The steps of a training."""

    def __init__(
        self,
        clients: ClientHolder,
        columns: PublicGrid,
        choices: Choices,
        update: WeightUpdate,
        leaf: LeafRule,
        multiplier: float,
        shape_bits: BitSource,
        noise_bits: BitSource,
    ) -> None:
        axes: HistogramAxes = columns.axes
        uniforms = uniforms_of(shape_bits)
        self._axes = axes
        self._columns = columns
        self._choices = choices
        self._update = update
        self._leaf = leaf
        self._holder = QueryHolder(
            clients, axes=axes, update=update, multiplier=multiplier, n_queries=choices.n_queries(axes.n_columns),
            rng=noise_bits,
        )  # fmt: skip
        self._turns = column_turns(choices.interaction, axes.n_columns, choices.columns_per_tree, uniforms=uniforms)
        self._turn: NDArray[np.int64] = np.arange(axes.n_columns)
        self._random = RandomRule(axes, columns=lambda: self._turn, uniforms=uniforms)
        self._noisy = self._noisy_rule(uniforms)
        self._unfinished: list[_Unfinished] = []
        self._trees: list[Tree] = []
        is_refining = choices.refining != "none"
        self._refinement = Refinement(columns, equal_mass=choices.refining == "equal_mass") if is_refining else None

    def run(self) -> Trained:
        for number in range(self._choices.n_trees):
            in_batch = number % self._choices.batch_size
            self._turn = self._turns()
            self._holder.start_tree(in_batch)
            refined = self._refined(number)
            if self._noisy is None:
                self._grow_at_random()
                if number + 1 in (number - in_batch + self._choices.batch_size, self._choices.n_trees):
                    self._finish_batch(self._share(number))
            else:
                self._finish(self._grow(self._noisy, self._share(number)), self._columns)
            self._take(refined if self._choices.split_method != "hist" else self._refined_by_root())
        return Trained(
            trees=tuple(self._trees), n_queries=self._holder.n_asked, n_rounds=self._holder.n_rounds,
            n_bytes=self._holder.n_bytes,
        )  # fmt: skip

    def _noisy_rule(self, uniforms: Uniforms) -> NoisyRule | None:
        match self._choices.split_method:
            case "hist":
                return HistogramRule(self._update, self._leaf)
            case "pr":
                return OneCutRule(self._update, self._leaf, uniforms=uniforms)
            case _:
                return None

    def _share(self, number: int) -> float:
        """What a tree's values are multiplied by: batches, and forests as a whole, are averaged."""
        choices = self._choices
        if self._update.name == "averaging":
            return 1.0 / choices.n_trees
        begin = number - number % choices.batch_size
        return 1.0 / min(choices.batch_size, choices.n_trees - begin)

    def _leaf_values(self, sums: Sums, share: float) -> Values:
        return share * self._update.values(*self._update.read(sums), self._leaf)

    def _grow(self, rule: NoisyRule, share: float) -> Tree:
        return grow_noisy_tree(
            self._holder, rule=rule, columns=self._turn, update=self._update,
            leaf_values=lambda sums: self._leaf_values(sums, share), axes=self._axes, depth=self._choices.max_depth,
        )  # fmt: skip

    def _grow_at_random(self) -> None:
        """Begin a tree whose shape needs no answer; the batch's leaves are asked for together."""
        depth = self._choices.max_depth
        shape = grow_complete_shape(self._holder, rule=self._random, axes=self._axes, depth=depth)
        self._unfinished.append(_Unfinished(shape, self._columns, self._holder.totals_later(shape.leaves)))

    def _finish_batch(self, share: float) -> None:
        for each in self._unfinished:
            self._finish(each.shape.with_leaf_values(self._leaf_values(each.sums(), share)), each.columns)
        self._unfinished.clear()

    def _finish(self, tree: Tree, columns: PublicGrid) -> None:
        self._holder.finish_tree(tree)
        self._trees.append(columns.in_values(tree))

    def _refined(self, number: int) -> PublicGrid | None:
        """Candidates for the next tree, from a question of their own."""
        choices, refinement = self._choices, self._refinement
        if refinement is None or choices.split_method == "hist" or number >= choices.hessian_rounds:
            return None
        which = self._turn if choices.interaction == "random" else np.arange(self._axes.n_columns)
        return refinement.learn(which, self._holder.weights(which))

    def _refined_by_root(self) -> PublicGrid | None:
        """Candidates for the next tree, from the histograms that this one's root was asked for; at no cost."""
        if self._refinement is None:
            return None
        assert isinstance(self._noisy, HistogramRule)
        return self._refinement.learn(self._turn, self._update.read(self._noisy.root)[1][0])

    def _take(self, columns: PublicGrid | None) -> None:
        if columns is not None:
            self._columns = columns
            self._holder.place(columns)
