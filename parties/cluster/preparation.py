"""A run file with `engine: dask` in, a job out: the same jobs as on one machine, whose rows lie in partitions.

What `parties.vertical.preparation` does for a table in one piece. The jobs differ in where ranks come from
(`PassiveJob.made`) and where trees are grown (`ActiveJob.grow`); the conversation is that of every run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from opboost.desensitize import ColumnMechanism
from opboost.schema import TableSchema
from opboost.trees.boosting import BoostingParameters
from opboost.trees.losses import Loss
from opboost.vertical import OwnColumn, RankColumn, TrainedTrees
from parties.cluster.dask_cluster import cluster
from parties.cluster.kept_draws import find_kept
from parties.cluster.partitions import Partitions, digest_own, look_through, partition_files, working_folder
from parties.cluster.release import PartitionedRelease
from parties.cluster.release_accounts import DueRelease, release_folder, release_on_account
from parties.cluster.release_plan import PartitionPlan
from parties.cluster.survey import Surveyed, survey_partitions
from parties.cluster.training import OwnPartitions, train_on_partitions
from parties.cluster.transfer import cut_into_partitions
from parties.config.reading import read_schema
from parties.config.vertical import ActiveRun, PassiveRun
from parties.errors import ConfigError, naming
from parties.ledger.charged_release import Account
from parties.ledger.ledger_lines import Release, digest_of
from parties.ledger.release_store import ReleaseStore
from parties.runs.journal import Journal, Records
from parties.runs.run_folder import RunFolder
from parties.tables.party_table import LABEL_OF_PASSIVE, PartyTable, own_columns
from parties.vertical.alignment import Aligner, Place
from parties.vertical.party_b import PassiveJob
from parties.vertical.preparation import bits, check_cells, check_learnable
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
    own : OwnPartitions
    found : Partitions
    digest : str
        Of labels and own columns.
    words : str
        How the records were aligned.
    loss : Loss
    parameters : BoostingParameters
    client : distributed.Client
    """

    run: ActiveRun
    own: OwnPartitions
    found: Partitions
    digest: str
    words: str
    loss: Loss
    parameters: BoostingParameters
    client: Client

    @property
    def n_rows(self) -> int:
        return self.found.n_rows

    @property
    def n_workers(self) -> int:
        return len(self.client.nthreads())

    def job(self, journal: Journal | None = None) -> ActiveJob:
        """The training job; trees grow on the cluster."""
        run = self.run
        seed = run.model.seed if journal is None else journal.seed
        return ActiveJob(
            party=run.party,
            run_id=run.run_id,
            id_digest=self.found.id_digest,
            own=tuple(OwnColumn(column.name, np.empty(0)) for column in self.own.columns),
            labels=np.empty(0),
            weights=np.empty(0),
            loss=self.loss,
            parameters=self.parameters,
            constraints=run.model.constraints,
            engine="xgboost",
            grow=_Grower(self, seed),
            seed=seed,
            alignment=self.words,
            agreed={peer.name: peer.agreed.terms() for peer in run.passive},
            journal=journal,
        )

    def begin(self, journal: Journal) -> None:
        """Note in the journal what the run trains on, or refuse to take up a run on anything else."""
        journal.note_inputs(self.digest)
        journal.begin(Records(self.n_rows, self.found.id_digest), {}, None)

    def take_up(self, journal: Journal) -> PartitionedActive:
        """The same for a run whose model is saved."""
        self.begin(journal)
        return self

    def agree(self, channels: Sequence[Channel], journal: Journal, place: Place) -> ActiveJob:
        """The job; the records are those that all parties listed before."""
        return self.job(journal)


