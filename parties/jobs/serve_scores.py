"""Service job of the active party: a run file in, an HTTP service until the process is told to stop."""

from __future__ import annotations

import asyncio
import math
import signal
import socket
import ssl
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import cast

import numpy as np
import uvicorn
from fastapi import FastAPI

from parties.config.addresses import host_and_port
from parties.config.reading import check_schema_of_model, read_run, read_schema
from parties.config.serve_section import HttpSection
from parties.config.vertical import ActiveRun
from parties.errors import EXPECTED_ERRORS, ConfigError, Stopped, Unavailable
from parties.jobs.conversations import Conversations
from parties.jobs.life_cycle import Terminal, logged
from parties.jobs.predict_vertical import note_caveat
from parties.runs.run_folder import RunFolder
from parties.runs.run_log import RunLog
from parties.service.access import Gate, Tokens
from parties.service.app import make_app
from parties.service.connections import CallerConnection, connection_settings
from parties.service.metrics import ServiceMetrics
from parties.service.requests import OwnRecords
from parties.service.scorer import Scorer
from parties.service.versions import Version, Versions
from parties.tables.data_files import file_digest

# Seconds before a Python thread must yield. At the default of 5 ms, a scorer and the event loop would wait for each
# other longer than a request takes.
SWITCH_S = 0.0005

# Connections of callers at the same time.
MAX_CALLERS = 1000


def serve_scores(path: Path, *, data: Path | None, insecure: bool, terminal: Terminal) -> None:
    """Answer HTTP requests until the process is told to stop.

    Parameters
    ----------
    path : Path
        The run file, with a section `http`.
    data : Path, optional
        Another data file than the run's.
    insecure : bool
    terminal : Terminal

    Raises
    ------
    PartyError
        If the service cannot begin.
    """
    run = read_run(path, ActiveRun)
    sys.setswitchinterval(SWITCH_S)
    folder = RunFolder(run.run_folder)
    with folder.locked(), logged(folder, terminal) as log:
        service = ScoreService(path, data=data, insecure=insecure, log=log)
        host, port = host_and_port(service.http.listen)
        try:
            listening = socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
        except OSError as error:
            raise ConfigError(f"cannot listen on {service.http.listen}: {error.strerror}") from None
        with listening, suppress(Stopped):
            service.server.run(sockets=[listening])
        log.step("stopped", f"{run.party} was told to stop, and has answered the requests at hand")


