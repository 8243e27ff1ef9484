"""Checks of the run file of any role: protection, keys, run folder."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from opboost.privacy.laws import MOST_EPSILON
from opboost.privacy.record_guarantee import MOST_DELTA
from parties.config.party_run import PartyRun
from parties.config.reading import check_schema_of_run
from parties.doctor.check_result import Checklist, Status
from parties.errors import ConfigError
from parties.runs.run_folder import RunFolder, RunState
from parties.session.connections import own_keys, peer_keys
from parties.storage.paths import nearest_there, takes_files
from protocols.transport.keys import KeyPair, check_loopback

AskPeers = Callable[[KeyPair | None], None]
"""Asks the peers with this party's keys, or in plain text without."""


def check_protection(run: PartyRun, checks: Checklist) -> None:
    """Check whether the run file allows budgets that protect nothing."""
    if run.no_privacy:
        sentence = f"the run file allows an epsilon above {MOST_EPSILON:g} or a delta above {MOST_DELTA:g}"
        checks.add("no_privacy", Status.WARNING, f"{sentence}: such budgets protect nothing")


def check_keys(run: PartyRun, checks: Checklist, *, insecure: bool) -> tuple[bool, KeyPair | None]:
    """Check this party's key and those of its peers; whether they can be used, and its own."""
    with checks.checking("keys"):
        keys = own_keys(run, insecure)
        for address in run.wiring.addresses:
            check_loopback(address, keys)
        publics = peer_keys(run, keys)
        if keys is None:
            checks.add("keys", Status.WARNING, "none: the run is in plain text, on this machine alone")
        else:
            checks.add("keys", Status.OK, f"this party's, and those of {', '.join(publics)}")
        return True, keys
    return False, None


def check_and_ask(run: PartyRun, job: Callable[[], AskPeers | None], checks: Checklist, *, insecure: bool) -> None:
    """Check the keys of a party of vertical training and its job; then ask the peers, if both can be used."""
    are_usable, keys = check_keys(run, checks, insecure=insecure)
    ask = job()
    if ask is None or not are_usable:
        checks.add("peer", Status.SKIPPED, "not asked: what is wrong here comes first")
    else:
        ask(keys)


def check_folder(run: PartyRun, path: Path, checks: Checklist) -> None:
    """Check that the run folder may be used."""
    folder = RunFolder(run.run_folder)
    with checks.checking("run folder"):
        state = folder.state(path, party=run.party, role=run.role)
        if state is RunState.UNFINISHED:
            check_schema_of_run(run)
        if not takes_files(there := nearest_there(folder.path)):
            raise ConfigError(f"{there} cannot be written: it is no folder, or may not be written to")
        sentences = {
            RunState.NEW: f"{folder.path} is free",
            RunState.UNFINISHED: f"{folder.path} holds the beginning of this run, which goes on where it stopped",
            RunState.FINISHED: f"{folder.path} holds this run, which is finished: starting it does nothing",
        }
        status = Status.WARNING if state is RunState.FINISHED else Status.OK
        checks.add("run folder", status, sentences[state])
