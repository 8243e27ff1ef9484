"""`opboost doctor`: what can be checked before a run, as findings. Nothing is drawn, charged or released."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from parties.config.reading import read_any_run, read_role, read_schema
from parties.config.vertical import HORIZONTAL_ROLES, ActiveRun, PassiveRun
from parties.doctor.check_result import Finding, Status, is_sound
from parties.doctor.peer import ask_active, ask_passive
from parties.doctor.run_files import examine_folder, examine_keys, examine_protection
from parties.doctor.table import TableUse, examine_table
from parties.errors import EXPECTED_ERRORS, OverBudget
from parties.ledger.budget import Balances, Budget
from parties.ledger.ledger_lines import Release
from parties.ledger.pricing import planned
from parties.ledger.release_ledger import Ledger
from parties.runs.run_folder import RunFolder
from parties.vertical.party_b import PassiveJob
from parties.vertical.preparation import PreparedPassive, bits, prepare_active, prepare_passive
from parties.vertical.release_accounts import account_of
from parties.vertical.training_job import ActiveJob
from protocols.messages.vertical import Task

if TYPE_CHECKING:
    from parties.cluster.partitions import Partitions
    from parties.cluster.passive_preparation import PartitionedPassive


def examine(path: Path, *, insecure: bool = False, wait_s: float = 5.0) -> list[Finding]:
    """Check a run file of any role and all that it names; then the peers, for at most `wait_s` seconds."""
    try:
        if read_role(path) in HORIZONTAL_ROLES:
            # Loaded here: the doctor of vertical training does without the recipes of horizontal training.
            from parties.doctor.horizontal import examine_rows

            return examine_rows(path, insecure=insecure, wait_s=wait_s)
        run = read_any_run(path)
        findings = [Finding("run file", Status.OK, f"run {run.run_id!r} of {run.party}, the {run.role} party")]
    except EXPECTED_ERRORS as error:
        return [Finding("run file", Status.PROBLEM, str(error))]
    findings += examine_protection(run)
    peers = run.passive if isinstance(run, ActiveRun) else (run.active,)
    address = run.listen if isinstance(run, ActiveRun) else run.connect
    keys_fit, keys = examine_keys(run, peers, [address], insecure, findings)
    findings += examine_folder(run, path)
    job = _prepare(run, path, findings)
    if job is None or not keys_fit:
        findings.append(Finding("peer", Status.SKIPPED, "not asked: what is wrong here comes first"))
    elif isinstance(run, ActiveRun):
        assert isinstance(job, ActiveJob)
        hellos = {peer.name: job.hello(peer.name, task=Task.CHECK) for peer in run.passive}
        findings += ask_passive(run, hellos, keys, wait_s=wait_s, passwords=job.passwords(hellos))
    else:
        assert isinstance(job, PassiveJob)
        findings += ask_active(run, job.hello(Task.CHECK), keys, wait_s=wait_s, password=job.password)
    return findings


def _prepare(run: ActiveRun | PassiveRun, path: Path, findings: list[Finding]) -> ActiveJob | PassiveJob | None:
    """Check schema, data, settings and account; returns the job if it could be started."""
    try:
        schema, ignore = read_schema(run.table_schema)
    except EXPECTED_ERRORS as error:
        findings.append(Finding("schema", Status.PROBLEM, str(error)))
        return None
    # A folder of partitions is looked through on the cluster.
    is_on_cluster = run.data.is_dir() and run.engine == "dask"
    of_table = [] if is_on_cluster else list(examine_table(TableUse.of(run), schema, ignore))
    findings += of_table
    if not is_sound(of_table):
        return None
    try:
        if run.engine == "dask":
            return _prepare_partitions(run, path, findings)
        if isinstance(run, ActiveRun):
            return prepare_active(run, path).job()
        prepared = prepare_passive(run, path)
    except EXPECTED_ERRORS as error:
        findings.append(Finding("settings", Status.PROBLEM, str(error)))
        return None
    findings += _account(run, prepared)
    return prepared.job()


def _prepare_partitions(run: ActiveRun | PassiveRun, path: Path, findings: list[Finding]) -> ActiveJob | PassiveJob:
    """The same on the run's cluster, which is left as it was."""
    from parties.cluster.active_preparation import partitioned_active
    from parties.cluster.passive_preparation import partitioned_passive

    def tell(found: Partitions, n_workers: int) -> None:
        words = f"{found.n_rows} records in {len(found.paths)} partitions, seen by {n_workers} workers"
        findings.append(Finding("partitions", Status.OK, words))

    if isinstance(run, ActiveRun):
        with partitioned_active(run, path) as active:
            tell(active.found, active.n_workers)
            return active.job()
    with partitioned_passive(run, path) as passive:
        tell(passive.found, passive.n_workers)
        findings += _account(run, passive)
        return passive.job()


def _account(run: PassiveRun, prepared: PreparedPassive | PartitionedPassive) -> Iterator[Finding]:
    """Whether the ledger can be trusted, and whether the budget allows the release."""
    try:
        if run.seed is not None:
            yield Finding("ledger", Status.WARNING, "noise from a `seed` is charged as if there were none")
        table, budget = prepared.named(), run.ledger.budget.budget(prepared.schema)
        releases = planned(prepared.mechanisms, table.keys(), is_secure=bits(run).is_secure)
        if not run.ledger.path.exists() and not run.ledger.path.with_suffix(".head.json").exists():
            Balances().check([release.cost for release in releases], budget)
            yield Finding("ledger", Status.OK, f"{run.ledger.path} will be begun; {len(releases)} columns to draw")
            return
        with account_of(run, prepared.schema, Task.TRAIN) as account:
            ledger = account.ledger
            ledger.cells.verify()
            if isinstance(prepared, PreparedPassive) and prepared.aligner.is_needed:
                yield from _before_alignment(ledger, releases, budget)
                return
            cells = account.look_up(prepared.mechanisms, table.blocks)
            absent = [one.release for one in cells if one.n_new]
            if absent and RunFolder(run.run_folder).has_released:
                yield Finding(
                    "ledger", Status.PROBLEM, "this run has released before, but not what it would release now"
                )
            ledger.balances.check([release.cost for release in absent], budget)
            n_stored = len(cells) - len(absent)
            sentence = f"{ledger.n_lines} lines, verified; {len(absent)} columns to draw, {n_stored} stored already"
            yield Finding("ledger", Status.OK, sentence)
    except OverBudget as error:
        yield Finding("budget", Status.PROBLEM, str(error))
    except EXPECTED_ERRORS as error:
        yield Finding("ledger", Status.PROBLEM, str(error))


def _before_alignment(ledger: Ledger, releases: Sequence[Release], budget: Budget) -> Iterator[Finding]:
    """What is stored for the common records shows only when they are found."""
    verified = f"{ledger.n_lines} lines, verified; {len(releases)} columns to draw unless they are stored already for "
    yield Finding("ledger", Status.OK, f"{verified}the records that turn out to be common")
    try:
        ledger.balances.check([release.cost for release in releases], budget)
    except OverBudget as error:
        yield Finding("budget", Status.WARNING, f"if they are to be drawn: {error}")
