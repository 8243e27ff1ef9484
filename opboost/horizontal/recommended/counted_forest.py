"""Classes without a delta: random trees whose leaves hold noisy counts of the classes.

Purely private releases cost the sum of their epsilons, Gaussian ones the root of the sum of squares: without a delta,
boosting's many small steps cost most. A tree's counts of all classes together have a sensitivity of 1, where the
gradients of several classes have 2 (`opboost.horizontal.recommended.counted_trees`).
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from opboost.arrays import Values
from opboost.horizontal.noise.noisy_holder import NoisyHolder, laplace_noise, laplace_release
from opboost.horizontal.recommended.counted_trees import grow_counted
from opboost.horizontal.recommended.first_releases import scores_of_counts
from opboost.horizontal.recommended.training import TrainedBatches
from opboost.horizontal.recommended.tree_sizes import GivenSizes, TreeSizes, levels_of
from opboost.horizontal.rows.joint_rows import JointRows, softmax_gradients
from opboost.horizontal.rows.public_grid import PublicGrid
from opboost.horizontal.rows.record_holder import Clipping
from opboost.horizontal.splits.column_schedule import uniforms_ahead
from opboost.horizontal.splits.noisy_cells import (
    N_COUNTED,
    N_ROUNDS,
    STEPS,
    counted_columns,
    crowded_columns,
    placed_cells,
)
from opboost.privacy.releases import Release
from opboost.rng import BitSource
from opboost.trees.tree import Tree

# Shares of epsilon: the counts of two classes, of more classes, each of which has fewer records, and of the columns'
# cells where they tell anything; the rest is for the trees. Inside the first training fold, shares of .05, .1 and .2
# for several classes have a mean accuracy (epsilon .1, .5, 1 and 4) of .456, .522, .522 on ten digits and .441, .442,
# .460 on Letter.
_SHARE_OF_TWO, _SHARE_OF_SEVERAL, _CELLS_SHARE = 0.05, 0.1, 0.1

# Cells are counted where the deviation of the noise is no more than so many even shares of the records: between
# bounds that are too wide, most records of a column are in one. With 1 in place of 4, inside the first training fold,
# Spambase at 4 falls from .91 to .66 and Shoppers at .5 from .85 to .79; the sample does not change.
_LARGEST_DEVIATION = 4.0

# Steps of a class's count.
_STEPS = 2.0**8

# Shares are rounded down, so that their sum does not exceed the whole.
_ROUND_DOWN = 1 - 1e-12

# Trees, at least and at most; in between, as many as the root of the records per class times epsilon.
_TREES = 5, 40

# Levels, at least and at most; in between, so many fewer than give every record a leaf of its own.
_DEPTHS, _FEWER_LEVELS = (3, 12), 3


def train_forest(
    columns: PublicGrid, rows: Values, labels: Values, *, epsilon: float, sizes: GivenSizes, rng: BitSource
) -> TrainedBatches:
    """Train on classes.

    Parameters
    ----------
    columns : PublicGrid
        Even cells between public bounds.
    rows : ndarray of float64, shape (n_rows, n_columns)
    labels : ndarray of float64, shape (n_classes, n_rows)
        1 for a record's class and 0 for the others.
    epsilon : float
        Infinite for no noise.
    sizes : GivenSizes
        Others are those of `forest_sizes`.
    rng : BitSource

    Notes
    -----
    Privacy: epsilon-DP between data sets that differ by one record, added or removed: the releases' epsilons add up to
    no more than `epsilon`. Each has an L1 sensitivity of 1, the cells' of one per column of numbers; sizes, and whether
    cells are counted, follow from the first of them.
    """
    counts_epsilon = (_SHARE_OF_TWO if len(labels) == 2 else _SHARE_OF_SEVERAL) * epsilon
    counts = _class_counts(labels, counts_epsilon, rng.fork("score"))
    scores, n_records = scores_of_counts(counts)
    chosen = sizes.or_else(forest_sizes(n_records, epsilon, len(labels)))
    n_trees = chosen.n_trees
    # Without trees nothing takes up what the cells leave, and the promise would follow from a noisy count.
    spent_on_cells = cells_epsilon(columns, n_records, epsilon) if n_trees else 0.0
    columns = _placed(columns, rows, spent_on_cells, rng.fork("cells"))
    rest = epsilon - counts_epsilon - spent_on_cells
    tree_epsilon = epsilon if math.isinf(epsilon) else rest / max(n_trees, 1) * _ROUND_DOWN
    shares = np.maximum(counts, 0.0) + 1.0
    trees = _grow(columns, rows, labels, shares / shares.sum(), chosen, tree_epsilon, rng)
    releases: tuple[Release, ...] = ()
    if math.isfinite(epsilon):
        releases = _releases(counts_epsilon, spent_on_cells, len(counted_columns(columns)), tree_epsilon, n_trees)
    return TrainedBatches(
        trees=tuple(trees),
        base_scores=scores,
        centre=0.0,
        spread=1.0,
        releases=releases,
        crowded=tuple(crowded_columns(columns)),
        n_records=n_records,
        signal=n_records * epsilon / len(labels),
    )


def forest_sizes(n_records: float, epsilon: float, n_classes: int) -> TreeSizes:
    """Number and depth of the trees, from a noisy number of records and public numbers.

    Inside the training folds of six tables (epsilon .1, .5, 1 and 4), half or twice as many trees, a level more or less
    and half or twice the prior move the mean score by .006 at most; what the other tables favour is not better on the
    one that is left out (-.011).
    """
    signal = min(max(n_records, 1.0) * epsilon / n_classes, 1e9)
    n_trees = min(max(round(math.sqrt(signal)), _TREES[0]), _TREES[1])
    return TreeSizes(n_trees, levels_of(n_records, n_fewer=_FEWER_LEVELS, limits=_DEPTHS))


def cells_epsilon(columns: PublicGrid, n_records: float, epsilon: float) -> float:
    """Epsilon of the counts of the columns' cells; 0 where noise would hide even a crowded cell."""
    n_columns, share = len(counted_columns(columns)), _CELLS_SHARE * epsilon
    deviation = math.sqrt(2) * n_columns * N_ROUNDS / share
    return share if n_columns and deviation <= _LARGEST_DEVIATION * n_records / N_COUNTED else 0.0


