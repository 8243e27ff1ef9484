"""A horizontal run file in, a finished job out: the coordinator's, and a worker's."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from opboost import rng
from opboost.arrays import Values
from opboost.horizontal.federated_owners import FederatedAmongOwners
from opboost.horizontal.leaf_noise import leaf_clipping, leaf_noise
from opboost.horizontal.public_table import PublicGrid
from opboost.horizontal.public_task import PublicTask
from opboost.horizontal.sgbdt_owners import SGBDTAmongOwners
from opboost.horizontal.sgbdt_printed import printed_noise
from opboost.horizontal.shared_noise import shared_leaf_noise
from opboost.metrics import evaluate
from opboost.preprocess import own_features
from opboost.schema import TableSchema
from opboost.trees.model_file import save_model
from opboost.trees.tree import Ensemble
from parties.config import read_schema
from parties.connections import active_channels, own_keys, passive_channel, peer_key
from parties.coordinator import SharedModel, coordinate
from parties.errors import ConfigError, RunFolderError, naming
from parties.files import replacing
from parties.horizontal_config import CoordinatorRun, TrainingSection, WorkerRun, read_horizontal
from parties.jobs import Terminal, note_end, recorded
from parties.runlog import RunLog
from parties.store import RunFolder, RunState
from parties.table import read_table
from parties.worker import WorkerJob, work
from parties.worker_group import WorkerGroup
from parties.worker_ledger import RunCharge, worker_ledger


def run_coordinator(path: Path, *, insecure: bool, terminal: Terminal) -> RunFolder:
    """Run the coordinator's side of a horizontal training run."""
    run = read_horizontal(path, CoordinatorRun)
    folder = RunFolder(run.run_folder)
    schema, _ = read_schema(run.table_schema)
    with naming(path):
        recipe = make_recipe(run.training, schema)

    def save(model: SharedModel) -> None:
        folder.write_json("guarantee.json", model.guarantee.to_dict())
        _save(folder, model.ensemble)

    with active_channels(run, insecure) as open_channels, _logged(folder, path, run, terminal) as log:
        if log is None:
            return folder
        channels = open_channels(log)
        workers = WorkerGroup(
            channels=channels, run_id=run.run_id, terms=run.training.terms(schema), threshold=run.training.threshold,
            wait_s=run.wait, patience_s=run.patience, note=log.step, n_trees=recipe.n_trees, progress=terminal.progress,
        )  # fmt: skip
        model = coordinate(recipe, workers, rng=_bits(run.seed), save=save)
        log.step("guarantee", str(model.guarantee))
        note_end(folder, log, channels, n_rows=0)
    return folder


def run_worker(path: Path, *, insecure: bool, terminal: Terminal) -> RunFolder:
    """Run a worker's side of a horizontal training run."""
    run = read_horizontal(path, WorkerRun)
    folder = RunFolder(run.run_folder)
    rows = _Rows.read(run)
    with naming(path):
        recipe = make_recipe(run.training, rows.schema)
    bits = _bits(run.seed)
    promise = recipe.guarantee(is_secure=bits.is_secure)
    charge = RunCharge(run=run.run_id, coordinator=run.coordinator.name, epsilon=promise.epsilon, delta=promise.delta)
    with (
        worker_ledger(run.ledger.path, run.ledger.budget) as ledger,
        passive_channel(run, insecure) as open_channel,
        _logged(folder, path, run, terminal) as log,
    ):
        if log is None:
            return folder
        ledger.check(charge)
        answered, note_answer = _answers(folder, rows, before_first=lambda: ledger.charge(charge))
        channel = open_channel(log)
        job = WorkerJob(
            party=run.party, run_id=run.run_id, terms=run.training.terms(rows.schema),
            threshold=run.training.threshold, n_trees=recipe.n_trees, columns=recipe.task.grid,
            make_rows=lambda *, shape_bits: recipe.rows(
                rows.values, rows.labels, shape_bits=shape_bits, rng=bits.fork("rows")
            ),
            rng=bits, answered=answered, note_answer=note_answer,
            identity=own_keys(run, False) if run.peers else None,
            lasting_keys={peer.name: key for peer in run.peers if (key := peer_key(peer.public_key, peer.name, False))},
        )  # fmt: skip
        model = recipe.model(work(job, channel, progress=terminal.progress))
        folder.write_json("guarantee.json", promise.to_dict())
        _save(folder, model)
        metrics = evaluate(model.loss.name, rows.labels, model.predict(rows.values)) if rows.can_be_scored else {}
        folder.write_json("metrics.json", {"own_rows": metrics})
        note_end(folder, log, [channel], n_rows=len(rows.labels))
    return folder


