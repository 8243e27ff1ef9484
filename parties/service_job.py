"""A run file in, a passive party that answers predictions until it is told to stop."""

from __future__ import annotations

import math
from contextlib import ExitStack
from pathlib import Path

from parties.accounts import answerer_of
from parties.answering import AnswerableRecords, prediction_hello
from parties.config import PassiveRun, read_run, read_schema
from parties.connections import passive_channel
from parties.jobs import Terminal, recorded
from parties.serving import RecordsFile, StopSignals, Totals, serve_sessions
from parties.store import RunFolder
from parties.table import read_table


def serve_until_stopped(
    path: Path, *, data: Path | None, insecure: bool, terminal: Terminal, signals: StopSignals
) -> Totals:
    """Answer one prediction of the active party after the other; returns what was done when the process is to stop.

    Raises
    ------
    RunFolderError
        If the run is not trained here, or another process works on it.
    """
    run = read_run(path, PassiveRun)
    schema, ignore = read_schema(run.table_schema)
    folder = RunFolder(run.run_folder)
    router = folder.load_router()
    source, duplicates = data or run.data, run.align.duplicates

    def read() -> AnswerableRecords:
        table = read_table(source, schema, ignore=ignore, needs_label=False, duplicates=duplicates)
        return AnswerableRecords.of(router, table.ids, table.frame)

    with ExitStack() as stack:
        stack.enter_context(folder.locked())
        log = stack.enter_context(recorded(folder, terminal))
        file = RecordsFile(source, read, log)
        answerer = stack.enter_context(answerer_of(run, schema, router, file.records, log, logs_releases=False))
        # The active party may stay away for as long as it likes.
        patient = run.model_copy(update={"wait": math.inf})
        channel = stack.enter_context(passive_channel(patient, insecure))(log)
        hello = prediction_hello(
            run.party, run.run_id, max_rows=run.serve.batch_rows, reveal=run.serve.reveal.words(), comes_again=True
        )
        log.step("serving", f"{run.party} answers for {len(file.records.ids)} records until it is told to stop")
        totals = serve_sessions(answerer, channel, hello, file=file, log=log, signals=signals)
        log.step(
            "stopped",
            f"told to stop after {totals.n_sessions} sessions with {totals.n_requests} requests: {totals.n_answered} "
            f"records answered, {totals.n_refused} refused",
        )
        return totals
