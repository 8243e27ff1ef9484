"""`opboost doctor` before training: checks without a draw, a charge or a release."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np

from opboost.desensitize import ColumnMechanism
from opboost.map_analysis import MAX_TABLE_DOMAIN
from opboost.order_metrics import bayes_attack
from opboost.privacy.local import RandomisedResponse
from opboost.table_format import TableFormat
from parties.cluster.prepared_inputs import ActiveInputs, PassiveInputs, prepared_active, prepared_passive
from parties.config.party_run import HORIZONTAL_ROLES
from parties.config.reading import read_any_run, read_role, read_schema
from parties.config.vertical import ActiveRun, PassiveRun
from parties.doctor.check_result import Checklist, Finding, Status
from parties.doctor.peer import ask_active, ask_passive
from parties.doctor.prediction import check_counts
from parties.doctor.run_files import AskPeers, check_and_ask, check_folder, check_protection
from parties.doctor.table import TableUse, check_table
from parties.errors import OverBudget
from parties.ledger.budget import Budget, SpentBudgets
from parties.ledger.chain_head import is_chain_begun
from parties.ledger.ledger_lines import ChargedColumn
from parties.ledger.pricing import planned
from parties.ledger.release_ledger import Ledger
from parties.reports.sentences import column_warnings, earlier_warning, run_warnings
from parties.runs.run_folder import RunFolder
from parties.storage.paths import is_folder
from parties.storage.sqlite import check_place
from parties.tables.blocks import EncodedTable
from parties.vertical.agreed_grid import coarse_grids, other_grids
from parties.vertical.release_accounts import account_of, released_otherwise
from parties.vertical.release_job import PassiveJob
from parties.vertical.training_job import ActiveJob
from protocols.messages.vertical import Task


def examine(path: Path, *, insecure: bool = False, wait_s: float = 5.0) -> list[Finding]:
    """Check a run file of any role and all that it names; then the peers, for at most `wait_s` seconds."""
    checks = Checklist()
    with checks.checking("run file"):
        if read_role(path) in HORIZONTAL_ROLES:
            # Loaded here: the doctor of vertical training does without the recipes of horizontal training.
            from parties.doctor.horizontal import examine_rows

            return examine_rows(path, insecure=insecure, wait_s=wait_s)
        run = read_any_run(path)
        checks.add("run file", Status.OK, f"run {run.run_id!r} of {run.party}, the {run.role} party")
        check_protection(run, checks)
        check_and_ask(run, lambda: _check_job(run, path, checks, wait_s=wait_s), checks, insecure=insecure)
    return checks.findings


def _check_job(run: ActiveRun | PassiveRun, path: Path, checks: Checklist, *, wait_s: float) -> AskPeers | None:
    """Check run folder, schema, data, settings and ledger.

    Returns
    -------
    ask : callable or None
        The question to the peers of a job that could be started.
    """
    check_folder(run, path, checks)
    with checks.checking("schema"):
        schema, ignore = read_schema(run.table_schema)
        is_there = False
        with checks.checking("data"):
            # A folder of partitions is validated on the cluster.
            is_on_cluster = is_folder(run.data) and run.engine == "dask"
            is_there = is_on_cluster or check_table(TableUse.of(run), schema, ignore, checks)
        if not is_there:
            return None
        with checks.checking("settings"):
            _check_answers(run, checks)
            if isinstance(run, ActiveRun):
                active = _active_job(run, path, checks)
                hellos = {peer.name: active.hello(peer.name, task=Task.CHECK) for peer in run.passive}
                passwords = active.passwords(hellos)
                return lambda keys: ask_passive(run, hellos, keys, checks, wait_s=wait_s, passwords=passwords)
            passive = _passive_job(run, path, checks)
            hello, password = passive.hello(Task.CHECK), passive.password
            return lambda keys: ask_active(run, hello, keys, checks, wait_s=wait_s, password=password)
    return None


def _check_answers(run: ActiveRun | PassiveRun, checks: Checklist) -> None:
    """Warn where a run file leaves open how records are answered: by split tests, which tell more than cells."""
    if "answers" not in run.model_fields_set:
        sentence = (
            "`answers` is not set: passive parties learn which thresholds trees use, which depends on labels, and the "
            "active party an exact bit per test of a scored record; with `answers: cells` on all sides they learn "
            "nothing of labels but who has one, and it learns one cell per column"
        )
        checks.add("answers", Status.WARNING, sentence)
    for check, sentence in run_warnings(run) if isinstance(run, PassiveRun) else ():
        checks.add(check, Status.WARNING, sentence)


def _check_columns(
    mechanisms: Sequence[ColumnMechanism], form: TableFormat, table: EncodedTable | None, checks: Checklist
) -> None:
    """Warn of columns that are protected little; of guesses at their values only where the table is at hand."""
    for c, mechanism in enumerate(mechanisms):
        value, attack = mechanism.value, None
        n, lo = (value.n_categories, 0) if isinstance(value, RandomisedResponse) else (value.domain.size, 1)
        if table is not None and n <= MAX_TABLE_DOMAIN:
            codes = np.concatenate([block[f"{c}.exact"] for block in table.blocks])
            counts = np.bincount(codes[codes >= 0].astype(np.int64) - lo, minlength=n)
            attack = bayes_attack(value.log_probabilities(), counts) if counts.any() else None
        for sentence in column_warnings(mechanism, attack, form.of(mechanism.schema.name).unit_s):
            checks.add(f"privacy of {mechanism.schema.name}", Status.WARNING, sentence)


def _active_job(run: ActiveRun, path: Path, checks: Checklist) -> ActiveJob:
    with prepared_active(run, path) as prepared:
        _note_partitions(prepared, checks)
        return prepared.job()


def _passive_job(run: PassiveRun, path: Path, checks: Checklist) -> PassiveJob:
    with prepared_passive(run, path) as prepared:
        _note_partitions(prepared, checks)
        table = prepared.named()
        known = table if prepared.partition_words is None else None
        _check_columns(prepared.mechanisms, prepared.schema.format, known, checks)
        _check_ledger(run, prepared, table, checks)
        if checks.is_sound:
            check_counts(run, checks)
        return prepared.job()


def _note_partitions(prepared: ActiveInputs | PassiveInputs, checks: Checklist) -> None:
    if prepared.partition_words is not None:
        checks.add("partitions", Status.OK, prepared.partition_words)


def _check_ledger(run: PassiveRun, prepared: PassiveInputs, table: EncodedTable, checks: Checklist) -> None:
    """Check the ledger, and whether the budget allows the release."""
    note = partial(checks.add, "ledger")
    with checks.checking("ledger"):
        try:
            budget = run.ledger.budget.budget(prepared.schema)
            releases = planned(prepared.mechanisms, table.keys(), is_secure=run.bits.is_secure)
            if run.seed is not None:
                note(Status.WARNING, "noise from a `seed` is charged as if there were none")
            if not is_chain_begun(run.ledger.path):
                check_place(run.ledger.path)
                SpentBudgets().check([release.cost for release in releases], budget)
                note(Status.OK, f"{run.ledger.path} will be begun; {len(releases)} columns to draw")
                return
            with account_of(run, prepared.schema, Task.TRAIN) as account:
                ledger = account.ledger
                ledger.verify()
                if names := released_otherwise(ledger, prepared.mechanisms, is_secure=run.bits.is_secure):
                    note(Status.WARNING, earlier_warning(names))
                _check_grids(run, prepared, ledger, checks)
                if prepared.job().id_digest is None:
                    _check_before_alignment(ledger, releases, budget, checks)
                    return
                cells = account.look_up(prepared.mechanisms, table.blocks)
                absent = [column.release for column in cells if column.n_new]
                if absent and RunFolder(run.run_folder).has_released:
                    note(Status.PROBLEM, "this run has released before, but not what it would release now")
                ledger.sums.balances.check([release.cost for release in absent], budget)
                n_stored = len(releases) - len(absent)
                sentence = f"{ledger.n_lines} lines, verified; {len(absent)} columns to draw, {n_stored} stored already"
                note(Status.OK, sentence)
        except OverBudget as error:
            checks.add("budget", Status.PROBLEM, str(error))


def _check_grids(run: PassiveRun, prepared: PassiveInputs, ledger: Ledger, checks: Checklist) -> None:
    """Warn of kept grids that were made of a release of few records, and of several on a column."""
    if run.answers == "cells":
        coarse = coarse_grids(ledger, prepared.mechanisms, n_cells=run.cells, is_secure=run.bits.is_secure)
        for name in coarse:
            sentence = (
                f"an earlier release left column {name!r} at most half of {run.cells} cells, which is kept; "
                "another number of `cells` begins another grid, which adds to what the active party knows"
            )
            checks.add("grid", Status.WARNING, sentence)
        others = other_grids(ledger, prepared.mechanisms, n_cells=run.cells, is_secure=run.bits.is_secure)
        if others:
            sentence = (
                f"earlier runs answered about {', '.join(others)} by other cells (of another number, or of other "
                "points or bounds) or by split tests: with those of this run they tell more of a record than its cells"
            )
            checks.add("grid", Status.WARNING, sentence)


def _check_before_alignment(
    ledger: Ledger, releases: Sequence[ChargedColumn], budget: Budget, checks: Checklist
) -> None:
    """Check that all columns could be drawn: what is stored for the common records shows only after alignment."""
    verified = f"{ledger.n_lines} lines, verified; {len(releases)} columns to draw unless they are stored already for "
    checks.add("ledger", Status.OK, f"{verified}the records that turn out to be common")
    try:
        ledger.sums.balances.check([release.cost for release in releases], budget)
    except OverBudget as error:
        checks.add("budget", Status.WARNING, f"if they are to be drawn: {error}")
