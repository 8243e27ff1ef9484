"""A horizontal run file in, a finished job out: the coordinator's, and a worker's."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from parties.cluster.worker_rows import worker_rows
from parties.config.horizontal import CoordinatorRun, WorkerRun
from parties.config.reading import read_run, read_schema
from parties.config.recipes import make_recipe
from parties.config.record_runs import charge_of
from parties.errors import RunFolderError, naming
from parties.horizontal.coordinator import SharedModel, coordinate
from parties.horizontal.verified_rows import Answered
from parties.horizontal.worker import WorkerJob, work
from parties.horizontal.worker_group import WorkerGroup
from parties.jobs.horizontal_folder import (
    bits_of,
    logged,
    note_drawing,
    note_own_fit,
    noted_drawing,
    save_trees,
    write_report,
)
from parties.jobs.train_vertical import Terminal, note_end
from parties.ledger.model_ledger import check_charge, worker_ledger
from parties.reports.horizontal_words import unknown_workers
from parties.runs.run_folder import RunFolder
from parties.session.connections import active_channels, own_keys, passive_channel, peer_key


def run_coordinator(path: Path, *, insecure: bool, terminal: Terminal) -> RunFolder:
    """Run the coordinator's side of a horizontal training run."""
    run = read_run(path, CoordinatorRun)
    folder = RunFolder(run.run_folder)
    schema, _ = read_schema(run.table_schema)
    with naming(path):
        recipe = make_recipe(run.training, schema)

    def save(model: SharedModel) -> None:
        folder.write_json("guarantee.json", model.guarantee.to_dict())
        save_trees(folder, model.ensemble)

    with active_channels(run, insecure) as open_channels, logged(folder, path, run, terminal) as log:
        if log is None:
            return folder
        if warning := unknown_workers(run, recipe.guarantee(is_secure=run.seed is None)):
            log.step("unknown workers", warning)
        channels = open_channels(log)
        workers = WorkerGroup(
            channels=channels,
            run_id=run.run_id,
            terms=run.terms(schema),
            threshold=run.training.threshold,
            wait_s=run.wait,
            patience_s=run.patience,
            note=log.step,
            n_trees=recipe.n_trees,
            progress=terminal.progress,
        )
        model = coordinate(recipe, workers, rng=bits_of(run.seed), save=save)
        log.step("guarantee", str(model.guarantee))
        note_end(folder, log, channels, n_rows=0, n_rounds=workers.n_rounds)
    write_report(path, run, terminal)
    return folder


def run_worker(path: Path, *, insecure: bool, terminal: Terminal) -> RunFolder:
    """Run a worker's side of a horizontal training run."""
    run = read_run(path, WorkerRun)
    folder = RunFolder(run.run_folder)
    schema, _ = read_schema(run.table_schema)
    with naming(path):
        recipe = make_recipe(run.training, schema)
    bits = bits_of(run.seed)
    promise = recipe.guarantee(is_secure=bits.is_secure)
    charge = charge_of(run, recipe)
    with (
        worker_rows(run, recipe, rng=bits.fork("rows")) as rows,
        worker_ledger(run.ledger.path, run.ledger.budget) as ledger,
        passive_channel(run, insecure) as open_channel,
        logged(folder, path, run, terminal) as log,
    ):
        if log is None:
            return folder
        check_charge(ledger, charge, folder)
        log.step("guarantee", str(promise))
        if warning := unknown_workers(run, promise):
            log.step("unknown workers", warning)
        answered, note_answer = _answers(folder, rows.digest, before_first=lambda: ledger.charge(charge))
        channel = open_channel(log)
        job = WorkerJob(
            party=run.party,
            run_id=run.run_id,
            terms=run.terms(schema),
            threshold=run.training.threshold,
            recipe=recipe,
            make_rows=rows.answering,
            rng=bits,
            answered=answered,
            note_answer=note_answer,
            drawing=noted_drawing(folder),
            note_drawing=partial(note_drawing, folder),
            identity=own_keys(run, False) if run.peers else None,
            lasting_keys={peer.name: key for peer in run.peers if (key := peer_key(peer.public_key, peer.name, False))},
        )
        model = recipe.model(work(job, channel, progress=terminal.progress))
        folder.write_json("guarantee.json", promise.to_dict())
        save_trees(folder, model)
        note_own_fit(folder, rows.own_fit(model))
        note_end(folder, log, [channel], n_rows=rows.n_rows)
    write_report(path, run, terminal)
    return folder


def _answers(
    folder: RunFolder, digest: str, *, before_first: Callable[[], None]
) -> tuple[Answered, Callable[[Answered], None]]:
    """What earlier processes of this run answered for, and how to note more."""
    answered = Answered()
    if folder.has_released:
        before = folder.read_json("answers.json")
        if before["table"] != digest:
            raise RunFolderError(
                f"{folder.path} holds the beginning of a run on other rows; bring them back or choose another run_id. "
                "Nothing was sent"
            )
        answered = Answered(n_trees=int(before["tree"]), history=str(before.get("history")))

    def note(now: Answered) -> None:
        is_first = not folder.has_released
        if is_first:
            before_first()
        folder.write_json("answers.json", {"table": digest, "tree": now.n_trees, "history": now.history})
        if is_first:
            folder.mark_release()

    return answered, note
