"""Interfaces of a party's checked inputs of training: a table in memory, or partitions on its cluster.

Jobs and the doctor use these protocols and neither implementation.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Protocol, Self

from opboost.desensitize import ColumnMechanism
from opboost.schema import TableSchema
from opboost.trees.losses import Loss
from parties.config.vertical import ActiveRun, PassiveRun
from parties.runs.journal import Journal
from parties.tables.blocks import EncodedTable
from parties.tables.record_ids import Ids
from parties.vertical.alignment import AlignmentPlace
from parties.vertical.held_out import RecordsOf
from parties.vertical.preparation import prepare_active, prepare_passive
from parties.vertical.release_job import PassiveJob
from parties.vertical.training_job import ActiveJob
from protocols.transport.channel import Channel


class ActiveInputs(Protocol):
    """Checked inputs of an active party.

    Attributes
    ----------
    run : ActiveRun
    schema : TableSchema
    loss : Loss
    n_trained : int
        Records to train on.
    partition_words : str or None
        How its records are divided, if they are.
    others : tuple of str
        Sentences for this party's log on cells of one table that are read as `other`; of partitions none are counted.
    """

    @property
    def run(self) -> ActiveRun: ...
    @property
    def schema(self) -> TableSchema: ...
    @property
    def loss(self) -> Loss: ...
    @property
    def n_trained(self) -> int: ...
    @property
    def partition_words(self) -> str | None: ...
    @property
    def others(self) -> tuple[str, ...]: ...

    def job(self) -> ActiveJob:
        """The job, for greetings."""
        ...

    def begin(self, journal: Journal) -> None:
        """Note this party's inputs in the journal, or refuse to resume a run that began with others."""
        ...

    def take_up(self, journal: Journal) -> Self:
        """Resume a run whose model is saved, on its common records."""
        ...

    def agree(self, channels: Sequence[Channel], journal: Journal, place: AlignmentPlace) -> ActiveJob:
        """The job on the records that these peers have in common with this party."""
        ...


class PassiveInputs(Protocol):
    """Checked inputs of a passive party.

    Attributes
    ----------
    run : PassiveRun
    schema : TableSchema
    mechanisms : tuple of ColumnMechanism
    digest : str
    partition_words : str or None
        How its records are divided, if they are.
    others : tuple of str
        Sentences for this party's log on cells of one table that are read as `other`; of partitions none are counted.
    """

    @property
    def run(self) -> PassiveRun: ...
    @property
    def schema(self) -> TableSchema: ...
    @property
    def mechanisms(self) -> tuple[ColumnMechanism, ...]: ...
    @property
    def digest(self) -> str: ...
    @property
    def partition_words(self) -> str | None: ...
    @property
    def others(self) -> tuple[str, ...]: ...

    def job(self) -> PassiveJob:
        """The job, for greetings."""
        ...

    def named(self) -> EncodedTable:
        """The exact codes of all records, with the records' names."""
        ...

    def agree(self, channel: Channel, place: AlignmentPlace) -> tuple[PassiveJob, Ids | None, RecordsOf | None]:
        """The job on the common records to train on, their ids, and those that are held out."""
        ...


def prepared_active(run: ActiveRun, path: Path) -> AbstractContextManager[ActiveInputs]:
    """Check what an active party's run file brings; nothing is sent or written."""
    if run.engine != "dask" or not run.grows_on_cluster:
        return nullcontext(prepare_active(run, path))
    from parties.cluster.active_preparation import partitioned_active

    return partitioned_active(run, path)


def prepared_passive(run: PassiveRun, path: Path, *, keeps: bool = False) -> AbstractContextManager[PassiveInputs]:
    """Check what a passive party's run file brings; with `keeps`, a table's exact codes are kept for the next run."""
    if run.engine != "dask":
        return nullcontext(prepare_passive(run, path, keeps=keeps))
    from parties.cluster.passive_preparation import partitioned_passive

    return partitioned_passive(run, path, keeps=keeps)
