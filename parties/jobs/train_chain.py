"""Training job of an owner in a chain."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path

from pydantic import JsonValue

from opboost.horizontal.inprivate.owners import InPrivateAmongOwners
from opboost.horizontal.inprivate.training import Owner
from parties.config.chain import OwnerRun
from parties.config.reading import read_run, read_schema
from parties.config.record_runs import charge_of
from parties.errors import naming
from parties.horizontal.chain.checkpoint import ChainCheckpoint
from parties.horizontal.chain.job import ChainJob
from parties.horizontal.chain.turns import run_chain_owner
from parties.horizontal.row_table import OwnerRows
from parties.jobs.life_cycle import Terminal, TrainingRun, note_others
from parties.jobs.shared_model import note_own_fit, save_shared_model, withdraw_shared_model
from parties.ledger.model_ledger import WorkerLedger, check_charge, worker_ledger
from parties.runs.run_folder import RunFolder
from parties.session.connections import open_connections
from parties.session.reconnection import with_restarts

_RESUMING = "Start the same run again at all owners: it goes on where it stopped"


def train_owner(path: Path, *, insecure: bool, terminal: Terminal) -> RunFolder:
    """Run an owner's side of a chain, or resume it where it stopped."""
    run = read_run(path, OwnerRun)
    life = TrainingRun(path, run, terminal)
    schema, ignore = read_schema(run.table_schema)
    rows = OwnerRows.read(run, schema, ignore)
    with naming(path):
        recipe = run.training.recipe_for(schema)
    with (
        worker_ledger(run.ledger.path, run.ledger.budget) as ledger,
        open_connections(run, insecure) as open_channels,
        life.begin_or_resume(schema, resuming=_RESUMING) as log,
    ):
        note_others(rows.others, log)
        job = _chain_job(run, life, recipe, rows, ledger, terms=run.training.terms(schema))
        if job.is_confirmed:
            log.step(
                "serving",
                f"the run was finished at {life.folder.read_json('meta.json')['finished']}; its trees are there for "
                f"owners that need them and come within {run.wait:g} s",
            )
        channels = open_channels(log)
        save = partial(save_shared_model, life.folder)
        model = with_restarts(
            list(channels.values()), lambda: run_chain_owner(job, channels, save=save, progress=log.progress), log
        )
        log.step("guarantee", str(model.guarantee))
        note_own_fit(life.folder, rows.own_fit(model.ensemble))
        absent = sorted(set(channels) - job.checkpoint.confirmed)
        if absent:
            log.step(
                "unconfirmed",
                f"the model is saved, but {', '.join(absent)} did not say that the same trees are there; start this "
                "run again there and here",
            )
        life.finish(log, list(channels.values()), n_rows=len(rows.labels), unconfirmed=absent)
    return life.report()


def _chain_job(
    run: OwnerRun,
    life: TrainingRun,
    recipe: InPrivateAmongOwners,
    rows: OwnerRows,
    ledger: WorkerLedger,
    *,
    terms: Mapping[str, JsonValue],
) -> ChainJob:
    """The owner's part, once its ledger has room for it; a model of other trees is withdrawn."""
    folder, bits = life.folder, run.bits
    checkpoint = ChainCheckpoint(folder)
    charge, of_coins = charge_of(run, recipe), bits.fork("coins")
    check_charge(ledger, charge, folder)
    if checkpoint.differing:
        # An earlier process may have been stopped, or its folder put back, with a model from before.
        withdraw_shared_model(folder)

    def make_owner() -> Owner:
        coins = checkpoint.coins(rows.digest, rng=of_coins)
        # A tree that was not kept before this owner was killed is drawn again, the same.
        return recipe.owner(rows.values, rows.labels, coins=coins, rng=coins.fork("turns"))

    def before_turn(turn: int, trees: str) -> None:
        checkpoint.check_version()
        ledger.charge(charge, checkpoint.holder)
        ledger.note_turn(charge, turn, trees)

    return ChainJob(
        party=run.party,
        run_id=run.run_id,
        order=run.training.order,
        terms=terms,
        broadcast=run.training.broadcast,
        recipe=recipe,
        is_secure=bits.is_secure,
        checkpoint=checkpoint,
        make_owner=make_owner,
        calls=frozenset(owner.name for owner in run.owners if owner.connect is not None),
        before_turn=before_turn,
        withdraw=partial(withdraw_shared_model, folder),
        wait_s=run.wait,
        is_confirmed=life.is_confirmed,
    )
