"""Training job of an owner in a chain."""

from __future__ import annotations

from functools import partial
from pathlib import Path

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
from parties.ledger.model_ledger import check_charge, worker_ledger
from parties.runs.run_folder import RunFolder
from parties.session.connections import open_connections
from parties.session.reconnection import with_restarts

_RESUMING = "Start the same run again at all owners: it goes on where it stopped"


def train_owner(path: Path, *, insecure: bool, terminal: Terminal) -> RunFolder:
    """Run an owner's side of a chain, or resume it where it stopped."""
    run = read_run(path, OwnerRun)
    life, training = TrainingRun(path, run, terminal), run.training
    folder = life.folder
    schema, ignore = read_schema(run.table_schema)
    rows = OwnerRows.read(run, schema, ignore)
    with naming(path):
        recipe = training.recipe_for(schema)
    charge, checkpoint = charge_of(run, recipe), ChainCheckpoint(folder)
    with (
        worker_ledger(run.ledger.path, run.ledger.budget) as ledger,
        open_connections(run, insecure) as open_channels,
        life.begin_or_resume(schema, resuming=_RESUMING) as log,
    ):
        note_others(rows.others, log)
        check_charge(ledger, charge, folder)
        if checkpoint.differing:
            # An earlier process may have been stopped, or its folder put back, with a model from before.
            withdraw_shared_model(folder)
        if is_confirmed := life.is_confirmed:
            log.step(
                "serving",
                f"the run was finished at {folder.read_json('meta.json')['finished']}; its trees are there for owners "
                f"that need them and come within {run.wait:g} s",
            )
        bits = run.bits
        of_coins = bits.fork("coins")

        def make_owner() -> Owner:
            coins = checkpoint.coins(rows.digest, rng=of_coins)
            # A tree that was not kept before this owner was killed is drawn again, the same.
            return recipe.owner(rows.values, rows.labels, coins=coins, rng=coins.fork("turns"))

        def before_turn(turn: int, trees: str) -> None:
            checkpoint.check_version()
            ledger.charge(charge, checkpoint.holder)
            ledger.note_turn(charge, turn, trees)

        job = ChainJob(
            party=run.party,
            run_id=run.run_id,
            order=training.order,
            terms=training.terms(schema),
            broadcast=training.broadcast,
            recipe=recipe,
            is_secure=bits.is_secure,
            checkpoint=checkpoint,
            make_owner=make_owner,
            calls=frozenset(owner.name for owner in run.owners if owner.connect is not None),
            before_turn=before_turn,
            withdraw=partial(withdraw_shared_model, folder),
            wait_s=run.wait,
            is_confirmed=is_confirmed,
        )
        channels = open_channels(log)
        save = partial(save_shared_model, folder)
        model = with_restarts(
            list(channels.values()), lambda: run_chain_owner(job, channels, save=save, progress=log.progress), log
        )
        log.step("guarantee", str(model.guarantee))
        note_own_fit(folder, rows.own_fit(model.ensemble))
        absent = sorted(set(channels) - checkpoint.confirmed)
        if absent:
            log.step(
                "unconfirmed",
                f"the model is saved, but {', '.join(absent)} did not say that the same trees are there; start this "
                "run again there and here",
            )
        life.finish(log, list(channels.values()), n_rows=len(rows.labels), unconfirmed=absent)
    return life.report()
