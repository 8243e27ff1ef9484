"""An active party's run file with `engine: dask` in, a job out, whose rows lie in partitions.

What `parties.vertical.preparation` does for a table in one piece; the passive party's is in
`parties.cluster.passive_preparation`. The jobs are those of one machine and differ in where ranks come from
(`PassiveJob`) and where trees are grown (`ActiveJob.grow`); the conversation is that of every run.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from opboost.columns import OwnColumn, RankColumn
from opboost.schema import TableSchema
from opboost.trees.boosting import BoostingParameters
from opboost.trees.constraints import ColumnConstraints
from opboost.trees.losses import Loss
from opboost.vertical import TrainedTrees, check_settings
from parties.cluster.arrangement import row_numbers
from parties.cluster.dask_cluster import cluster, reporting_lost_workers
from parties.cluster.held_out_rows import (
    ChosenRows,
    by_partition,
    digest_without,
    own_records,
    partitions_without,
    places_by_partition,
)
from parties.cluster.partitions import Partitions, all_ids, check_own, digest_own, partitions_of
from parties.cluster.training import train_on_partitions
from parties.cluster.training_partitions import OwnPartitions
from parties.cluster.transfer import cut_into_partitions
from parties.cluster.working_folder import working_folder
from parties.config.reading import read_schema
from parties.config.vertical import ActiveRun
from parties.errors import ConfigError, naming
from parties.runs.journal import Journal, Records
from parties.tables.keyed_table import common_again
from parties.tables.party_table import PartyTable
from parties.vertical.alignment import Aligned, Aligner, AlignmentPlace
from parties.vertical.held_out import KeyedChoice, Rows, choose_active
from parties.vertical.preparation import check_learnable
from parties.vertical.training_job import ActiveJob
from protocols.transport.channel import Channel

if TYPE_CHECKING:
    from distributed import Client


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionedActive:
    """An active party's run file and partitions, checked; see `parties.vertical.preparation.PreparedActive`.

    Attributes
    ----------
    run : ActiveRun
    schema : TableSchema
    own : OwnPartitions
    partitions : Partitions
    digest : str
        Of labels and own columns.
    aligner : Aligner
    ids : PartyTable or None
        Numbered, where they are to be compared with the passive parties'; of a saved run, those that were common.
    loss : Loss
    parameters : BoostingParameters
    client : distributed.Client
    """

    run: ActiveRun
    schema: TableSchema
    own: OwnPartitions
    partitions: Partitions
    digest: str
    aligner: Aligner
    ids: PartyTable | None
    loss: Loss
    parameters: BoostingParameters
    client: Client

    @property
    def n_rows(self) -> int:
        return self.partitions.n_rows if self.ids is None else self.ids.n_rows

    @property
    def n_trained(self) -> int:
        """Records to train on of a run whose key was drawn."""
        return self._choice.n_trained(self.n_rows)

    @property
    def _choice(self) -> KeyedChoice:
        if self.ids is not None:
            return KeyedChoice.of(self.run, self.ids.names)
        return KeyedChoice.of(self.run, partial(places_by_partition, self.partitions, self.schema, client=self.client))

    others: ClassVar[tuple[str, ...]] = ()

    @property
    def partition_words(self) -> str:
        return self.partitions.words(self.client)

    def job(self, journal: Journal | None = None) -> ActiveJob:
        """The training job; trees grow on the cluster."""
        run = self.run
        seed = run.model.seed if journal is None else journal.seed
        return ActiveJob(
            party=run.party,
            run_id=run.run_id,
            id_digest=self.partitions.id_digest if self.ids is None else None,
            own=tuple(OwnColumn(column.name, np.empty(0), categories=column.categories) for column in self.own.columns),
            labels=np.empty(0),
            weights=np.empty(0),
            loss=self.loss,
            parameters=self.parameters,
            constraints=run.model.constraints,
            engine="xgboost",
            grow=_Grower(self, seed, None if journal is None else journal.path),
            held_out_share=run.held_out,
            by_cells=run.answers == "cells",
            correct_noise=run.correct_noise,
            left_open=run.model.left_open,
            seed=seed,
            alignment=self.aligner.words,
            agreed={peer.name: peer.agreed.terms() for peer in run.passive},
            journal=journal,
        )

    def begin(self, journal: Journal) -> None:
        """Note in the journal what the run trains on, or refuse to take up a run on anything else."""
        journal.note_inputs(self.digest)
        if self.ids is None:
            journal.begin(Records(self.n_rows, self.partitions.id_digest), {}, None)

    def take_up(self, journal: Journal) -> PartitionedActive:
        """Resume a run whose model is saved, on the records that were found to be common."""
        self.begin(journal)
        if self.ids is None:
            return self
        if (common := common_again(self.ids, journal)) is self.ids:
            return self
        prepared = replace(self, ids=common)
        prepared._note(journal, Aligned(common))
        return prepared

    def agree(self, channels: Sequence[Channel], journal: Journal, place: AlignmentPlace) -> ActiveJob:
        """The job on the records that all parties have, which are compared if nobody listed them before."""
        job = self.job(journal)
        if self.ids is None:
            division = choose_active(job, channels, self._choice)
            if division is None:
                return job
            chosen = ChosenRows(division.held_out, division.held_out)
        else:
            hellos = {channel.peer: job.hello(channel.peer) for channel in channels}
            aligned = self.aligner.lead(
                self.ids, channels, hellos, place, accept=lambda aligned: self._note(journal, aligned)
            )
            names, labels = aligned.table.names, np.zeros(aligned.table.n_rows)
            common = replace(job, id_digest=aligned.table.id_digest, orders=aligned.orders, labels=labels, grow=None)
            division = choose_active(common, channels, KeyedChoice.of(self.run, names))
            aligned = aligned if division is None else aligned.divided(division.trained, division.held_out)
            chosen = ChosenRows.of(aligned, self.partitions.n_rows)
            job = replace(job, orders=aligned.orders)
        out = by_partition(chosen.out, self.partitions.rows)
        held_out = by_partition(chosen.held_out, self.partitions.rows)
        with reporting_lost_workers(self.client):
            digest = digest_without(self.partitions, out, self.schema.id_columns, client=self.client)
            own = None if division is None else own_records(self.partitions, held_out, self.schema, client=self.client)
        grow = _Grower(self, job.seed, journal.path, tuple(out))
        agreed = replace(job, id_digest=digest, grow=grow, held_out=own)
        self.partitions.check_unchanged()
        return agreed

    def _note(self, journal: Journal, aligned: Aligned) -> None:
        """Note in the journal which records are common, or refuse others than before."""
        table = aligned.table
        journal.begin(Records(table.n_rows, table.id_digest), aligned.orders, row_numbers(table))


@dataclass(frozen=True, slots=True)
class _Grower:
    """Grows the trees of a run on its cluster."""

    prepared: PartitionedActive
    seed: int | None
    journal: Path | None
    out: tuple[Rows, ...] = ()

    @property
    def n_rows(self) -> int:
        return self.prepared.partitions.n_rows - sum(map(len, self.out))

    def __call__(
        self, received: Sequence[RankColumn], /, *, parameters: BoostingParameters, constraints: ColumnConstraints
    ) -> TrainedTrees:
        """Cut what arrived into partitions beside this party's own, train on both, and remove the copies."""
        prepared, run = self.prepared, self.prepared.run
        owners = dict.fromkeys(column.owner for column in received)
        own, lengths = prepared.own, prepared.partitions.rows
        with reporting_lost_workers(prepared.client), working_folder(run.dask.folder) as folder:
            if self.out:
                names = [*(column.name for column in own.columns), own.label]
                paths, lengths = partitions_without(
                    own.paths, self.out, folder / "own", names=names, client=prepared.client
                )
                prepared.partitions.check_unchanged()
                own = replace(own, paths=paths, stamps=None)
            released = [
                cut_into_partitions(
                    [column for column in received if column.owner == owner],
                    lengths,
                    folder / f"{owner}.ranks",
                    client=prepared.client,
                )
                for owner in owners
            ]
            return train_on_partitions(
                own,
                released,
                loss=prepared.loss,
                parameters=parameters,
                client=prepared.client,
                constraints=constraints,
                seed=self.seed,
                journal=self.journal,
                correct_noise=run.correct_noise,
                left_open=run.model.left_open,
                wait_s=run.wait,
            )


