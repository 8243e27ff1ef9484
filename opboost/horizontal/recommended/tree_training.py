"""Random trees on joint noisy sums, whose columns and cells follow what was released before.

Each tree takes one to four columns, drawn by how far the sums of earlier trees on them stood out of the noise
(`opboost.horizontal.splits.learned_column_sampling`), and random cuts between cells that follow noisy counts. All that
is released of it is one vector: per leaf and output, the sums of g and h under Gaussian noise. One record is in one
leaf. A leaf's regulariser grows with the noise, whose size is public, and steps become smaller towards the end. Of many
columns a release of one number each says first which ones to draw from
(`opboost.horizontal.splits.column_screen`). Of several classes, trees with noisy counts come first where few records
stand behind each class and column (`opboost.horizontal.recommended.counted_trees`).

Not adopted, on the same inner folds: shrinking each level of a tree by an empirical Bayes estimate of its own
variance (mean R^2 .57 for .60: the variance is not known early, when most is learnt), a regulariser per level (.59 for
.60), trees on all columns (.57), 16 to 256 cells counted once. Nor a function per column whose cells a Kalman filter
follows, with variances by empirical Bayes (AUC on Adult at .1, .5 and 1: .876, .899, .909 for .890, .905, .910).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from itertools import cycle

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

from opboost.arrays import Values
from opboost.horizontal.noise.leaf_sensitivity import leaf_clipping
from opboost.horizontal.noise.noisy_holder import NoisyHolder, gaussian_noise
from opboost.horizontal.public_task import scaled_between
from opboost.horizontal.recommended.counted_trees import JointHolder, grow_counted
from opboost.horizontal.recommended.first_releases import GRADIENT_DEVIATIONS
from opboost.horizontal.recommended.plan import Stage, StageKind, TrainingPlan
from opboost.horizontal.recommended.residual_size import ResidualSize, tightening_places
from opboost.horizontal.recommended.tree_sizes import TreeShapes, TreeSizes, counted_depth, tree_shapes, usual_sizes
from opboost.horizontal.rows.joint_rows import SOFTMAX_NORM, JointGradients, JointRows, softmax_gradients
from opboost.horizontal.rows.public_grid import PublicGrid
from opboost.horizontal.rows.record_holder import Clipping, logistic_gradients, squared_gradients
from opboost.horizontal.splits.column_screen import columns_that_stand_out
from opboost.horizontal.splits.learned_column_sampling import LearntColumns
from opboost.privacy.additive import Noise
from opboost.rng import BitSource
from opboost.trees.binning import BinnedTable
from opboost.trees.complete import CompleteShape, RandomRule, Uniforms, grow_complete_shape
from opboost.trees.holder import RowHolder
from opboost.trees.tree import Tree

# A leaf's regulariser is so many times the noise multiplier times the largest Hessian (at least 1) for the usual number
# of trees; with others, all steps together stay as long (30 on Adult at epsilon .5: AUC .892 in place of .879). Steps
# fall to 0 in the second half. The bound of gradients of two classes: 1 and steps of .4 lose .004 AUC below epsilon 4.
_LAMBDA_OF_NUMBERS, _LAMBDA_OF_TWO, _LAMBDA_OF_SEVERAL = 40.0, 60.0, 35.0
_RATE_OF_TWO, _RATE = 0.6, 1.0
_GRADIENT_OF_TWO = 0.7

# Below so many records times mu, numbers' regulariser is in proportion to these, down to this part of it. Four fits of
# inner folds of five tables, 3,300 records at most and a delta of 5e-8: at epsilon .05, .1 and .2 three quarters of it
# move the mean R^2 by .021, .014 and .000; half of it Abalone by .036, -.002 and -.032.
_FEW_RECORDS, _LEAST_PART = 120.0, 0.75

_MAX_LEAF = 2.0

# Noise on Hessians over that on gradients, in units of their bounds' ratio.
_HESSIAN_NOISE = {"numbers": 6.0, "classes": 2.0}

# Names of the streams of noise.
_STREAMS: dict[StageKind, str] = {"counts": "noise on counts", "sums": "noise"}


@dataclass(frozen=True, slots=True)
class TreeTask:
    """Public settings of tree training: outputs, bounds of gradients, and steps.

    Attributes
    ----------
    n_outputs : int
    is_numbers : bool
    clipping : Clipping
        Bounds of g and h of each output.
    sensitivity : float
        L2 norm of a record's gradients of all outputs.
    shrinkage : float
        Regulariser of a leaf over the noise multiplier times the largest Hessian.
    rate : float
    max_leaf : float
        Bound of a leaf's value before the learning rate.
    deviation : float
        Approximate standard deviation of numbers' labels, in units of their gradients' bound; 0 for classes.
    """

    n_outputs: int
    is_numbers: bool
    clipping: Clipping
    sensitivity: float
    shrinkage: float
    rate: float = _RATE
    max_leaf: float = _MAX_LEAF
    deviation: float = 0.0

    @classmethod
    def of_classes(cls, n_classes: int) -> TreeTask:
        """Two or more classes."""
        if n_classes == 2:
            clipping = leaf_clipping(_GRADIENT_OF_TWO, _HESSIAN_NOISE["classes"], is_classification=True)
            return cls(1, False, clipping, clipping.sensitivity, _LAMBDA_OF_TWO, _RATE_OF_TWO)
        # The clipping of each pair never binds; all pairs together are bounded by the norm.
        clipping = Clipping(max_grad=1.0, max_hess=0.25, ratio=1.0)
        return cls(n_classes, False, clipping, SOFTMAX_NORM * (1 + 2e-12), _LAMBDA_OF_SEVERAL)

    @classmethod
    def of_numbers(cls, unit: float, deviation: float = 1 / GRADIENT_DEVIATIONS) -> TreeTask:
        """Numbers in units of their gradients' bound, of so many halves of their range; and their deviation."""
        clipping = leaf_clipping(1.0, _HESSIAN_NOISE["numbers"], is_classification=False)
        return cls(1, True, clipping, clipping.sensitivity, _LAMBDA_OF_NUMBERS, _RATE, _MAX_LEAF / unit, deviation)

    @property
    def is_of_two(self) -> bool:
        return self.n_outputs == 1 and not self.is_numbers

    def rows(self, table: BinnedTable, labels: Values, scores: Values, *, n_counted: int = 0) -> JointRows:
        """Holder of records with labels of shape ``(n_outputs, n_rows)``, and counts at first."""
        return JointRows(
            table, labels, gradients=self._gradients, clipping=self.clipping, initial_scores=scores, n_counted=n_counted
        )

    def gradient_codes(self, labels: Values, scores: Values, steps: float) -> NDArray[np.int64]:
        """Gradients at some scores, bounded and in so many steps of 1, rounded to 0; shape ``(n_outputs, n_rows)``."""
        given = np.broadcast_to(scores if scores.ndim == 2 else scores[:, None], labels.shape)
        grad = np.clip(self._gradients(given, labels)[0], -self.clipping.max_grad, self.clipping.max_grad)
        return np.trunc(grad * steps).astype(np.int64)

    @property
    def _gradients(self) -> JointGradients:
        if self.n_outputs > 1:
            return softmax_gradients
        return squared_gradients if self.is_numbers else logistic_of_one


