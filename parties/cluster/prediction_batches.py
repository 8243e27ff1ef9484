"""Prediction of a folder of partitions between the two parties: A asks partition by partition, workers do the rest.

::

    B's workers   raw columns ──► exact codes, in the order of a key      (removed at the end)
    B's driver    ids asked for ──► their codes ──► answers
    A's driver    ids ──► answers ──► Parquet
    A's workers   answers, own columns ──► predictions ──► Parquet
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
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
from parties.progress import Progress
from parties.storage.atomic_files import make_folder, move_folder, replacing, write_or_keep
from parties.tables.record_ids import with_parts
from parties.vertical.prediction_client import AnswerBits, FinishedBatches, Session, Statuses
from parties.vertical.prediction_output import prediction_table
from protocols.messages.prediction import RecordStatus

if TYPE_CHECKING:
    from distributed import Client, Future


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
        partitions_of(of_data, schema, ignore, needs_label=False, client=client) as partitions,
        working_folder(run.dask.folder) as folder,
    ):
        yield keyed_records(router, partitions, schema.id_columns, folder, client=client)


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
        partitions_of(of_data, schema, ignore, needs_label=False, client=client) as partitions,
        working_folder(run.dask.folder) as folder,
    ):
        check_scorable(schema, partitions.paths, client=client)
        yield PartitionScorer(partitions, schema, ensemble, run.reveal, folder, client)


@dataclass(slots=True)
class FinishedPartitions:
    """Finished partitions of a prediction; kept over a peer's restart, so that nothing is asked twice.

    Attributes
    ----------
    statuses : list of ndarray of uint8
        Of the records of each partition that was asked about as a whole.
    scores : list of distributed.Future
        The tasks that score them.
    batches : FinishedBatches
        Of the partition that comes next.
    """

    statuses: list[Statuses] = field(default_factory=list)
    scores: list[Future[None]] = field(default_factory=list)
    batches: FinishedBatches[AnswerBits] = field(default_factory=FinishedBatches)


@dataclass(frozen=True, slots=True)
class PartitionScorer:
    """Scores a folder of partitions.

    Attributes
    ----------
    partitions : Partitions
    schema : TableSchema
    ensemble : Ensemble
    reveal : RevealSection
    folder : Path
        Takes answers and scores meanwhile.
    client : distributed.Client
    finished : FinishedPartitions
    """

    partitions: Partitions
    schema: TableSchema
    ensemble: Ensemble
    reveal: RevealSection
    folder: Path
    client: Client
    finished: FinishedPartitions = field(default_factory=FinishedPartitions)

    def score(self, asking: Session, *, desensitized: bool, progress: Progress) -> Statuses:
        """Ask about every partition that was not asked about in an earlier session, while workers score those before.

        Raises
        ------
        TableError
            If a file was changed since it was checked: no prediction is kept.
        """
        score = partial(_score, self.ensemble, self.schema, self.reveal)
        answers, known = self.folder / "answers", self.finished
        make_folder(answers)
        make_folder(self._scores)
        for number, path in islice(enumerate(self.partitions.paths), len(known.scores), None):
            ids = ids_of(path, self.schema.id_columns)
            self.partitions.check_unchanged(number)
            bits, status = asking.ask(ids, desensitized=desensitized, finished=known.batches)
            files = {owner: answers / f"{number:06d}.{owner}.parquet" for owner in self.ensemble.owners}
            for owner, file in files.items():
                write_bits(file, bits[owner])
            place = self._scores / f"{number:06d}.parquet"
            with reporting_lost_workers(self.client):
                known.scores.append(self.client.submit(score, path, files, status, place, pure=False))
            known.statuses.append(status)
            known.batches = FinishedBatches()
            progress("predicting", number + 1, len(self.partitions.paths))
        with asking.heartbeats(), reporting_lost_workers(self.client):
            self.client.gather(known.scores)
        self.partitions.check_unchanged()
        return np.concatenate(known.statuses)

    def write(self, target: Path, *, spare: Path) -> None:
        """Move what was scored to a place where nothing is, or else beside `spare`: the answers were counted.

        Raises
        ------
        RunFolderError
            That says where the predictions are instead, if they are.
        """
        kept = spare.with_name(f"{spare.name}.{uuid4().hex[:8]}")
        move = partial(move_folder, self._scores)
        write_or_keep(partial(move, target), move, kept)

    @property
    def _scores(self) -> Path:
        return self.folder / "scores"


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
