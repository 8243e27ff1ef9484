"""Recipes: built from the `training` section of a horizontal run file."""

from __future__ import annotations

from typing import Any

from opboost.horizontal.federated.owners import FederatedAmongOwners
from opboost.horizontal.noise.distributed_noise import shared_leaf_noise
from opboost.horizontal.noise.leaf_noise import leaf_noise
from opboost.horizontal.noise.leaf_sensitivity import leaf_clipping
from opboost.horizontal.public_task import PublicTask
from opboost.horizontal.recommended.owners import RecommendedAmongOwners
from opboost.horizontal.rows.public_grid import PublicGrid
from opboost.horizontal.sgbdt.as_published import printed_noise
from opboost.horizontal.sgbdt.owners import SGBDTAmongOwners
from opboost.schema import TableSchema
from parties.config.training_section import TrainingSection
from parties.errors import ConfigError
from protocols.transport.codec import MAX_ARRAY_BYTES

SummedRecipe = SGBDTAmongOwners | FederatedAmongOwners | RecommendedAmongOwners
"""A recipe that a coordinator trains on sums of its workers' answers."""


def make_recipe(training: TrainingSection, schema: TableSchema) -> SummedRecipe:
    """The recipe that a run file names.

    Raises
    ------
    ConfigError
        If an answer of it could be longer than a message.
    """
    recipe = _recipe(training, schema)
    rules, n_bins = recipe.tree_rules, recipe.task.grid.axes.n_bins
    histograms, sums = rules.n_histogram_nodes * n_bins, rules.batch_size * 2**rules.max_depth
    if (n_bytes := 16 * max(histograms, sums)) > MAX_ARRAY_BYTES:
        raise ConfigError(
            f"an answer of this recipe may take {-(-n_bytes >> 20)} MiB, where a message has {MAX_ARRAY_BYTES >> 20}: "
            "use fewer levels (`max_depth`), "
            + ("cells of columns, or columns" if histograms > sums else "trees of a batch, or classes")
            + ". Nothing was sent"
        )
    return recipe


def _recipe(training: TrainingSection, schema: TableSchema) -> SummedRecipe:
    """The one `match` over recipes."""
    bounds = [column.bounds for column in schema.columns]
    of_owners: dict[str, Any] = {
        "delta": training.delta,
        "n_honest": training.honest,
        "are_owners_known": training.known_workers is True,
    }
    match training.recipe:
        case "recommended":
            grid = PublicGrid(bounds, training.recommended.max_cells, categorical=schema.unordered)
            task = training.task(schema.names, grid)
            return training.recommended.recipe(task, n_classes=training.n_classes, **of_owners)
        case "sgbdt":
            grid = PublicGrid(bounds, training.sgbdt.max_cells, categorical=schema.unordered)
            return _sgbdt(training, training.task(schema.names, grid))
        case "federated":
            section = training.federated
            return section.recipe(
                training.task(schema.names, section.grid(schema.names, bounds, schema.unordered)), **of_owners
            )


def _sgbdt(training: TrainingSection, task: PublicTask) -> SGBDTAmongOwners:
    section = training.sgbdt
    budget: dict[str, Any] = {"epsilon": training.epsilon, "delta": training.delta}
    is_printed = training.mode == "paper"
    if section.n_extra_estimators and not section.has_filter:
        raise ConfigError("training.sgbdt: n_extra_estimators needs the filter; found use_filter: false")
    clipping = leaf_clipping(section.max_grad, section.denominator_noise, is_classification=task.is_classification)
    if is_printed:
        noise = printed_noise(
            **budget,
            max_grad=section.max_grad,
            n_trees=section.n_estimators,
            rate=section.subsample,
            initial_share=0.0,
            has_filter=section.has_filter,
            is_classification=task.is_classification,
        )
    elif training.honest is not None:
        noise = shared_leaf_noise(
            clipping,
            **budget,
            n_trees=section.n_estimators,
            n_honest=training.honest,
            has_filter=section.has_filter,
            n_extra_trees=section.n_extra_estimators,
        )
    else:
        noise = leaf_noise(
            clipping,
            **budget,
            n_trees=section.n_estimators,
            rate=section.subsample,
            initial_share=0.0,
            has_filter=section.has_filter,
        )
    return SGBDTAmongOwners(
        task=task,
        settings=section.settings(len(task.names), is_printed=is_printed),
        noise=noise,
        n_trees=section.n_estimators + section.n_extra_estimators,
        delta=training.delta,
        is_mean_of_values=is_printed,
        claimed=training.epsilon if is_printed else None,
        are_owners_known=training.known_workers is True,
    )
