"""Workers of a test session: processes forked from one that has imported and collected everything."""

from __future__ import annotations

import multiprocessing
import os
import signal
import warnings
from collections.abc import Iterator
from multiprocessing import connection, forkserver
from typing import Any

import pytest

_FORK = multiprocessing.get_context("fork")

# Tests of one module that a worker takes at once: few enough that all end together; most modules are taken whole.
N_AT_ONCE = 24


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--forks", type=int, default=0, metavar="N", help="test in N processes forked after collection")


def pytest_sessionstart(session: pytest.Session) -> None:
    """Let the server of `FORKS`, which all workers share, import while tests are collected."""
    if session.config.option.forks:
        from tests.support import processes  # noqa: F401

        forkserver.ensure_running()


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    if not session.config.option.forks or session.config.option.collectonly or session.testsfailed:
        return None
    pieces = sorted(_pieces(session.items), key=lambda piece: "/opboost/" in piece[0].nodeid)
    tickets, offered = os.pipe()
    os.write(offered, b"".join(number.to_bytes(2, "big") for number in range(len(pieces))))
    os.close(offered)
    session.config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined]
    workers = {}
    for number in range(session.config.option.forks):
        ours, theirs = _FORK.Pipe(duplex=False)
        worker = _FORK.Process(target=_work, args=(session, number, pieces, tickets, theirs))
        with warnings.catch_warnings():
            # Python from 3.12 on warns of forks beside threads; those of the collecting process are idle.
            warnings.simplefilter("ignore", DeprecationWarning)
            worker.start()
        theirs.close()
        workers[ours] = worker
    os.close(tickets)
    try:
        _report(session, workers)
    finally:
        _end(list(workers.values()))
    return True


def _end(workers: list[Any]) -> None:
    """Interrupt workers that still test, so that they end what their tests have started, and kill those that do not."""
    for worker in workers:
        if worker.is_alive():
            os.kill(worker.pid, signal.SIGINT)
    for worker in workers:
        worker.join(10)
        worker.kill()
        worker.join()


def _pieces(items: list[pytest.Item]) -> Iterator[list[pytest.Item]]:
    piece: list[pytest.Item] = []
    for item in items:
        if piece and (item.path != piece[0].path or len(piece) == N_AT_ONCE):
            yield piece
            piece = []
        piece.append(item)
    if piece:
        yield piece


def _report(session: pytest.Session, workers: dict[Any, Any]) -> None:
    """Hand on what workers report; a test whose worker ended before it did has failed."""
    hook = session.config.hook
    unfinished = {item.nodeid: item for item in session.items}
    reporting = set(workers)
    while reporting:
        for ours in connection.wait(list(reporting)):
            try:
                name, arguments = ours.recv()  # type: ignore[union-attr]
            except EOFError:
                reporting.discard(ours)
                workers[ours].join()
                continue
            if name == "pytest_runtest_logreport":
                report = hook.pytest_report_from_serializable(config=session.config, data=arguments)
                hook.pytest_runtest_logreport(report=report)
                if report.when == "teardown":
                    unfinished.pop(report.nodeid, None)
            else:
                getattr(hook, name)(**arguments)
            if session.shouldfail:
                raise session.Failed(session.shouldfail)
            if session.shouldstop:
                raise session.Interrupted(session.shouldstop)
    codes = sorted({worker.exitcode for worker in workers.values()} - {0})
    for item in unfinished.values():
        said = f"did not end: workers ended with {codes}"
        report = pytest.TestReport(item.nodeid, item.location, {}, "failed", said, "call")
        hook.pytest_runtest_logreport(report=report)


class _Told:
    """What happens to tests in this worker is told to the collecting process."""

    def __init__(self, config: pytest.Config, theirs: Any) -> None:
        self._config, self._theirs = config, theirs

    def pytest_runtest_logstart(self, nodeid: str, location: Any) -> None:
        self._theirs.send(("pytest_runtest_logstart", {"nodeid": nodeid, "location": location}))

    def pytest_runtest_logfinish(self, nodeid: str, location: Any) -> None:
        self._theirs.send(("pytest_runtest_logfinish", {"nodeid": nodeid, "location": location}))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        data = self._config.hook.pytest_report_to_serializable(config=self._config, report=report)
        self._theirs.send(("pytest_runtest_logreport", data))


def _work(session: pytest.Session, number: int, pieces: list[list[pytest.Item]], tickets: int, theirs: Any) -> None:
    config: Any = session.config
    # Plugins know by this that another process reports and keeps what is cached.
    config.workerinput = {"workerid": str(number)}
    plugins = config.pluginmanager
    plugins.unregister(name="terminalreporter")
    plugins.register(_Told(config, theirs))
    # Files of output and folders are this worker's own; the server of `FORKS` is the collecting process's.
    capture = plugins.getplugin("capturemanager")
    capture.stop_global_capturing()
    capture.start_global_capturing()
    capture.suspend_global_capture()
    factory = config._tmp_path_factory
    factory._given_basetemp, factory._basetemp = factory.getbasetemp() / f"worker-{number}", None
    forkserver._forkserver.ensure_running = lambda: None  # type: ignore[method-assign]

    def taken() -> list[pytest.Item]:
        ticket = os.read(tickets, 2)
        return pieces[int.from_bytes(ticket, "big")] if ticket else []

    try:
        here = taken()
        while here:
            further = taken()
            for item, following in zip(here, [*here[1:], further[0] if further else None], strict=True):
                config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            here = further
    except KeyboardInterrupt:
        session._setupstate.teardown_exact(None)
