"""Lasting keys of workers that know each other, from the key files that a run file names."""

from __future__ import annotations

from parties.config.chain import OwnerRun
from parties.config.horizontal import CoordinatorRun
from parties.config.record_runs import RecordRun
from parties.session.connections import peer_key
from protocols.errors import KeyFileError
from protocols.transport.keys import KeyPair, read_secret


def lasting_keys(run: RecordRun) -> tuple[KeyPair | None, dict[str, bytes]]:
    """A worker's own keys, and the public keys of all workers by name. Also of runs in plain text.

    There are none where workers do not know each other; a coordinator has no keys of its own among them.

    Raises
    ------
    KeyFileError
    """
    if isinstance(run, OwnerRun) or not run.training.known_workers:
        return None, {}
    if isinstance(run, CoordinatorRun):
        identity, named_keys, public_keys = None, run.workers, dict[str, bytes]()
    elif run.secret_key is None:
        raise KeyFileError(
            "the run file names no secret_key, and with `known_workers: true` workers prove by their keys who they are "
            "in a run in plain text, too; make one with `opboost keygen`, or all agree on `known_workers: false` in "
            "`training`. Nothing was sent"
        )
    else:
        identity, named_keys = read_secret(run.secret_key), run.peers
        public_keys = {run.party: identity.public}
    for worker in named_keys:
        key = peer_key(worker.public_key, worker.name, False)
        assert key is not None
        public_keys[worker.name] = key
    return identity, public_keys
