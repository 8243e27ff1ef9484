"""A passive party's run file with `engine: dask` in, a job out, whose rows lie in partitions.

The active party's is in `parties.cluster.active_preparation`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from opboost.desensitize import ColumnMechanism
from opboost.routing import Router
from opboost.schema import TableSchema
from parties.cluster.dask_cluster import cluster
from parties.cluster.file_blocks import encode_partitions, on_cluster
from parties.cluster.held_out_rows import (
    answerable_rows,
    by_partition,
    digest_without,
    places_by_partition,
    table_without,
)
from parties.cluster.partitions import Partitions, partition_files, validate_partitions, working_folder
from parties.config.reading import read_schema
from parties.config.vertical import PassiveRun
from parties.errors import ConfigError, naming
from parties.storage.atomic_files import is_folder
from parties.tables.blocks import EncodedTable
from parties.tables.data_files import stamp_of
from parties.tables.party_table import LABEL_OF_PASSIVE, PartyTable
from parties.vertical.alignment import Aligner, AlignmentPlace
from parties.vertical.held_out import KeyedChoice, RecordsOf, choose_passive
from parties.vertical.party_b import PassiveJob
from parties.vertical.prediction_server import AnswerableRecords
from parties.vertical.preparation import check_cells, check_learnable
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
    found : Partitions
    mechanisms : tuple of ColumnMechanism
    table : EncodedTable
        Every cell was read once and fits; nothing is drawn.
    digest : str
        Of ids and exact codes, partition by partition.
    words : str
    client : distributed.Client
    """

    run: PassiveRun
    schema: TableSchema
    found: Partitions
    mechanisms: tuple[ColumnMechanism, ...]
    table: EncodedTable
    digest: str
    words: str
    client: Client

    @property
    def partition_words(self) -> str:
        return self.found.words(self.client)

    def job(self) -> PassiveJob:
        """The training job, for greetings."""
        run = self.run
        return PassiveJob(
            party=run.party,
            run_id=run.run_id,
            id_digest=self.found.id_digest,
            features=self.table,
            mechanisms=self.mechanisms,
            rng=run.bits,
            opaque_names=run.opaque_names,
            share_thresholds=run.share_thresholds,
            share_codes=run.share_codes,
            alignment=self.words,
            has_label=self.schema.label is not None,
            agreed=run.active.agreed.terms(),
            n_cells=run.n_cells,
            allow_routed=run.allow_routed,
            held_out_share=run.held_out,
            run_blocks=on_cluster(self.client),
            redraws=not run.keeps,
        )

    def agree(self, channel: Channel, place: AlignmentPlace) -> tuple[PassiveJob, None, RecordsOf | None]:
        """Choose the held-out records; the job on the others, whose names are with them, and those."""
        job = self.job()
        places = partial(places_by_partition, self.found, self.schema, client=self.client)
        division = choose_passive(job, channel, KeyedChoice.of(self.run, places), are_met=False)
        if division is None:
            return job, None, None
        out, id_columns = by_partition(division.held_out, self.found.rows), self.schema.id_columns
        left = replace(
            job,
            id_digest=digest_without(self.found, out, id_columns, client=self.client),
            features=table_without(self.table, out, client=self.client),
        )

        def records(router: Router) -> AnswerableRecords:
            return answerable_rows(router, self.table, self.mechanisms, self.found, out, id_columns)

        return left, None, records

    def named(self) -> EncodedTable:
        """The exact codes, with the records' names."""
        return self.table


@contextmanager
def partitioned_passive(run: PassiveRun, path: Path) -> Iterator[PartitionedPassive]:
    """Check what a passive party's run file brings, on its cluster; nothing is sent.

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

    assert run.dask.folder is not None
    with (
        cluster(run.dask) as client,
        partition_files(run, schema, ignore, needs_label=False, check=check) as paths,
        working_folder(run.dask.folder) as folder,
    ):
        stamps = [stamp_of(path) for path in paths]
        found = validate_partitions(paths, schema, schema.names if is_folder(run.data) else (), run.data, client=client)
        table, digest = encode_partitions(
            found.paths, mechanisms, folder, id_columns=schema.id_columns, stamps=stamps, client=client
        )
        yield PartitionedPassive(
            run=run,
            schema=schema,
            found=found,
            mechanisms=mechanisms,
            table=table,
            digest=digest,
            words=Aligner.of(run, schema).words,
            client=client,
        )
