"""A passive party's run file with `engine: dask` in, a job out, whose rows lie in partitions.

The active party's is in `parties.cluster.active_preparation`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import pandas as pd

from opboost.desensitize import ColumnMechanism
from opboost.routing import Router
from opboost.schema import TableSchema
from parties.cluster.dask_cluster import cluster, reporting_lost_workers
from parties.cluster.file_blocks import encode_partitions, on_cluster
from parties.cluster.held_out_rows import (
    ChosenRows,
    answerable_rows,
    by_partition,
    digest_without,
    places_by_partition,
    table_without,
)
from parties.cluster.partitions import Partitions, all_ids, check_released, partitions_of
from parties.cluster.working_folder import working_folder
from parties.config.reading import read_schema
from parties.config.vertical import PassiveRun
from parties.errors import ConfigError, naming
from parties.tables.blocks import EncodedTable
from parties.tables.party_table import LABEL_OF_PASSIVE, PartyTable
from parties.vertical.alignment import Aligner, AlignmentPlace
from parties.vertical.held_out import KeyedChoice, RecordsOf, choose_passive
from parties.vertical.prediction_server import AnswerableRecords
from parties.vertical.preparation import check_cells, check_learnable
from parties.vertical.release_job import PassiveJob
from protocols.transport.channel import Channel

if TYPE_CHECKING:
    from distributed import Client


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionedPassive:
    """A passive party's run file and partitions, checked; see `parties.vertical.preparation.PreparedPassive`.

    Attributes
    ----------
    run : PassiveRun
    schema : TableSchema
    partitions : Partitions
    mechanisms : tuple of ColumnMechanism
    table : EncodedTable
        Every cell was read once and fits; nothing is drawn.
    digest : str
        Of ids and exact codes, partition by partition.
    aligner : Aligner
    ids : PartyTable or None
        Numbered, where they are to be compared with the active party's.
    client : distributed.Client
    """

    run: PassiveRun
    schema: TableSchema
    partitions: Partitions
    mechanisms: tuple[ColumnMechanism, ...]
    table: EncodedTable
    digest: str
    aligner: Aligner
    ids: PartyTable | None
    client: Client

    others: ClassVar[tuple[str, ...]] = ()

    @property
    def partition_words(self) -> str:
        return self.partitions.words(self.client)

    def job(self) -> PassiveJob:
        """The training job, for greetings."""
        run = self.run
        return PassiveJob(
            party=run.party,
            run_id=run.run_id,
            id_digest=self.partitions.id_digest if self.ids is None else None,
            features=self.table,
            mechanisms=self.mechanisms,
            rng=run.bits,
            opaque_names=run.opaque_names,
            share_thresholds=run.share_thresholds,
            share_codes=run.share_codes,
            alignment=self.aligner.words,
            has_label=self.schema.label is not None,
            agreed=run.active.agreed.terms(),
            n_cells=run.n_cells,
            allow_routed=run.allow_routed,
            held_out_share=run.held_out,
            run_blocks=on_cluster(self.client),
            format=self.schema.format,
            redraws=not run.keeps,
        )

    def agree(self, channel: Channel, place: AlignmentPlace) -> tuple[PassiveJob, None, RecordsOf | None]:
        """Find the common records, and those of them to hold out; the job on the others, and those."""
        job, id_columns = self.job(), self.schema.id_columns
        if self.ids is None:
            places = partial(places_by_partition, self.partitions, self.schema, client=self.client)
            division = choose_passive(job, channel, KeyedChoice.of(self.run, places))
            if division is None:
                return job, None, None
            chosen = ChosenRows(division.held_out, division.held_out)
        else:
            aligned = self.aligner.follow(self.ids, channel, job.hello(), place)
            choice = KeyedChoice.of(self.run, aligned.table.names)
            common = replace(
                job,
                id_digest=aligned.table.id_digest,
                features=pd.DataFrame(index=range(aligned.table.n_rows)),
                order=aligned.orders[channel.peer],
            )
            division = choose_passive(common, channel, choice)
            aligned = aligned if division is None else aligned.divided(division.trained, division.held_out)
            chosen = ChosenRows.of(aligned, self.partitions.n_rows)
            job = replace(job, order=aligned.orders[channel.peer])
        out = by_partition(chosen.out, self.partitions.rows)
        with reporting_lost_workers(self.client):
            left = replace(
                job,
                id_digest=digest_without(self.partitions, out, id_columns, client=self.client),
                features=table_without(self.table, out, client=self.client),
            )
        self.partitions.check_unchanged()
        if division is None:
            return left, None, None
        held_out = by_partition(chosen.held_out, self.partitions.rows)

        def records(router: Router) -> AnswerableRecords:
            return answerable_rows(router, self.table, self.mechanisms, self.partitions, held_out, id_columns)

        return left, None, records

    def named(self) -> EncodedTable:
        """The exact codes, with the records' names."""
        return self.table


@contextmanager
def partitioned_passive(run: PassiveRun, path: Path, *, keeps: bool = False) -> Iterator[PartitionedPassive]:
    """Check what a passive party's run file brings, on its cluster; nothing is sent.

    With `keeps`, ids are prepared where the run file says so.

    Raises
    ------
    ConfigError, TableError, DataError
    """
    schema, ignore = read_schema(run.table_schema)
    if schema.label is not None:
        raise ConfigError(f"{run.table_schema}: {LABEL_OF_PASSIVE}")
    with naming(path):
        mechanisms = run.mechanisms(schema)
        run.ledger.budget.budget(schema)

    def check(whole: PartyTable) -> None:
        check_learnable(whole, run, schema)
        check_cells(whole, mechanisms)

    check_rows = partial(check_released, columns=schema.columns)
    with (
        cluster(run.dask) as client,
        partitions_of(
            run,
            schema,
            ignore,
            needs_label=False,
            varied=schema.names,
            check=check,
            check_rows=check_rows,
            client=client,
        ) as partitions,
        working_folder(run.dask.folder) as folder,
    ):
        table, digest = encode_partitions(
            partitions.paths, mechanisms, folder, id_columns=schema.id_columns, stamps=partitions.stamps, client=client
        )
        is_compared = run.align.method_for(run.ids) != "prealigned"
        ids = all_ids(partitions, schema.id_columns, client=client) if is_compared else None
        yield PartitionedPassive(
            run=run,
            schema=schema,
            partitions=partitions,
            mechanisms=mechanisms,
            table=table,
            digest=digest,
            aligner=Aligner.of(run, schema, ids if keeps else None),
            ids=ids,
            client=client,
        )
