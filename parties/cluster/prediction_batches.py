"""Prediction of a folder of partitions between the two parties: A asks partition by partition, workers do the rest.

::

    B's workers   raw columns ──► exact codes, in the order of a key      (removed at the end)
    B's driver    ids asked for ──► their codes ──► answers
    A's driver    ids ──► answers ──► Parquet
    A's workers   answers, own columns ──► predictions ──► Parquet
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import numpy as np
from numpy.typing import NDArray

from opboost.routing import Router
from opboost.schema import TableSchema
from opboost.trees.tree import Ensemble
from parties.cluster.dask_cluster import cluster, reporting_lost_workers
from parties.cluster.keyed_records import KeyedRecords, keyed_records
from parties.cluster.partitions import Partitions, ids_of, partitions_of
from parties.cluster.prediction import check_scorable, score_part, write_bits
from parties.cluster.working_folder import working_folder
from parties.config.score_policy import RevealSection
from parties.config.vertical import ActiveRun, PassiveRun
from parties.errors import RunFolderError
from parties.progress import Progress
from parties.storage.atomic_files import make_folder, replacing
from parties.tables.record_ids import with_parts
from parties.vertical.prediction_client import Session, Statuses
from parties.vertical.prediction_output import prediction_table
from protocols.messages.prediction import RecordStatus

if TYPE_CHECKING:
    from distributed import Client


@contextmanager
def answerable_partitions(
    run: PassiveRun, data: Path, schema: TableSchema, ignore: Sequence[str], router: Router
) -> Iterator[KeyedRecords]:
    """A folder's records, of which the run's cluster reads and checks every cell first.

    Raises
    ------
    ConfigError, TableError, DataError

    Notes
    -----
    Privacy: the exact codes lie in the run's folder of partitions, readable by their owner alone, until the block ends.
    """
    assert run.dask.folder is not None
    of_data = run.model_copy(update={"source": data, "ids": None})
    with (
        cluster(run.dask) as client,
        partitions_of(of_data, schema, ignore, needs_label=False, client=client) as found,
        working_folder(run.dask.folder) as folder,
    ):
        yield keyed_records(router, found, schema.id_columns, folder, client=client)


@contextmanager
def scorable_partitions(
    run: ActiveRun, data: Path, schema: TableSchema, ignore: Sequence[str], ensemble: Ensemble, ids: Path | None
) -> Iterator[PartitionScorer]:
    """The active party's folder, or listed records of it, and what asks and scores; checked before a peer comes.

    Raises
    ------
    ConfigError, TableError, DataError
    """
    assert run.dask.folder is not None
    of_data = run.model_copy(update={"source": data, "ids": ids})
    with (
        cluster(run.dask) as client,
        partitions_of(of_data, schema, ignore, needs_label=False, client=client) as found,
        working_folder(run.dask.folder) as folder,
    ):
        check_scorable(schema, found.paths, client=client)
        yield PartitionScorer(found, schema, ensemble, run.reveal, folder, client)


@dataclass(frozen=True, slots=True)
class PartitionScorer:
    """Scores a folder of partitions.

    Attributes
    ----------
    found : Partitions
    schema : TableSchema
    ensemble : Ensemble
    reveal : RevealSection
    folder : Path
        Takes answers and scores meanwhile.
    client : distributed.Client
    """

    found: Partitions
    schema: TableSchema
    ensemble: Ensemble
    reveal: RevealSection
    folder: Path
    client: Client

    def score(self, asking: Session, target: Path, *, desensitized: bool, progress: Progress) -> Statuses:
        """Ask about every partition while workers score those before; `target` becomes a folder of predictions.

        Raises
        ------
        RunFolderError
            If it cannot be written.
        TableError
            If a file was changed since it was looked through: no prediction is kept.
        """
        score = partial(_score, self.ensemble, self.schema, self.reveal)
        answers, scores = self.folder / "answers", self.folder / "scores"
        make_folder(answers)
        make_folder(scores)
        statuses, pending = [], []
        for number, path in enumerate(self.found.paths):
            ids = ids_of(path, self.schema.id_columns)
            self.found.check_unchanged(number)
            bits, status = asking.ask(ids, desensitized=desensitized)
            files = {owner: answers / f"{number:06d}.{owner}.parquet" for owner in self.ensemble.owners}
            for owner, file in files.items():
                write_bits(file, bits[owner])
            place = scores / f"{number:06d}.parquet"
            with reporting_lost_workers(self.client):
                pending.append(self.client.submit(score, path, files, status, place, pure=False))
            statuses.append(status)
            progress("predicting", number + 1, len(self.found.paths))
        with asking.heartbeats(), reporting_lost_workers(self.client):
            self.client.gather(pending)
        self.found.check_unchanged()
        make_folder(target.parent)
        try:
            shutil.move(scores, target)
        except OSError as error:
            raise RunFolderError(f"{target} cannot be written: {error.strerror}") from None
        return np.concatenate(statuses)


def _score(
    ensemble: Ensemble,
    schema: TableSchema,
    reveal: RevealSection,
    part: Path,
    answers: Mapping[str, Path],
    status: NDArray[np.uint8],
    target: Path,
) -> None:
    """Write the predictions of a partition, keyed by id."""
    predictions = score_part(ensemble, schema.columns, part, answers)
    predictions[status != RecordStatus.ANSWERED] = np.nan
    table = reveal.apply(prediction_table(ids_of(part, schema.id_columns), predictions, status, loss=ensemble.loss))
    with replacing(target, writer=f".{uuid4().hex}") as unfinished:
        with_parts(table, schema.id_columns).to_parquet(unfinished, index=False)
