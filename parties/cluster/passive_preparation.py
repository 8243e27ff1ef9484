"""A passive party's run file with `engine: dask` in, a job out, whose rows lie in partitions.

The active party's is in `parties.cluster.active_preparation`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from opboost.desensitize import ColumnMechanism
from opboost.schema import TableSchema
from parties.cluster.dask_cluster import cluster
from parties.cluster.kept_draws import find_kept
from parties.cluster.partitions import Partitions, look_through, partition_files
from parties.cluster.release import PartitionedRelease
from parties.cluster.release_accounts import DueRelease, release_folder, release_on_account
from parties.cluster.release_plan import PartitionPlan
from parties.cluster.survey import Surveyed, survey_partitions
from parties.config.reading import read_schema
from parties.config.vertical import PassiveRun
from parties.errors import ConfigError, naming
from parties.ledger.charged_release import Account
from parties.ledger.ledger_lines import Release, digest_of
from parties.ledger.release_store import ReleaseStore
from parties.runs.run_folder import RunFolder
from parties.tables.party_table import LABEL_OF_PASSIVE, PartyTable
from parties.vertical.alignment import Aligner
from parties.vertical.party_b import PassiveJob
from parties.vertical.preparation import bits, check_cells, check_learnable

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
            share_codes=run.share_codes,
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

    with cluster(run.dask) as client, partition_files(run, schema, ignore, needs_label=False, check=check) as paths:
        found = look_through(paths, schema, schema.names if run.data.is_dir() else (), run.data, client=client)
        yield PartitionedPassive(
            run=run,
            schema=schema,
            found=found,
            surveyed=survey_partitions(
                found.paths, mechanisms, id_columns=schema.id_columns, client=client, keeps=run.changed_values == "keep"
            ),
            words=Aligner.of(run, schema).words,
            client=client,
        )


def _nothing() -> PartitionedRelease:
    raise AssertionError("a job for greetings releases nothing")
