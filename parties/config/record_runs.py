"""Run files of horizontal training: read for any role, with their recipes, charges and peers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from pydantic import JsonValue

from opboost.horizontal.federated.owners import FederatedAmongOwners
from opboost.horizontal.inprivate.owners import InPrivateAmongOwners
from opboost.horizontal.recommended.calibration import going_on
from opboost.horizontal.recommended.owners import RecommendedAmongOwners
from opboost.horizontal.rows.stream import EarlierTraining
from opboost.horizontal.sgbdt.owners import SGBDTAmongOwners
from opboost.schema import TableSchema
from parties.config.chain import OwnerRun
from parties.config.horizontal import CoordinatorRun, WorkerRun
from parties.config.reading import read_role, read_run
from parties.config.recipes import SummedRecipe, make_recipe
from parties.errors import ConfigError, naming
from parties.ledger.run_charge import RunCharge
from parties.runs.row_stream import RowStream, lasting_digest
from parties.runs.run_folder import RunFolder

RecordRun = CoordinatorRun | WorkerRun | OwnerRun
RecordRecipe = SummedRecipe | InPrivateAmongOwners
StreamRecipe = SGBDTAmongOwners | RecommendedAmongOwners
"""A recipe whose finished runs may be continued with records that have arrived since."""

_KINDS: dict[str, type[CoordinatorRun] | type[WorkerRun] | type[OwnerRun]] = {
    "coordinator": CoordinatorRun,
    "worker": WorkerRun,
    "owner": OwnerRun,
}


def read_record_run(path: Path) -> RecordRun:
    """Read a run file of a coordinator, a worker or an owner in a chain.

    Raises
    ------
    ConfigError
    """
    return read_run(path, _KINDS.get(read_role(path), OwnerRun))


def recipe_of(run: RecordRun, schema: TableSchema, path: Path) -> RecordRecipe:
    """The recipe that a run file names.

    Raises
    ------
    ConfigError, RunFolderError, ModelFileError
    """
    if isinstance(run, OwnerRun):
        with naming(path):
            return run.training.recipe_for(schema)
    return summed_recipe(run, schema, path)


def summed_recipe(run: CoordinatorRun | WorkerRun, schema: TableSchema, path: Path) -> SummedRecipe:
    """The recipe that a coordinator's or a worker's run file names, with the same errors."""
    with naming(path):
        recipe = make_recipe(run.training, schema)
        if run.continue_from is None:
            return recipe
        assert not isinstance(recipe, FederatedAmongOwners)
        return _continued(recipe, run, schema, RunFolder(run.continue_from))


def _continued(
    recipe: StreamRecipe, run: CoordinatorRun | WorkerRun, schema: TableSchema, folder: RunFolder
) -> StreamRecipe:
    """The recipe for more trees on a finished run of the same settings.

    Raises
    ------
    ConfigError, RunFolderError
    """
    stream = RowStream.of(folder, run.role)
    if stream.terms != lasting_digest(run.terms(schema)):
        raise ConfigError(
            f"training, schema or seed are not those of run {stream.run!r} in {folder.path}, from which this one goes "
            "on: all of them must stay. Nothing was sent"
        )
    if isinstance(recipe, RecommendedAmongOwners):
        return going_on(recipe, stream.training(folder))
    if stream.noise != (recipe.noise.grad_std, recipe.noise.hess_std):
        raise ConfigError(
            f"run {stream.run!r} in {folder.path} had other noise for the same budget, by another version of opboost: "
            "what its records have spent is not known in this one's units. Nothing was sent"
        )
    if recipe.noise.has_filter:
        stream.check_account(folder)
    return recipe.going_on(stream.training(folder))


def terms_of(
    run: RecordRun, schema: TableSchema, *, recipe: RecordRecipe, lasting_keys: Mapping[str, bytes]
) -> dict[str, JsonValue]:
    """The terms that all must have agreed on, as they travel; with the model from which a run goes on.

    So are `lasting_keys`, the public keys of workers that know each other's: with a wrong one masks of secure
    aggregation do not cancel, and every sum is a random number. They are told as they stand in key files.
    """
    if isinstance(run, OwnerRun):
        return run.training.terms(schema)
    earlier = earlier_of(recipe)
    keys = {f"public key of {name}": key.hex() for name, key in lasting_keys.items()}
    return {**run.terms(schema), **keys, **({"continues": earlier.digest} if earlier else {})}


def earlier_of(recipe: RecordRecipe) -> EarlierTraining | None:
    """The training from which a run goes on, if it does."""
    return recipe.earlier if isinstance(recipe, StreamRecipe) else None


def are_new_alone(recipe: RecordRecipe) -> bool:
    """Whether a run goes on from another one with the records alone that have arrived since."""
    return isinstance(recipe, StreamRecipe) and recipe.earlier is not None and not recipe.noise.has_filter


def charge_of(run: WorkerRun | OwnerRun, recipe: RecordRecipe) -> RunCharge:
    """The charge of a run to each of a party's records; infinite if the noise can be drawn again."""
    promise = recipe.guarantee(is_secure=run.seed is None)
    asker = run.coordinator.name if isinstance(run, WorkerRun) else f"chain of {', '.join(run.training.order)}"
    epsilon = promise.epsilon if run.seed is None else math.inf
    charge = RunCharge(run=run.run_id, coordinator=asker, epsilon=epsilon, delta=promise.delta)
    if (earlier := earlier_of(recipe)) is None:
        return charge
    return replace(charge, continues=earlier.charged_run, continued_holder=earlier.charge_holder)


def peers_of(run: RecordRun) -> tuple[str, ...]:
    """The other parties that take part, as far as the run file names them."""
    return tuple(peer.name for peer in run.wiring.peers)
