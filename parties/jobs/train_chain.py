"""An owner's run file in, its part in a chain out."""

from __future__ import annotations

from pathlib import Path

from parties.config.chain import OwnerRun
from parties.config.reading import read_run
from parties.config.record_runs import charge_of
from parties.errors import ChainBroken, naming
from parties.horizontal.chain import ChainJob, take_turns
from parties.horizontal.chain_checkpoint import KeptTurns
from parties.horizontal.coordinator import SharedModel
from parties.horizontal.row_table import OwnerRows
from parties.jobs.horizontal_folder import bits_of, logged, note_own_fit, save_trees, write_report
from parties.jobs.train_vertical import Terminal, note_end
from parties.ledger.model_ledger import check_charge, worker_ledger
from parties.runs.run_folder import RunFolder
from parties.session.connections import chain_channels


def run_owner(path: Path, *, insecure: bool, terminal: Terminal) -> RunFolder:
    """Run an owner's side of a chain, or go on with it where it stopped."""
    run = read_run(path, OwnerRun)
    folder, training = RunFolder(run.run_folder), run.training
    rows = OwnerRows.read(run)
    with naming(path):
        recipe = training.recipe_for(rows.schema)
    charge, kept = charge_of(run, recipe), KeptTurns(folder)

    def save(model: SharedModel) -> None:
        folder.write_json("guarantee.json", model.guarantee.to_dict())
        save_trees(folder, model.ensemble)

    with (
        worker_ledger(run.ledger.path, run.ledger.budget) as ledger,
        chain_channels(run, insecure) as open_channels,
        logged(folder, path, run, terminal) as log,
    ):
        if log is None:
            return folder
        check_charge(ledger, charge, folder)
        bits = bits_of(run.seed)
        # What a seed gives was used by earlier processes of this run.
        fresh = bits.fork(f"after {kept.count}" if kept.count else "rows")
        job = ChainJob(
            party=run.party,
            run_id=run.run_id,
            order=training.order,
            terms=training.terms(rows.schema),
            broadcast=training.broadcast,
            recipe=recipe,
            is_secure=bits.is_secure,
            kept=kept,
            make_owner=lambda: recipe.owner(
                rows.values, rows.labels, coins=kept.coins(rows.digest, rng=bits.fork("coins")), rng=fresh
            ),
            calls=frozenset(owner.name for owner in run.owners if owner.connect is not None),
            before_turn=lambda: ledger.charge(charge),
        )
        channels = open_channels(log)
        try:
            model = take_turns(job, channels, save=save, progress=terminal.progress)
        except ChainBroken as error:
            raise ChainBroken(f"{error}. Start the same run again at all owners: it goes on where it stopped") from None
        log.step("guarantee", str(model.guarantee))
        note_own_fit(folder, rows.own_fit(model.ensemble))
        note_end(folder, log, list(channels.values()), n_rows=len(rows.labels))
    write_report(path, run, terminal)
    return folder
