"""`opboost doctor --for predict` and `--for serve`: checks before prediction."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

from opboost.routing import Router
from opboost.schema import TableSchema
from parties.config.reading import check_schema_of_model, check_units_of_times, read_any_run, read_run, read_schema
from parties.config.vertical import ActiveRun, PassiveRun
from parties.doctor.check_result import Checklist, Finding, Status
from parties.doctor.peer import ask_active, ask_passive
from parties.doctor.run_files import AskPeers, check_and_ask
from parties.doctor.table import other_status
from parties.errors import OverBudget
from parties.ledger.budget import Budget
from parties.ledger.ledger_lines import Occasion
from parties.ledger.pricing import planned
from parties.ledger.release_ledger import Ledger
from parties.runs.run_folder import RunFolder
from parties.tables.blocks import record_set
from parties.tables.column_variety import other_words, read_as_other
from parties.tables.keyed_table import read_keyed
from parties.tables.misfits import showing_misfits
from parties.tables.party_table import PartyTable, own_columns
from parties.vertical.prediction_client import asking_hello
from parties.vertical.prediction_server import AnswerableRecords, prediction_hello
from parties.vertical.rate_limits import allowance_path, counts_state
from parties.vertical.release_accounts import check_training_release
from protocols.messages.vertical import Hello, Task


def examine_prediction(
    path: Path, *, data: Path | None = None, serves: bool = False, insecure: bool = False, wait_s: float = 5.0
) -> list[Finding]:
    """Check what a prediction needs, for either role; then the peers, for at most `wait_s` seconds.

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
    checks = Checklist()
    with checks.checking("run file"):
        run = read_run(path, PassiveRun) if serves else read_any_run(path)
        checks.add("run file", Status.OK, f"run {run.run_id!r} of {run.party}, the {run.role} party")

        def job() -> AskPeers | None:
            if isinstance(run, ActiveRun):
                return _check_active(run, data, checks, wait_s=wait_s)
            return _check_passive(run, data, checks, serves=serves, wait_s=wait_s)

        check_and_ask(run, job, checks, insecure=insecure)
    return checks.findings


def _looking(hello: Hello) -> Hello:
    return hello.model_copy(update={"task": Task.CHECK, "looks_for": Task.PREDICT})


def _check_active(run: ActiveRun, data: Path | None, checks: Checklist, *, wait_s: float) -> AskPeers | None:
    """Check the model, its peers and the records to score."""
    folder = RunFolder(run.run_folder)
    with checks.checking("model"):
        model = folder.load_joint_model()
        model.check_asked(peer.name for peer in run.passive)
        checks.add("model", Status.OK, f"{model.ensemble.n_rounds} rounds in {folder.path}")
        run.reveal.check(model.ensemble.loss)
        with checks.checking("data"):
            table, schema = _read_records(run, data, checks)
            check_schema_of_model(schema, folder.path, model.ensemble)
            with showing_misfits(data or run.data, schema):
                own_columns(table, schema)
            target = folder.path / "predictions.csv"
            if target.exists():
                checks.add("predictions", Status.WARNING, f"{target} exists; give another file with --out")
    if not checks.is_sound:
        return None
    hellos = {
        peer.name: _looking(asking_hello(run.party, run.run_id, run.reveal.words(), model.trainings.get(peer.name)))
        for peer in run.passive
    }
    return lambda keys: ask_passive(run, hellos, keys, checks, wait_s=wait_s)


