"""Random trees on joint noisy sums, whose columns and cells follow what was released before.

Each tree takes one to three columns, drawn by how far the sums of earlier trees on them stood out of the noise
(`opboost.horizontal.splits.learned_column_sampling`), and random cuts between cells that follow noisy counts. All that
is released of it is one vector: per leaf and output, the sums of g and h under Gaussian noise. One record is in one
leaf. A leaf's regulariser grows with the noise, whose size is public, and steps become smaller towards the end.

Not adopted, on the same inner folds: shrinking each level of a tree by an empirical Bayes estimate of its own
variance (mean R^2 .57 for .60: the variance is not known early, when most is learnt), a regulariser per level (.59 for
.60), trees on all columns (.57), 16 to 256 cells counted once.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from opboost.arrays import Values
from opboost.horizontal.noise.leaf_sensitivity import leaf_clipping
from opboost.horizontal.noise.noisy_holder import NoisyHolder, gaussian_noise
from opboost.horizontal.recommended.first_releases import first_score_of_numbers, first_scores_of_classes, number_range
from opboost.horizontal.recommended.plan import TrainingPlan, tree_sizes
from opboost.horizontal.rows.joint_rows import SOFTMAX_NORM, JointRows, softmax_gradients
from opboost.horizontal.rows.public_grid import PublicGrid
from opboost.horizontal.rows.record_holder import Clipping, logistic_gradients, squared_gradients
from opboost.horizontal.splits.column_schedule import uniforms_ahead
from opboost.horizontal.splits.learned_column_sampling import LearntColumns
from opboost.horizontal.splits.noisy_cells import counts_sensitivity, placed_cells
from opboost.privacy.releases import Release
from opboost.rng import BitSource
from opboost.trees.complete import RandomRule, grow_complete_shape
from opboost.trees.tree import Tree

# Columns of consecutive trees.
_COLUMNS = 1, 2, 3

# The regulariser of a leaf is so many times the noise multiplier times the largest Hessian, and at least 1.
_NOISE_LAMBDA = 35.0

# Steps of two classes, and of numbers and several classes; they fall to 0 in the second half of the trees.
_RATE_OF_TWO, _RATE = 0.4, 1.0

_MAX_LEAF = 2.0

# The bound of numbers' gradients, in deviations of the labels; and the least one, in halves of their range.
_GRADIENT_DEVIATIONS, _LEAST_GRADIENT = 0.7, 1 / 32

# Noise on Hessians over that on gradients, in units of their bounds' ratio.
_HESSIAN_NOISE = {"numbers": 6.0, "classes": 2.0}


@dataclass(frozen=True, slots=True)
class TrainedBatches:
    """A trained model on the scale of training.

    Attributes
    ----------
    trees : tuple of Tree
        On values; round by round, one per output.
    base_scores : ndarray of float64, shape (n_outputs,)
    centre, spread : float
        Numbers are ``centre + spread * score``; 0 and 1 for classes.
    releases : tuple of releases
        All that were made; empty without noise.
    """

    trees: tuple[Tree, ...]
    base_scores: Values
    centre: float
    spread: float
    releases: tuple[Release, ...]


def train_classes(
    columns: PublicGrid,
    rows: Values,
    labels: Values,
    *,
    epsilon: float,
    delta: float,
    sizes: tuple[int | None, int | None],
    rng: BitSource,
) -> TrainedBatches:
    """Train on classes.

    Parameters
    ----------
    columns : PublicGrid
        Even cells between public bounds.
    rows : ndarray of float64, shape (n_rows, n_columns)
    labels : ndarray of float64, shape (n_classes, n_rows)
        1 for a record's class and 0 for the others.
    epsilon, delta : float
    sizes : tuple of (int or None, int or None)
        Number and depth of the trees where they are given.
    rng : BitSource

    Notes
    -----
    Privacy: (epsilon, delta)-DP between data sets that differ by one record, added or removed: `TrainingPlan` divides
    the budget of one Gaussian release; see the releases for the parts.
    """
    plan = _plan(columns, epsilon, delta, has_numbers=False)
    scores, n_records = first_scores_of_classes(labels, std=plan.score_std, rng=rng.fork("score"))
    clipping = leaf_clipping(1.0, _HESSIAN_NOISE["classes"], is_classification=True)
    if len(labels) == 2:
        task = _Task(labels[1:], scores, clipping, clipping.sensitivity, _RATE_OF_TWO)
    else:
        # The clipping of each pair never binds; all pairs together are bounded by the norm.
        clipping = Clipping(max_grad=1.0, max_hess=0.25, ratio=1.0)
        task = _Task(labels, scores, clipping, SOFTMAX_NORM * (1 + 2e-12), _RATE)
    return _train(columns, rows, task, plan, n_records, sizes, rng)


def train_numbers(
    columns: PublicGrid,
    rows: Values,
    labels: Values,
    bounds: tuple[float, float],
    *,
    epsilon: float,
    delta: float,
    sizes: tuple[int | None, int | None],
    rng: BitSource,
) -> TrainedBatches:
    """The same for numbers, shape ``(n_rows,)``, between public bounds."""
    plan = _plan(columns, epsilon, delta, has_numbers=True)
    of_most = number_range(labels, bounds, mu=plan.mu, std=plan.labels_std, rng=rng.fork("labels"))
    centre, spread = (of_most.lower + of_most.upper) / 2, (of_most.upper - of_most.lower) / 2
    scaled = np.clip((labels - centre) / spread, -1.0, 1.0)
    scores, n_records = first_score_of_numbers(scaled, std=plan.score_std, rng=rng.fork("score"))
    max_grad = min(max(_GRADIENT_DEVIATIONS * of_most.deviation, _LEAST_GRADIENT), 1.0)
    clipping = leaf_clipping(max_grad, _HESSIAN_NOISE["numbers"], is_classification=False)
    task = _Task(scaled[None], scores, clipping, clipping.sensitivity, _RATE, centre, spread, is_numbers=True)
    return _train(columns, rows, task, plan, n_records, sizes, rng)


@dataclass(frozen=True, slots=True)
class _Task:
    """What the trees are trained on; labels and scores by output."""

    labels: Values
    scores: Values
    clipping: Clipping
    sensitivity: float
    rate: float
    centre: float = 0.0
    spread: float = 1.0
    is_numbers: bool = False

    def rows(self, columns: PublicGrid, rows: Values) -> JointRows:
        gradients = softmax_gradients
        if len(self.labels) == 1:
            gradients = squared_gradients if self.is_numbers else logistic_of_one
        return JointRows(
            columns.place(rows), self.labels, gradients=gradients, clipping=self.clipping, initial_scores=self.scores
        )


def logistic_of_one(scores: Values, labels: Values) -> tuple[Values, Values]:
    """Cross-entropy of a single output, shape ``(1, n_rows)``."""
    grad, hess = logistic_gradients(scores[0], labels[0])
    return grad[None], hess[None]


def _plan(columns: PublicGrid, epsilon: float, delta: float, *, has_numbers: bool) -> TrainingPlan:
    n_counted = len(columns.bounds) - len(columns.categorical)
    return TrainingPlan.for_budget(epsilon, delta, has_numbers=has_numbers, counted=counts_sensitivity(n_counted))


def _train(
    columns: PublicGrid,
    rows: Values,
    task: _Task,
    plan: TrainingPlan,
    n_records: float,
    sizes: tuple[int | None, int | None],
    rng: BitSource,
) -> TrainedBatches:
    n_outputs, n_columns = len(task.labels), columns.axes.n_columns
    found = tree_sizes(n_records, plan.mu, n_outputs)
    n_trees, depth = (own if given is None else given for own, given in zip(found, sizes, strict=True))
    columns = placed_cells(columns, rows, std=plan.cells_std, rng=rng.fork("cells"))
    std, grid = plan.sums_std(task.sensitivity, n_trees), task.clipping.grid
    holder = task.rows(columns, rows)
    noisy = NoisyHolder(
        holder,
        noises=(gaussian_noise(std, grid.grad_scale), gaussian_noise(std * task.clipping.ratio, grid.hess_scale)),
        n_trees=n_trees,
        rng=rng.fork("noise"),
    )
    uniforms = uniforms_ahead(rng.fork("shape"))
    learnt = LearntColumns(n_columns, 1, uniforms)
    turn = 0
    rule = RandomRule(columns.axes, columns=lambda: learnt.draw(_COLUMNS[turn % len(_COLUMNS)]), uniforms=uniforms)
    strength = max(1.0, _NOISE_LAMBDA * std / task.sensitivity * task.clipping.max_hess)
    trees: list[Tree] = []
    for turn in range(n_trees):
        noisy.start_tree(0)
        shape = grow_complete_shape(noisy, rule=rule, axes=columns.axes, depth=depth)
        totals = noisy.totals(shape.leaves)
        grad, hess = totals[:, 0] / grid.grad_scale, totals[:, 1] / grid.hess_scale
        learnt.learn(grad, std)
        # A denominator that noise has made negative says nothing about the gradients.
        steps = np.clip(grad / (np.maximum(hess, 0.0) + strength), -_MAX_LEAF, _MAX_LEAF)
        rate = task.rate * min(1.0, 2 * (1 - turn / n_trees))
        grown = [shape.with_leaf_values(-rate * own) for own in steps.reshape(n_outputs, -1)]
        holder.finish_trees(grown)
        trees.extend(columns.in_values(tree, scale=task.spread) for tree in grown)
    base = task.centre + task.spread * task.scores
    return TrainedBatches(tuple(trees), base, task.centre, task.spread, plan.releases(task.sensitivity, n_trees))
