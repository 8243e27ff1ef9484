"""Training jobs of a coordinator and of a worker."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from parties.cluster.worker_rows import worker_rows
from parties.config.horizontal import CoordinatorRun, WorkerRun
from parties.config.reading import read_run, read_schema
from parties.config.recipes import make_recipe
from parties.config.record_runs import charge_of
from parties.errors import naming
from parties.horizontal.coordinator import SharedModel, run_coordinator
from parties.horizontal.worker import WorkerJob, run_worker
from parties.horizontal.worker_checkpoint import WorkerCheckpoint
from parties.horizontal.worker_group import WorkerGroup
from parties.jobs.life_cycle import Terminal, TrainingRun
from parties.jobs.shared_model import note_own_fit, save_shared_model
from parties.ledger.model_ledger import check_charge, worker_ledger
from parties.reports.horizontal_words import unknown_workers
from parties.runs.run_folder import RunFolder
from parties.session.connections import open_connections, own_keys, peer_key


def train_coordinator(path: Path, *, insecure: bool, terminal: Terminal) -> RunFolder:
    """Run the coordinator's side of a horizontal training run."""
    run = read_run(path, CoordinatorRun)
    life = TrainingRun(path, run, terminal)
    if life.is_over():
        return life.folder
    schema, _ = read_schema(run.table_schema)
    with naming(path):
        recipe = make_recipe(run.training, schema)
    with open_connections(run, insecure) as open_channels, life.logged() as log:
        if warning := unknown_workers(run, recipe.guarantee(is_secure=run.seed is None)):
            log.step("unknown workers", warning)
        channels = list(open_channels(log).values())
        workers = WorkerGroup(
            channels=channels,
            run_id=run.run_id,
            terms=run.terms(schema),
            threshold=run.training.threshold,
            wait_s=run.wait,
            patience_s=run.patience,
            note=log.step,
            n_trees=recipe.n_trees,
            progress=log.progress,
        )
        model = run_coordinator(recipe, workers, rng=run.bits, save=partial(save_shared_model, life.folder))
        log.step("guarantee", str(model.guarantee))
        life.finish(log, channels, n_rows=0, n_rounds=workers.n_rounds)
    return life.report()


def train_worker(path: Path, *, insecure: bool, terminal: Terminal) -> RunFolder:
    """Run a worker's side of a horizontal training run, or resume it where it stopped."""
    run = read_run(path, WorkerRun)
    life = TrainingRun(path, run, terminal)
    folder = life.folder
    if life.is_over():
        return folder
    schema, _ = read_schema(run.table_schema)
    with naming(path):
        recipe = make_recipe(run.training, schema)
    bits = run.bits
    promise, charge = recipe.guarantee(is_secure=bits.is_secure), charge_of(run, recipe)
    with (
        worker_rows(run, recipe, rng=bits.fork("rows")) as rows,
        worker_ledger(run.ledger.path, run.ledger.budget) as ledger,
        open_connections(run, insecure) as open_channels,
        life.logged() as log,
    ):
        check_charge(ledger, charge, folder)
        log.step("guarantee", str(promise))
        if warning := unknown_workers(run, promise):
            log.step("unknown workers", warning)
        checkpoint = WorkerCheckpoint(folder, rows.digest, before_first=lambda: ledger.charge(charge))
        (channel,) = open_channels(log).values()
        job = WorkerJob(
            party=run.party,
            run_id=run.run_id,
            terms=run.terms(schema),
            threshold=run.training.threshold,
            recipe=recipe,
            make_rows=rows.answering,
            rng=bits,
            answered=checkpoint.answered,
            note_answer=checkpoint.note_answer,
            drawing=checkpoint.drawing(),
            note_drawing=checkpoint.note_drawing,
            identity=own_keys(run, False) if run.peers else None,
            lasting_keys={peer.name: key for peer in run.peers if (key := peer_key(peer.public_key, peer.name, False))},
        )
        model = recipe.model(run_worker(job, channel, progress=log.progress))
        save_shared_model(folder, SharedModel(ensemble=model, guarantee=promise))
        note_own_fit(folder, rows.own_fit(model))
        life.finish(log, [channel], n_rows=rows.n_rows)
    return life.report()
