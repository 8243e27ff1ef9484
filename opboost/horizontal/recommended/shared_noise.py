"""Skellam noise in shares for the recommended recipe: its releases, and the grid on which it can be drawn."""

from __future__ import annotations

import math
from dataclasses import replace

from opboost.horizontal.noise.skellam_sums import skellam_laws
from opboost.horizontal.recommended.first_rounds import FirstRounds
from opboost.horizontal.recommended.plan import TrainingPlan
from opboost.horizontal.recommended.tree_training import TreeTask
from opboost.privacy.releases import SkellamRounds


def on_coarse_grid(task: TreeTask, plan: TrainingPlan, n_trees: int) -> TreeTask:
    """The task on a grid on which Skellam noise of all its trees can be drawn."""
    stds = [stage.std for stage in plan.stages(task.sensitivity, n_trees)]
    return replace(task, clipping=replace(task.clipping, noise_std=2 * max(stds, default=0.0)))


def shared_releases(rounds: FirstRounds, task: TreeTask, n_trees: int) -> tuple[SkellamRounds, ...]:
    """All releases under Skellam noise.

    A record moves a leaf's sums of g and of h of every output, or one count.
    """
    trees = []
    for stage in rounds.plan.stages(task.sensitivity, n_trees):
        n_moved, n_outputs = (1, 1) if stage.kind == "counts" else (2, task.n_outputs)
        variances = tuple(law.variance for law in skellam_laws(task.clipping, stage.std))
        trees.append(
            SkellamRounds(
                mu=math.sqrt(stage.n_trees) * stage.sensitivity / stage.std * (1 + 1e-14),
                largest=task.clipping.largest_steps[:n_moved] * n_outputs,
                variances=variances[:n_moved] * n_outputs,
                n_rounds=stage.n_trees,
            )
        )
    return (*rounds.skellam_releases(), *trees)
