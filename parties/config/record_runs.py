"""Run files of horizontal training: read for any role, with their recipes, charges and peers."""

from __future__ import annotations

import math
from pathlib import Path

from opboost.horizontal.inprivate.owners import InPrivateAmongOwners
from opboost.schema import TableSchema
from parties.config.chain import OwnerRun
from parties.config.horizontal import CoordinatorRun, WorkerRun
from parties.config.reading import read_role, read_run
from parties.config.recipes import SummedRecipe, make_recipe
from parties.errors import naming
from parties.ledger.model_ledger import RunCharge

RecordRun = CoordinatorRun | WorkerRun | OwnerRun
RecordRecipe = SummedRecipe | InPrivateAmongOwners

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
    ConfigError
    """
    with naming(path):
        if isinstance(run, OwnerRun):
            return run.training.recipe_for(schema)
        return make_recipe(run.training, schema)


def charge_of(run: WorkerRun | OwnerRun, recipe: RecordRecipe) -> RunCharge:
    """The charge of a run to each of a party's records; infinite if the noise can be drawn again."""
    promise = recipe.guarantee(is_secure=run.seed is None)
    asker = run.coordinator.name if isinstance(run, WorkerRun) else f"chain of {', '.join(run.training.order)}"
    epsilon = promise.epsilon if run.seed is None else math.inf
    return RunCharge(run=run.run_id, coordinator=asker, epsilon=epsilon, delta=promise.delta)


def peers_of(run: RecordRun) -> tuple[str, ...]:
    """The other parties that take part, as far as the run file names them."""
    return tuple(peer.name for peer in run.wiring.peers)
