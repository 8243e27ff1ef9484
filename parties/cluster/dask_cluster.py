"""A party's own workers: a Dask scheduler at an address, or a few processes on this machine.

All of a cluster belongs to one party. Its workers read that party's data and keys from a file system that they share
with the driver; between them and the scheduler go paths, numbers of partitions, counts and digests, pickled by Dask.
Nothing that comes from another party is ever given to a cluster as a pickle.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from parties.config.cluster_section import DaskSection
from parties.errors import EXPECTED_ERRORS, ConfigError, WorkersLost
from parties.runs.installed_versions import package_version
from parties.storage.spool import on_disk

if TYPE_CHECKING:
    from distributed import Client, LocalCluster, Security

# How long to look for a scheduler, and for its first worker.
START_WAIT_S = 30

# Seconds between two looks after a scheduler, for which an answer is waited as long; and how many in a row may find
# nobody before what runs there is given up.
SCHEDULER_LOOK_S, MAX_FAILED_LOOKS = 10.0, 12


@contextmanager
def cluster(section: DaskSection) -> Iterator[Client]:
    """Connect to a scheduler, or start a local one for the time of the block.

    Raises
    ------
    ConfigError
        If Dask is not installed, its settings do not fit, or what answers is no scheduler or of another version.
    RunFolderError
        If there is no folder for what local cluster processes put aside.
    WorkersLost
        If no scheduler answers, or has workers; if workers died while they started, or a task of the block was given up
        because those that it ran on died.
    """
    try:
        import distributed  # noqa: F401
    except ImportError:
        raise ConfigError(
            "engine: dask needs Dask, which is not installed; `pip install 'opboost[dask]'` installs it"
        ) from None
    open_client = _at_scheduler(section.scheduler) if section.scheduler is not None else _on_this_machine(section)
    with open_client as client, reporting_lost_workers(client):
        yield client


@contextmanager
def reporting_lost_workers(client: Client) -> Iterator[None]:
    """Convert what Dask raises of a cluster that is gone, or gave a task up, into `WorkersLost`.

    A step within a conversation needs it around itself: the error decides there what the peers are told.

    Raises
    ------
    WorkersLost
    """
    try:
        yield
    except EXPECTED_ERRORS:
        raise
    except Exception as error:
        if not _is_of_lost_workers(error, client):
            raise
        raise WorkersLost(
            f"the cluster lost the workers that a step ran on, and gave it up: {type(error).__name__}"
        ) from None


def _is_of_lost_workers(error: Exception, client: Client) -> bool:
    import distributed
    from distributed.comm.core import CommClosedError
    from distributed.exceptions import WorkerStartTimeoutError
    from distributed.scheduler import KilledWorker, NoValidWorkerError

    lost = KilledWorker, NoValidWorkerError, WorkerStartTimeoutError, distributed.CancelledError, CommClosedError
    # Of a client whose scheduler is gone, Dask tells in many ways.
    return isinstance(error, lost) or client.status != "running"


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
    from distributed.utils import silence_logging_cmgr

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
        kind = WorkersLost if type(error) in (OSError, TimeoutError) else ConfigError
        raise kind(f"no scheduler answers at {address}: {type(error).__name__}. Nothing was sent") from None
    # What fails there is told here, once.
    with silence_logging_cmgr(logging.CRITICAL), _looked_after(client), client.as_current():
        _check_workers(client, address)
        yield client


@contextmanager
def _looked_after(client: Client) -> Iterator[None]:
    """Close the client in the end; and before, when its scheduler is silent or has no workers for a task for long.

    Dask waits for both without end, and heartbeats would have the other parties wait as long.
    """
    is_over = threading.Event()

    def look() -> None:
        n_failed = 0
        while n_failed < MAX_FAILED_LOOKS and not is_over.wait(SCHEDULER_LOOK_S):
            n_failed = 0 if _is_served(client) else n_failed + 1
        if not is_over.is_set():
            close()

    def close() -> None:
        with suppress(Exception):  # A connection that is gone is left all the same.
            client.close(timeout=SCHEDULER_LOOK_S)

    threading.Thread(target=look, name="opboost scheduler", daemon=True).start()
    try:
        yield
    finally:
        is_over.set()
        close()


def _is_served(client: Client) -> bool:
    """Whether the scheduler answers, and has workers if a task waits; others may be started for the next one."""
    if (scheduler := client.scheduler) is None:
        return False
    try:
        if client.sync(scheduler.ncores, callback_timeout=SCHEDULER_LOOK_S):
            return True
        return all(future.status != "pending" for future in list(client.futures.values()))
    except Exception:  # Dask tells of silence and of connections that ended in many ways
        return False


def _check_workers(client: Client, address: str) -> None:
    """Refuse a cluster with another version: it would take the driver's objects for its own, or draw otherwise.

    The scheduler is asked, too, since it unpickles these objects.

    Raises
    ------
    ConfigError
    WorkersLost
        If there are no workers in time, or a process does not answer in time.
    """
    try:
        client.wait_for_workers(1, timeout=START_WAIT_S)
        answers = client.sync(client._run, package_version, on_error="return", callback_timeout=START_WAIT_S)
        of_scheduler = _version_of_scheduler(client)
    except Exception as error:
        if not _is_without_answer(error, client):
            raise
        raise WorkersLost(
            f"the scheduler at {address} has no worker, or one that does not answer: {type(error).__name__}. "
            "Nothing was sent"
        ) from None
    # Who is gone by now does no harm.
    versions = {
        answer if isinstance(answer, str) else "none" for answer in answers.values() if not isinstance(answer, OSError)
    }
    if others := sorted((versions | {of_scheduler}) - {package_version()}):
        raise ConfigError(
            f"the scheduler at {address} or cluster processes of it have version {', '.join(others)} of opboost, where "
            f"this party has {package_version()}; install the same everywhere. Nothing was sent"
        )


def _version_of_scheduler(client: Client) -> str:
    """The scheduler's version of opboost, or "none"; raises what Dask does where it does not answer in time."""
    try:
        version = client.sync(client._run_on_scheduler, package_version, callback_timeout=START_WAIT_S)
    except Exception as error:  # whatever was wrong at the scheduler as it imported the function
        if _is_without_answer(error, client):
            raise
        return "none"
    return version if isinstance(version, str) else "none"


def _is_without_answer(error: Exception, client: Client) -> bool:
    return isinstance(error, OSError) or _is_of_lost_workers(error, client)


async def _ask_scheduler(address: str) -> None:
    """Raise unless what listens at an address answers as a scheduler in time; a client waits for its word for ever."""
    import distributed

    encryption = distributed.Security().get_connection_args("client")
    async with asyncio.timeout(START_WAIT_S):
        async with distributed.rpc(address, timeout=START_WAIT_S, connection_args=encryption) as scheduler:
            await scheduler.identity()
