"""A scheduler that a party does not start itself: it ends, hangs or loses its processes; they have another version."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

import pytest

from parties.cluster.dask_cluster import cluster
from parties.commands.exit_codes import ExitCode, exit_code
from parties.config.cluster_section import DaskSection
from parties.errors import ConfigError, Disagreement, WorkersLost
from tests.support.addresses import free_addresses
from tests.support.partitioned_sites import MODEL, Outcomes, divide, predict_both, train_both

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

# A scheduler whose environment lacks this package.
BARE_SCHEDULER = """
import asyncio, sys
from distributed import Scheduler

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("opboost", "parties", "protocols"):
            raise ModuleNotFoundError(name)

async def serve(port):
    sys.meta_path.insert(0, Absent())
    async with Scheduler(host="127.0.0.1", port=port, dashboard=False) as scheduler:
        print("ready", flush=True)
        await scheduler.finished()

asyncio.run(serve(int(sys.argv[1])))
"""

WORKER = """
import asyncio, sys
from distributed import Worker

async def serve(port):
    async with Worker(f"tcp://127.0.0.1:{port}", nthreads=1, dashboard=False) as worker:
        print("ready", flush=True)
        await worker.finished()

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
def program(source: str, address: str) -> Iterator[subprocess.Popen[bytes]]:
    """A process of a cluster at an address, which is ready."""
    call = [sys.executable, "-c", source, address.rpartition(":")[2]]
    with subprocess.Popen(call, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"ready\n"
            yield process
        finally:
            process.kill()


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
    with program(PROGRAM, address) as process, pytest.raises(WorkersLost, match="gave it up"):
        added_after(address, lambda: process.send_signal(signal.SIGSTOP), until=bool)


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


def test_a_scheduler_without_this_package_is_refused() -> None:
    """It unpickles the driver's objects; the first task ended as if workers were lost, and was begun again."""
    (address,) = free_addresses(1)
    told = r"have version none of opboost, where this party has \S+; install the same everywhere\. Nothing was sent$"
    with (
        program(BARE_SCHEDULER, address),
        program(WORKER, address),
        pytest.raises(ConfigError, match=told),
        cluster(DaskSection(scheduler=address)),
    ):
        pass


def on_partitions(site: Any, address: str) -> None:
    divide(site, 3)
    site.run |= {"engine": "dask", "data": "parts", "dask": {"scheduler": address}}


def kill_before(call: str, process: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    """Kill a scheduler as soon as a function is called, which then goes on; its client soon stops looking for it."""
    import distributed

    original = resolve_name(call)
    # A scheduler that imports this package answers nothing meanwhile.
    monkeypatch.setattr("parties.cluster.dask_cluster.MAX_FAILED_LOOKS", 120)

    def killing(*given: Any, **named: Any) -> Any:
        distributed.Client.current()._timeout = 1
        process.kill()
        process.wait(10)
        return original(*given, **named)

    monkeypatch.setattr(call, killing)


def logged_end(site: Any) -> str:
    """What the log says of the last failure."""
    lines = map(json.loads, (site.path / "runs" / "spring" / "log.jsonl").read_text().splitlines())
    return [str(line["message"]) for line in lines if line["event"] == "failed"][-1]


LOST_WHILE = {
    "trees-grow": ("bank", 0.0, "parties.cluster.active_preparation.train_on_partitions", "while growing trees"),
    "columns-are-drawn": ("shop", 0.0, "parties.jobs.train_vertical.release_once", "while desensitizing"),
    "shop-chooses": ("shop", 0.2, "parties.cluster.passive_preparation.places_by_partition", "while choosing"),
    # Between two conversations nobody is told anything, and the connection ends.
    "bank-looks-at-the-rest": ("bank", 0.2, "parties.cluster.active_preparation.digest_without", None),
    "shop-looks-at-the-rest": ("shop", 0.2, "parties.cluster.passive_preparation.digest_without", None),
}


@pytest.mark.parametrize(("loser", "held_out", "call", "words"), LOST_WHILE.values(), ids=LOST_WHILE)
def test_a_party_that_loses_its_scheduler_lets_the_other_one_begin_again(
    sites: Any,
    outcomes: Outcomes,
    monkeypatch: pytest.MonkeyPatch,
    loser: str,
    held_out: float,
    call: str,
    words: str | None,
) -> None:
    """The other party was told that a person has to look, and ended with code 5."""
    pytest.importorskip("xgboost", reason="XGBoost is not installed: pip install 'opboost[dask]'")
    (address,) = free_addresses(1)
    lost, other = getattr(sites, loser), sites.shop if loser == "bank" else sites.bank
    sites.bank.run["model"] = MODEL if loser == "bank" else sites.bank.run["model"]
    for site in (sites.bank, sites.shop):
        site.run |= {"held_out": held_out, "timeout": 5}
    with program(PROGRAM, address) as process:
        on_partitions(lost, address)
        kill_before(call, process, monkeypatch)
        failed = train_both(sites, outcomes)
    ended = {name: exit_code(error) for name, error in failed.items()}
    assert ended == {"bank": ExitCode.PEER_ABSENT, "shop": ExitCode.PEER_ABSENT}, failed
    assert isinstance(failed[loser], WorkersLost)
    assert logged_end(lost) == str(failed[loser])
    assert "gave it up" in logged_end(lost)
    assert logged_end(other) == str(failed[other.party])
    if words is not None:
        assert words in logged_end(other)
        assert "its workers stopped" in logged_end(other)


def test_a_party_that_loses_its_scheduler_while_it_scores_lets_the_other_one_begin_again(
    sites: Any, outcomes: Outcomes, monkeypatch: pytest.MonkeyPatch
) -> None:
    (address,) = free_addresses(1)
    with program(PROGRAM, address) as process:
        assert train_both(sites, outcomes) == {}
        on_partitions(sites.bank, address)
        kill_before("parties.cluster.prediction_batches.write_bits", process, monkeypatch)
        failed = predict_both(sites, outcomes, mode="desensitized")
    assert isinstance(failed["bank"], WorkersLost), failed
    assert logged_end(sites.bank) == str(failed["bank"])
    assert "its workers stopped" in str(failed["shop"])
    assert exit_code(failed["shop"]) is ExitCode.PEER_ABSENT
