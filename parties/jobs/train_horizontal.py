"""Training jobs of a coordinator and of a worker."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

from opboost.fit_quality import FitQuality
from opboost.horizontal.rows.stream import Arrival, n_arrived
from opboost.horizontal.sgbdt.owners import SGBDTAmongOwners
from opboost.rng import BitSource
from opboost.schema import TableSchema
from opboost.trees.tree import Tree
from parties.cluster.worker_rows import WorkerRows, worker_rows
from parties.config.horizontal import CoordinatorRun, WorkerRun
from parties.config.reading import read_run, read_schema
from parties.config.recipes import SummedRecipe
from parties.config.record_runs import StreamRecipe, charge_of, summed_recipe, terms_of
from parties.errors import TableError
from parties.horizontal.coordinator import SharedModel, run_coordinator
from parties.horizontal.round_journal import RoundJournal
from parties.horizontal.row_partitions import PartedRows
from parties.horizontal.row_table import OwnerRows
from parties.horizontal.worker import WorkerJob, run_worker
from parties.horizontal.worker_checkpoint import WorkerCheckpoint
from parties.horizontal.worker_group import WorkerGroup
from parties.jobs.life_cycle import Terminal, TrainingRun, note_others
from parties.jobs.shared_model import note_own_fit, save_shared_model
from parties.ledger.model_ledger import WorkerLedger, check_charge, worker_ledger
from parties.reports.horizontal_words import unknown_workers
from parties.runs.journal import FOLDER
from parties.runs.model_share import TREES_FILE
from parties.runs.row_stream import RowStream, lasting_digest
from parties.runs.run_folder import RunFolder
from parties.runs.run_log import RunLog
from parties.session.connections import open_connections
from parties.session.lasting_keys import lasting_keys
from parties.session.reconnection import with_restarts
from protocols.errors import PeerRestarted, ProtocolError
from protocols.messages.vertical import Done
from protocols.transport.channel import Channel

_RESUMING = "Start the same run again: it goes on where it stopped"


def train_coordinator(path: Path, *, insecure: bool, terminal: Terminal) -> RunFolder:
    """Run the coordinator's side of a horizontal training run."""
    run = read_run(path, CoordinatorRun)
    life = TrainingRun(path, run, terminal)
    if life.is_over():
        return life.folder
    schema, _ = read_schema(run.table_schema)
    recipe = summed_recipe(run, schema, path)
    with open_connections(run, insecure) as open_channels, life.begin_or_resume(schema, resuming=_RESUMING) as log:
        if warning := unknown_workers(run, recipe.guarantee(is_secure=run.seed is None)):
            log.step("unknown workers", warning)
        _, keys = lasting_keys(run)
        channels, journals = list(open_channels(log).values()), life.folder.path / FOLDER

        def work() -> tuple[SharedModel, dict[str, Any]]:
            with closing(RoundJournal(journals / "rounds.sqlite", begin=life.folder.mark_release)) as journal:
                workers = WorkerGroup(
                    channels=channels,
                    run_id=run.run_id,
                    terms=terms_of(run, schema, recipe=recipe, lasting_keys=keys),
                    threshold=run.training.threshold,
                    wait_s=run.wait,
                    patience_s=run.patience,
                    note=log.step,
                    n_trees=recipe.n_trees,
                    progress=log.progress,
                    journal=journal,
                )
                bits, save = journal.bits() if run.seed is None else run.bits, partial(save_shared_model, life.folder)
                model = run_coordinator(recipe, workers, rng=bits, save=save)
                return model, {"n_rounds": workers.n_rounds, "rounds_of": journal.rounds_of(workers.n_rounds)}

        model, rounds = with_restarts(channels, work, log)
        log.step("guarantee", str(model.guarantee))
        if model.absent:
            log.step(
                "unconfirmed",
                f"the model is saved, but {', '.join(model.absent)} did not say that it is there; start this run again "
                "where it is missing",
            )
        facts = rounds | _stream_facts(run, schema, recipe)
        life.finish(log, channels, n_rows=0, unconfirmed=model.absent, **facts)
        if not model.absent:
            shutil.rmtree(journals, ignore_errors=True)
    return life.report()


def train_worker(path: Path, *, insecure: bool, terminal: Terminal) -> RunFolder:
    """Run a worker's side of a horizontal training run, or resume it where it stopped."""
    run = read_run(path, WorkerRun)
    life = TrainingRun(path, run, terminal)
    if life.is_over():
        return life.folder
    schema, ignore = read_schema(run.table_schema)
    recipe = summed_recipe(run, schema, path)
    with (
        worker_ledger(run.ledger.path, run.ledger.budget) as ledger,
        open_connections(run, insecure) as open_channels,
        life.begin_or_resume(schema, resuming=_RESUMING) as log,
    ):
        training = _WorkerTraining(run, schema, ignore, recipe, ledger, life.folder, log)
        if not life.folder.has_model:
            check_charge(ledger, training.charge, life.folder)
        log.step("guarantee", str(training.promise))
        if warning := unknown_workers(run, training.promise):
            log.step("unknown workers", warning)
        channels: list[Channel] = []
        n_rows, facts = with_restarts(channels, lambda: training.work(channels, open_channels), log)
        life.finish(log, channels, n_rows=n_rows, **facts)
    return life.report()


