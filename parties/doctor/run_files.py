"""What the doctor checks for every role: the keys, and the run folder."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from parties.config.protection import MOST_DELTA, MOST_EPSILON
from parties.config.vertical import ActiveRun, PassiveRun
from parties.doctor.check_result import Finding, Status
from parties.errors import ConfigError
from parties.jobs.train_vertical import EXPECTED_ERRORS
from parties.runs.run_folder import RunFolder, RunState
from parties.session.connections import own_keys, peer_key
from protocols.transport.keys import KeyPair, check_loopback

if TYPE_CHECKING:
    from parties.config.record_runs import RecordRun


class NamedKey(Protocol):
    """Another party as a run file names it."""

    @property
    def name(self) -> str: ...

    @property
    def public_key(self) -> Path | None: ...


def examine_keys(
    run: ActiveRun | PassiveRun | RecordRun,
    peers: Sequence[NamedKey],
    addresses: Sequence[str],
    insecure: bool,
    findings: list[Finding],
) -> tuple[bool, KeyPair | None]:
    """Whether this party's key and those of its peers can be used; and its own."""
    try:
        keys = own_keys(run, insecure)
        for address in addresses:
            check_loopback(address, keys)
        publics = {peer.name: peer_key(peer.public_key, peer.name, insecure) for peer in peers}
        if keys is not None and keys.public in publics.values():
            raise ConfigError("a peer's public key is this party's own")
        if keys is not None and len(set(publics.values())) < len(publics):
            raise ConfigError("two peers have the same public key")
    except EXPECTED_ERRORS as error:
        findings.append(Finding("keys", Status.PROBLEM, str(error)))
        return False, None
    if keys is None:
        findings.append(Finding("keys", Status.WARNING, "none: the run is in plain text, on this machine alone"))
    else:
        findings.append(Finding("keys", Status.OK, f"this party's, and those of {', '.join(publics)}"))
    return True, keys


def examine_protection(run: ActiveRun | PassiveRun | RecordRun) -> Iterator[Finding]:
    """Whether the run file allows budgets that protect nothing."""
    if run.no_privacy:
        sentence = f"the run file allows an epsilon above {MOST_EPSILON:g} or a delta above {MOST_DELTA:g}"
        yield Finding("no_privacy", Status.WARNING, f"{sentence}: such budgets protect nothing")


def examine_folder(run: ActiveRun | PassiveRun | RecordRun, path: Path) -> Iterator[Finding]:
    """Whether the run folder may be used."""
    folder = RunFolder(run.run_folder)
    try:
        state = folder.state(path, party=run.party, role=run.role)
    except EXPECTED_ERRORS as error:
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
