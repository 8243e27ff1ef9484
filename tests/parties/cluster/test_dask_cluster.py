"""A cluster on this machine is its party's alone: nobody else on the machine can connect to it or read its pages."""

from __future__ import annotations

import os
import socket
import ssl
import stat
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import numpy as np
import pytest

from parties.cluster.dask_cluster import cluster
from parties.config.cluster_section import DaskSection
from parties.errors import ConfigError, RunFolderError, WorkersLost

pytest.importorskip("distributed", reason="Dask is not installed: pip install 'opboost[dask]'")

if TYPE_CHECKING:
    from distributed import Client


def ports() -> set[int]:
    """Where this process and those that it started listen."""
    import psutil

    mine = psutil.Process()
    found = set()
    for process in (mine, *mine.children(recursive=True)):
        for connection in process.net_connections("tcp"):
            if connection.status == psutil.CONN_LISTEN:
                assert connection.laddr.ip in ("127.0.0.1", "::1"), connection
                found.add(connection.laddr.port)
    return found


@pytest.fixture(scope="module")
def others() -> set[int]:
    """Where servers of other tests listen."""
    return ports()


@pytest.fixture(scope="module")
def client(others: set[int]) -> Iterator[Client]:
    import dask

    # As outside of tests.
    method = {"distributed.worker.multiprocessing-method": "spawn"}
    with dask.config.set(method), cluster(DaskSection(workers=1)) as found:
        yield found


@pytest.mark.parametrize("has_credentials", [False, True], ids=["plain text", "credentials of its own"])
def test_a_stranger_on_this_machine_is_refused(client: Client, has_credentials: bool) -> None:
    """Whoever is let in has the workers run any code, as the party."""
    import distributed

    scheduler = client.scheduler.address.rpartition("://")[2]
    security = distributed.Security.temporary() if has_credentials else None
    with pytest.raises(OSError, match=r"Timed out|TLS|reset"):
        distributed.Client(
            f"{'tls' if has_credentials else 'tcp'}://{scheduler}", security=security, timeout=2, set_as_default=False
        ).submit(os.getpid).result(5)


def heard(port: int, *, says: bytes = b"", credentials: ssl.SSLContext | None = None) -> bytes:
    """What a port tells a stranger."""
    found = b""
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=0.5) as plain:
        end = credentials.wrap_socket(plain) if credentials else plain
        with end:
            end.sendall(says)
            while data := end.recv(1 << 16):
                found += data
    return found


def of_a_stranger() -> ssl.SSLContext:
    from distributed.security import Security

    context = Security.temporary().get_connection_args("client")["ssl_context"]
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    assert isinstance(context, ssl.SSLContext)
    return context


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="finds ports by /proc")
def test_no_port_says_a_word_to_a_stranger(client: Client, others: set[int]) -> None:
    """A server of Dask speaks first, with its versions, to whoever is let in."""
    found, credentials = ports() - others, of_a_stranger()
    assert len(found) >= 3
    for port in found:
        assert heard(port) == b""
        assert heard(port, credentials=credentials) == b""


def test_the_party_itself_is_served(client: Client) -> None:
    (worker,) = client.scheduler_info()["workers"]
    assert {client.scheduler.address[:16], worker[:16]} == {"tls://127.0.0.1:"}
    assert client.submit(sum, [1, 2]).result() == 3


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="finds ports by /proc")
@pytest.mark.parametrize("page", ["/info/main/workers.html", "/json/identity.json", "/metrics", "/health", "/"])
def test_no_page_tells_what_the_cluster_does(client: Client, others: set[int], page: str) -> None:
    client.submit(len, "secret name", key="secret-name").result()
    for port in ports() - others:
        said = heard(port, says=f"GET {page} HTTP/1.0\r\n\r\n".encode())
        assert said == b"" or said.split()[1] in (b"302", b"404")
        assert b"worker" not in said.lower()


def test_where_bokeh_is_installed_it_makes_no_pages_either(monkeypatch: pytest.MonkeyPatch) -> None:
    import distributed.dashboard

    made: list[object] = []
    bokeh = ModuleType("distributed.dashboard.scheduler")
    monkeypatch.setattr(bokeh, "connect", lambda *of, **how: made.append(of), raising=False)
    monkeypatch.setattr(distributed.dashboard, "scheduler", bokeh, raising=False)
    monkeypatch.setitem(sys.modules, bokeh.__name__, bokeh)
    with cluster(DaskSection(workers=1)) as client:
        assert client.submit(sum, [1, 2]).result() == 3
    assert not made


def process_that_takes(megabytes: int) -> int:
    """Take memory for longer than Dask takes to look at it; whose it is."""
    taken = np.ones(megabytes << 17)
    time.sleep(1)
    return os.getpid() if len(taken) else 0