@contextmanager
def partitioned_active(run: ActiveRun, path: Path) -> Iterator[PartitionedActive]:
    """Check what an active party's run file brings, on its cluster; nothing is sent.

    Raises
    ------
    ConfigError, TableError, DataError, ParameterError
    """
    schema, ignore = read_schema(run.table_schema)
    if schema.label is None:
        raise ConfigError(f"{run.table_schema} names no `label`, which the active party needs")
    if len(schema.of_training) > 1:
        raise ConfigError(
            f"{run.table_schema}: engine: dask takes one `label`, and no `weight`, `group` and `base_margin`. "
            "Nothing was sent"
        )
    with naming(path):
        loss, parameters = run.model.loss(), run.model.parameters()
        check_settings(parameters, loss, "xgboost")
        OwnPartitions((), schema.columns, schema.label)

    check_rows = partial(check_own, columns=schema.columns, label=schema.label, loss=loss)

    def check(whole: PartyTable) -> None:
        check_learnable(whole, run, schema)
        check_rows(run.data, whole.frame.assign(**{str(schema.label): whole.labels}))

    varied = (*schema.names, schema.label)
    with (
        cluster(run.dask) as client,
        partitions_of(
            run, schema, ignore, needs_label=True, varied=varied, check=check, check_rows=check_rows, client=client
        ) as partitions,
    ):
        is_compared = run.align.method_for(run.ids) != "prealigned"
        yield PartitionedActive(
            run=run,
            schema=schema,
            own=OwnPartitions(partitions.paths, schema.columns, schema.label, partitions.stamps),
            partitions=partitions,
            digest=digest_own(partitions, schema.columns, schema.label, loss, client=client),
            aligner=Aligner.of(run, schema),
            ids=all_ids(partitions, schema.id_columns, client=client) if is_compared else None,
            loss=loss,
            parameters=parameters,
            client=client,
        )
