"""A party's own workers: a Dask scheduler at an address, or a few processes on this machine.

All of a cluster belongs to one party. Its workers read that party's data and keys from a file system that they share
with the driver; between them and the scheduler go paths, numbers of partitions, counts and digests, pickled by Dask.
Nothing that comes from another party is ever given to a cluster as a pickle.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from parties.config.cluster_section import DaskSection
from parties.errors import ConfigError, WorkersLost
from parties.storage.spool import on_disk

if TYPE_CHECKING:
    from distributed import Client, LocalCluster, Security

# How long to look for a scheduler, and for its first worker.
START_WAIT_S = 30


@contextmanager
def cluster(section: DaskSection) -> Iterator[Client]:
    """Connect to a scheduler, or start a local one for the time of the block.

    Raises
    ------
    ConfigError
        If Dask is not installed, or the scheduler does not answer or has no worker.
    RunFolderError
        If there is no folder for what local cluster processes put aside.
    WorkersLost
        If workers died while they started, or a task of the block was given up because those that it ran on died.
    """
    try:
        import distributed
        from distributed.comm.core import CommClosedError
        from distributed.exceptions import WorkerStartTimeoutError
        from distributed.scheduler import KilledWorker, NoValidWorkerError
    except ImportError:
        raise ConfigError(
            "engine: dask needs Dask, which is not installed; `pip install 'opboost[dask]'` installs it"
        ) from None
    open_client = _at_scheduler(section.scheduler) if section.scheduler is not None else _on_this_machine(section)
    lost = KilledWorker, NoValidWorkerError, WorkerStartTimeoutError, distributed.CancelledError, CommClosedError
    with open_client as client:
        try:
            yield client
        except lost as error:
            raise WorkersLost(
                f"the cluster lost the workers that a step ran on, and gave it up: {type(error).__name__}"
            ) from None


@contextmanager
def _on_this_machine(section: DaskSection) -> Iterator[Client]:
    """Start a scheduler and workers that nobody else can use, whoever has an account on this machine.

    They talk over TLS and know one another by keys that are made here and end with the block. They serve no pages. What
    they put aside on disk lies in a folder that is their owner's.
    """
    import dask
    import distributed

    # What can run only on a worker that is gone is given up after a while. A process that takes more than its share of
    # the memory is neither held up nor ended: one of them grows trees on the rows of all.
    settings = {
        "distributed.scheduler.no-workers-timeout": f"{START_WAIT_S}s",
        "distributed.worker.memory.pause": False,
        "distributed.worker.memory.terminate": False,
        "distributed.scheduler.http.routes": [],
        "distributed.worker.http.routes": [],
    }
    with (
        _scratch() as scratch,
        dask.config.set({**settings, "temporary-directory": scratch}),
        _started(section.workers, scratch) as local,
        distributed.Client(local) as client,
    ):
        yield client


def _started(n_workers: int, scratch: str) -> LocalCluster:
    """A scheduler with so many workers, which are there.

    Raises
    ------
    WorkersLost
        If one of them ends before it is there.
    """
    import distributed

    keys = _new_keys()
    # Workers of one thread: the compiled loops of a second one would contend for the same cores. What fails on a worker
    # is told here, once.
    try:
        return distributed.LocalCluster(
            n_workers=n_workers,
            threads_per_worker=1,
            processes=True,
            security=keys,
            dashboard_address="127.0.0.1:0",
            # Where Bokeh is installed, there would be pages without any of those routes.
            scheduler_kwargs={"dashboard": False},
            silence_logs=logging.CRITICAL,
            local_directory=scratch,
        )
    except Exception as error:  # Dask tells processes that die, are too many or take too long each in its own way
        raise WorkersLost(
            f"the processes of a cluster on this machine did not start: {type(error).__name__}. They may lack memory, "
            "or there may be no more of them. Nothing was sent"
        ) from None


def _scratch() -> TemporaryDirectory[str]:
    with on_disk("what cluster processes put aside"):
        return TemporaryDirectory(prefix="opboost-")


def _new_keys() -> Security:
    import distributed

    try:
        return distributed.Security.temporary()
    except ImportError:
        raise ConfigError(
            "a cluster on this machine needs the package cryptography for the keys of its processes; "
            "`pip install 'opboost[dask]'` installs it. Nothing was started"
        ) from None


@contextmanager
def _at_scheduler(address: str) -> Iterator[Client]:
    import distributed

    try:
        # The caller's thread may have an event loop of its own.
        with ThreadPoolExecutor(1) as thread:
            thread.submit(lambda: asyncio.run(_ask_scheduler(address))).result()
        client = distributed.Client(address, timeout=START_WAIT_S)
    except (TypeError, RuntimeError):
        # What Dask raises of certificates that its settings lack, and of plain text that they forbid.
        raise ConfigError(
            f"Dask's settings do not go with {address}: tls:// needs `tls.ca-file`, `tls.client.cert` and "
            "`tls.client.key` under `distributed.comm`, and tcp:// no `require-encryption` there. Nothing was sent"
        ) from None
    except Exception as error:  # whatever else listens there, Dask reads it as its own
        raise ConfigError(f"no scheduler answers at {address}: {type(error).__name__}. Nothing was sent") from None
    with client:
        try:
            client.wait_for_workers(1, timeout=START_WAIT_S)
        except TimeoutError:
            raise ConfigError(f"the scheduler at {address} has no worker") from None
        yield client


async def _ask_scheduler(address: str) -> None:
    """Raise unless what listens at an address answers as a scheduler in time; a client waits for its word for ever."""
    import distributed

    encryption = distributed.Security().get_connection_args("client")
    async with asyncio.timeout(START_WAIT_S):
        async with distributed.rpc(address, timeout=START_WAIT_S, connection_args=encryption) as scheduler:
            await scheduler.identity()
