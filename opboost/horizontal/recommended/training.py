"""Random trees on joint noisy sums, whose columns and cells follow what was released before.

Each tree takes one to four columns, drawn by how far the sums of earlier trees on them stood out of the noise
(`opboost.horizontal.splits.learned_column_sampling`), and random cuts between cells that follow noisy counts. All that
is released of it is one vector: per leaf and output, the sums of g and h under Gaussian noise. One record is in one
leaf. A leaf's regulariser grows with the noise, whose size is public, and steps become smaller towards the end. Of many
columns each has a tree at a lower price first, and most trees are drawn from those that stood out.

Not adopted, on the same inner folds: shrinking each level of a tree by an empirical Bayes estimate of its own
variance (mean R^2 .57 for .60: the variance is not known early, when most is learnt), a regulariser per level (.59 for
.60), trees on all columns (.57), 16 to 256 cells counted once. Nor a function per column whose cells a Kalman filter
follows, with variances by empirical Bayes (AUC on Adult at .1, .5 and 1: .876, .899, .909 for .890, .905, .910).
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import cycle

import numpy as np
from scipy.special import expit, softmax

from opboost.arrays import Values
from opboost.horizontal.noise.leaf_sensitivity import leaf_clipping
from opboost.horizontal.noise.noisy_holder import NoisyHolder, gaussian_noise
from opboost.horizontal.recommended.first_releases import first_score_of_numbers, first_scores_of_classes, number_range
from opboost.horizontal.recommended.plan import SCREEN_DEPTH, TrainingPlan, tree_columns, tree_sizes
from opboost.horizontal.rows.joint_rows import SOFTMAX_NORM, JointRows, softmax_gradients
from opboost.horizontal.rows.public_grid import PublicGrid
from opboost.horizontal.rows.record_holder import Clipping, logistic_gradients, squared_gradients
from opboost.horizontal.splits.column_schedule import uniforms_ahead
from opboost.horizontal.splits.learned_column_sampling import LearntColumns
from opboost.horizontal.splits.noisy_cells import counts_sensitivity, crowded_columns, placed_cells
from opboost.privacy.releases import Release
from opboost.rng import BitSource
from opboost.trees.complete import RandomRule, grow_complete_shape
from opboost.trees.tree import Tree

# The regulariser of a leaf is so many times the noise multiplier times the largest Hessian, and at least 1; of numbers
# and of classes. Steps of two classes, and of others, fall to 0 in the second half of the trees. The bound of gradients
# of two classes. Inner folds at epsilon .1, .5, 1, 4: mean AUC of four tables .863, .893, .898, .904 (with a bound of 1
# and steps of .4: .853, .885, .894, .905); mean R^2 of five tables .507, .595, .628, .676 (with 35 and one to three
# columns: .489, .583, .617, .667; with 12: .488, .584, .618, .657).
_NOISE_LAMBDA_OF_NUMBERS, _NOISE_LAMBDA = 20.0, 35.0
_RATE_OF_TWO, _RATE = 0.6, 1.0
_GRADIENT_OF_TWO = 0.7

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
    crowded : tuple of int
        Columns whose bounds are far too wide (`opboost.horizontal.splits.noisy_cells.crowded_columns`).
    signal : float
        The noisy number of records times mu, by outputs.
    """

    trees: tuple[Tree, ...]
    base_scores: Values
    centre: float
    spread: float
    releases: tuple[Release, ...]
    crowded: tuple[int, ...]
    signal: float


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
    if len(labels) == 2:
        clipping = leaf_clipping(_GRADIENT_OF_TWO, _HESSIAN_NOISE["classes"], is_classification=True)
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

    @property
    def noise_lambda(self) -> float:
        return _NOISE_LAMBDA_OF_NUMBERS if self.is_numbers else _NOISE_LAMBDA

    @property
    def energy(self) -> float:
        """A record's squared gradients of all outputs at the first scores, about; of numbers, their bound."""
        if self.is_numbers:
            return self.clipping.max_grad**2
        shares = expit(self.scores) if len(self.scores) == 1 else softmax(self.scores)
        return float((shares * (1 - shares)).sum())

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
    plan = plan.screening(columns.axes.n_columns, n_records)
    found = tree_sizes(n_records, plan.mu, len(task.labels))
    n_trees, depth = (own if given is None else given for own, given in zip(found, sizes, strict=True))
    columns = placed_cells(columns, rows, std=plan.cells_std, rng=rng.fork("cells"))
    training = _Training(columns, task, task.rows(columns, rows), rng)
    n_kept = n_columns = columns.axes.n_columns
    if plan.n_screened and n_trees:
        std = plan.screen_std(task.sensitivity)
        training.grow(n_columns, SCREEN_DEPTH, std, (1,), is_last=False)
        n_sums = len(task.labels) * 2**SCREEN_DEPTH
        n_kept = training.learnt.keep_best(std=std, energy=task.energy * n_records, n_sums=n_sums)
    turns = tree_columns(n_records, plan.mu, n_kept, is_of_two=task.rate == _RATE_OF_TWO)
    training.grow(n_trees, depth, plan.sums_std(task.sensitivity, n_trees), turns, is_last=True)
    base = task.centre + task.spread * task.scores
    releases = plan.releases(task.sensitivity, n_trees)
    crowded = tuple(crowded_columns(columns))
    signal = n_records * plan.mu / len(task.labels)
    return TrainedBatches(tuple(training.trees), base, task.centre, task.spread, releases, crowded, signal)