def _check_passive(
    run: PassiveRun, data: Path | None, checks: Checklist, *, serves: bool, wait_s: float
) -> AskPeers | None:
    """Check the share of a model, the records to answer for, ledger and limits."""
    folder = RunFolder(run.run_folder)
    with checks.checking("model"):
        router, training = folder.load_router(), folder.load_trainings().get(run.active.name)
        with folder.locked() if serves else nullcontext():
            n_columns = len(router.tests.columns)
        asked = "cells" if router.tests.by_cells else "split tests"
        checks.add("model", Status.OK, f"{router.tests.n_tests} {asked} on {n_columns} columns in {folder.path}")
        with checks.checking("data"):
            table, schema = _read_records(run, data, checks)
            check_units_of_times(schema, folder.path, schema.names)
            budget = run.ledger.budget.budget(schema)
            _check_ledger(run, budget, AnswerableRecords.of(router, table.index, table.frame), checks)
            _check_limits(run, router, checks)
    if not checks.is_sound:
        return None
    hello = prediction_hello(run.party, run.run_id, training=training, reveal=run.serve.reveal.words())
    return lambda keys: ask_active(run, _looking(hello), keys, checks, wait_s=wait_s)


def _read_records(run: ActiveRun | PassiveRun, data: Path | None, checks: Checklist) -> tuple[PartyTable, TableSchema]:
    schema, ignore = read_schema(run.table_schema)
    source, align = data or run.data, run.align
    with showing_misfits(source, schema):
        table = read_keyed(source, schema, align.keys, ignore=ignore, duplicates=align.duplicates)
    checks.add("data", Status.OK, f"{source}: {table.n_rows} records")
    for name, n in read_as_other(table.features, schema).items():
        checks.add(f"column {name}", other_status(n, table.n_rows), other_words(n, table.n_rows))
    return table, schema


def _check_ledger(run: PassiveRun, budget: Budget, records: AnswerableRecords, checks: Checklist) -> None:
    """Check ledger and store, and whether the budget allows all records in mode ``desensitized``."""
    mechanisms = [mechanism for mechanism, _ in records.columns]
    with checks.checking("ledger"), Ledger(run.ledger.path, create=False) as ledger:
        ledger.verify()
        check_training_release(ledger, Occasion(run_id=run.run_id, task=Task.PREDICT.value, peer=run.active.name))
        checks.add("ledger", Status.OK, f"{ledger.n_lines} lines, verified")
        costs = [entry.cost for entry in planned(mechanisms, record_set(records.ids), is_secure=run.bits.is_secure)]
        try:
            ledger.sums.balances.check(costs, budget)
            checks.add("budget", Status.OK, "all records may be drawn for mode `desensitized`")
        except OverBudget as error:
            sentence = f"mode `desensitized`, if all records are to be drawn: {error}"
            checks.add("budget", Status.WARNING, sentence)


def _check_limits(run: PassiveRun, router: Router, checks: Checklist) -> None:
    """Check the limits of answers, and the file that counts them."""
    limits, n_bits = run.serve, router.tests.n_bits
    if not run.allow_routed:
        checks.add("limits", Status.OK, "`allow_routed: false`: no exact bit leaves")
    elif limits.routed_bits_per_day is None:
        unset = "`serve.routed_bits_per_day` is not set: all records may be asked for"
        checks.add("limits", Status.WARNING, unset)
    elif n_bits > limits.routed_bits_per_day:
        sentence = f"{limits.routed_bits_per_day} routed bits per day are fewer than the {n_bits} of a record"
        checks.add("limits", Status.PROBLEM, f"{sentence}: no record can be answered")
        return
    check_counts(run, checks)


def check_counts(run: PassiveRun, checks: Checklist) -> None:
    """Check the file that counts answers, if they are limited; nothing is written."""
    limits, ledger = run.serve, run.ledger.path
    if not limits.has_limits:
        return
    with checks.checking("limits"):
        is_lost, behind_s = counts_state(ledger, run.active.name)
        if is_lost:
            lost = f"{allowance_path(ledger)} is not the file that the ledger knows, or is not there"
            checks.add("limits", Status.WARNING, f"{lost}: the limits of the day and the minute count as spent")
        if behind_s:
            checks.add("limits", Status.WARNING, f"the clock is {behind_s} s behind the last request")
        if not (is_lost or behind_s or not ledger.exists()):
            of_run = limits.model_dump(exclude={"reveal"}, exclude_none=True)
            checks.add("limits", Status.OK, ", ".join(f"{name} {value}" for name, value in of_run.items()))
