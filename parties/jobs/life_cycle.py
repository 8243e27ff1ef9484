"""Life cycle of a job: its terminal, the run folder with lock and log, the end of a run, and the report."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from opboost.schema import TableSchema
from parties.config.party_run import PartyRun
from parties.config.reading import check_schema_of_run, kept_schema
from parties.errors import EXPECTED_ERRORS, ChainBroken, ConfigError, RunFolderError, Stopped
from parties.progress import Progress, no_progress
from parties.runs.journal import Journal
from parties.runs.model_share import KEPT_SCHEMA
from parties.runs.run_folder import RunFolder, RunState
from parties.runs.run_log import CELL_COUNTS, EventThrottle, RunLog
from parties.storage.atomic_files import copy
from parties.storage.paths import writing
from protocols.errors import PeerLost, TooFewWorkers
from protocols.transport.channel import Channel


@dataclass(frozen=True, slots=True, kw_only=True)
class Terminal:
    """A job's output to the person who started it.

    Attributes
    ----------
    progress : Progress
    say : callable
        Takes a sentence about where the job is, which the log has too.
    warn : callable
        Takes a sentence that must be read.
    """

    progress: Progress = no_progress
    say: Callable[[str], None] = lambda sentence: None
    warn: Callable[[str], None] = lambda sentence: None


@dataclass(frozen=True, slots=True)
class TrainingRun:
    """A training run of any role, from its run file to its report.

    Attributes
    ----------
    path : Path
        The run file.
    run : PartyRun
    terminal : Terminal
    """

    path: Path
    run: PartyRun
    terminal: Terminal

    @property
    def folder(self) -> RunFolder:
        return RunFolder(self.run.run_folder)

    @property
    def is_confirmed(self) -> bool:
        """Whether the run is finished on all sides, as far as this party knows."""
        folder, run = self.folder, self.run
        state = folder.state(self.path, party=run.party, role=run.role)
        # A party that did not confirm its share, or the trees that it was sent, may still need this one.
        is_finished = state is RunState.FINISHED and not Journal.is_open(folder.path)
        return is_finished and not folder.read_json("meta.json").get("unconfirmed")

    def is_over(self) -> bool:
        """Whether no other party can need this one any more; if so, a sentence on the terminal says it."""
        run = self.run
        # Owners of a chain confirm to each other: one may be stopped before it reads another's digest, or lose trees.
        is_over = run.role != "owner" and self.is_confirmed
        if is_over:
            finished = self.folder.read_json("meta.json")["finished"]
            self.terminal.say(f"run {run.run_id!r} of {run.party} was finished at {finished}; nothing was done")
        return is_over

    @contextmanager
    def begin_or_resume(self, schema: TableSchema, *, resuming: str = "") -> Iterator[RunLog]:
        """Create the run folder or resume the run in it, lock it for this process, and log.

        Parameters
        ----------
        schema : TableSchema
            The schema that the job has read; a new folder keeps a copy of its file.
        resuming : str
            How to resume the run; added to the error if a peer is lost after something was released or received.

        Raises
        ------
        RunFolderError
            If another process works on the run, or has just finished it.
        ConfigError
            If the schema file is no longer the one that the job has read.
        """
        folder, run = self.folder, self.run
        with folder.locked():
            if self.is_over():
                raise RunFolderError(f"another process has finished the run in {folder.path}. Nothing was sent")
            state = folder.create(self.path, party=run.party, role=run.role)
            if state is RunState.NEW:
                with writing(kept := folder.path / KEPT_SCHEMA):
                    copy(run.table_schema, kept)
                if kept_schema(folder.path) != schema:
                    raise ConfigError(f"{run.table_schema} was changed while it was in use. Nothing was sent")
            else:
                check_schema_of_run(run)
            with logged(folder, self.terminal, path=self.path, run=run) as log:
                if state is not RunState.NEW:
                    log.step("resumed", f"{run.party} takes up run {run.run_id!r} where it stopped")
                try:
                    yield log
                except (PeerLost, ChainBroken, TooFewWorkers) as error:
                    if not resuming or not (folder.has_released or Journal.has_received(folder.path)):
                        raise
                    raise type(error)(f"{error}. {resuming}") from None

    def finish(self, log: RunLog, channels: Sequence[Channel], *, n_rows: int, **facts: object) -> None:
        """Note the end of the run in its folder and log, with the bytes sent and received."""
        sent = sum(channel.traffic.sent_bytes for channel in channels)
        received = sum(channel.traffic.received_bytes for channel in channels)
        self.folder.finish(n_rows=n_rows, sent_bytes=sent, received_bytes=received, **facts)
        log.step(
            "finished",
            f"finished: {n_rows} records; this process sent {sent} bytes and received {received}; the run is in "
            f"{self.folder.path}",
            sent_bytes=sent,
            received_bytes=received,
        )

    def report(self) -> RunFolder:
        """Write the report of the finished run, whose folder is returned."""
        write_report(self.path, self.run, self.terminal)
        return self.folder


def note_others(sentences: Sequence[str], log: RunLog) -> None:
    """Log sentences about cells that are read as `other`, by column."""
    for sentence in sentences:
        log.step(CELL_COUNTS, sentence)


@contextmanager
def logged(
    folder: RunFolder,
    terminal: Terminal,
    *,
    path: Path | None = None,
    run: PartyRun | None = None,
    is_service: bool = False,
    throttle: EventThrottle | None = None,
) -> Iterator[RunLog]:
    """Log to an existing run folder; an error is the last line. Serves metrics if the run and its file are given."""
    log = RunLog(folder.path, echo=terminal.say, progress=terminal.progress, is_service=is_service, throttle=throttle)
    try:
        with _measured(log, path, run):
            yield log
    except BaseException as error:
        is_expected = isinstance(error, (*EXPECTED_ERRORS, Stopped))
        sentence = str(error) if is_expected else f"stopped with {type(error).__name__}"
        # If the log cannot be written, the original error is raised all the same.
        with suppress(RunFolderError):
            log.step("failed", sentence, error=type(error).__name__)
        raise
    finally:
        log.close()


@contextmanager
def _measured(log: RunLog, path: Path | None, run: PartyRun | None) -> Iterator[None]:
    """Serve the log's counts as metrics, if the run file gives an address."""
    if path is None or run is None or run.metrics is None:
        yield
        return
    try:
        from parties.jobs.run_metrics import serving_metrics
    except ImportError as error:
        raise ConfigError(f"`metrics` needs {error.name}: install opboost[serve]. Nothing was sent") from None

    def left() -> Iterator[tuple[str, str, float]]:
        if run.role != "passive":
            return
        from parties.ledger.costs import Spent
        from parties.reports.ledger_statement import read_statement

        statement = read_statement(path, None)
        # Limits over all columns of a record have no column's name.
        left = [("", "per_record", statement.record), ("", "cell_bits_per_record", statement.record_cell_bits)]
        left += [(column.column, kind, getattr(column, kind)) for column in statement.columns for kind in Spent._fields]
        for column, kind, spending in left:
            if (amount := spending.remaining) is not None:
                yield column, kind, amount

    with serving_metrics(run.metrics.listen, left) as metrics:
        log.observe = metrics.observe
        yield


@contextmanager
def reporting_afterwards(path: Path, run: PartyRun, terminal: Terminal) -> Iterator[None]:
    """Write the run's report again, however a job with its model ends: outgoing messages and charges are in it."""
    try:
        yield
    finally:
        if RunFolder(run.run_folder).is_finished:
            write_report(path, run, terminal)


def write_report(path: Path, run: PartyRun, terminal: Terminal) -> None:
    """Write the finished run's report. The run is done and stays so if that fails."""
    if not run.report:
        return
    from parties.reports.writing import finished_report

    try:
        finished_report(path).write()
    except EXPECTED_ERRORS as error:
        terminal.warn(
            f"the run is done, but its report could not be written: {error}. `opboost report` writes it again"
        )
