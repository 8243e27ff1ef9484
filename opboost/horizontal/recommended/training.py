"""The recommended recipe on records in this process: first releases, then random trees on joint noisy sums."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from opboost.arrays import Values
from opboost.horizontal.recommended.first_releases import first_score_of_numbers, first_scores_of_classes, number_range
from opboost.horizontal.recommended.plan import ScreenRelease, TrainingPlan
from opboost.horizontal.recommended.tree_sizes import GivenSizes, usual_sizes
from opboost.horizontal.recommended.tree_training import TreeTask, TreeTraining, scaled_labels
from opboost.horizontal.rows.public_grid import PublicGrid
from opboost.horizontal.splits.column_schedule import uniforms_ahead
from opboost.horizontal.splits.column_screen import cell_sums, dependences
from opboost.horizontal.splits.noisy_cells import counted_columns, counts_sensitivity, crowded_columns, placed_cells
from opboost.privacy.additive import RoundedGaussian
from opboost.privacy.releases import Release
from opboost.rng import BitSource
from opboost.trees.binning import BinnedTable
from opboost.trees.tree import Tree


@dataclass(frozen=True, slots=True)
class TrainedBatches:
    """Trees, scores and releases of a training in this process.

    Attributes
    ----------
    trees : tuple of Tree
        On values; round by round, one per output.
    base_scores : ndarray of float64, shape (n_outputs,)
    centre, spread : float
        Numbers are ``centre + spread * score``; 0 and 1 for classes.
    releases : tuple of Release
        All of the training; empty without noise.
    crowded : tuple of int
        Columns whose bounds are far too wide (`opboost.horizontal.splits.noisy_cells.crowded_columns`).
    n_records : float
        Noisy number of records.
    signal : float
        ``n_records * mu / n_outputs``, or of counted forests ``n_records * epsilon / n_classes``.
    """

    trees: tuple[Tree, ...]
    base_scores: Values
    centre: float
    spread: float
    releases: tuple[Release, ...]
    crowded: tuple[int, ...]
    n_records: float
    signal: float


class FirstValues(NamedTuple):
    """What is released before cells: first scores, a noisy number of records, and scores for a screen's gradients."""

    scores: Values
    n_records: float
    screen_scores: Values


def train_classes(
    columns: PublicGrid,
    rows: Values,
    labels: Values,
    *,
    epsilon: float,
    delta: float,
    sizes: GivenSizes,
    rng: BitSource,
    margins: Values | None = None,
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
    sizes : GivenSizes
        Others are those of `usual_sizes`.
    rng : BitSource
    margins : ndarray of float64, shape (1, n_rows), optional
        Scores of an earlier model of two classes, which the trees continue from; the base score is then 0.

    Notes
    -----
    Privacy: (epsilon, delta)-DP between data sets that differ by one record, added or removed: `TrainingPlan` divides
    the budget of one Gaussian release; see the releases for the parts.
    """
    plan = _plan(columns, epsilon, delta, n_classes=len(labels))
    scores, n_records = first_scores_of_classes(labels, std=plan.score_std, rng=rng.fork("score"))
    task = TreeTask.of_classes(len(labels))
    labels = labels[-task.n_outputs :]
    first = FirstValues(scores, n_records, scores if margins is None else margins)
    trained = _train(columns, rows, labels, task, first, plan, sizes, rng, margins)
    return trained if margins is None else replace(trained, base_scores=np.zeros_like(scores))


def train_numbers(
    columns: PublicGrid,
    rows: Values,
    labels: Values,
    bounds: tuple[float, float],
    *,
    epsilon: float,
    delta: float,
    sizes: GivenSizes,
    rng: BitSource,
) -> TrainedBatches:
    """Train on numbers, shape ``(n_rows,)``, between public bounds; parameters as for `train_classes`."""
    plan = _plan(columns, epsilon, delta, n_classes=0)
    label_range = number_range(labels, bounds, mu=plan.mu, std=plan.labels_std, rng=rng.fork("labels"))
    scaled = scaled_labels(labels, label_range.lower, label_range.upper)
    scores, n_records = first_score_of_numbers(scaled, std=plan.score_std, rng=rng.fork("score"))
    unit = label_range.unit
    task = TreeTask.of_numbers(unit, label_range.deviation / unit)
    first = FirstValues(scores / unit, n_records, np.array([label_range.balance / unit]))
    trained = _train(columns, rows, scaled[None] / unit, task, first, plan, sizes, rng)
    centre, spread = (label_range.lower + label_range.upper) / 2, (label_range.upper - label_range.lower) / 2
    return replace(
        trained,
        trees=tuple(tree.scaled(spread * unit) for tree in trained.trees),
        base_scores=centre + spread * scores,
        centre=centre,
        spread=spread,
    )


def _plan(columns: PublicGrid, epsilon: float, delta: float, *, n_classes: int) -> TrainingPlan:
    cells_l2 = counts_sensitivity(len(counted_columns(columns)))
    return TrainingPlan.for_budget(epsilon, delta, n_classes=n_classes, cells_l2=cells_l2)


def _train(
    columns: PublicGrid,
    rows: Values,
    labels: Values,
    task: TreeTask,
    first: FirstValues,
    plan: TrainingPlan,
    sizes: GivenSizes,
    rng: BitSource,
    margins: Values | None = None,
) -> TrainedBatches:
    scores, n_records = first.scores, first.n_records
    plan = plan.for_records(n_records, columns.axes.n_columns)
    n_trees, depth = sizes.or_else(usual_sizes(n_records, plan.mu, task.n_outputs))
    columns = placed_cells(columns, rows, std=plan.cells_std, rng=rng.fork("cells"))
    table, initial_scores = columns.place(rows), scores if margins is None else margins
    screened = None
    if plan.n_screened:
        release = plan.screen(task.sensitivity)
        screened = _screened(table, task.gradient_codes(labels, first.screen_scores, release.steps), release, rng)
    holder = task.rows(table, labels, initial_scores, n_counted=plan.n_counted)
    training = TreeTraining(columns, task, holder, uniforms=uniforms_ahead(rng.fork("shape")), noise_rng=rng)
    training.run(plan, n_trees, depth, n_records=n_records, scores=scores, screened=screened)
    releases = plan.releases(task.sensitivity, n_trees)
    crowded = tuple(crowded_columns(columns))
    signal = n_records * plan.mu / task.n_outputs
    return TrainedBatches(
        trees=tuple(training.trees),
        base_scores=scores,
        centre=0.0,
        spread=1.0,
        releases=releases,
        crowded=crowded,
        n_records=n_records,
        signal=signal,
    )


def _screened(table: BinnedTable, codes: NDArray[np.int64], release: ScreenRelease, rng: BitSource) -> Values:
    """Of each column a number that says how far the records' gradients depend on it, shape ``(n_columns,)``.

    Notes
    -----
    Privacy: one release of sensitivity ``release.l2`` under Gaussian noise of deviation ``release.std``.
    """
    exact = dependences(np.stack([cell_sums(table, of_output) for of_output in codes]), table.axes)
    noise = RoundedGaussian(release.std * release.steps)
    return np.asarray((exact + noise.draw(len(exact), rng=rng.fork("screen"))) / release.steps)