class _Training:
    """Trees so far, and what is known of the columns."""

    def __init__(self, columns: PublicGrid, task: _Task, holder: JointRows, rng: BitSource) -> None:
        self._columns, self._task, self._holder, self._rng = columns, task, holder, rng
        self._uniforms = uniforms_ahead(rng.fork("shape"))
        self.learnt = LearntColumns(columns.axes.n_columns, 1, self._uniforms)
        self.trees: list[Tree] = []

    def grow(self, n_trees: int, depth: int, std: float, turns: tuple[int, ...], *, is_last: bool) -> None:
        """Grow trees under noise of one deviation, consecutive ones on so many columns; the last steps are smaller.

        Notes
        -----
        Privacy: one release of the task's sensitivity per tree, under Gaussian noise of deviation `std`.
        """
        task, grid, axes = self._task, self._task.clipping.grid, self._columns.axes
        noisy = NoisyHolder(
            self._holder,
            noises=(gaussian_noise(std, grid.grad_scale), gaussian_noise(std * task.clipping.ratio, grid.hess_scale)),
            n_trees=n_trees,
            rng=self._rng.fork("noise" if is_last else "noise on first trees"),
        )
        counts = cycle(turns)
        rule = RandomRule(axes, columns=lambda: self.learnt.draw(next(counts)), uniforms=self._uniforms)
        strength = max(1.0, task.noise_lambda * std / task.sensitivity * task.clipping.max_hess)
        for number in range(n_trees):
            noisy.start_tree(0)
            shape = grow_complete_shape(noisy, rule=rule, axes=axes, depth=depth)
            totals = noisy.totals(shape.leaves)
            grad, hess = totals[:, 0] / grid.grad_scale, totals[:, 1] / grid.hess_scale
            self.learnt.learn(grad, std)
            # A denominator that noise has made negative says nothing about the gradients.
            steps = np.clip(grad / (np.maximum(hess, 0.0) + strength), -_MAX_LEAF, _MAX_LEAF)
            rate = task.rate * (min(1.0, 2 * (1 - number / n_trees)) if is_last else 1.0)
            grown = [shape.with_leaf_values(-rate * own) for own in steps.reshape(len(task.labels), -1)]
            self._holder.finish_trees(grown)
            self.trees.extend(self._columns.in_values(tree, scale=task.spread) for tree in grown)
