"""`opboost doctor`: what can be checked before a run, as findings. Nothing is drawn, charged or released."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from opboost.errors import OpBoostError
from opboost.preprocess import encode
from parties.balances import Balances, Budget
from parties.config import ActiveRun, PassiveRun, read_any_run, read_schema
from parties.connections import own_keys, peer_key
from parties.doctor_peer import ask_active, ask_passive
from parties.doctor_table import examine_table
from parties.drawing import open_books, planned
from parties.entries import Release
from parties.errors import ConfigError, OverBudget, PartyError
from parties.findings import Finding, Status, is_sound
from parties.ledger import Ledger
from parties.party_a import ActiveJob
from parties.party_b import PassiveJob
from parties.preparing import PreparedPassive, prepare_active, prepare_passive
from parties.releases import store_path
from parties.store import RunFolder, RunState
from protocols.errors import ProtocolError
from protocols.keys import KeyPair, check_loopback
from protocols.messages import Task

EXPECTED = (OpBoostError, PartyError, ProtocolError)


def examine(path: Path, *, insecure: bool = False, wait_s: float = 5.0) -> list[Finding]:
    """Check a run file of either role and all that it names; then the peers, for at most `wait_s` seconds."""
    try:
        run = read_any_run(path)
        findings = [Finding("run file", Status.OK, f"run {run.run_id!r} of {run.party}, the {run.role} party")]
    except EXPECTED as error:
        return [Finding("run file", Status.PROBLEM, str(error))]
    keys_fit, keys = examine_keys(run, insecure, findings)
    findings += _folder(run, path)
    job = _prepare(run, path, findings)
    if job is None or not keys_fit:
        findings.append(Finding("peer", Status.SKIPPED, "not asked: what is wrong here comes first"))
    elif isinstance(run, ActiveRun):
        assert isinstance(job, ActiveJob)
        hellos = {peer.name: job.hello(peer.name, task=Task.CHECK) for peer in run.passive}
        findings += ask_passive(run, hellos, keys, wait_s=wait_s)
    else:
        assert isinstance(job, PassiveJob)
        findings += ask_active(run, job.hello(Task.CHECK), keys, wait_s=wait_s)
    return findings


def _prepare(run: ActiveRun | PassiveRun, path: Path, findings: list[Finding]) -> ActiveJob | PassiveJob | None:
    """Check schema, data, settings and account; returns the job if it could be started."""
    try:
        schema, ignore = read_schema(run.table_schema)
    except EXPECTED as error:
        findings.append(Finding("schema", Status.PROBLEM, str(error)))
        return None
    of_table = list(examine_table(run, schema, ignore))
    findings += of_table
    if not is_sound(of_table):
        return None
    try:
        if isinstance(run, ActiveRun):
            return prepare_active(run, path).job()
        prepared = prepare_passive(run, path)
    except EXPECTED as error:
        findings.append(Finding("settings", Status.PROBLEM, str(error)))
        return None
    findings += _account(run, prepared)
    return prepared.job()


def examine_keys(run: ActiveRun | PassiveRun, insecure: bool, findings: list[Finding]) -> tuple[bool, KeyPair | None]:
    """Whether this party's key and those of its peers can be used; and its own."""
    peers = run.passive if isinstance(run, ActiveRun) else (run.active,)
    address = run.listen if isinstance(run, ActiveRun) else run.connect
    try:
        keys = own_keys(run, insecure)
        check_loopback(address, keys)
        publics = {peer.name: peer_key(peer.public_key, peer.name, insecure) for peer in peers}
        if keys is not None and keys.public in publics.values():
            raise ConfigError("a peer's public key is this party's own")
        if keys is not None and len(set(publics.values())) < len(publics):
            raise ConfigError("two peers have the same public key")
    except EXPECTED as error:
        findings.append(Finding("keys", Status.PROBLEM, str(error)))
        return False, None
    if keys is None:
        findings.append(Finding("keys", Status.WARNING, "none: the run is in plain text, on this machine alone"))
    else:
        findings.append(Finding("keys", Status.OK, f"this party's, and those of {', '.join(publics)}"))
    return True, keys


def _account(run: PassiveRun, prepared: PreparedPassive) -> Iterator[Finding]:
    """Whether the ledger can be trusted, and whether the budget allows the release."""
    try:
        releases, budget = _planned(prepared), run.ledger.budget.budget(prepared.schema)
        if run.seed is not None:
            yield Finding("ledger", Status.WARNING, "noise from a `seed` is charged as if there were none")
        if not run.ledger.path.exists() and not run.ledger.path.with_suffix(".head.json").exists():
            Balances().check([release.cost for release in releases], budget)
            yield Finding("ledger", Status.OK, f"{run.ledger.path} will be begun; {len(releases)} columns to draw")
            return
        with open_books(run.ledger.path) as (ledger, store):
            if store_path(ledger).exists():
                store.verify()
            if prepared.aligner.is_needed:
                yield from _before_alignment(ledger, releases, budget)
                return
            absent = [release for release in releases if store.find(release.key) is None]
            if absent and RunFolder(run.run_folder).has_released:
                yield Finding(
                    "ledger", Status.PROBLEM, "this run has released before, but not what it would release now"
                )
            ledger.balances.check([release.cost for release in absent], budget)
            n_stored = len(releases) - len(absent)
            sentence = f"{ledger.n_lines} lines, verified; {len(absent)} columns to draw, {n_stored} stored already"
            yield Finding("ledger", Status.OK, sentence)
    except OverBudget as error:
        yield Finding("budget", Status.PROBLEM, str(error))
    except EXPECTED as error:
        yield Finding("ledger", Status.PROBLEM, str(error))


def _planned(prepared: PreparedPassive) -> list[Release]:
    """What releasing all records of the table would be entered as."""
    job = prepared.job()
    encoded = [encode(job.features[m.schema.name], m.schema, domain=m.settings.domain) for m in job.mechanisms]
    return planned(job.mechanisms, encoded, prepared.table.ids, is_secure=job.rng.is_secure)


def _before_alignment(ledger: Ledger, releases: Sequence[Release], budget: Budget) -> Iterator[Finding]:
    """What is stored for the common records shows only when they are found."""
    verified = f"{ledger.n_lines} lines, verified; {len(releases)} columns to draw unless they are stored already for "
    yield Finding("ledger", Status.OK, f"{verified}the records that turn out to be common")
    try:
        ledger.balances.check([release.cost for release in releases], budget)
    except OverBudget as error:
        yield Finding("budget", Status.WARNING, f"if they are to be drawn: {error}")


def _folder(run: ActiveRun | PassiveRun, path: Path) -> Iterator[Finding]:
    """Whether the run folder may be used."""
    folder = RunFolder(run.run_folder)
    try:
        state = folder.state(path, party=run.party, role=run.role)
    except EXPECTED as error:
        yield Finding("run folder", Status.PROBLEM, str(error))
        return
    there = folder.path
    while not there.exists():
        there = there.parent
    if not os.access(there, os.W_OK | os.X_OK):
        yield Finding("run folder", Status.PROBLEM, f"{there} cannot be written")
        return
    sentences = {
        RunState.NEW: f"{folder.path} is free",
        RunState.UNFINISHED: f"{folder.path} holds the beginning of this run, which goes on where it stopped",
        RunState.FINISHED: f"{folder.path} holds this run, which is finished: starting it does nothing",
    }
    yield Finding("run folder", Status.WARNING if state is RunState.FINISHED else Status.OK, sentences[state])
