"""Lasting public keys of workers that know each other, from the key files that a run file names."""

from __future__ import annotations

from parties.config.chain import OwnerRun
from parties.config.horizontal import CoordinatorRun
from parties.config.record_runs import RecordRun
from parties.session.connections import peer_key
from protocols.transport.keys import KeyPair


def lasting_keys(run: RecordRun, keys: KeyPair | None) -> dict[str, bytes]:
    """Public keys of all workers by name, with this party's own `keys`; empty where workers have none of each other.

    Raises
    ------
    KeyFileError
    """
    if keys is None or isinstance(run, OwnerRun) or not run.training.known_workers:
        return {}
    others, own = (run.workers, {}) if isinstance(run, CoordinatorRun) else (run.peers, {run.party: keys.public})
    named = ((other.name, peer_key(other.public_key, other.name, False)) for other in others)
    return {**own, **{name: key for name, key in named if key is not None}}