class ScoreService:
    """An HTTP service: its models, and the files that SIGHUP reads again.

    Parameters
    ----------
    path : Path
        The run file.
    data : Path, optional
    insecure : bool
    log : RunLog

    Raises
    ------
    PartyError
    """

    def __init__(self, path: Path, *, data: Path | None, insecure: bool, log: RunLog) -> None:
        self._path = path
        self._data = data
        self._insecure = insecure
        self._log = log
        self._metrics = ServiceMetrics()
        self._admitting, self._reading = asyncio.Lock(), asyncio.Lock()
        self._n_readings = 0
        self.http, answering, shadow = self._read(())
        http = self.http
        self.versions = Versions(answering, shadow, metrics=self._metrics, timeout_s=http.timeout)
        self._gate = Gate(
            make_app(self.versions, http, lifespan=self._lifespan, note=log.step),
            tokens=Tokens(http.tokens),
            body_s=http.timeout,
            metrics=self._metrics,
        )
        self._config = uvicorn.Config(
            self._gate,
            **connection_settings(http.timeout),
            log_config=None,
            log_level="critical",
            access_log=False,
            server_header=False,
            proxy_headers=False,
            limit_concurrency=MAX_CALLERS,
            timeout_graceful_shutdown=math.ceil(http.grace),
            ssl_certfile=http.certificate,
            ssl_keyfile=http.private_key,
        )
        with _naming_certificate(http):
            self._config.load()
        self.server = uvicorn.Server(self._config)

    def _read_run(self) -> tuple[ActiveRun, HttpSection]:
        run = read_run(self._path, ActiveRun)
        if run.http is None:
            raise ConfigError(f"{self._path} has no section `http`, which says where and to whom scores are served")
        return run, run.http

    def _read(self, current: Sequence[Version]) -> tuple[HttpSection, Version, Version | None]:
        """Read the run files of the model and its shadow; a model that is already served keeps its conversation."""
        run, http = self._read_run()
        shadow = None if http.shadow is None else read_run(http.shadow, ActiveRun)
        if shadow is not None and shadow.listen == run.listen:
            raise ConfigError(
                f"{http.shadow}: the passive parties of the shadow need another `listen` than {run.listen}"
            )
        answering = self._version(run, http, current)
        return http, answering, None if shadow is None else self._version(shadow, http, current)

    def _version(self, run: ActiveRun, http: HttpSection, current: Sequence[Version]) -> Version:
        run = run.model_copy(update={"http": None})
        schema, ignore = read_schema(run.table_schema)
        model = RunFolder(run.run_folder).load_joint_model()
        check_schema_of_model(schema, run.run_folder, model.ensemble)
        model.check_asked(peer.name for peer in run.passive)
        run.reveal.check(model.ensemble.loss)
        if run.reveal.top is not None:
            raise ConfigError("reveal.top compares all records with each other: it is for `opboost predict` alone")
        records = OwnRecords.read(self._data or run.data, schema, ignore, run.align.duplicates)
        digest = file_digest(run.run_folder / "model.json")
        for version in current:
            if version.run == run and version.digest != digest:
                raise ConfigError(
                    f"{run.run_folder} holds another model than the one of this run that is served: give it a run_id "
                    "of its own, or start the service anew"
                )
            if version.run == run:
                return replace(version, records=records)
        note_caveat(model, self._log, desensitized=http.mode == "desensitized")
        # Compiled loops are loaded before the first request.
        model.ensemble.predict(np.zeros((1, len(model.ensemble.features))))
        scorer = Scorer(
            Conversations(run, model, self._insecure),
            desensitized=http.mode == "desensitized",
            patience_s=http.timeout,
            max_waiting=http.max_waiting,
            on_batch=lambda n_records: self._metrics.count_batch(run.run_id, n_records),
        )
        return Version(run=run, model=model, digest=digest, records=records, scorer=scorer)

    @asynccontextmanager
    async def _lifespan(self, app: FastAPI) -> AsyncIterator[None]:
        for version in self.versions.all:
            version.scorer.start(asyncio.get_running_loop().call_soon_threadsafe)
        tasks = set[asyncio.Task[None]]()

        def hang_up() -> None:
            task = asyncio.create_task(self._read_again())
            tasks.add(task)
            task.add_done_callback(tasks.discard)

        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, hang_up)
        self._log.step("serving", f"scores are served at {self.http.listen} until this process is told to stop")
        yield
        for version in self.versions.all:
            await asyncio.to_thread(version.scorer.stop)

    async def _read_again(self) -> None:
        """Handle SIGHUP: take over new tokens at once, and models, data and certificate once the models answer."""
        self._n_readings += 1
        reading, outcome = self._n_readings, "Nothing has changed"
        try:
            # A leaked token must be revoked at once, even while this or an earlier reading waits for passive parties.
            async with self._admitting:
                self._admit(await asyncio.to_thread(lambda: Tokens(self._read_run()[1].tokens)))
            outcome = "The tokens were taken over, and nothing else has changed"
            async with self._reading:
                await self._change(reading)
        except EXPECTED_ERRORS as error:
            self._log.step("kept", f"the run file was read again and is not used: {error}. {outcome}")

    async def _change(self, reading: int) -> None:
        """Take over models, data file and certificate."""
        before = self.versions.all
        http, answering, shadow = await asyncio.to_thread(self._read, before)
        certificate = _certificate(http)
        await self._join(answering, shadow, before, reading)
        if self._config.ssl is not None and certificate is not None:
            self._config.ssl.sni_callback = partial(_certify, certificate)
        self.versions.swap(answering, shadow)
        # Requests that have chosen a version submit their query in the loop's next turn.
        await asyncio.sleep(0)
        names = ", ".join(version.name for version in self.versions.all)
        self._log.step("read again", f"run file, data file and tokens were read again; the models are {names}")
        kept = {version.scorer for version in self.versions.all}
        for scorer in {version.scorer for version in before} - kept:
            await asyncio.to_thread(scorer.stop)

    def _admit(self, tokens: Tokens) -> None:
        """Take over tokens; a connection with a revoked token loses its caller."""
        changed, self._gate.tokens = self._gate.tokens.changed(tokens), tokens
        for connection in self.server.server_state.connections:
            cast("CallerConnection", connection).forget(changed)

    async def _join(self, answering: Version, shadow: Version | None, before: Sequence[Version], reading: int) -> None:
        """Start new scorers, and wait for the passive parties of the model that is to answer, if it is a new one.

        A later reading ends the wait: the files may name another model by now.
        """
        running = {version.scorer for version in before}
        new = [version.scorer for version in (answering, shadow) if version and version.scorer not in running]
        for scorer in new:
            scorer.start(asyncio.get_running_loop().call_soon_threadsafe)
        deadline = asyncio.get_running_loop().time() + answering.run.wait
        while answering.scorer in new and (refusal := answering.scorer.refusal):
            is_outdated = self._n_readings > reading
            if is_outdated or asyncio.get_running_loop().time() > deadline:
                for scorer in new:
                    await asyncio.to_thread(scorer.stop)
                limit = "before the next SIGHUP" if is_outdated else f"within {answering.run.wait:g} s"
                raise Unavailable(f"{answering.name} could not answer {limit}: {refusal}")
            await asyncio.sleep(0.05)


def _certificate(http: HttpSection) -> ssl.SSLContext | None:
    """A context with a new certificate and key; the service's own is not touched, since the new one may be refused."""
    if http.certificate is None:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with _naming_certificate(http):
        context.load_cert_chain(http.certificate, http.private_key)
    return context


def _certify(certificate: ssl.SSLContext, connection: ssl.SSLObject, name: str | None, first: ssl.SSLContext) -> None:
    """Set the certificate of a connection at the start of its TLS handshake, for any host name."""
    connection.context = certificate


@contextmanager
def _naming_certificate(http: HttpSection) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise ConfigError(
            f"{http.certificate} and {http.private_key} are no certificate and its key: {error}"
        ) from None
