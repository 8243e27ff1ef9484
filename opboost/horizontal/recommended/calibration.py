"""The recommended recipe among owners for a budget: its noise, its sizes, and what goes on from a finished training."""

from __future__ import annotations

from dataclasses import replace

from opboost.horizontal.noise.leaf_noise import LeafNoise
from opboost.horizontal.public_task import PublicTask
from opboost.horizontal.recommended.first_rounds import FirstRounds
from opboost.horizontal.recommended.owners import RecommendedAmongOwners
from opboost.horizontal.recommended.plan import TrainingPlan
from opboost.horizontal.recommended.shared_noise import on_coarse_grid, shared_releases
from opboost.horizontal.recommended.tree_sizes import NOT_GIVEN, GivenSizes, usual_sizes
from opboost.horizontal.recommended.tree_training import TreeTask
from opboost.horizontal.rows.stream import EarlierTraining
from opboost.horizontal.splits.noisy_cells import counted_columns, counts_sensitivity
from opboost.privacy.accounting import by_gaussian, by_skellam, calibrate
from opboost.privacy.releases import Release, SkellamRounds


def recommended_among_owners(
    task: PublicTask,
    *,
    n_classes: int,
    delta: float,
    n_records: int,
    n_honest: int | None,
    sizes: GivenSizes = NOT_GIVEN,
    are_owners_known: bool = True,
    earlier: EarlierTraining | None = None,
) -> RecommendedAmongOwners:
    """Calibrate the noise of all rounds for a budget, and set the sizes.

    Parameters
    ----------
    task : PublicTask
    n_classes : int
        0 for numbers.
    delta : float
    n_records : int
        About how many records all owners have. Only sizes follow from it, so that it need not be right.
    n_honest : int or None
        Owners who are sure to add their share of the noise; None if the coordinator adds it.
    sizes : GivenSizes
        Of the trees.
    are_owners_known : bool
    earlier : EarlierTraining, optional
        On whose model the new records go on, which are about `n_records`.
    """
    cells_l2 = counts_sensitivity(len(counted_columns(task.grid)))
    plan = TrainingPlan.for_budget(task.epsilon, delta, n_classes=n_classes, cells_l2=cells_l2)
    tree_task = TreeTask.of_classes(n_classes) if n_classes else TreeTask.of_numbers(1.0)
    plan = plan.for_records(n_records, task.grid.axes.n_columns)
    chosen = sizes.or_else(usual_sizes(n_records, plan.mu, tree_task.n_outputs))
    n_trees = chosen.n_trees
    bounds = task.centre - task.spread, task.centre + task.spread
    rounds = FirstRounds(grid=task.grid, label_bounds=bounds, n_classes=n_classes, plan=plan)
    releases: tuple[Release, ...] = plan.releases(tree_task.sensitivity, n_trees)
    if n_honest is not None and releases:
        tree_task = on_coarse_grid(tree_task, plan, n_trees)

        def shared(multiplier: float) -> tuple[SkellamRounds, ...]:
            return shared_releases(_with_multiplier(rounds, multiplier), tree_task, n_trees)

        multiplier = calibrate(shared, epsilon=task.epsilon, delta=delta, account=by_skellam, guess=1 / plan.mu)
        rounds, releases = _with_multiplier(rounds, multiplier), shared(multiplier)
    stages = rounds.plan.stages(tree_task.sensitivity, n_trees)
    std = stages[-1].std if stages else 0.0
    noise = LeafNoise(
        clipping=tree_task.clipping,
        grad_std=std,
        hess_std=std * tree_task.clipping.ratio,
        initial_std=rounds.plan.score_std,
        cells_std=rounds.plan.cells_std,
        n_trees=n_trees,
        rate=1.0,
        order=None,
        releases=releases,
        account=by_gaussian if n_honest is None else by_skellam,
        n_honest=n_honest or 0,
        least_multiplier=min((stage.std / stage.sensitivity for stage in stages), default=0.0),
    )
    return RecommendedAmongOwners(
        task=task,
        rounds=rounds,
        tree_task=tree_task,
        sizes=chosen,
        n_records=n_records,
        noise=noise,
        delta=delta,
        are_owners_known=are_owners_known,
        earlier=earlier,
    )


def going_on(recipe: RecommendedAmongOwners, earlier: EarlierTraining) -> RecommendedAmongOwners:
    """The same recipe for records that have arrived since a training of these settings was finished.

    The new records train alone, as many trees as the earlier ones (`opboost.horizontal.recommended.later_records`).
    Residuals of numbers have bounds twice as wide as the labels.

    Notes
    -----
    Privacy: each record takes part in one training, so the guarantee is for all of them together, as long as no new
    record is a copy of an earlier one.
    """
    task = recipe.task
    if not task.is_classification:
        task = replace(task, centre=0.0, spread=2 * task.spread)
    return recommended_among_owners(
        task,
        n_classes=recipe.rounds.n_classes,
        delta=recipe.delta,
        n_records=recipe.n_records,
        n_honest=recipe.noise.n_honest or None,
        sizes=GivenSizes(*recipe.sizes),
        are_owners_known=recipe.are_owners_known,
        earlier=earlier,
    )


def _with_multiplier(rounds: FirstRounds, multiplier: float) -> FirstRounds:
    return replace(rounds, plan=replace(rounds.plan, mu=1 / multiplier))
