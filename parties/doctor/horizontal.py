"""The doctor for horizontal training: a coordinator's, a worker's or a chain owner's run file, and what it names.

The protocols of these roles have no greeting that only looks, and whoever joins a run that waits is in it. So the other
side's terms are not asked for: a digest of this side's is shown, which is the same at everybody who agrees.
"""

from __future__ import annotations

import hashlib
import json
import socket
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

from opboost.horizontal.inprivate.owners import InPrivateAmongOwners
from opboost.schema import TableSchema
from parties.cluster.worker_rows import table_of
from parties.config.chain import OwnerRun
from parties.config.horizontal import CoordinatorRun, WorkerRun
from parties.config.reading import read_schema
from parties.config.record_runs import RecordRecipe, RecordRun, charge_of, read_record_run, recipe_of
from parties.doctor.check_result import Finding, Status, is_sound
from parties.doctor.run_files import NamedKey, examine_folder, examine_keys, examine_protection
from parties.doctor.table import TableUse, examine_table
from parties.errors import EXPECTED_ERRORS, OverBudget
from parties.horizontal.row_partitions import check_ids, part_files
from parties.horizontal.row_table import OwnerRows
from parties.ledger.model_ledger import check_charge, ledger_position, worker_ledger
from parties.reports.horizontal_words import unknown_workers
from parties.runs.run_folder import RunFolder
from parties.session.connections import peer_key
from protocols.errors import ProtocolError
from protocols.transport.channel import Timing
from protocols.transport.keys import KeyPair
from protocols.transport.zmq_listener import Listener


def examine_rows(path: Path, *, insecure: bool = False, wait_s: float = 5.0) -> list[Finding]:
    """Check a run file and all that it names; then whether the other sides' ports can be reached.

    Raises
    ------
    ConfigError
        If the run file itself cannot be used.
    """
    run = read_record_run(path)
    findings = [Finding("run file", Status.OK, f"run {run.run_id!r} of {run.party}, {_roles(run)}")]
    findings += examine_protection(run)
    peers, calls, listens = _lines(run)
    keys_fit, keys = examine_keys(run, peers, [*calls.values(), *listens], insecure, findings)
    findings += examine_folder(run, path)
    try:
        schema, ignore = read_schema(run.table_schema)
        recipe = recipe_of(run, schema, path)
    except EXPECTED_ERRORS as error:
        return [*findings, Finding("settings", Status.PROBLEM, str(error))]
    promise = recipe.guarantee(is_secure=run.seed is None)
    findings.append(Finding("settings", Status.OK, str(promise)))
    if not isinstance(run, OwnerRun) and (warning := unknown_workers(run, promise)):
        findings.append(Finding("workers", Status.WARNING, warning))
    if run.seed is not None:
        findings.append(Finding("seed", Status.WARNING, "noise from a `seed` can be drawn again: not for release"))
    if not isinstance(run, CoordinatorRun):
        findings += _rows(run, schema, ignore)
        findings += _ledger(run, recipe)
    if keys_fit:
        findings += _ports(run, peers, calls, listens, keys, wait_s)
    findings.append(_terms(run, schema, recipe))
    return findings


def _roles(run: RecordRun) -> str:
    return "an owner in a chain" if isinstance(run, OwnerRun) else f"a {run.role}"


def _lines(run: RecordRun) -> tuple[list[NamedKey], dict[str, str], list[str]]:
    """Whose keys are needed, whom this party connects to and where, and where it listens."""
    match run:
        case CoordinatorRun():
            return list(run.workers), {}, [run.listen]
        case WorkerRun():
            return [run.coordinator, *run.peers], {run.coordinator.name: run.connect}, []
        case OwnerRun():
            calls = {owner.name: owner.connect for owner in run.owners if owner.connect is not None}
            return list(run.owners), calls, [] if run.listen is None else [run.listen]


def _rows(run: WorkerRun | OwnerRun, schema: TableSchema, ignore: tuple[str, ...]) -> Iterator[Finding]:
    """The data against the schema and the task."""
    try:
        table = table_of(run)
    except EXPECTED_ERRORS as error:
        yield Finding("data", Status.PROBLEM, str(error))
        return
    if table is None:
        yield from _partitions(run)
        return
    outside = "they count in the outermost cells"
    use = TableUse(path=table, needs_label=True, is_released=False, outside=outside, needs_variety=False)
    of_table = list(examine_table(use, schema, ignore))
    yield from of_table
    if not is_sound(of_table):
        return
    try:
        rows = OwnerRows.read(run)
    except EXPECTED_ERRORS as error:
        yield Finding("label", Status.PROBLEM, str(error))
        return
    if (bounds := run.training.label_bounds) is not None:
        n_outside = int(((rows.labels < bounds[0]) | (rows.labels > bounds[1])).sum())
        if n_outside:
            sentence = f"{n_outside} labels lie outside the public `label_bounds`; they would be moved to them"
            yield Finding("label", Status.WARNING, sentence)


