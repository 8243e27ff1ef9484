"""A passive party's answers to predictions: of one conversation, or until it is told to stop."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

from opboost.routing import Router
from opboost.schema import TableSchema
from parties.config.align_section import AlignSection
from parties.config.reading import check_units_of_times, read_run, read_schema
from parties.config.vertical import PassiveRun
from parties.jobs.life_cycle import Terminal, logged, reporting_afterwards
from parties.runs.run_folder import RunFolder
from parties.runs.run_log import RunLog
from parties.session.connections import open_connections
from parties.session.reconnection import with_restarts
from parties.session.session_log import SessionLog, Tally
from parties.storage.paths import is_folder
from parties.tables.keyed_table import read_keyed
from parties.tables.misfits import showing_misfits
from parties.vertical.prediction_server import (
    AnswerableRecords,
    Answerer,
    RecordSource,
    answer_session,
    prediction_hello,
)
from parties.vertical.prediction_service import RecordsFile, StopSignals, Totals, serve_sessions
from parties.vertical.release_accounts import answerer_of
from protocols.messages.vertical import Hello
from protocols.transport.channel import Channel


def serve_passive(path: Path, *, data: Path | None, insecure: bool, terminal: Terminal) -> int:
    """Answer the active party's requests of one `predict_active`; returns the number of records answered for."""
    run = read_run(path, PassiveRun)
    schema, ignore = read_schema(run.table_schema)
    folder = RunFolder(run.run_folder)
    router, training = folder.load_router(), folder.load_trainings().get(run.active.name)
    check_units_of_times(schema, folder.path, schema.names)
    source = data or run.data
    with ExitStack() as stack:
        stack.enter_context(reporting_afterwards(path, run, terminal))
        records: RecordSource
        if run.engine == "dask" and is_folder(source):
            from parties.cluster.prediction_batches import answerable_partitions

            records = stack.enter_context(answerable_partitions(run, source, schema, ignore, router))
        else:
            records = read_records(source, schema, ignore, router, run.align)
        # As a service's: nothing bounds how often the active party asks before it is done.
        log = stack.enter_context(logged(folder, terminal, path=path, run=run, is_service=True))
        answerer = stack.enter_context(answerer_of(run, schema, router, records, log, stays_up=False))
        (channel,) = stack.enter_context(open_connections(run, insecure))(log).values()
        hello = prediction_hello(
            run.party, run.run_id, training=training, max_rows=answerer.max_rows, reveal=run.serve.reveal.words()
        )
        tally = Tally()
        _answer_once(answerer, channel, hello, tally=tally, log=log)
    return tally.n_answered


def _answer_once(answerer: Answerer, channel: Channel, hello: Hello, *, tally: Tally, log: RunLog) -> None:
    """Hold one conversation: the log has its beginning, once a minute what was answered, and at its end the rest."""
    sessions = SessionLog(log, answerer.n_bits)

    @contextmanager
    def request() -> Iterator[None]:
        yield
        sessions.write_due(tally)

    channel.traffic.on_wait = partial(sessions.write_due, tally)
    answer = partial(answer_session, answerer, channel, hello, tally=tally, around=request, progress=log.progress)
    log.step("answering", f"{hello.party} answers for one prediction of {channel.peer}")
    try:
        with_restarts([channel], answer, log)
    finally:
        rest = sessions.rest(tally)
        log.step(
            "answered",
            f"answered for {rest.n_answered} records{' more' * (rest.n_answered < tally.n_answered)}, "
            f"{channel.traffic.sent_bytes} bytes sent",
            **rest.answers,
        )


def read_records(
    source: Path, schema: TableSchema, ignore: Sequence[str], router: Router, align: AlignSection
) -> AnswerableRecords:
    """Read the records of a passive party's file, of which every cell that split tests are about must fit.

    Raises
    ------
    TableError, DataError
    """
    with showing_misfits(source, schema):
        table = read_keyed(source, schema, align.keys, ignore=ignore, duplicates=align.duplicates)
        return AnswerableRecords.of(router, table.index, table.frame, table.keys)


def serve_until_stopped(
    path: Path, *, data: Path | None, insecure: bool, terminal: Terminal, signals: StopSignals
) -> Totals:
    """Answer predictions of the active party until the process is told to stop; returns the totals.

    Raises
    ------
    RunFolderError
        If the run is not trained here, or another process works on it.
    """
    run = read_run(path, PassiveRun)
    schema, ignore = read_schema(run.table_schema)
    folder = RunFolder(run.run_folder)
    router, training = folder.load_router(), folder.load_trainings().get(run.active.name)
    check_units_of_times(schema, folder.path, schema.names)
    source = data or run.data

    def read() -> AnswerableRecords:
        return read_records(source, schema, ignore, router, run.align)

    with ExitStack() as stack:
        stack.enter_context(folder.locked())
        stack.enter_context(reporting_afterwards(path, run, terminal))
        log = stack.enter_context(logged(folder, terminal, path=path, run=run, is_service=True))
        file = RecordsFile(source, read, log)
        answerer = stack.enter_context(answerer_of(run, schema, router, file.records, log, stays_up=True))
        # The active party may stay away for as long as it likes.
        patient = run.model_copy(update={"wait": math.inf})
        (channel,) = stack.enter_context(open_connections(patient, insecure))(log).values()
        hello = prediction_hello(
            run.party,
            run.run_id,
            training=training,
            max_rows=answerer.max_rows,
            reveal=run.serve.reveal.words(),
            comes_again=True,
        )
        log.step("serving", f"{run.party} answers for {len(file.records.ids)} records until it is told to stop")
        return serve_sessions(answerer, channel, hello, file=file, log=log, signals=signals)