class _WorkerTraining:
    """A worker's part of a run, from its rows to its model; all of it again where the coordinator begins again."""

    def __init__(
        self,
        run: WorkerRun,
        schema: TableSchema,
        ignore: tuple[str, ...],
        recipe: SummedRecipe,
        ledger: WorkerLedger,
        folder: RunFolder,
        log: RunLog,
    ) -> None:
        self._run, self._schema, self._ignore = run, schema, ignore
        self._recipe, self._ledger, self._folder, self._log = recipe, ledger, folder, log
        self._keys = lasting_keys(run)
        self.promise, self.charge = recipe.guarantee(is_secure=run.seed is None), charge_of(run, recipe)

    def work(
        self, channels: list[Channel], open_channels: Callable[[RunLog], dict[str, Channel]]
    ) -> tuple[int, dict[str, Any]]:
        """Take part, over channels that are opened once the rows are there; the number of rows, and facts to keep."""
        run, folder, log = self._run, self._folder, self._log
        checkpoint = WorkerCheckpoint(folder, charge=lambda: self._ledger.charge(self.charge, checkpoint.holder))
        bits = checkpoint.bits() if run.seed is None else run.bits
        with worker_rows(run, self._recipe, schema=self._schema, ignore=self._ignore, rng=bits.fork("rows")) as rows:
            checkpoint.check_rows(rows.digest)
            note_others(rows.others, log)
            channels.extend(() if channels else open_channels(log).values())
            had_model = folder.has_model
            if not had_model:
                run_worker(self._job(rows, checkpoint, bits), channels[0], progress=log.progress)
            checkpoint.conclude()
            if had_model:
                _say_done(channels[0], log)
            note_own_fit(folder, _own_fit(rows, folder, log))
            # A process may have ended between the charge and the note of it.
            has_answered = checkpoint.has_answered or self._ledger.knows(self.charge, checkpoint.holder)
            if not has_answered:
                log.step("no part", f"{run.party} answered nothing in this run, and none of its records trained")
            holder = checkpoint.holder if has_answered else ""
            facts = _stream_facts(run, self._schema, self._recipe, rows.held, holder)
            return rows.n_rows, {"has_answered": has_answered, **facts}

    def _job(self, rows: WorkerRows, checkpoint: WorkerCheckpoint, bits: BitSource) -> WorkerJob:
        run, (identity, keys) = self._run, self._keys
        return WorkerJob(
            party=run.party,
            run_id=run.run_id,
            terms=terms_of(run, self._schema, recipe=self._recipe, lasting_keys=keys),
            threshold=run.training.threshold,
            recipe=self._recipe,
            make_rows=rows.answering,
            rng=checkpoint.public_bits() if run.seed is None else bits,
            answered=checkpoint.answered,
            note_answer=checkpoint.note_answer,
            save=self._save,
            **checkpoint.drawings(),
            note_drawing=checkpoint.note_drawing,
            identity=identity,
            lasting_keys=keys,
            note=self._log.step,
        )

    def _save(self, trees: list[Tree]) -> None:
        recipe = self._recipe
        if isinstance(recipe, SGBDTAmongOwners):
            self._folder.save_ensemble(recipe.kept_trees(trees), TREES_FILE)
        save_shared_model(self._folder, SharedModel(ensemble=recipe.model(trees), guarantee=self.promise))


def _stream_facts(
    run: CoordinatorRun | WorkerRun,
    schema: TableSchema,
    recipe: SummedRecipe,
    rows: OwnerRows | PartedRows | None = None,
    holder: str = "",
) -> dict[str, Any]:
    """Facts for a run that continues this one; empty if none can.

    `holder` is that of a worker's charge. One that answered nothing has none, and its rows of this run are new to the
    next one.
    """
    if not isinstance(recipe, StreamRecipe) or isinstance(rows, PartedRows):
        return {}
    earlier, charged_run = recipe.earlier, ""
    arrivals = earlier.arrivals if earlier else ()
    if rows and holder:
        arrivals = (*arrivals, Arrival(len(rows.labels), len(earlier.model.trees) if earlier else 0))
    elif rows and earlier:
        charged_run, holder = earlier.charged_run, earlier.charge_holder
    of_recipe: dict[str, Any]
    if isinstance(recipe, SGBDTAmongOwners):
        of_recipe = {"noise": (recipe.noise.grad_std, recipe.noise.hess_std)}
    else:
        of_recipe = {"n_records": recipe.n_records + (earlier.n_records if earlier else 0)}
    stream = RowStream(
        run=run.run_id,
        terms=lasting_digest(run.terms(schema)),
        rows=rows.first(n_arrived(arrivals)).digest if rows else "",
        arrivals=arrivals,
        charged_run=charged_run,
        holder=holder,
        **of_recipe,
    )
    return {"stream": stream.facts}


def _own_fit(rows: WorkerRows, folder: RunFolder, log: RunLog) -> FitQuality | None:
    """How the model fits the own rows; None where partitions were changed since, which takes nothing from the model."""
    try:
        return rows.own_fit(folder.load_ensemble())
    except TableError as error:
        log.step("no scores", f"the model is saved; how it fits the own rows is not known: {error}")
        return None


def _say_done(channel: Channel, log: RunLog) -> None:
    """Tell the coordinator that the model is here, which an earlier process may not have told; it may be gone."""
    try:
        channel.send(Done())
    except PeerRestarted:
        raise
    except ProtocolError as error:
        log.step("unconfirmed", f"the model is saved, but {channel.peer} was not told that it is: {error}")