def make_recipe(training: TrainingSection, schema: TableSchema) -> SGBDTAmongOwners | FederatedAmongOwners:
    """The recipe that a run file names; the one `match` over recipes."""
    is_classification = training.objective == "binary:logistic"
    lower, upper = training.label_bounds or (-1.0, 1.0)
    bounds = [column.bounds for column in schema.columns]

    def task(grid: PublicGrid) -> PublicTask:
        centre, spread = (lower + upper) / 2, (upper - lower) / 2
        return PublicTask(schema.names, grid, centre, spread, training.epsilon, True, is_classification)

    match training.recipe:
        case "sgbdt":
            return _sgbdt(training, task(PublicGrid(bounds, training.sgbdt.max_cells)))
        case "federated":
            section = training.federated
            return section.recipe(
                task(section.grid(schema.names, bounds)), delta=training.delta, n_honest=training.honest
            )


def _sgbdt(training: TrainingSection, task: PublicTask) -> SGBDTAmongOwners:
    section, budget = training.sgbdt, {"epsilon": training.epsilon, "delta": training.delta}
    is_printed = training.mode == "paper"
    if section.n_extra_estimators and not section.has_filter:
        raise ConfigError("training.sgbdt: n_extra_estimators needs the filter; found use_filter: false")
    clipping = leaf_clipping(section.max_grad, section.denominator_noise, is_classification=task.is_classification)
    claimed = None
    if is_printed:
        noise, _, claimed = printed_noise(
            **budget, max_grad=section.max_grad, n_trees=section.n_estimators, rate=section.subsample,
            initial_share=0.0, has_filter=section.has_filter, is_classification=task.is_classification,
        )  # fmt: skip
    elif training.honest is not None:
        noise = shared_leaf_noise(
            clipping, **budget, n_trees=section.n_estimators, n_honest=training.honest, has_filter=section.has_filter
        )
    else:
        noise = leaf_noise(
            clipping, **budget, n_trees=section.n_estimators, rate=section.subsample, initial_share=0.0,
            has_filter=section.has_filter,
        )  # fmt: skip
    return SGBDTAmongOwners(
        task=task, shape=section.shape(len(task.names), is_printed=is_printed), noise=noise,
        n_trees=section.n_estimators + section.n_extra_estimators, delta=training.delta,
        is_mean_of_values=is_printed, claimed=claimed,
    )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rows:
    """A worker's rows, as the recipe takes them."""

    schema: TableSchema
    values: Values
    labels: Values

    @classmethod
    def read(cls, run: WorkerRun) -> _Rows:
        schema, ignore = read_schema(run.table_schema)
        if schema.label is None:
            raise ConfigError(f"{run.table_schema} names no `label`, which every worker needs")
        table = read_table(run.data, schema, ignore=ignore, needs_label=True)
        assert table.labels is not None
        if run.training.objective == "binary:logistic" and not np.isin(table.labels, (0.0, 1.0)).all():
            raise ConfigError(f"{run.data}: the labels of two classes must be 0 and 1. Nothing was sent")
        columns = own_features(table.features, schema.columns)
        return cls(
            schema=schema,
            values=np.column_stack([columns[name] for name in schema.names]),
            labels=table.labels,
        )

    @property
    def digest(self) -> str:
        """Of everything that the answers depend on; it stays in the worker's own folder."""
        found = hashlib.sha256(repr(self.values.shape).encode())
        for part in (self.values, self.labels):
            found.update(np.ascontiguousarray(part))
        return found.hexdigest()

    @property
    def can_be_scored(self) -> bool:
        return len(np.unique(self.labels)) > 1


def _answers(folder: RunFolder, rows: _Rows, *, before_first: Callable[[], None]) -> tuple[int, Callable[[int], None]]:
    """The last tree that an earlier process of this run answered for, and how to note further ones."""
    answered, digest = 0, rows.digest
    if folder.has_released:
        before = folder.read_json("answers.json")
        if before["table"] != digest:
            raise RunFolderError(
                f"{folder.path} holds the beginning of a run on other rows; bring them back or choose another run_id. "
                "Nothing was sent"
            )
        answered = int(before["tree"])

    def note(tree: int) -> None:
        is_first = not folder.has_released
        if is_first:
            before_first()
        folder.write_json("answers.json", {"table": digest, "tree": tree})
        if is_first:
            folder.mark_release()

    return answered, note


@contextmanager
def _logged(
    folder: RunFolder, path: Path, run: CoordinatorRun | WorkerRun, terminal: Terminal
) -> Iterator[RunLog | None]:
    """Make the run folder or take it up, for this process alone, with its log; None if the run is finished."""
    with folder.locked():
        state = folder.create(path, party=run.party, role=run.role)
        if state is RunState.FINISHED:
            finished = folder.read_json("meta.json")["finished"]
            terminal.say(f"run {run.run_id!r} of {run.party} was finished at {finished}; nothing was done")
            yield None
            return
        with recorded(folder, terminal) as log:
            if state is RunState.UNFINISHED:
                log.step("resumed", f"{run.party} comes back to run {run.run_id!r}")
            yield log


def _bits(seed: int | None) -> rng.BitSource:
    return rng.secure() if seed is None else rng.seeded(seed)


def _save(folder: RunFolder, ensemble: Ensemble) -> None:
    with replacing(folder.path / "model.json") as partial:
        save_model(ensemble, partial)
