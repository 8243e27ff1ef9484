"""A party's own workers: a Dask scheduler at an address, or a few processes on this machine.

All of a cluster belongs to one party. Its workers read that party's data and keys from a file system that they share
with the driver; between them and the scheduler go paths, numbers of partitions, counts and digests, pickled by Dask.
Nothing that comes from another party is ever given to a cluster as a pickle.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from parties.config.addresses import SchedulerAddress
from parties.errors import ConfigError, WorkersLost

if TYPE_CHECKING:
    from distributed import Client

# How long to look for a scheduler, and for its first worker.
WAIT_S = 30


class DaskSection(BaseModel):
    """Which workers to use, and for what pieces of the table.

    Attributes
    ----------
    scheduler : str or None
        Address such as ``tcp://scheduler.example:8786``, or ``tls://...`` with Dask's own settings of certificates.
        None starts `workers` processes here, which end with the block.
    workers : int
        Processes of a local cluster.
    folder : Path or None
        Takes partitions, on a file system that driver and workers share; None stands for ``partitions`` beside the
        run's folder.
    partition_rows : int
        Rows of a partition, where the data is one file that is still to be divided.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    scheduler: SchedulerAddress | None = None
    workers: Annotated[int, Field(ge=1, le=1024)] = 2
    folder: Path | None = None
    partition_rows: Annotated[int, Field(ge=1)] = 1_000_000

    @model_validator(mode="after")
    def _check_workers(self) -> Self:
        if self.scheduler is not None and "workers" in self.model_fields_set:
            raise ValueError("give either the address of a scheduler, which has workers, or a number of workers here")
        return self


@contextmanager
def cluster(section: DaskSection) -> Iterator[Client]:
    """Connect to a scheduler, or start a local one for the time of the block.

    Raises
    ------
    ConfigError
        If Dask is not installed, or the scheduler does not answer or has no worker.
    WorkersLost
        If a task of the block was given up because the workers that it ran on died.
    """
    try:
        import distributed
        from distributed.comm.core import CommClosedError
        from distributed.scheduler import KilledWorker, NoValidWorkerError
    except ImportError:
        raise ConfigError(
            "engine: dask needs Dask, which is not installed; `pip install 'opboost[dask]'` installs it"
        ) from None
    open_client = _at_scheduler(section.scheduler) if section.scheduler is not None else _on_this_machine(section)
    with open_client as client:
        try:
            yield client
        except (
            KilledWorker,
            NoValidWorkerError,
            distributed.CancelledError,
            CommClosedError,
        ) as error:
            raise WorkersLost(
                f"the cluster lost the workers that a step ran on, and gave it up: {type(error).__name__}"
            ) from None


@contextmanager
def _on_this_machine(section: DaskSection) -> Iterator[Client]:
    import dask
    import distributed

    # Workers of one thread: the compiled loops of a second one would contend for the same cores. What can run only on a
    # worker that is gone is given up after a while. What fails on a worker is told here, once.
    with (
        dask.config.set({"distributed.scheduler.no-workers-timeout": f"{WAIT_S}s"}),
        distributed.LocalCluster(
            n_workers=section.workers,
            threads_per_worker=1,
            processes=True,
            dashboard_address="127.0.0.1:0",
            silence_logs=logging.CRITICAL,
        ) as local,
        distributed.Client(local) as client,
    ):
        yield client


@contextmanager
def _at_scheduler(address: str) -> Iterator[Client]:
    import distributed

    try:
        client = distributed.Client(address, timeout=WAIT_S)
    except (OSError, TimeoutError, ValueError) as error:
        raise ConfigError(f"no scheduler answers at {address}: {type(error).__name__}") from None
    with client:
        try:
            client.wait_for_workers(1, timeout=WAIT_S)
        except TimeoutError:
            raise ConfigError(f"the scheduler at {address} has no worker") from None
        yield client
