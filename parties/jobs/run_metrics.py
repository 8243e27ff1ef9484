"""Prometheus metrics of a run: what its log notes, counted, and the budget that is left, on a port of loopback."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from socketserver import ThreadingMixIn
from threading import BoundedSemaphore, Thread
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from prometheus_client import CollectorRegistry, Counter, Histogram, ProcessCollector, make_wsgi_app
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from parties.config.addresses import host_and_port
from parties.errors import EXPECTED_ERRORS, ConfigError

# The ledger is read again after so long at the earliest, since that verifies all of it.
LEDGER_AGE_S = 60.0

# Connections at the same time, and how long one may say nothing. Each has a thread and a descriptor of the job, which
# anybody on this machine could use up.
MAX_READERS, QUIET_S = 16, 5.0

_SECONDS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 5.0, 30.0)

# Names of what `RunLog.measure` tells, and of their metrics.
_AMOUNTS = {
    "requests": "Requests for answers.",
    "records": "Records that were asked for.",
    "answered": "Records that were answered.",
    "refused": "Records that were refused.",
    "routed_bits": "Exact bits that left.",
    "errors": "Conversations that ended with an error.",
}

BudgetLeft = Callable[[], Iterable[tuple[str, str, float]]]
"""Tells of every column and kind of budget how much is left."""


class RunMetrics:
    """Counts the lines of a run's log.

    Parameters
    ----------
    registry : CollectorRegistry
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self._messages = Counter("opboost_messages", "Messages.", ("direction", "peer", "kind"), registry=registry)
        self._bytes = Counter("opboost_message_bytes", "Bytes of messages.", ("direction", "peer"), registry=registry)
        self._steps = Counter("opboost_steps", "Steps of the log.", ("event",), registry=registry)
        self._answers = Histogram(
            "opboost_answer_seconds", "From a request to its answer.", ("peer",), buckets=_SECONDS, registry=registry
        )
        self._amounts = {name: Counter(f"opboost_{name}", words, registry=registry) for name, words in _AMOUNTS.items()}
        self._asked_at: dict[str, float] = {}

    def observe(self, line: Mapping[str, object]) -> None:
        """Count a line of the log, or amounts that are in none."""
        event = str(line["event"])
        if event == "measured":
            for name, counter in self._amounts.items():
                counter.inc(float(str(line.get(name, 0))))
        elif event in ("sent", "received"):
            peer, kind = str(line["peer"]), str(line["kind"])
            self._messages.labels(event, peer, kind).inc()
            self._bytes.labels(event, peer).inc(float(str(line["bytes"])))
            if kind == "ask":
                self._asked_at[peer] = time.monotonic()
            elif kind == "answers" and peer in self._asked_at:
                self._answers.labels(peer).observe(time.monotonic() - self._asked_at.pop(peer))
        else:
            self._steps.labels(event).inc()


class _Budget(Collector):
    """The budget that is left, read at most once a minute."""

    def __init__(self, left: BudgetLeft) -> None:
        self._left = left
        self._read_at = -LEDGER_AGE_S
        self._found: list[tuple[str, str, float]] = []

    def collect(self) -> Iterator[GaugeMetricFamily]:
        if time.monotonic() - self._read_at >= LEDGER_AGE_S:
            try:
                self._found = list(self._left())
            except EXPECTED_ERRORS:
                # Nothing is told rather than what may not hold any more.
                self._found = []
            self._read_at = time.monotonic()
        family = GaugeMetricFamily(
            "opboost_budget_left",
            "What is left of a column's limit or, without a column, of a record's, to the record that spent most.",
            labels=("column", "kind"),
        )
        for column, kind, amount in self._found:
            family.add_metric((column, kind), amount)
        yield family


class _Handler(WSGIRequestHandler):
    timeout = QUIET_S

    def log_message(self, format: str, *words: Any) -> None:
        """Log nothing."""


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads, request_queue_size = True, 128

    def __init__(self, place: tuple[str, int]) -> None:
        self.address_family = socket.AF_INET6 if ":" in place[0] else socket.AF_INET
        self._free = BoundedSemaphore(MAX_READERS)
        super().__init__(place, _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        if self._free.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A caller that is gone is no error."""


@contextmanager
def serving_metrics(address: str, left: BudgetLeft) -> Iterator[RunMetrics]:
    """Serve metrics during a job.

    Raises
    ------
    ConfigError
        If the port is taken.
    """
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    registry.register(_Budget(left))
    metrics = RunMetrics(registry)
    try:
        server = _Server(host_and_port(address))
    except OSError as error:
        raise ConfigError(f"metrics cannot be served at {address}: {error.strerror}. Nothing was sent") from None
    server.set_app(make_wsgi_app(registry))
    thread = Thread(target=server.serve_forever, args=(0.05,), name="opboost metrics", daemon=True)
    thread.start()
    try:
        yield metrics
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
