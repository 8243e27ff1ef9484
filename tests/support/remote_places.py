"""A real PostgreSQL and a real S3 server on loopback, for the time of the tests; those without them are skipped."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.support.addresses import free_addresses

PASSWORD = "correct horse / battery & staple"
START_S = 60


def free_port() -> int:
    return int(free_addresses(1)[0].rpartition(":")[2])


@contextmanager
def running(call: list[str], answers: Callable[[], object], **options: object) -> Iterator[None]:
    """A server process, from its first answer to the end of the block."""
    server = subprocess.Popen(call, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **options)  # type: ignore[call-overload]
    try:
        end = time.monotonic() + START_S
        while True:
            try:
                answers()
                break
            except Exception:
                if server.poll() is not None or time.monotonic() > end:
                    raise
                time.sleep(0.05)
        yield
    finally:
        server.terminate()
        with suppress(subprocess.TimeoutExpired):
            server.wait(10)
        if server.poll() is None:
            server.kill()


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """The URI of an empty database, without the password."""
    found = shutil.which("postgres")
    if found is None:
        pytest.skip("PostgreSQL is not installed")
    programs, port = Path(found).resolve().parent, free_port()
    with TemporaryDirectory(prefix="opboost-postgres-") as folder:
        # It refuses to run as root.
        user = {"user": "postgres", "cwd": folder} if os.geteuid() == 0 else {"cwd": folder}
        if "user" in user:
            shutil.chown(folder, "postgres")
        secret = Path(folder, "secret")
        secret.write_text(PASSWORD)
        secret.chmod(0o644)
        make = [programs / "initdb", "-D", "data", "-U", "opboost", "-A", "scram-sha-256", "--pwfile=secret"]
        subprocess.run([*make, "-E", "UTF8", "--locale=C", "--no-sync"], check=True, capture_output=True, **user)  # type: ignore[call-overload]
        options = [f"port={port}", "listen_addresses=127.0.0.1", "unix_socket_directories=", "fsync=off"]
        serve = [str(programs / "postgres"), "-D", "data", *(part for one in options for part in ("-c", one))]
        uri = f"postgresql://opboost@127.0.0.1:{port}/postgres"

        def answers() -> None:
            from parties.tables.remote_tables import connect

            connect(uri, PASSWORD).close()

        with running(serve, answers, **user):
            yield uri


def make_table(uri: str, name: str, columns: str) -> None:
    """Make a table in a database of `postgres`, in place of one of that name."""
    from parties.tables.remote_tables import connect

    with closing(connect(uri, PASSWORD)) as database, database.cursor() as cursor:
        cursor.execute(f"DROP TABLE IF EXISTS {name}")
        cursor.execute(f"CREATE TABLE {name} ({columns})")
        database.commit()


@pytest.fixture(scope="session")
def bucket() -> Iterator[str]:
    """The query of a URI such as `s3://tables/FILE?...` that leads to an S3 server with a bucket ``tables``."""
    moto = shutil.which("moto_server")
    if moto is None:
        pytest.skip("no S3 server (moto_server) is installed")
    port, clean = free_port(), {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}

    def answers() -> None:
        request = urllib.request.Request(f"http://127.0.0.1:{port}/tables", method="PUT")
        urllib.request.urlopen(request, timeout=5).close()

    with pytest.MonkeyPatch.context() as patch, running([moto, "-H", "127.0.0.1", "-p", str(port)], answers, env=clean):
        for name, value in {"ACCESS_KEY_ID": "here", "SECRET_ACCESS_KEY": PASSWORD}.items():
            patch.setenv(f"AWS_{name}", value)
        yield f"region=us-east-1&scheme=http&endpoint_override=127.0.0.1:{port}&allow_delayed_open=true"
