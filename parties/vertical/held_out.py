"""Held-out records: a random share of the common records that is never released, to score the finished model on.

Where only so many records are to be released, as in scouting, these are drawn at the same time, and all others are left
alone. Both sides draw them after the records are aligned, by commit and reveal, so that nobody chooses them alone::

    A                                    B
    │ ◄─────── hash of its bytes ─────── │
    │ ── own bytes, everybody's hash ──► │
    │ ◄──────────── its bytes ────────── │
    │ ─────── everybody's bytes ───────► │   each B compares them with the hashes

Whoever speaks last may leave instead, which ends the run. Each keeps in its run folder what the others were committed
to before it shows its own bytes, so that nobody who comes again brings others, nor other ids, among which the same
bytes would choose other records: a run that is started again holds the same records out, and so
does a run after its own scouting.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from opboost.rng import BitSource
from opboost.routing import Router
from opboost.schema import TableSchema
from parties.errors import Disagreement, RunFolderError
from parties.session.handshake import conversation, greet, greet_all
from parties.storage.atomic_files import copy, write_json
from parties.tables.party_table import PartyTable, model_inputs
from parties.vertical.alignment import AlignmentPlace
from parties.vertical.party_b import PassiveJob
from parties.vertical.prediction_server import AnswerableRecords, RecordSource
from parties.vertical.training_job import ActiveJob, HeldOutRecords
from protocols.alignment.private_set_intersection import SHARE_BYTES
from protocols.errors import UnexpectedMessage
from protocols.messages.id_alignment import HeldOutShares
from protocols.transport.channel import Channel, expect

SHARES_FILE = "held_out.shares"

# What the name of a run has in addition while it is scouted, and that of its folder.
SCOUT = "-scout"

# More records than this do not make a score more certain than other things are: an AUC is then known to about 0.004.
MOST_HELD_OUT = 20_000

_OWN, _TOLD, _RECORDS, _SEED, _CHOOSING = "own", "told", "records", "seed", "choosing the records to hold out"

Rows = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Division:
    """Rows of the common records: those to score the model on, and those to release and train on; both ascending."""

    held_out: Rows
    trained: Rows


RecordsOf = Callable[[Router], RecordSource]
"""Takes the router of the finished trees; held-out records with the columns that it needs."""


def n_held_out(share: float, n_rows: int) -> int:
    """How many of the common records are held out; at least one is left to train on."""
    return min(round(share * n_rows), MOST_HELD_OUT, n_rows - 1)


def n_trained(share: float, n_rows: int, most: int | None) -> int:
    """How many of the common records are released and trained on."""
    n_left = n_rows - n_held_out(share, n_rows)
    return n_left if most is None else min(most, n_left)


def divide_rows(seed: bytes, n_rows: int, share: float, most: int | None = None) -> Division:
    """Divide the records, in the order of their ids; the held-out ones do not depend on how many are released."""
    order = np.argsort(BitSource(seed, is_secure=False).words(n_rows), kind="stable")
    start = n_held_out(share, n_rows)
    return Division(np.sort(order[:start]), np.sort(order[start : start + n_trained(share, n_rows, most)]))


def choose_active(
    job: ActiveJob, channels: Sequence[Channel], place: AlignmentPlace, *, are_met: bool
) -> Division | None:
    """Agree with all peers on the held-out records, before any is released; None where there are none.

    Parameters
    ----------
    job : ActiveJob
        On all common records.
    channels : sequence of Channel
    place : AlignmentPlace
    are_met : bool
        Whether greetings were exchanged, in an alignment.
    """
    if not n_held_out(job.held_out_share, job.n_rows):
        return None
    with conversation(channels) as phase:
        if not are_met:
            phase.enter("greeting")
            hellos = {channel.peer: job.hello(channel.peer) for channel in channels}
            greet_all(channels, hellos, passwords=job.passwords(hellos), accept=job.check_names)
        phase.enter(_CHOOSING)
        seed = draw_active(channels, place.folder, records=_digest_of(job))
        return divide_rows(seed, job.n_rows, job.held_out_share, job.most_records)


def choose_passive(job: PassiveJob, channel: Channel, place: AlignmentPlace, *, are_met: bool) -> Division | None:
    """A passive party's side of `choose_active`."""
    if not n_held_out(job.held_out_share, job.n_rows):
        return None
    with conversation([channel]) as phase:
        if not are_met:
            phase.enter("greeting")
            greet(channel, job.hello(), password=job.password)
        phase.enter(_CHOOSING)
        seed = draw_passive(channel, place.folder, records=_digest_of(job))
        return divide_rows(seed, job.n_rows, job.held_out_share, job.most_records)


def choose_as_before(earlier: Path | None, folder: Path) -> None:
    """Hold out the records of an earlier run, or of the scouting: a party that did otherwise would be refused."""
    earlier = earlier or folder.with_name(folder.name + SCOUT)
    if (earlier / SHARES_FILE).exists() and not (folder / SHARES_FILE).exists():
        copy(earlier / SHARES_FILE, folder / SHARES_FILE)


def own_records(table: PartyTable, schema: TableSchema) -> HeldOutRecords:
    """The active party's held-out records of a table."""
    assert table.labels is not None
    return HeldOutRecords(table.index, model_inputs(table, schema), table.labels)


