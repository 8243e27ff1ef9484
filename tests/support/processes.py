"""Processes of tests: commands and calls forked from one that has imported everything, and how they end."""

from __future__ import annotations

import gc
import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
import warnings
import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

from parties.cli import command
from parties.runs.installed_versions import installed_versions

# What every command would put together for itself takes a sixth of a short run's processor time; versions of packages
# are in files that each run would read.
command()
installed_versions()

# Dask names modules of its own when it is first asked; those below take their place.
with suppress(ImportError):
    from distributed.utils import get_mp_context

    get_mp_context()

# Processes that start from one that has imported everything and opened nothing; an interpreter needs seconds for that.
# The first names are what jobs import while they work: it takes an active party a second, and a report another one.
FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(
    [
        "dask.dataframe",
        "distributed",
        "distributed.nanny",
        "dp_accounting.pld.privacy_loss_distribution",
        "matplotlib.backends.backend_svg",
        "matplotlib.figure",
        "parties.reports.horizontal_page",
        "private_set_intersection.python",
        "pyarrow.csv",
        "sklearn.cluster",
        "pytest",
        "rich.progress",
        "typer",
        "xgboost.dask",
        "parties.cli",
        "parties.cluster.training",
        "parties.doctor.vertical",
        "parties.jobs.predict_vertical",
        "parties.jobs.answer_vertical",
        "parties.jobs.serve_scores",
        "parties.jobs.train_chain",
        "parties.jobs.train_horizontal",
        "parties.jobs.train_vertical",
        "parties.reports.writing",
        "parties.vertical.prediction_service",
        __name__,
    ]
)


class Command:
    """The command `opboost` in a process of its own, which is used like a `subprocess.Popen` with pipes."""

    def __init__(self, *arguments: str) -> None:
        self._said = [_file(), _file()]
        weakref.finalize(self, _remove, *self._said)
        umask = os.umask(0o077)
        os.umask(umask)
        surroundings = (os.getcwd(), umask, dict(os.environ))
        self._process = FORKS.Process(target=_run, args=(arguments, [str(path) for path in self._said], surroundings))
        self._process.start()
        self.pid = self._process.pid or 0

    @property
    def returncode(self) -> int | None:
        return self._process.exitcode

    def poll(self) -> int | None:
        return self._process.exitcode

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        self._process.join(timeout)
        if timeout is not None and self.returncode is None:
            raise subprocess.TimeoutExpired("opboost", timeout)
        out, error = (path.read_text(encoding="utf-8") for path in self._said)
        return out, error

    def wait(self, timeout: float | None = None) -> int | None:
        self._process.join(timeout)
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.returncode is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self._process.kill()


def forked(call: Sequence[str], **_: object) -> Command:
    """In place of `subprocess.Popen` of an interpreter with `-m parties.cli`."""
    return Command(*call[3:])


def _file() -> Path:
    handle, path = tempfile.mkstemp()
    os.close(handle)
    return Path(path)


def _remove(*paths: Path) -> None:
    for path in paths:
        path.unlink(missing_ok=True)


def _run(arguments: Sequence[str], said: Sequence[str], surroundings: tuple[str, int, dict[str, str]]) -> None:
    # What was imported before the fork is neither looked through again nor copied for it.
    gc.freeze()
    folder, umask, variables = surroundings
    os.chdir(folder)
    os.umask(umask)
    os.environ.clear()
    os.environ.update(variables)
    tempfile.tempdir = None
    for number, path in enumerate(said, 1):
        file = os.open(path, os.O_WRONLY | os.O_APPEND)
        os.dup2(file, number)
        os.close(file)
    from parties.cli import main

    sys.argv = ["opboost", *arguments]
    main()


def finish(*processes: Command | subprocess.Popen[str], seconds: float = 150) -> list[tuple[int | None, str, str]]:
    """Exit code, standard output and standard error of each process, all of which must end in time."""
    try:
        ends = [process.communicate(timeout=seconds) for process in processes]
    finally:
        for process in processes:
            if process.poll() is None:
                process.kill()
                process.communicate()
    return [(process.returncode, *end) for process, end in zip(processes, ends, strict=True)]


def wait_for_words(path: Path, words: str, seconds: float = 100) -> None:
    """Wait until a file is there and has these words."""
    deadline = time.monotonic() + seconds
    while not (path.exists() and words in path.read_text()):
        assert time.monotonic() < deadline, f"no {words!r} in {path.name} after {seconds} s"
        time.sleep(0.02)


def at_once(n: int, call: Callable[..., Any], *arguments: Any) -> list[Any]:
    """What a call returns in so many processes, which begin together."""
    everybody = FORKS.Barrier(n)
    with ProcessPoolExecutor(n, FORKS, initializer=everybody.wait, initargs=(60,)) as pool:
        return [one.result(60) for one in [pool.submit(call, *arguments) for _ in range(n)]]


def in_a_fork(call: Callable[[], object]) -> str:
    """What `call` returns or raises in a child; the child's end is bounded by an alarm of a minute."""
    read, write = os.pipe()
    with warnings.catch_warnings():
        # Python from 3.12 on warns of forks beside threads, which is what happens to users.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        import signal

        signal.alarm(60)
        try:
            found = repr(call())
        except BaseException as error:
            found = f"{type(error).__name__}: {error}"
        os.write(write, found.encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as pipe:
        found = pipe.read()
    os.waitpid(child, 0)
    return found