def _placed(columns: PublicGrid, rows: Values, epsilon: float, rng: BitSource) -> PublicGrid:
    """Cuts that are close where records are many, for a positive epsilon.

    Notes
    -----
    Privacy: `N_ROUNDS` releases of an L1 sensitivity of one per column of numbers.
    """
    if not epsilon:
        return columns
    noise = laplace_noise(float(len(counted_columns(columns))), epsilon / N_ROUNDS, STEPS)
    std = math.sqrt(noise.variance) / STEPS if noise else 0.0
    return placed_cells(columns, rows, std=std, noise=noise, rng=rng)


def _grow(
    columns: PublicGrid, rows: Values, labels: Values, shares: Values, sizes: TreeSizes, epsilon: float, rng: BitSource
) -> list[Tree]:
    """Grow the trees on values, round by round one per output.

    Notes
    -----
    Privacy: one release of an L1 sensitivity of 1 per tree, at `epsilon`: a record adds 1 to one count.
    """
    counting = _counting(epsilon)
    exact = JointRows(
        columns.place(rows),
        labels,
        gradients=softmax_gradients,
        clipping=counting,
        initial_scores=np.log(shares),
        n_counted=sizes.n_trees,
    )
    noise, steps = laplace_noise(1.0, epsilon, counting.grid.grad_scale), counting.grid.grad_scale
    rounds = grow_counted(
        NoisyHolder(exact, noises=(noise, None), n_trees=sizes.n_trees, rng=rng.fork("noise")),
        exact,
        columns=columns,
        shares=shares,
        sizes=sizes,
        std=math.sqrt(noise.variance) / steps if noise else 0.0,
        steps=steps,
        uniforms=uniforms_ahead(rng.fork("shape")),
    )
    if len(labels) > 2:
        return [tree for grown in rounds for tree in grown]
    return [replace(second, values=second.values - first.values) for first, second in rounds]


def _counting(epsilon: float) -> Clipping:
    """A record's contribution to the count of its class, in steps that suit noise for this epsilon."""
    # A step is never more than the record itself.
    return Clipping(max_grad=1.0, max_hess=1.0, noise_std=min(math.sqrt(2) / epsilon, 2.0**28))


def _class_counts(labels: Values, epsilon: float, rng: BitSource) -> Values:
    """Noisy counts of the records of each class.

    Notes
    -----
    Privacy: one release of an L1 sensitivity of 1, at `epsilon`.
    """
    counts, noise = labels.sum(axis=1), laplace_noise(1.0, epsilon, _STEPS)
    return counts if noise is None else counts + noise.draw(len(counts), rng=rng) / _STEPS


def _releases(
    counts_epsilon: float, spent_on_cells: float, n_columns: int, tree_epsilon: float, n_trees: int
) -> tuple[Release, ...]:
    """All that is released at a finite epsilon."""
    queries = [(1.0, counts_epsilon, _STEPS, 1), (1.0, tree_epsilon, _counting(tree_epsilon).grid.grad_scale, n_trees)]
    if spent_on_cells:
        queries.append((float(n_columns), spent_on_cells / N_ROUNDS, STEPS, N_ROUNDS))
    return tuple(replace(laplace_release(l1, spent, steps), count=n) for l1, spent, steps, n in queries if n)