@dataclass(frozen=True, slots=True)
class _Grower:
    """Grows the trees of a run on its cluster."""

    prepared: PartitionedActive
    seed: int | None

    @property
    def n_rows(self) -> int:
        return self.prepared.n_rows

    def __call__(self, received: Sequence[RankColumn]) -> TrainedTrees:
        """Cut what arrived into partitions beside this party's own, train on both, and remove the copy."""
        prepared, run = self.prepared, self.prepared.run
        assert run.dask.folder is not None
        owners = dict.fromkeys(column.owner for column in received)
        with working_folder(run.dask.folder) as folder:
            released = [
                cut_into_partitions(
                    [column for column in received if column.owner == owner],
                    prepared.found.rows,
                    folder / owner,
                    client=prepared.client,
                )
                for owner in owners
            ]
            return train_on_partitions(
                prepared.own,
                released,
                loss=prepared.loss,
                parameters=prepared.parameters,
                client=prepared.client,
                constraints=run.model.constraints,
                seed=self.seed,
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionedPassive:
    """The same of a passive party.

    Attributes
    ----------
    run : PassiveRun
    schema : TableSchema
    found : Partitions
    surveyed : Surveyed
        Every cell was read once and fits; nothing is drawn.
    words : str
    client : distributed.Client
    """

    run: PassiveRun
    schema: TableSchema
    found: Partitions
    surveyed: Surveyed
    words: str
    client: Client

    @property
    def n_workers(self) -> int:
        return len(self.client.nthreads())

    @property
    def mechanisms(self) -> tuple[ColumnMechanism, ...]:
        return self.surveyed.mechanisms

    @property
    def digest(self) -> str:
        """Of ids and exact codes, partition by partition."""
        return digest_of([[found.ids, *found.exact] for found in self.surveyed.surveys])

    def job(self, make: Callable[[], PartitionedRelease] | None = None) -> PassiveJob:
        """The training job; without `make`, one for greetings."""
        run, rng = self.run, bits(self.run)
        return PassiveJob(
            party=run.party,
            run_id=run.run_id,
            id_digest=self.found.id_digest,
            features=pd.DataFrame(),
            mechanisms=self.mechanisms,
            rng=rng,
            opaque_names=run.opaque_names,
            share_thresholds=run.share_thresholds,
            alignment=self.words,
            made=DueRelease(self.found.n_rows, rng.is_secure, self.mechanisms, make or _nothing),
            has_label=self.schema.label is not None,
            agreed=run.active.agreed.terms(),
            allow_routed=run.allow_routed,
            redraws=run.changed_values == "redraw",
        )

    def agree(self, account: Account, folder: RunFolder) -> PassiveJob:
        """The job on an account; a run that has released before sends the same again or nothing."""

        def make() -> PartitionedRelease:
            release = release_on_account(
                self.surveyed,
                self._home,
                account,
                id_columns=self.schema.id_columns,
                may_draw=not folder.has_released,
                client=self.client,
            )
            folder.mark_release()
            return release

        return self.job(make)

    def planned(self) -> list[Release]:
        """What releasing all partitions would be entered as; nothing is charged."""
        return self.surveyed.releases(is_secure=bits(self.run).is_secure)

    def absent(self, releases: list[Release], store: ReleaseStore) -> list[Release]:
        """Those of the releases that would have to be charged, of the records for which that is so."""
        is_secure = bits(self.run).is_secure
        if PartitionPlan.read(release_folder(self.surveyed, self._home, is_secure=is_secure)) is not None:
            return []
        if self.run.changed_values == "redraw":
            return releases
        found = find_kept(self.surveyed, store, is_secure=is_secure)
        return [release for release, _ in found if len(release.cost.records)]

    @property
    def _home(self) -> Path:
        assert self.run.dask.folder is not None
        return self.run.dask.folder


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
    with naming(path):
        loss, parameters = run.model.loss(), run.model.parameters()
        OwnPartitions((), schema.columns, schema.label)

    def check(whole: PartyTable) -> None:
        check_learnable(whole, run, schema)
        own_columns(whole, schema)

    with cluster(run.dask) as client, partition_files(run, schema, ignore, needs_label=True, check=check) as paths:
        # One file was checked as a whole.
        to_vary = (*schema.names, schema.label) if run.data.is_dir() else ()
        found = look_through(paths, schema, to_vary, run.data, client=client)
        yield PartitionedActive(
            run=run,
            own=OwnPartitions(found.paths, schema.columns, schema.label),
            found=found,
            digest=digest_own(found, schema.columns, schema.label, loss, client=client),
            words=Aligner.of(run, schema).words,
            loss=loss,
            parameters=parameters,
            client=client,
        )


@contextmanager
def partitioned_passive(run: PassiveRun, path: Path) -> Iterator[PartitionedPassive]:
    """The same of a passive party.

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

    with cluster(run.dask) as client, partition_files(run, schema, ignore, needs_label=False, check=check) as paths:
        found = look_through(paths, schema, schema.names if run.data.is_dir() else (), run.data, client=client)
        yield PartitionedPassive(
            run=run,
            schema=schema,
            found=found,
            surveyed=survey_partitions(
                found.paths,
                mechanisms,
                id_columns=schema.id_columns,
                client=client,
                keeps=run.changed_values == "keep",
            ),
            words=Aligner.of(run, schema).words,
            client=client,
        )


def _nothing() -> PartitionedRelease:
    raise AssertionError("a job for greetings releases nothing")
