"""Lasting public keys of workers that know each other, from the key files that a run file names."""

from __future__ import annotations

from parties.config.chain import OwnerRun
from parties.config.horizontal import CoordinatorRun
from parties.config.record_runs import RecordRun
from parties.session.connections import own_keys, peer_key


def lasting_keys(run: RecordRun) -> dict[str, bytes]:
    """Public keys of all workers by name; empty where workers have none of each other. Also of runs in plain text.

    Raises
    ------
    KeyFileError
    """
    if isinstance(run, OwnerRun) or not run.training.known_workers:
        return {}
    if isinstance(run, CoordinatorRun):
        others, found = run.workers, dict[str, bytes]()
    else:
        identity = own_keys(run, False)
        assert identity is not None
        others, found = run.peers, {run.party: identity.public}
    for other in others:
        key = peer_key(other.public_key, other.name, False)
        assert key is not None
        found[other.name] = key
    return found
