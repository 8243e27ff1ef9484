"""Training data of a finished run, read from the active party's run folder and its own data file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from opboost.columns import OwnColumn, RankColumn
from opboost.trees.validation import ValidationPlan
from parties.config.vertical import ActiveRun
from parties.errors import ConfigError, RunFolderError
from parties.runs.journal import KEPT, Journal
from parties.runs.run_folder import RunFolder
from parties.storage.paths import is_there
from parties.vertical.alignment import Aligned
from parties.vertical.preparation import prepare_active
from parties.vertical.training_job import ActiveJob


@dataclass(frozen=True, slots=True, eq=False)
class KeptRelease:
    """A training job whose ranks are all there.

    Attributes
    ----------
    job : ActiveJob
    received : tuple of RankColumn
    """

    job: ActiveJob
    received: tuple[RankColumn, ...]

    def of_rows(self, rows: NDArray[np.int64]) -> KeptRelease:
        """The release restricted to some of the records, in memory."""
        job = self.job
        job = replace(
            job,
            own=_columns_of_rows(job.own, rows),
            margins=_columns_of_rows(job.margins, rows),
            labels=job.labels[rows],
            weights=job.weights[rows],
            validation=None,
        )
        received = tuple(replace(column, ranks=np.asarray(column.ranks[:])[rows]) for column in self.received)
        return KeptRelease(job, received)

    def validated(self, plan: ValidationPlan) -> KeptRelease:
        """The release with rows that are held out of training."""
        return KeptRelease(replace(self.job, validation=plan), self.received)


def read_kept(run: ActiveRun, path: Path, *, purpose: str) -> KeptRelease:
    """Read back what the run of this run file trained on; nobody is asked.

    Parameters
    ----------
    run : ActiveRun
    path : Path
        The run file.
    purpose : str
        What is to be computed, as the subject of a sentence that refuses it.

    Raises
    ------
    ConfigError, RunFolderError
        If the run kept nothing to compute it of, or the data file holds other records or cells now.
    """
    if run.engine == "dask" or run.label_epsilon is not None:
        raise ConfigError(
            f"{purpose} is for tables in memory and labels without noise: its result would tell of true labels, and a "
            "cluster keeps no ranks. Nothing was computed"
        )
    folder = RunFolder(run.run_folder)
    if not is_there(folder.path / KEPT):
        raise RunFolderError(f"{folder.path} holds no ranks; finish the run first. Nothing was computed")
    journal, prepared = Journal.kept(folder.path), prepare_active(run, path)
    journal.note_inputs(prepared.digest)
    rows, orders = journal.rows(prepared.table.n_rows)
    job = prepared.job(Aligned(prepared.table.take(rows), orders), journal)
    if job.labels.ndim > 1:
        raise ConfigError(f"{purpose} is for one label without groups; the schema names more. Nothing was computed")
    received: list[RankColumn] = []
    for peer in journal.peers:
        receipt = job.receipt(peer)
        if receipt.offer is not None:
            receipt.take(receipt.offer)
        if not receipt.is_complete:
            raise RunFolderError(f"the ranks of {peer} in {folder.path / KEPT} are damaged. Nothing was computed")
        received += receipt.released()
    return KeptRelease(job, tuple(received))


def _columns_of_rows(columns: Sequence[OwnColumn], rows: NDArray[np.int64]) -> tuple[OwnColumn, ...]:
    return tuple(replace(column, values=column.values[rows]) for column in columns)
