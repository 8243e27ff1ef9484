"""S-GBDT (Kirschte et al., 2023): random complete trees, noisy leaf sums, and a filter that pays for more trees.

A tree's shape is drawn without the data, or by what earlier releases tell
(`opboost.horizontal.splits.learned_column_sampling`). So all that is released of it is one vector: per leaf, the sums
of the gradients g and of the counts or Hessians h, with Gaussian noise of its own on each (*dynamic* leaf noise). One
record is in one leaf. The account is the one of `opboost.horizontal.noise.leaf_noise`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from opboost.arrays import Sums, Values
from opboost.errors import AccountError
from opboost.horizontal.noise.initial_score import InitialScore
from opboost.horizontal.noise.leaf_noise import LeafNoise
from opboost.horizontal.noise.leaf_sensitivity import VALUE_STEPS
from opboost.horizontal.noise.noisy_holder import NoisyHolder, gaussian_noise, laplace_noise
from opboost.horizontal.rows.public_grid import PublicGrid
from opboost.horizontal.rows.record_holder import Gradients, WalkingHolder
from opboost.horizontal.sgbdt.admission import admission
from opboost.horizontal.splits.learned_column_sampling import LearntColumns
from opboost.rng import BitSource, Words
from opboost.trees.complete import ColumnTurns, LeafValues, RandomRule, drawn_columns, grow_complete_tree
from opboost.trees.holder import RowHolder, SummedHolders
from opboost.trees.tree import Tree

# Steps of a label in the sum of a published initial score.
_MEAN_STEPS = 2.0**20


@dataclass(frozen=True, slots=True, kw_only=True)
class SGBDTSettings:
    """Settings of the trees and of their leaf values; they do not change the privacy accounting.

    Attributes
    ----------
    max_depth : int
    learning_rate : float
    reg_lambda : float
        Least regulariser of a leaf's denominator.
    noise_lambda : float
        The regulariser is at least this many times the largest Hessian times the noise multiplier: a leaf counts by
        how far it stands out of the noise, whose size is public.
    max_leaf : float
        Bound of a leaf's value before the learning rate.
    columns_per_tree : int
        0 for all.
    learns_columns : bool
        Draw columns by what the released sums of earlier trees tell, rather than evenly.
    later_rate : float
        Without a filter, share of the learning rate for trees on records that arrive after others have trained: such
        trees see nothing of those before.
    floor : bool
        Whether the regulariser is the least denominator, as the paper has it, rather than added to it.
    """

    max_depth: int
    learning_rate: float
    reg_lambda: float
    noise_lambda: float
    max_leaf: float
    columns_per_tree: int = 0
    learns_columns: bool = False
    later_rate: float = 1.0
    floor: bool = False

    def leaf_values(self, totals: Sums, noise: LeafNoise) -> Values:
        """Leaf values from noisy sums."""
        grid = noise.clipping.grid
        grad, hess = totals[:, 0] / grid.grad_scale, totals[:, 1] / grid.hess_scale
        strength = max(self.reg_lambda, self.noise_lambda * noise.multiplier * noise.clipping.max_hess)
        if self.floor:
            steps = grad / np.maximum(hess, max(strength, math.ulp(1.0)))
        else:
            # A denominator that noise has made negative says nothing about the gradients.
            weight = np.maximum(hess, 0.0) + strength
            steps = np.where(weight > 0, grad, 0.0) / np.where(weight > 0, weight, 1.0)
        return -self.learning_rate * np.clip(steps, -self.max_leaf, self.max_leaf)


class SGBDT:
    """Training of an S-GBDT model, on records that may arrive over time.

    Parameters
    ----------
    columns : PublicGrid
    gradients : callable
    settings : SGBDTSettings
    noise : LeafNoise
    initial : callable
    rng : BitSource
    shape_bits : BitSource, optional
        Source of the trees' shapes; by default a part of `rng`. They may be known to everybody.
    leaf_values : callable, optional
        Leaf values from the holders' sums; by default those of `settings`.

    Notes
    -----
    Privacy: that of `noise`, between data sets that differ by one record, added or removed, for the initial score and
    all trees together. It holds for any number of trees with a filter, and for `noise.n_trees` on every record without.
    The number of trees never depends on the data.
    """

    def __init__(
        self,
        columns: PublicGrid,
        *,
        gradients: Gradients,
        settings: SGBDTSettings,
        noise: LeafNoise,
        initial: InitialScore,
        rng: BitSource,
        shape_bits: BitSource | None = None,
        leaf_values: LeafValues | None = None,
    ) -> None:
        self._columns = columns
        self._gradients = gradients
        self._settings = settings
        self._noise = noise
        self._initial = initial
        self._draws = {name: rng.fork(name) for name in ("initial", "shape", "noise", "coins")}
        bits = shape_bits or self._draws["shape"]
        n_columns, n_drawn = columns.axes.n_columns, settings.columns_per_tree
        self._learnt: LearntColumns | None = None
        if settings.learns_columns and 0 < n_drawn < n_columns:
            self._learnt = LearntColumns(n_columns, n_drawn, bits.uniforms)
        self._rule = random_rule(columns, settings, bits, turns=self._learnt)
        self._given_values = leaf_values
        self._holders: list[RowHolder] = []
        self._share = 1.0
        self.initial_score: float | None = None
        self.trees: list[Tree] = []

    @property
    def max_value(self) -> float:
        """Largest absolute value of a leaf, with the largest noise on it that there is."""
        noise = 2.0**62 / VALUE_STEPS if self._noise.value_std else 0.0
        settings = self._settings
        return max(1.0, settings.later_rate) * settings.learning_rate * (settings.max_leaf + noise)

    def enrol(self, rows: Values, labels: Values) -> None:
        """Add records: the first ones, or newly arrived ones.

        Without a filter, records that came before have spent their budget and are not used again.

        Parameters
        ----------
        rows : ndarray of float64, shape (n_rows, n_columns)
        labels : ndarray of float64, shape (n_rows,)
            In [-1, 1], or 0 and 1 for classes.
        """
        if self.initial_score is None:
            self.initial_score = self._initial(labels, self._draws["initial"])
        holder = record_rows(
            self._columns,
            rows,
            labels,
            gradients=self._gradients,
            noise=self._noise,
            initial_score=self.initial_score,
            coins=self._draws["coins"],
        )
        holder.catch_up(self.trees)
        self._holders = [*self._holders, holder] if self._noise.has_filter else [holder]

    def enrol_holder(self, holder: RowHolder) -> None:
        """Add records in a holder made by `record_rows`, with scores of 0."""
        self.initial_score = 0.0
        self._holders.append(holder)

    def check_paid(self, n_trees: int) -> None:
        """Refuse to grow more trees on the same records than the noise was made for, without a filter."""
        if not self._noise.has_filter and n_trees > self._noise.n_trees:
            raise AccountError(f"the account is for {self._noise.n_trees} trees without a filter; got {n_trees}")

    def grow(self, n_trees: int) -> None:
        """Grow trees on all records with budget left.

        Raises
        ------
        AccountError
            If, without a filter, records would be used for more trees than the noise was made for.
        """
        noise = self._noise
        if not self._holders:
            raise AccountError("there are no records to grow trees on; nothing was released")
        self.check_paid(n_trees)
        noisy = NoisyHolder(
            SummedHolders(self._holders.copy()) if len(self._holders) > 1 else self._holders[0],
            noises=noise.sum_laws,
            n_trees=n_trees,
            rng=self._draws["noise"],
        )
        for _ in range(n_trees):
            noisy.start_tree(0)
            tree = grow_complete_tree(
                noisy,
                rule=self._rule,
                leaf_values=self._leaf_values,
                axes=self._columns.axes,
                depth=self._settings.max_depth,
            )
            noisy.finish_tree(tree)
            self.trees.append(tree)
        if not noise.has_filter:
            self._holders = []
            self._share = self._settings.later_rate

    def _leaf_values(self, totals: Sums) -> Values:
        return self._share * self._whole_values(totals)

    def _whole_values(self, totals: Sums) -> Values:
        if self._given_values is not None:
            return self._given_values(totals)
        if self._noise.value_std is not None:
            # These sums are exact, and nothing may be learnt from them.
            return self._static_values(totals, self._noise.value_std)
        if self._learnt is not None:
            self._learnt.learn(totals[:, 0] / self._noise.clipping.grid.grad_scale, self._noise.grad_std)
        return self._settings.leaf_values(totals, self._noise)

    def _static_values(self, totals: Sums, std: float) -> Values:
        """Leaf values with static noise: exact values, and noise for the worst case."""
        grid, settings = self._noise.clipping.grid, self._settings
        weight = totals[:, 1] / grid.hess_scale + settings.reg_lambda
        values = -totals[:, 0] / grid.grad_scale / np.where(weight > 0, weight, 1.0)
        codes = np.rint(np.clip(values, -settings.max_leaf, settings.max_leaf) * VALUE_STEPS).astype(np.int64)
        noise = gaussian_noise(std, VALUE_STEPS)
        if noise is not None:
            codes += noise.draw(len(codes), rng=self._draws["noise"])
        return np.asarray(codes, dtype=np.float64) * (settings.learning_rate / VALUE_STEPS)


def record_rows(
    columns: PublicGrid,
    rows: Values,
    labels: Values,
    *,
    gradients: Gradients,
    noise: LeafNoise,
    initial_score: float,
    coins: Words | None,
) -> WalkingHolder:
    """Record holder of one owner, with an individual privacy filter and Poisson sampling as the noise has them."""
    return WalkingHolder(
        columns.place(rows),
        labels,
        gradients=gradients,
        clipping=noise.clipping,
        initial_score=initial_score,
        admit=admission(noise, len(labels), coins=coins),
    )


def random_rule(
    columns: PublicGrid, settings: SGBDTSettings, bits: BitSource, *, turns: ColumnTurns | None = None
) -> RandomRule:
    """Random rule of the trees' shapes, from these bits and the columns of each tree."""
    drawn = turns or drawn_columns(columns.axes.n_columns, settings.columns_per_tree, bits.uniforms)
    return RandomRule(columns.axes, columns=drawn, uniforms=bits.uniforms)


def printed_mean(labels: Values, rng: BitSource, *, epsilon: float) -> float:
    """Published initial score (algorithm 6): mean of labels in [-1, 1] plus Laplace noise of scale ``2 / (n epsilon)``.

    Notes
    -----
    Privacy: `epsilon` if the number of records is public; none between data sets that differ by one record more or
    less, since the scale depends on how many there are. The noise is on the sum of labels on a grid, because the last
    bits of a mean would tell it.
    """
    total = np.trunc(np.clip(labels, -1, 1) * _MEAN_STEPS).astype(np.int64).sum(keepdims=True)
    noise = laplace_noise(2.0, epsilon, _MEAN_STEPS)
    if noise is not None:
        total += noise.draw(1, rng=rng)
    return float(total[0] / (len(labels) * _MEAN_STEPS))
