"""Run files of horizontal training, whichever role they are for."""

from __future__ import annotations

from pathlib import Path

from opboost.horizontal.federated.owners import FederatedAmongOwners
from opboost.horizontal.inprivate.owners import InPrivateAmongOwners
from opboost.horizontal.sgbdt.owners import SGBDTAmongOwners
from opboost.schema import TableSchema
from parties.config.chain import OwnerRun, read_owner
from parties.config.horizontal import CoordinatorRun, WorkerRun, read_horizontal
from parties.config.reading import read_role
from parties.config.recipes import make_recipe
from parties.errors import naming
from parties.ledger.model_ledger import RunCharge

RecordRun = CoordinatorRun | WorkerRun | OwnerRun
RecordRecipe = SGBDTAmongOwners | FederatedAmongOwners | InPrivateAmongOwners


def read_record_run(path: Path) -> RecordRun:
    """Read a run file of a coordinator, a worker or an owner in a chain.

    Raises
    ------
    ConfigError
    """
    match read_role(path):
        case "coordinator":
            return read_horizontal(path, CoordinatorRun)
        case "worker":
            return read_horizontal(path, WorkerRun)
        case _:
            return read_owner(path)


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
    """What a run costs each of a party's records, as its ledger has it."""
    if isinstance(recipe, InPrivateAmongOwners):
        assert isinstance(run, OwnerRun)
        return run.charge(recipe)
    assert isinstance(run, WorkerRun)
    return run.charge(recipe.guarantee(is_secure=run.seed is None))


def peers_of(run: RecordRun) -> tuple[str, ...]:
    """Who else takes part, as far as the run file names them."""
    match run:
        case CoordinatorRun():
            return tuple(worker.name for worker in run.workers)
        case WorkerRun():
            return run.coordinator.name, *(peer.name for peer in run.peers)
        case OwnerRun():
            return tuple(name for name in run.training.order if name != run.party)