def scaled_labels(labels: Values, lower: float, upper: float) -> Values:
    """Numbers in [-1, 1] for those in a range; others count as its ends."""
    return scaled_between(labels, (lower + upper) / 2, (upper - lower) / 2)


def logistic_of_one(scores: Values, labels: Values) -> tuple[Values, Values]:
    """Cross-entropy of a single output, shape ``(1, n_rows)``."""
    grad, hess = logistic_gradients(scores[0], labels[0])
    return grad[None], hess[None]


class TreeTraining:
    """Training of all trees of a plan, on the scale of training, with column weights learnt from released sums.

    Parameters
    ----------
    columns : PublicGrid
    task : TreeTask
    holder : JointHolder
    uniforms : callable
        For columns and cuts; they may be known to everybody.
    noise_rng : BitSource or None
        None if the holder's answers contain noise already.
    """

    def __init__(
        self,
        columns: PublicGrid,
        task: TreeTask,
        holder: JointHolder,
        *,
        uniforms: Uniforms,
        noise_rng: BitSource | None,
    ) -> None:
        self._columns, self._task, self._holder = columns, task, holder
        self._uniforms, self._noise_rng = uniforms, noise_rng
        self._learnt = LearntColumns(columns.axes.n_columns, 1, uniforms)
        self.trees: list[Tree] = []

    def run(
        self,
        plan: TrainingPlan,
        n_trees: int,
        depth: int,
        *,
        n_records: float,
        scores: Values,
        screened: Values | None = None,
    ) -> None:
        """Grow all trees of a plan, from the first scores on; `screened` is what a plan's screen released."""
        task, axes = self._task, self._columns.axes
        n_kept = axes.n_columns
        if screened is not None:
            std = plan.screen(task.sensitivity).std
            kept, merits = columns_that_stand_out(screened, axes, std=std)
            # The noise as if each number had a release of its own: so much do sums of trees have.
            self._learnt.restrict(kept, merits, std / math.sqrt(n_kept))
            n_kept = len(kept)
        for stage in plan.stages(task.sensitivity, n_trees):
            match stage.kind:
                case "counts":
                    self._count(stage, counted_depth(n_records), scores)
                case "sums":
                    shapes = tree_shapes(n_records, plan.mu, n_kept, depth, is_of_two=task.is_of_two)
                    usual = usual_sizes(n_records, plan.mu, task.n_outputs)
                    shrinkage = task.shrinkage * math.sqrt(n_trees / usual.n_trees)
                    if task.is_numbers:
                        shrinkage *= regulariser_part(n_records * plan.mu)
                    self._boost(stage, shapes, shrinkage, n_records)

    def _noisy(self, stage: Stage) -> RowHolder:
        """The holder with the noise of a stage, unless its answers contain noise already."""
        if self._noise_rng is None:
            return self._holder
        grad, hess = leaf_noises(self._task.clipping, stage.std)
        noises = grad, None if stage.kind == "counts" else hess
        rng = self._noise_rng.fork(_STREAMS[stage.kind])
        return NoisyHolder(self._holder, noises=noises, n_trees=stage.n_trees, rng=rng)

    def _count(self, stage: Stage, depth: int, scores: Values) -> None:
        """Grow trees with counts of the classes; `scores` are the logarithms of their shares.

        Notes
        -----
        Privacy: one release of sensitivity 1 per tree, under Gaussian noise of the stage's deviation.
        """
        rounds = grow_counted(
            self._noisy(stage),
            self._holder,
            columns=self._columns,
            shares=softmax(scores),
            sizes=TreeSizes(stage.n_trees, depth),
            std=stage.std,
            steps=self._task.clipping.grid.grad_scale,
            uniforms=self._uniforms,
        )
        self.trees.extend(tree for grown in rounds for tree in grown)

    def _boost(self, stage: Stage, shapes: TreeShapes, shrinkage: float, n_records: float) -> None:
        """Grow trees on sums of gradients, with so many columns and levels in turn; the last steps are smaller.

        The bound of numbers' gradients, which is the unit of labels, scores and noise, follows the residuals.

        Notes
        -----
        Privacy: one release of the task's sensitivity per tree, under Gaussian noise of the stage's deviation.
        """
        task, axes = self._task, self._columns.axes
        n_trees, std, holder = stage.n_trees, stage.std, self._noisy(stage)
        strength = max(1.0, shrinkage * std / task.sensitivity * task.clipping.max_hess)
        size, unit = ResidualSize(n_records, task.deviation), 1.0
        places = tightening_places(n_trees) if task.is_numbers else ()
        for number, (width, depth) in zip(range(n_trees), cycle(shapes), strict=False):
            if number in places:
                factor = size.factor()
                unit *= factor
                self._holder.tighten(factor)
                size.rescale(factor)
                self._learnt.rescale(factor)
            rule = RandomRule(axes, columns=partial(self._learnt.draw, width), uniforms=self._uniforms)
            shape, grad, hess = self._released(holder, rule, depth)
            self._learnt.learn(grad, std)
            # A denominator that noise has made negative says nothing about the gradients.
            hess = np.maximum(hess, 0.0)
            rate, largest = task.rate * min(1.0, 2 * (1 - number / n_trees)), task.max_leaf / unit
            moves = -rate * np.clip(grad / (hess + strength), -largest, largest)
            size.learn(moves, grad, hess, std=std, bias=rate * std**2 * float((1 / (hess + strength)).sum()))
            grown = [shape.with_leaf_values(own) for own in moves]
            self._holder.finish_trees(grown)
            self.trees.extend(self._columns.in_values(tree, scale=unit) for tree in grown)

    def _released(self, holder: RowHolder, rule: RandomRule, depth: int) -> tuple[CompleteShape, Values, Values]:
        """The shape of a tree, and noisy sums of g and of h by output and leaf."""
        grid = self._task.clipping.grid
        holder.start_tree(0)
        shape = grow_complete_shape(holder, rule=rule, axes=self._columns.axes, depth=depth)
        totals = holder.totals(shape.leaves)
        grad, hess = totals[:, 0] / grid.grad_scale, totals[:, 1] / grid.hess_scale
        return shape, grad.reshape(self._task.n_outputs, -1), hess.reshape(self._task.n_outputs, -1)


def regulariser_part(signal: float) -> float:
    """Part of the regulariser that numbers have where `signal`, records times mu, is small."""
    return min(max(signal / _FEW_RECORDS, _LEAST_PART), 1.0)


def leaf_noises(clipping: Clipping, std: float) -> tuple[Noise | None, Noise | None]:
    """Gaussian noise on a leaf's integer sums of g and of h, from the deviation of that on g."""
    grid = clipping.grid
    return gaussian_noise(std, grid.grad_scale), gaussian_noise(std * clipping.ratio, grid.hess_scale)
