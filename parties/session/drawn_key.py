"""A key that all parties of a run draw together, by commit and reveal, so that nobody chooses it alone::

    A                                    B
    │ ◄─────── hash of its bytes ─────── │
    │ ── own bytes, everybody's hash ──► │
    │ ◄──────────── its bytes ────────── │
    │ ─────── everybody's bytes ───────► │   each B compares them with the hashes

Whoever speaks last may leave instead, which ends the run. Each keeps what the others were committed to before it shows
its own bytes, for all runs with the same parties, so that nobody who comes again brings others: every later run, and
one at the same time, has the same key.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path

from parties.errors import Disagreement, RunFolderError
from parties.storage.atomic_files import make_folder, write_json
from parties.storage.folder_lock import locked_file
from parties.storage.paths import read_file
from protocols.alignment.private_set_intersection import SHARE_BYTES
from protocols.errors import UnexpectedMessage
from protocols.messages.id_alignment import HeldOutShares
from protocols.transport.channel import Channel, expect

# Names in the file: of the key, of this party's own bytes, and of the digest of the hashes that A has sent.
KEY, _OWN, _TOLD = "seed", "own", "told"

# Seconds to wait for another run that holds the file's lock, which takes a moment.
_WAIT_S = 10.0


def draw_active(channels: Sequence[Channel], path: Path) -> bytes:
    """The active party's side of the drawing; returns the key.

    Peers without a channel took part in an earlier attempt of the run, and their bytes are kept.

    Parameters
    ----------
    channels : sequence of Channel
    path : Path
        The file that keeps all bytes and the key.

    Raises
    ------
    Disagreement
        If a peer reveals other bytes than it was committed to, or than before.
    """
    before = {name: bytes.fromhex(share) for name, share in keep(path).items() if name.startswith("from ")}
    hashes = {name: _hash(share) for name, share in before.items()}
    hashes |= {f"from {channel.peer}": _received(channel, 1)[0] for channel in channels}
    names = sorted(hashes)
    # A peer that has seen this party's bytes and comes again must not bring others.
    own = bytes.fromhex(_keep_same(path, {f"hash {name}": hashes[name].hex() for name in names})[_OWN])
    for channel in channels:
        channel.send(HeldOutShares(shares=(own, *(hashes[name] for name in names))))
    shares = before | {f"from {channel.peer}": _received(channel, 1)[0] for channel in channels}
    if any(_hash(shares[name]) != hashes[name] or before.get(name, shares[name]) != shares[name] for name in names):
        raise _other_bytes("a passive party's", path)
    key = _key(own, [shares[name] for name in names])
    _keep_same(path, {name: shares[name].hex() for name in names} | {KEY: key.hex()})
    for channel in channels:
        channel.send(HeldOutShares(shares=tuple(shares[name] for name in names)))
    return key


def draw_passive(channel: Channel, path: Path) -> bytes:
    """A passive party's side of the drawing; returns the key.

    Raises
    ------
    Disagreement
        If bytes are not those that their owner was committed to, or others than before.
    """
    own_share = bytes.fromhex(keep(path)[_OWN])
    channel.send(HeldOutShares(shares=(_hash(own_share),)))
    active, *hashes = _received(channel)
    if _hash(own_share) not in hashes:
        raise _other_bytes("this party's own", path)
    # A party that has seen these bytes and comes again must not bring others.
    _keep_same(path, {_TOLD: _key(active, hashes).hex()})
    channel.send(HeldOutShares(shares=(own_share,)))
    shares = _received(channel, len(hashes))
    if [_hash(share) for share in shares] != hashes:
        raise _other_bytes("a party's", path)
    key = _key(active, shares)
    _keep_same(path, {KEY: key.hex()})
    return key


def kept_before(path: Path) -> dict[str, str]:
    """The file's entries, from earlier runs of the same parties; `KEY` is among them once it was drawn."""
    return _read(path) if path.exists() else {}


def keep(path: Path, more: Mapping[str, str] | None = None) -> dict[str, str]:
    """Add entries to the file, and this party's random bytes if it has none; returns all. Old entries never change.

    Raises
    ------
    RunFolderError
        If the file cannot be used or is damaged.
    """
    make_folder(path.parent)
    with locked_file(path, wait_s=_WAIT_S) as is_alone:
        if not is_alone:
            raise RunFolderError(f"{path} cannot be used: another process holds it. Nothing was released")
        before = kept_before(path)
        kept = {_OWN: secrets.token_hex(SHARE_BYTES)} | dict(more or {}) | before
        if kept != before:
            write_json(path, kept)
    return kept


def _keep_same(path: Path, entries: Mapping[str, str]) -> dict[str, str]:
    """Add entries to the file; refuse any that differ from an earlier run's."""
    kept = keep(path, entries)
    if any(kept[name] != value for name, value in entries.items()):
        raise _other_bytes("another party's", path)
    return kept


def _received(channel: Channel, count: int | None = None) -> tuple[bytes, ...]:
    shares = expect(channel, HeldOutShares).shares
    if count is not None and len(shares) != count:
        raise UnexpectedMessage(f"{channel.peer} sent {len(shares)} shares where {count} were due")
    return shares


def _other_bytes(whose: str, path: Path) -> Disagreement:
    return Disagreement(
        f"{whose} random bytes for the records to hold out are not those that were committed to or used in the first "
        f"run of these parties: bring the files back, or agree on another choice and remove {path.name} beside the "
        "ledger and the run folders, on all sides. Nothing was released"
    )


def _hash(share: bytes) -> bytes:
    return hashlib.sha256(b"opboost held-out commitment" + share).digest()


def _key(active: bytes, passive: Sequence[bytes]) -> bytes:
    return hashlib.sha256(b"opboost held-out records" + active + b"".join(passive)).digest()


def _read(path: Path) -> dict[str, str]:
    try:
        entries = json.loads(read_file(path))
        bounds = {name: float.fromhex(value) for name, value in entries.items() if name.startswith("bound ")}
        shares = [bytes.fromhex(value) for name, value in entries.items() if name not in bounds]
        if (
            _OWN not in entries
            or {*map(len, shares)} != {SHARE_BYTES}
            or not all(0 < bound < 1 for bound in bounds.values())
        ):
            raise ValueError
    except RunFolderError as error:
        raise RunFolderError(f"{error}. Nothing was released") from None
    except (AttributeError, OverflowError, TypeError, ValueError):
        raise RunFolderError(
            f"{path} is damaged; bring it back, or agree on another choice of held-out records and remove it on all "
            "sides. Nothing was released"
        ) from None
    return dict(entries)