def test_no_process_is_ended_since_it_takes_more_than_its_share_of_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """One of them grows trees on the rows of all."""
    from distributed import system

    monkeypatch.setattr(system, "MEMORY_LIMIT", 400 << 20)
    with cluster(DaskSection(workers=1)) as client:
        (limit,) = (one["memory_limit"] for one in client.scheduler_info()["workers"].values())
        before = client.submit(os.getpid).result()
        assert limit == 400 << 20
        assert client.submit(process_that_takes, 500).result() == before


def test_processes_that_do_not_come_back_are_told_in_a_sentence() -> None:
    with pytest.raises(WorkersLost, match="the cluster lost the workers"), cluster(DaskSection(workers=1)) as client:
        client.wait_for_workers(2, timeout=0.1)


def test_processes_that_die_while_they_start_are_told_in_a_sentence(tmp_path: Path) -> None:
    """As where the kernel ends one of them for lack of memory."""
    import dask

    (tmp_path / "dies.py").write_text("import os; os._exit(9)")
    settings = {"distributed.worker.preload": [str(tmp_path / "dies.py")]}
    with (
        dask.config.set(settings),
        pytest.raises(WorkersLost, match=r"did not start: RuntimeError.* Nothing was sent"),
        cluster(DaskSection(workers=1)),
    ):
        pass


@pytest.mark.parametrize(
    ("address", "settings"),
    [
        ("tls://127.0.0.1:1", {"distributed.comm.tls.ca-file": None}),
        ("tcp://127.0.0.1:1", {"distributed.comm.require-encryption": True}),
    ],
)
def test_a_scheduler_that_settings_of_dask_rule_out_is_told_in_a_sentence(
    address: str, settings: dict[str, object]
) -> None:
    import dask

    with (
        dask.config.set(settings),
        pytest.raises(ConfigError, match=f"Dask's settings do not go with {address}: .* Nothing was sent"),
        cluster(DaskSection(scheduler=address)),
    ):
        pass


@pytest.mark.parametrize(
    ("greeting", "told"),
    [
        (b"", WorkersLost),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", ConfigError),
        (b"SSH-2.0-OpenSSH_9.2\r\n", ConfigError),
        (bytes(64), ConfigError),
        (b"\x4a\0\0\0\x0a8.0.36" + bytes(67), ConfigError),
    ],
    ids=["silence", "http", "ssh", "zeros", "mysql"],
)
def test_what_is_no_scheduler_is_told_in_a_sentence_and_in_time(
    greeting: bytes, told: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where the port of Dask's page is given, or a scheduler hangs."""
    monkeypatch.setattr("parties.cluster.dask_cluster.START_WAIT_S", 2)
    met: list[socket.socket] = []
    with closing(socket.create_server(("127.0.0.1", 0))) as server:

        def greet() -> None:
            with suppress(OSError):
                while True:
                    met.append(server.accept()[0])
                    met[-1].sendall(greeting)

        threading.Thread(target=greet, daemon=True).start()
        address, began = f"tcp://127.0.0.1:{server.getsockname()[1]}", time.monotonic()
        with (
            pytest.raises(told, match=rf"^no scheduler answers at {address}: \w+\. Nothing was sent$"),
            cluster(DaskSection(scheduler=address)),
        ):
            pass
        assert time.monotonic() - began < 20
    for one in met:
        one.close()


def test_a_scheduler_with_keys_is_used_by_settings_of_dask(tmp_path: Path) -> None:
    import dask
    import distributed

    keys, settings = distributed.Security.temporary(), {}
    for name, content in {
        "ca-file": keys.tls_ca_file,
        "client.cert": keys.tls_client_cert,
        "client.key": keys.tls_client_key,
    }.items():
        (tmp_path / name).write_text(content)
        settings[f"distributed.comm.tls.{name}"] = str(tmp_path / name)
    with (
        distributed.LocalCluster(
            n_workers=1, threads_per_worker=1, processes=False, protocol="tls", security=keys, dashboard_address=None
        ) as local,
        dask.config.set(settings),
        cluster(DaskSection(scheduler=local.scheduler_address)) as client,
    ):
        assert local.scheduler_address.startswith("tls://")
        assert client.submit(sum, [1, 2]).result() == 3


def test_without_keys_no_cluster_is_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cryptography", None)
    with pytest.raises(ConfigError, match="needs the package cryptography"), cluster(DaskSection(workers=1)):
        pass


def test_without_a_folder_for_temporary_files_no_cluster_is_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a full disk, Python says that there is none; it ended in a traceback."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "absent"))
    told = r"cluster processes put aside cannot be written to .*absent"
    with pytest.raises(RunFolderError, match=told), cluster(DaskSection(workers=1)):
        pass


def test_what_a_worker_puts_on_disk_is_its_owners(client: Client) -> None:
    (local,) = client.run(lambda dask_worker: dask_worker.local_directory).values()
    scratch = Path(local).parents[1]
    assert scratch.name.startswith("opboost-")
    assert stat.S_IMODE(scratch.stat().st_mode) == 0o700