def answerable(table: PartyTable, router: Router) -> AnswerableRecords:
    """Held-out records of a table, with the columns that the router needs."""
    columns = {one.schema.name: table.features[one.schema.name] for one in router.mechanisms}
    return AnswerableRecords.of(router, table.index, pd.DataFrame(columns))


def draw_active(channels: Sequence[Channel], folder: Path, *, records: bytes) -> bytes:
    """The active party's side of the drawing; returns the seed.

    Peers that are not there were there before, in the same run: their bytes are kept.

    Parameters
    ----------
    channels : sequence of Channel
    folder : Path
    records : bytes
        Digest of the ids of the common records.

    Raises
    ------
    Disagreement
        If a peer reveals other bytes than it was committed to, or they or the records are others than in an earlier
        attempt.
    """
    kept = _kept(folder)
    before = {peer: bytes.fromhex(share) for peer, share in kept.items() if peer.startswith("from ")}
    hashes = {peer: _hash(share) for peer, share in before.items()}
    hashes |= {f"from {one.peer}": _received(one, 1)[0] for one in channels}
    names = sorted(hashes)
    # Whoever has seen this party's bytes and comes again must not bring others, or choose records by other ids.
    committed = {_RECORDS: records.hex(), **{f"hash {name}": hashes[name].hex() for name in names}}
    if any(kept.get(name, found) != found for name, found in committed.items()):
        raise _other_records("a passive party's")
    kept |= committed
    _keep(folder, kept)
    for channel in channels:
        channel.send(HeldOutShares(shares=(bytes.fromhex(kept[_OWN]), *(hashes[name] for name in names))))
    shares = before | {f"from {one.peer}": _received(one, 1)[0] for one in channels}
    if any(_hash(shares[name]) != hashes[name] or before.get(name, shares[name]) != shares[name] for name in names):
        raise _other_records("a passive party's")
    _keep(folder, {**kept, **{name: shares[name].hex() for name in names}})
    for channel in channels:
        channel.send(HeldOutShares(shares=tuple(shares[name] for name in names)))
    return _seed(bytes.fromhex(kept[_OWN]), [shares[name] for name in names])


def draw_passive(channel: Channel, folder: Path, *, records: bytes) -> bytes:
    """A passive party's side of the drawing; returns the seed.

    Parameters
    ----------
    channel : Channel
    folder : Path
    records : bytes
        Digest of the ids of the common records.

    Raises
    ------
    Disagreement
        If bytes are not those that their owner was committed to, or they or the records are others than in an earlier
        attempt of this run.
    """
    kept = _kept(folder)
    own = bytes.fromhex(kept[_OWN])
    channel.send(HeldOutShares(shares=(_hash(own),)))
    active, *hashes = _received(channel)
    if _hash(own) not in hashes:
        raise _other_records("this party's own")
    told = {_RECORDS: records.hex(), _TOLD: _seed(active, hashes).hex()}
    if any(kept.setdefault(name, found) != found for name, found in told.items()):
        raise _other_records("the")
    _keep(folder, kept)
    channel.send(HeldOutShares(shares=(own,)))
    shares = _received(channel, len(hashes))
    if [_hash(share) for share in shares] != hashes:
        raise _other_records("a party's")
    seed = _seed(active, shares)
    _keep(folder, {**kept, _SEED: seed.hex()})
    return seed


def _digest_of(job: ActiveJob | PassiveJob) -> bytes:
    assert job.id_digest is not None
    return bytes.fromhex(job.id_digest)


def _received(channel: Channel, count: int | None = None) -> tuple[bytes, ...]:
    shares = expect(channel, HeldOutShares).shares
    if count is not None and len(shares) != count:
        raise UnexpectedMessage(f"{channel.peer} sent {len(shares)} shares where {count} were due")
    return shares


def _other_records(whose: str) -> Disagreement:
    return Disagreement(
        f"{whose} random bytes for the records to hold out are not those that were committed to or used when this run "
        "began, or other records are common: bring the files back or choose another run_id on all sides. Nothing was "
        "released"
    )


def _hash(share: bytes) -> bytes:
    return hashlib.sha256(b"opboost held-out commitment" + share).digest()


def _seed(active: bytes, passive: Sequence[bytes]) -> bytes:
    return hashlib.sha256(b"opboost held-out records" + active + b"".join(passive)).digest()


def _kept(folder: Path) -> dict[str, str]:
    """What the run folder has of the drawing; the own random bytes are drawn once."""
    path = folder / SHARES_FILE
    try:
        if not path.exists():
            _keep(folder, {_OWN: secrets.token_hex(SHARE_BYTES)})
        found = json.loads(path.read_text())
        if not all(len(bytes.fromhex(share)) == SHARE_BYTES for share in (found[_OWN], *found.values())):
            raise ValueError
    except OSError as error:
        raise RunFolderError(f"{path} cannot be used: {error.strerror}. Nothing was released") from None
    except (AttributeError, KeyError, TypeError, ValueError):
        raise RunFolderError(f"{path} is damaged; choose another run_id on all sides. Nothing was released") from None
    return dict(found)


def _keep(folder: Path, shares: Mapping[str, str]) -> None:
    write_json(folder / SHARES_FILE, shares)
