"""A scheduler that a party does not start itself: it ends, hangs or loses its processes; they have another version."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

import pytest

from parties.cluster.dask_cluster import cluster
from parties.config.cluster_section import DaskSection
from parties.errors import ConfigError, Disagreement, WorkersLost
from tests.support.addresses import free_addresses

pytest.importorskip("distributed", reason="Dask is not installed: pip install 'opboost[dask]'")

if TYPE_CHECKING:
    from distributed import Client, LocalCluster

# A scheduler and a worker in one process, so that a signal reaches both.
PROGRAM = """
import asyncio, sys
from distributed import Scheduler, Worker

async def serve(port):
    async with Scheduler(host="127.0.0.1", port=port, dashboard=False) as scheduler:
        async with Worker(scheduler.address, nthreads=1, dashboard=False):
            print("ready", flush=True)
            await scheduler.finished()

asyncio.run(serve(int(sys.argv[1])))
"""


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("parties.cluster.dask_cluster.SCHEDULER_LOOK_S", 0.5)
    monkeypatch.setattr("parties.cluster.dask_cluster.MAX_FAILED_LOOKS", 3)


@contextmanager
def started() -> Iterator[LocalCluster]:
    import distributed

    with distributed.LocalCluster(
        n_workers=1, processes=False, protocol="tcp", dashboard_address="127.0.0.1:0"
    ) as local:
        yield local


@contextmanager
def used(address: str) -> Iterator[Client]:
    with cluster(DaskSection(scheduler=address)) as client:
        assert added(client) == 3
        yield client


def added(client: Client) -> int:
    result: int = client.submit(sum, [1, 2], pure=False).result(60)
    return result


def added_after(address: str, change: Callable[[], object], *, until: Callable[[Client], object]) -> int:
    with used(address) as client:
        change()
        while not until(client):
            time.sleep(0.05)
        return added(client)


def test_a_scheduler_that_hangs_is_given_up() -> None:
    """The task was waited for without end, and the other parties heard heartbeats."""
    (address,) = free_addresses(1)
    call = [sys.executable, "-c", PROGRAM, address.rpartition(":")[2]]
    with subprocess.Popen(call, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"ready\n"
            with pytest.raises(WorkersLost, match="gave it up"):
                added_after(address, lambda: process.send_signal(signal.SIGSTOP), until=bool)
        finally:
            process.kill()


def test_a_process_that_hangs_is_told_at_the_beginning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("parties.cluster.dask_cluster.START_WAIT_S", 3)
    monkeypatch.setattr("parties.cluster.dask_cluster.package_version", partial(asyncio.sleep, 60))
    told = r"^the scheduler at tcp://\S+ has no worker, or one that does not answer: TimeoutError\. Nothing was sent$"
    with (
        started() as local,
        pytest.raises(WorkersLost, match=told),
        cluster(DaskSection(scheduler=local.scheduler_address)),
    ):
        pass


def test_a_scheduler_that_has_no_workers_any_more_is_given_up() -> None:
    with started() as local, pytest.raises(WorkersLost, match="gave it up"):
        added_after(local.scheduler_address, lambda: local.scale(0), until=lambda client: not client.nthreads())


def test_a_scheduler_that_has_workers_when_there_is_something_to_do_is_used_on() -> None:
    with started() as local, used(local.scheduler_address) as client:
        local.scale(0)
        time.sleep(3)
        waiting = client.submit(sum, [1, 3], pure=False)
        time.sleep(0.7)
        local.scale(1)
        assert waiting.result(60) == 4
        time.sleep(2)
        assert added(client) == 3


def test_a_scheduler_that_ended_while_the_party_waited_for_others_is_told() -> None:
    """The next step ended in a traceback."""
    with started() as local, pytest.raises(WorkersLost, match="gave it up: ClosedClientError"):
        added_after(local.scheduler_address, local.close, until=lambda client: client.status == "closed")


def test_the_end_of_a_scheduler_hides_no_other_end() -> None:
    def end(client: Client) -> None:
        if client.status == "closed":
            raise Disagreement("the others have other terms")

    with started() as local, pytest.raises(Disagreement, match="other terms"):
        added_after(local.scheduler_address, local.close, until=end)


def test_a_defect_stays_one_while_the_scheduler_is_there() -> None:
    with started() as local, pytest.raises(ZeroDivisionError):
        added_after(local.scheduler_address, lambda: 1 // 0, until=bool)


def test_processes_with_another_version_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """They took the driver's objects for their own, whose fields may have other places."""
    told = (
        r"have version 0\.0\.8 of opboost, where this party has 0\.0\.7; install the same everywhere\. Nothing was sent"
    )

    def version() -> str:
        return "0.0.7" if threading.current_thread() is threading.main_thread() else "0.0.8"

    monkeypatch.setattr("parties.cluster.dask_cluster.package_version", version)
    with (
        started() as local,
        pytest.raises(ConfigError, match=told),
        cluster(DaskSection(scheduler=local.scheduler_address)),
    ):
        pass
