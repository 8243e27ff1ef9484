"""DPBoost (Li, Wu, Wen, He; AAAI 2020): splits by the exponential mechanism, Laplace leaves, ensembles of ensembles.

A tree spends half of its epsilon on its leaves and half on its levels of splits, in equal parts; the nodes of a level
share no record. In one *ensemble* every record draws, by a coin of its own, the one tree that it may be in, so the
trees of an ensemble cost as much as one of them; ensembles follow each other. `Scheme` has the shares:

=======  ==============================================  ==========================
scheme   trees of an ensemble                            ensembles
=======  ==============================================  ==========================
`eoe`    records in shares ``eta (1 - eta)^t``           ``T / trees_per_ensemble``
`seq`    one, on all records                             T
`para`   records in shares ``2^-(t + 1)``                1
=======  ==============================================  ==========================
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from opboost.arrays import Mask, Sums, Values
from opboost.horizontal.noise.initial_score import InitialScore
from opboost.horizontal.noise.noisy_holder import NoisyHolder, laplace_noise, laplace_release
from opboost.horizontal.rows.public_grid import PublicGrid
from opboost.horizontal.rows.record_holder import Clipping, Gradients, RecordHolder
from opboost.horizontal.splits.exponential_splits import gain_range
from opboost.horizontal.splits.gridless import GridlessColumns, GridlessRule, PointTable, exponential_rule
from opboost.privacy.coins import RecordCoins
from opboost.privacy.releases import Release, SelectionRelease, SharedByCoins
from opboost.privacy.selection import ExponentialMechanism
from opboost.rng import BitSource
from opboost.trees.binning import BinnedTable
from opboost.trees.complete import grow_complete_tree
from opboost.trees.tree import Tree

Scheme = Literal["eoe", "seq", "para"]

# Steps of a leaf's value, per unit of the gradients' bound.
_LEAF_STEPS = 2.0**30

# From the number of records and bits to the records of each tree of an ensemble, in turn, among those who are eligible.
Deals = Callable[[int, BitSource], Callable[[Mask], NDArray[np.int64]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class DPBoostSettings:
    """Settings of a DPBoost model, and how its budget divides.

    Attributes
    ----------
    n_trees, trees_per_ensemble, max_depth : int
    scheme : {"eoe", "seq", "para"}
    learning_rate, reg_lambda : float
    max_grad : float
        g, the bound of a gradient.
    leaf : {"sums", "value"}
        Whether noise goes to a leaf's sum of gradients and to its count, or to its value as in the paper.
    noise_lambda : float
        For ``sums``: the regulariser is at least so many scales of the noise on the count.
    filters_gradients : bool
        Leave records with gradients beyond g out of the tree (GDF) rather than clip them.
    clips_leaves : bool
        Bound the values of the t-th tree of an ensemble, from 0, by ``g (1 - learning_rate)^t`` (GLC).
    utility_range : float
        Of the gain; `gain_range` of g is right.
    """

    n_trees: int
    trees_per_ensemble: int
    max_depth: int
    scheme: Scheme
    learning_rate: float
    reg_lambda: float
    max_grad: float
    leaf: Literal["sums", "value"]
    noise_lambda: float
    filters_gradients: bool
    clips_leaves: bool
    utility_range: float | None = None

    @property
    def coins(self) -> RecordCoins:
        """Probabilities with which a record is in each tree of an ensemble."""
        match self.scheme:
            case "seq":
                return RecordCoins((1.0,))
            case "para":
                return RecordCoins(tuple(2.0 ** -(t + 1) for t in range(self.n_trees)))
            case _:
                n = max(1, min(self.trees_per_ensemble, self.n_trees))
                return RecordCoins.geometric(n, ratio=1 - self.learning_rate)

    @property
    def max_value(self) -> float:
        """Largest absolute value of a leaf, with the largest noise on it that there is."""
        noise = 2.0**62 / _LEAF_STEPS if self.leaf == "value" else 0.0
        return self.learning_rate * self.max_grad * (1.0 + noise)

    @property
    def clipping(self) -> Clipping:
        """Bounds of a record's gradient and of its count."""
        return Clipping(max_grad=self.max_grad, max_hess=1.0)

    @property
    def n_ensembles(self) -> int:
        return -(-self.n_trees // self.coins.n_parts)

    def split_epsilon(self, epsilon: float) -> float:
        """Epsilon of one level of splits, of a tree's epsilon."""
        return epsilon / (2 * self.max_depth) if self.max_depth else math.inf

    def leaf_epsilon(self, epsilon: float) -> float:
        """Epsilon of the leaves, of a tree's epsilon."""
        return epsilon / 2 if self.max_depth else epsilon

    def leaf_bound(self, place: int) -> float:
        """Bound of the values of the tree at this place, from 0, of its ensemble."""
        return self.max_grad * (1 - self.learning_rate) ** place if self.clips_leaves else self.max_grad

    def leaf_sensitivity(self, place: int) -> float:
        """Sensitivity of a leaf's value: ``min(g / (1 + lambda), 2 g (1 - eta)^t)``."""
        return min(self.max_grad / (1 + self.reg_lambda), 2 * self.leaf_bound(place))


def releases(settings: DPBoostSettings, epsilon: float) -> tuple[Release, ...]:
    """Releases of all trees; each tree costs `epsilon` for the records that it may use."""
    tree = _tree_releases(settings, epsilon)
    parts = (tree,) * settings.coins.n_parts
    return (SharedByCoins(coins=settings.coins, parts=parts, count=settings.n_ensembles),)


def train(
    rows: Values,
    labels: Values,
    columns: PublicGrid | GridlessColumns,
    settings: DPBoostSettings,
    *,
    gradients: Gradients,
    epsilon: float,
    initial: InitialScore,
    deals: Deals | None = None,
    rng: BitSource,
) -> tuple[list[Tree], float]:
    """Train the trees of all ensembles.

    Parameters
    ----------
    rows : ndarray of float64, shape (n_rows, n_columns)
    labels : ndarray of float64, shape (n_rows,)
        In [-1, 1], or 0 and 1 for classes.
    columns : PublicGrid or GridlessColumns
        The candidates of the splits.
    settings : DPBoostSettings
    gradients : callable
    epsilon : float
        Of one tree; infinite for no noise.
    initial : callable
        Accounted for by the caller.
    deals : callable, optional
        Another assignment of records to trees than by their coins; the privacy accounting does not cover it.
    rng : BitSource

    Returns
    -------
    list of Tree, float
        In bins or points (`columns` has the values), learning rate included; and the initial score.

    Notes
    -----
    Privacy: `releases`, by one record added or removed. GDF depends on the record and on public trees alone.
    """
    draws = {name: rng.fork(name) for name in ("initial", "coins", "splits", "leaves")}
    score = initial(labels, draws["initial"])
    hand_out = deals or by_coins(settings)
    ensemble_deals: list[Callable[[Mask], NDArray[np.int64]]] = []

    def admit(grad: NDArray[np.int64], hess: NDArray[np.int64]) -> Mask:
        is_eligible = np.ones(len(labels), np.bool_)
        if settings.filters_gradients:
            is_eligible = np.abs(gradients(holder.scores, labels)[0]) <= settings.max_grad
        is_admitted = np.zeros(len(labels), np.bool_)
        is_admitted[ensemble_deals[-1](is_eligible)] = True
        return is_admitted

    placed = columns.place(rows)
    holder = RecordHolder(
        placed.table if isinstance(placed, PointTable) else placed,
        labels,
        gradients=gradients,
        clipping=settings.clipping,
        initial_score=score,
        admit=admit,
    )
    trees: list[Tree] = []
    for t in range(settings.n_trees):
        place = t % settings.coins.n_parts
        if place == 0:
            ensemble_deals.append(hand_out(len(labels), draws["coins"]))
        trees.append(_grow(holder, placed, settings, epsilon, place, draws))
    return trees, score


def by_coins(settings: DPBoostSettings) -> Deals:
    """Assignment of records to trees by a coin per record."""

    def begin(n_records: int, rng: BitSource) -> Callable[[Mask], NDArray[np.int64]]:
        return settings.coins.deal(n_records, rng=rng).next_part

    return begin


def _grow(
    holder: RecordHolder,
    placed: BinnedTable | PointTable,
    settings: DPBoostSettings,
    epsilon: float,
    place: int,
    draws: dict[str, BitSource],
) -> Tree:
    """Grow one tree on the records that are assigned to it."""
    grid, is_on_sums = settings.clipping.grid, settings.leaf == "sums"
    sum_epsilon = settings.leaf_epsilon(epsilon) / 2
    grad_noise = laplace_noise(settings.max_grad, sum_epsilon, grid.grad_scale)
    hess_noise = laplace_noise(1.0, sum_epsilon, grid.hess_scale)
    noises = (grad_noise, hess_noise) if is_on_sums else (None, None)
    leaves = NoisyHolder(holder, noises=noises, n_trees=1, rng=draws["leaves"])
    mechanism = ExponentialMechanism(
        epsilon=settings.split_epsilon(epsilon), utility_range=settings.utility_range or gain_range(settings.max_grad)
    )
    rule = exponential_rule(
        placed, grid, reg_lambda=settings.reg_lambda, mechanism=mechanism, holder=holder, rng=draws["splits"]
    )
    axes = placed.table.axes if isinstance(placed, PointTable) else placed.axes
    bound = settings.leaf_bound(place)

    def leaf_values(totals: Sums) -> Values:
        grad, count = totals[:, 0] / grid.grad_scale, totals[:, 1] / grid.hess_scale
        if is_on_sums:
            strength = max(settings.reg_lambda, settings.noise_lambda / sum_epsilon)
            weight = np.maximum(count, 0.0) + strength
            values = -grad / np.where(weight > 0, weight, 1.0)
            return settings.learning_rate * np.clip(values, -bound, bound)
        weight = count + settings.reg_lambda
        values = np.clip(-grad / np.where(weight > 0, weight, 1.0), -bound, bound)
        return settings.learning_rate * _noisy_values(values, settings, place, epsilon, draws["leaves"])

    leaves.start_tree(0)
    tree = grow_complete_tree(leaves, rule=rule, leaf_values=leaf_values, axes=axes, depth=settings.max_depth)
    leaves.finish_tree(tree)
    return rule.in_points(tree) if isinstance(rule, GridlessRule) else tree


def _value_steps(settings: DPBoostSettings, place: int) -> int:
    """Sensitivity of a leaf's value in steps; rounding two values may add one step."""
    return math.ceil(settings.leaf_sensitivity(place) * (_LEAF_STEPS / settings.max_grad)) + 1


def _noisy_values(values: Values, settings: DPBoostSettings, place: int, epsilon: float, rng: BitSource) -> Values:
    scale = _LEAF_STEPS / settings.max_grad
    codes = np.rint(values * scale).astype(np.int64)
    noise = laplace_noise(_value_steps(settings, place), settings.leaf_epsilon(epsilon), 1.0)
    return codes / scale if noise is None else (codes + noise.draw(len(codes), rng=rng)) / scale


def _tree_releases(settings: DPBoostSettings, epsilon: float) -> tuple[Release, ...]:
    """Releases of one tree; the same for every place in an ensemble."""
    selections: tuple[Release, ...] = ()
    if settings.max_depth:
        selections = (SelectionRelease(epsilon=settings.split_epsilon(epsilon), count=settings.max_depth),)
    leaf_epsilon = settings.leaf_epsilon(epsilon)
    if settings.leaf == "value":
        return (*selections, laplace_release(_value_steps(settings, 0), leaf_epsilon, 1.0))
    grid = settings.clipping.grid
    return (
        *selections,
        laplace_release(settings.max_grad, leaf_epsilon / 2, grid.grad_scale),
        laplace_release(1.0, leaf_epsilon / 2, grid.hess_scale),
    )
