"""Skellam noise in shares for the recommended recipe: its releases, and the grid on which it can be drawn."""

from __future__ import annotations

import math
from dataclasses import replace

from opboost.horizontal.noise.skellam_sums import skellam_laws
from opboost.horizontal.recommended.first_rounds import FirstRounds
from opboost.horizontal.recommended.plan import TrainingPlan
from opboost.horizontal.recommended.tree_training import TreeTask
from opboost.privacy.releases import SkellamRounds


def tree_stages(plan: TrainingPlan, task: TreeTask, n_trees: int) -> list[tuple[int, float]]:
    """Numbers of trees of one deviation of the noise, and that deviation."""
    stages = [(plan.n_screened, plan.screen_std(task.sensitivity))] if plan.n_screened and n_trees else []
    return stages + ([(n_trees, plan.sums_std(task.sensitivity, n_trees))] if n_trees else [])


def on_coarse_grid(task: TreeTask, plan: TrainingPlan, n_trees: int) -> TreeTask:
    """The task on a grid on which Skellam noise of all its trees can be drawn."""
    stds = [std for _, std in tree_stages(plan, task, n_trees)]
    return replace(task, clipping=replace(task.clipping, noise_std=2 * max(stds, default=0.0)))


def shared_releases(rounds: FirstRounds, task: TreeTask, n_trees: int) -> tuple[SkellamRounds, ...]:
    """All releases under Skellam noise; a record moves a leaf's sums of g and of h of every output."""
    trees = []
    for count, std in tree_stages(rounds.plan, task, n_trees):
        variances = tuple(law.variance for law in skellam_laws(task.clipping, std))
        trees.append(
            SkellamRounds(
                mu=math.sqrt(count) * task.sensitivity / std * (1 + 1e-14),
                largest=task.clipping.largest_steps * task.n_outputs,
                variances=variances * task.n_outputs,
                n_rounds=count,
            )
        )
    return (*rounds.skellam_releases(), *trees)
