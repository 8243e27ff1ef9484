"""`opboost doctor` for horizontal training: checks of a coordinator's, a worker's or a chain owner's run.

Terms are compared with the others that are there (`parties.doctor.horizontal_peer`). A digest of this party's is shown,
which is the same at everybody who agrees, for those that are not.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from pydantic import JsonValue

from opboost.privacy.guarantee import rounded_up
from opboost.schema import TableSchema
from parties.cluster.worker_rows import table_of
from parties.config.chain import OwnerRun
from parties.config.horizontal import CoordinatorRun, WorkerRun
from parties.config.reading import read_schema
from parties.config.record_runs import RecordRecipe, charge_of, read_record_run, recipe_of, terms_of
from parties.doctor.check_result import Checklist, Finding, Status
from parties.doctor.horizontal_peer import compare_terms
from parties.doctor.run_files import check_folder, check_keys, check_protection
from parties.doctor.table import TableUse, check_table, other_status
from parties.errors import OverBudget
from parties.horizontal.partition_files import check_ids, part_files
from parties.horizontal.row_table import OwnerRows
from parties.ledger.chain_head import is_chain_begun
from parties.ledger.model_ledger import check_charge, ledger_position, worker_ledger
from parties.reports.account_statement import budget_left
from parties.reports.horizontal_plan_facts import n_model_trees
from parties.reports.horizontal_words import unknown_workers
from parties.runs.run_folder import RunFolder
from parties.session.lasting_keys import lasting_keys
from parties.storage.sqlite import check_place
from parties.tables.column_variety import other_words


def examine_rows(path: Path, *, insecure: bool = False, wait_s: float = 5.0) -> list[Finding]:
    """Check a run file and all that it names; then whether the other sides' ports can be reached.

    Raises
    ------
    ConfigError
        If the run file itself cannot be used.
    """
    run, checks = read_record_run(path), Checklist()
    role = "an owner in a chain" if isinstance(run, OwnerRun) else f"a {run.role}"
    checks.add("run file", Status.OK, f"run {run.run_id!r} of {run.party}, {role}")
    check_protection(run, checks)
    are_usable, keys = check_keys(run, checks, insecure=insecure)
    check_folder(run, path, checks)
    with checks.checking("settings"):
        schema, ignore = read_schema(run.table_schema)
        recipe = recipe_of(run, schema, path)
        promise = recipe.guarantee(is_secure=run.seed is None)
        checks.add("settings", Status.OK, str(promise))
        if not isinstance(run, OwnerRun) and (warning := unknown_workers(run, promise)):
            checks.add("workers", Status.WARNING, warning)
        if run.seed is not None:
            checks.add("seed", Status.WARNING, "noise from a `seed` can be drawn again: not for release")
        if not isinstance(run, CoordinatorRun):
            _check_rows(run, schema, ignore, checks)
            _check_ledger(run, recipe, checks)
        if are_usable:
            terms = terms_of(run, schema, recipe=recipe, lasting_keys=lasting_keys(run)[1])
            compare_terms(run, terms, keys, checks, wait_s=wait_s)
            _note_terms(terms, n_model_trees(run, recipe), checks)
        else:
            checks.add("peer", Status.SKIPPED, "not asked: what is wrong here comes first")
    return checks.findings


def _check_rows(run: WorkerRun | OwnerRun, schema: TableSchema, ignore: tuple[str, ...], checks: Checklist) -> None:
    """Check the data against the schema and the task."""
    with checks.checking("data"):
        table = table_of(run)
        if table is None:
            _check_partitions(run, schema, ignore, checks)
            return
        outside = "they count in the outermost cells"
        use = TableUse(path=table, needs_label=True, is_released=False, outside=outside, needs_variety=False)
        if not check_table(use, schema, ignore, checks):
            return
        with checks.checking("label"):
            labels = OwnerRows.read(run, schema, ignore).labels
            bounds = run.training.label_bounds or (-math.inf, math.inf)
            if n_outside := int(((labels < bounds[0]) | (labels > bounds[1])).sum()):
                sentence = f"{n_outside} labels lie outside the public `label_bounds`; they would be moved to them"
                checks.add("label", Status.WARNING, sentence)


def _check_partitions(
    run: WorkerRun | OwnerRun, schema: TableSchema, ignore: tuple[str, ...], checks: Checklist
) -> None:
    """Check every partition, one after the other."""
    files = part_files(run.data, schema, ignore, n_classes=run.training.n_classes)
    n_other: Counter[str] = Counter()
    for file in files:
        n_other.update(file.read().n_other)
    check_ids([file.names() for file in files])
    n_rows = sum(file.n_rows for file in files)
    checks.add("data", Status.OK, f"{n_rows} rows in {len(files)} partitions, each record in one of them")
    for name, n in n_other.items():
        checks.add(f"column {name}", other_status(n, n_rows), other_words(n, n_rows))


def _check_ledger(run: WorkerRun | OwnerRun, recipe: RecordRecipe, checks: Checklist) -> None:
    """Check that the budget allows the run; the ledger is not created."""
    charge, budget, path = charge_of(run, recipe), run.ledger.budget, run.ledger.path
    with checks.checking("ledger"):
        try:
            if is_begun := is_chain_begun(path):
                with worker_ledger(path, budget) as ledger:
                    # Whoever has the model has answered, and charged that, or has nothing more to charge.
                    if not (folder := RunFolder(run.run_folder)).has_model or run.role != "worker":
                        check_charge(ledger, charge, folder)
            else:
                check_place(path)
                budget.check(path, (0.0, 0.0), (charge.epsilon, charge.delta))
        except OverBudget as error:
            checks.add("budget", Status.PROBLEM, str(error))
            return
        position = ledger_position(path, budget, charge)
        left = budget_left(*position.remaining)
        room = f"{left} of the budget is left after it" if left else "no limit"
        position_in_words = "was charged before" if position.is_charged else f"costs {_amounts(*position.cost)}"
        if charge.continues and not position.is_charged and position.cost != (charge.epsilon, charge.delta):
            position_in_words += (
                f" more than run {charge.continues!r}, from which it goes on: records that have arrived since spend up "
                f"to {_amounts(charge.epsilon, charge.delta)} each, which the ledger counts once for both runs"
            )
        begun = f"{position.n_runs} runs so far" if is_begun else "will be begun"
        checks.add("ledger", Status.OK, f"{path}: {begun}; this run {position_in_words}, {room}")
        if not left:
            sentence = "`ledger` has no limit: nothing limits what all runs together spend of a record's privacy"
            checks.add("budget", Status.WARNING, sentence)


def _amounts(epsilon: float, delta: float) -> str:
    return f"epsilon {rounded_up(epsilon)} and delta {rounded_up(delta)}"


def _note_terms(terms: Mapping[str, JsonValue], n_trees: int, checks: Checklist) -> None:
    """Show a digest of the terms: people may compare it before the run, and the run itself compares the terms."""
    digest = hashlib.sha256(json.dumps(terms, sort_keys=True).encode()).hexdigest()[:16]
    checks.add(
        "terms",
        Status.SKIPPED,
        f"all agree on `training` ({n_trees} trees), columns, words of labels and public keys of workers, if any, "
        f"whose doctor shows {digest}. The run itself compares the terms of all before anything is asked, and names "
        "every difference",
    )