def _partitions(run: WorkerRun | OwnerRun) -> Iterator[Finding]:
    """Every partition, one after the other, as the party reads them."""
    try:
        files = part_files(run.data, run.table_schema, objective=run.training.objective)
        for file in files:
            file.read()
        check_ids([file.keys() for file in files], files)
    except EXPECTED_ERRORS as error:
        yield Finding("data", Status.PROBLEM, str(error))
        return
    n_rows = sum(file.n_rows for file in files)
    yield Finding("data", Status.OK, f"{n_rows} rows in {len(files)} partitions, each record in one of them")


def _ledger(run: WorkerRun | OwnerRun, recipe: RecordRecipe) -> Iterator[Finding]:
    """Whether the account has room for the run, which is not begun by asking."""
    charge, budget, path = charge_of(run, recipe), run.ledger.budget, run.ledger.path
    try:
        if path.exists():
            with worker_ledger(path, budget) as ledger:
                check_charge(ledger, charge, RunFolder(run.run_folder))
        else:
            budget.check(path, (0.0, 0.0), charge)
        position = ledger_position(path, budget, charge)
    except OverBudget as error:
        yield Finding("budget", Status.PROBLEM, str(error))
        return
    except EXPECTED_ERRORS as error:
        yield Finding("ledger", Status.PROBLEM, str(error))
        return
    except OSError as error:
        yield Finding("ledger", Status.PROBLEM, f"{error.filename} cannot be used: {error.strerror}")
        return
    left = position.remaining[0]
    room = "no limit" if left is None else f"{left:.4g} of the budget is left after it"
    told = "was charged before" if position.is_charged else f"costs epsilon {charge.epsilon:.4g}"
    begun = f"{position.n_runs} runs so far" if path.exists() else "will be begun"
    yield Finding("ledger", Status.OK, f"{path}: {begun}; this run {told}, {room}")


def _ports(
    run: RecordRun,
    peers: list[NamedKey],
    calls: dict[str, str],
    listens: list[str],
    keys: KeyPair | None,
    wait_s: float,
) -> Iterator[Finding]:
    """Whether addresses can be listened at, and whether somebody listens where this party will connect to."""
    timing = Timing(timeout_s=min(run.timeout, wait_s), wait_s=wait_s)
    for address in listens:
        known = {peer.name: peer_key(peer.public_key, peer.name, keys is None) for peer in peers}
        try:
            Listener(address, known, keys=keys, timing=timing, on_event=lambda event: None).close()
            yield Finding("address", Status.OK, f"{address} is free to listen at")
        except ProtocolError as error:
            yield Finding("address", Status.PROBLEM, str(error))
    for name, address in calls.items():
        try:
            # Opened and closed without a word: one line in the log of whoever waits there, and no disturbance.
            _connect(address, wait_s).close()
            yield Finding("peer", Status.OK, f"somebody listens at {address}, where {name} is to be")
        except (OSError, OverflowError, ValueError):
            sentence = f"nobody listens at {address} now; {name} may be started later, within `wait`"
            yield Finding("peer", Status.SKIPPED, sentence)


def _connect(address: str, wait_s: float) -> socket.socket:
    if address.startswith("ipc://"):
        local = socket.socket(socket.AF_UNIX)
        try:
            local.settimeout(wait_s)
            local.connect(address.removeprefix("ipc://"))
        except OSError:
            local.close()
            raise
        return local
    found = urlsplit(address)
    return socket.create_connection((found.hostname or "", found.port or 0), timeout=wait_s)


def _terms(run: RecordRun, schema: TableSchema, recipe: RecordRecipe) -> Finding:
    """What the other sides are to have too: people may compare it before the run, and the run itself does."""
    terms = run.training.terms(schema) if isinstance(run, OwnerRun) else run.terms(schema)
    digest = hashlib.sha256(json.dumps(terms, sort_keys=True).encode()).hexdigest()[:16]
    n_trees = recipe.settings.n_rounds if isinstance(recipe, InPrivateAmongOwners) else recipe.n_trees
    what = f"{n_trees} trees" + (" per owner" if isinstance(recipe, InPrivateAmongOwners) else "")
    return Finding(
        "terms",
        Status.SKIPPED,
        f"the others' are not asked for; all agree on `training` ({what}) and columns whose doctor shows {digest}. The "
        "run itself compares them before anything is asked, and names every difference",
    )
