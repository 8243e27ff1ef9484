"""`opboost doctor --for predict` and `--for serve`: what can be checked before records are scored or answered for."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from opboost.routing import Router
from parties.config.reading import read_any_run, read_schema
from parties.config.vertical import ActiveRun, PassiveRun
from parties.doctor.check_result import Finding, Status, is_sound
from parties.doctor.peer import ask_active, ask_passive
from parties.doctor.run_files import examine_keys
from parties.errors import EXPECTED_ERRORS, ConfigError, OverBudget
from parties.ledger.pricing import planned
from parties.ledger.release_ledger import Ledger
from parties.runs.run_folder import RunFolder
from parties.tables.blocks import id_keys
from parties.tables.party_table import own_columns, read_table
from parties.vertical.prediction_client import asking_hello
from parties.vertical.prediction_server import AnswerableRecords, prediction_hello
from parties.vertical.preparation import bits
from parties.vertical.rate_limits import Allowance, allowance_path
from protocols.messages.vertical import Hello, Task


def examine_prediction(
    path: Path, *, data: Path | None = None, serves: bool = False, insecure: bool = False, wait_s: float = 5.0
) -> list[Finding]:
    """Check what a prediction needs, at either role; then the peers, for at most `wait_s` seconds.

    Parameters
    ----------
    path : Path
        The run file.
    data : Path, optional
        Another data file than the run's.
    serves : bool
        Whether a passive party is to answer until it is stopped.
    insecure : bool
    wait_s : float
    """
    try:
        run = read_any_run(path)
        if serves and isinstance(run, ActiveRun):
            raise ConfigError(f"{path}: only a passive party serves; found the run file of an active one")
    except EXPECTED_ERRORS as error:
        return [Finding("run file", Status.PROBLEM, str(error))]
    findings = [Finding("run file", Status.OK, f"run {run.run_id!r} of {run.party}, the {run.role} party")]
    peers = run.passive if isinstance(run, ActiveRun) else (run.active,)
    address = run.listen if isinstance(run, ActiveRun) else run.connect
    keys_fit, keys = examine_keys(run, peers, [address], insecure, findings)
    findings += _active(run, data) if isinstance(run, ActiveRun) else _passive(run, data, serves=serves)
    if not keys_fit or not is_sound(findings):
        findings.append(Finding("peer", Status.SKIPPED, "not asked: what is wrong here comes first"))
    elif isinstance(run, ActiveRun):
        mine = _looking(asking_hello(run.party, run.run_id, run.reveal.words()))
        findings += ask_passive(run, {peer.name: mine for peer in run.passive}, keys, wait_s=wait_s)
    else:
        mine = _looking(prediction_hello(run.party, run.run_id, reveal=run.serve.reveal.words()))
        findings += ask_active(run, mine, keys, wait_s=wait_s)
    return findings


def _looking(hello: Hello) -> Hello:
    return hello.model_copy(update={"task": Task.CHECK, "looks_for": Task.PREDICT})


def _active(run: ActiveRun, data: Path | None) -> Iterator[Finding]:
    """Whether there is a model that these peers can answer for, and records to score."""
    folder = RunFolder(run.run_folder)
    try:
        model = folder.load_joint_model()
        strangers = sorted(set(model.ensemble.owners) - {peer.name for peer in run.passive})
        if strangers:
            raise ConfigError(f"the model needs answers of {', '.join(strangers)}, whom the run file does not name")
        yield Finding("model", Status.OK, f"{model.ensemble.n_rounds} rounds in {folder.path}")
        run.reveal.check(model.ensemble.loss)
    except EXPECTED_ERRORS as error:
        yield Finding("model", Status.PROBLEM, str(error))
        return
    try:
        schema, ignore = read_schema(run.table_schema)
        source = data or run.data
        table = read_table(source, schema, ignore=ignore, needs_label=False, duplicates=run.align.duplicates)
        own_columns(table, schema)
    except EXPECTED_ERRORS as error:
        yield Finding("data", Status.PROBLEM, str(error))
        return
    yield Finding("data", Status.OK, f"{source}: {table.n_rows} records")
    target = folder.path / "predictions.csv"
    if target.exists():
        yield Finding("predictions", Status.WARNING, f"{target} exists; give another file with --out")


def _passive(run: PassiveRun, data: Path | None, *, serves: bool) -> Iterator[Finding]:
    """Whether there is a share of a model, records to answer for, and an account and limits that allow it."""
    folder = RunFolder(run.run_folder)
    try:
        router = folder.load_router()
        if serves:
            with folder.locked():
                pass
    except EXPECTED_ERRORS as error:
        yield Finding("model", Status.PROBLEM, str(error))
        return
    n_columns = len(set(source for source, _ in router.tests.sources))
    yield Finding("model", Status.OK, f"{router.tests.n_tests} split tests on {n_columns} columns in {folder.path}")
    try:
        schema, ignore = read_schema(run.table_schema)
        run.ledger.budget.budget(schema)
        source = data or run.data
        table = read_table(source, schema, ignore=ignore, needs_label=False, duplicates=run.align.duplicates)
        records = AnswerableRecords.of(router, table.index, table.frame)
    except EXPECTED_ERRORS as error:
        yield Finding("data", Status.PROBLEM, str(error))
        return
    yield Finding("data", Status.OK, f"{source}: {table.n_rows} records")
    yield from _account(run, records)
    yield from _limits(run, router)


def _account(run: PassiveRun, records: AnswerableRecords) -> Iterator[Finding]:
    """Whether ledger and store can be trusted, and whether all records could be drawn for mode ``desensitized``."""
    budget = run.ledger.budget.budget(read_schema(run.table_schema)[0])
    try:
        with Ledger(run.ledger.path) as ledger:
            ledger.cells.verify()
            yield Finding("ledger", Status.OK, f"{ledger.n_lines} lines, verified")
            releases = planned([m for m, _ in records.columns], id_keys(records.ids), is_secure=bits(run).is_secure)
            ledger.balances.check([one.cost for one in releases], budget)
            yield Finding("budget", Status.OK, "all records may be drawn for mode `desensitized`")
    except OverBudget as error:
        yield Finding("budget", Status.WARNING, f"mode `desensitized`, if all records are to be drawn: {error}")
    except EXPECTED_ERRORS as error:
        yield Finding("ledger", Status.PROBLEM, str(error))


def _limits(run: PassiveRun, router: Router) -> Iterator[Finding]:
    """What may be asked for, in words; and whether the file that counts it can be used."""
    limits = run.serve.limits()
    if not run.allow_routed:
        yield Finding("limits", Status.OK, "`allow_routed: false`: no exact bit leaves")
    elif limits.routed_bits_per_day is None:
        yield Finding("limits", Status.WARNING, "`serve.routed_bits_per_day` is not set: all records may be asked for")
    elif router.tests.n_tests > limits.routed_bits_per_day:
        sentence = f"{limits.routed_bits_per_day} routed bits per day are fewer than the {router.tests.n_tests} tests"
        yield Finding("limits", Status.PROBLEM, f"{sentence} of the model: no record can be answered")
        return
    if not limits.is_needed:
        return
    try:
        with Allowance(allowance_path(run.ledger.path), limits, run.active.name) as allowance:
            behind_s = allowance.seconds_behind()
    except EXPECTED_ERRORS as error:
        yield Finding("limits", Status.PROBLEM, str(error))
        return
    if behind_s:
        yield Finding("limits", Status.WARNING, f"the clock is {behind_s} s behind the last request")
    else:
        yield Finding("limits", Status.OK, ", ".join(f"{name} {value}" for name, value in _set(run).items()))


def _set(run: PassiveRun) -> dict[str, int]:
    """The limits that are set."""
    found = run.serve.model_dump(include={"batch_rows", "records_per_minute", "routed_bits_per_day"})
    return {name: value for name, value in found.items() if value is not None}
