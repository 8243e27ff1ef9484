"""Held-out records: a random share of the common records that no training releases, to score models on.

A record is held out if its keyed pseudorandom number lies below the share. Where only so many others are released, they
have the lowest numbers. Both sides draw the key by commit and reveal, so that nobody chooses it alone::

    A                                    B
    │ ◄─────── hash of its bytes ─────── │
    │ ── own bytes, everybody's hash ──► │
    │ ◄──────────── its bytes ────────── │
    │ ─────── everybody's bytes ───────► │   each B compares them with the hashes

Whoever speaks last may leave instead, which ends the run. Each keeps what the others were committed to before it shows
its own bytes, for all runs with the same parties, so that nobody who comes again brings others. So every later run has
the same key: what was held out stays so, what was released is not held out, and new records join at the same share.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Self

import numpy as np
import pandas as pd
from Crypto.Cipher import AES
from numpy.typing import NDArray

from opboost.routing import Router
from opboost.schema import TableSchema
from parties.config.vertical import ActiveRun, PassiveRun
from parties.errors import Disagreement, RunFolderError
from parties.session.handshake import conversation, greet, greet_all
from parties.storage.atomic_files import make_folder, write_json
from parties.tables.blocks import record_names
from parties.tables.party_table import PartyTable, model_inputs
from parties.tables.record_ids import Ids
from parties.vertical.prediction_server import AnswerableRecords
from parties.vertical.release_job import PassiveJob
from parties.vertical.training_job import ActiveJob, HeldOutRecords
from protocols.alignment.private_set_intersection import SHARE_BYTES
from protocols.errors import UnexpectedMessage
from protocols.messages.id_alignment import HeldOutShares
from protocols.transport.channel import Channel, expect

# What the name of a run, and of its folder, has in addition while it is scouted.
SCOUT = "-scout"

# More records than this do not make a score more certain than other things are: an AUC is then known to about 0.004.
MOST_HELD_OUT = 20_000

_OWN, _TOLD, _SEED, _CHOOSING = "own", "told", "seed", "choosing the records to hold out"

Rows = NDArray[np.int64]
Places = NDArray[np.float64]
"""Of every record a pseudorandom number from 0 to 1."""


@dataclass(frozen=True, slots=True)
class Division:
    """Rows of the common records: those to score the model on, and those to release and train on; both ascending."""

    held_out: Rows
    trained: Rows


RecordsOf = Callable[[Router], AnswerableRecords]
"""Takes the router of the finished trees; held-out records with the columns that it needs."""


def n_held_out(share: float, n_rows: int) -> int:
    """About how many records of a first run are held out; at least one is left to train on."""
    return min(round(share * n_rows), MOST_HELD_OUT, n_rows - 1)


def n_trained(share: float, n_rows: int, most: int | None) -> int:
    """About how many of the common records are released and trained on."""
    n_left = n_rows - n_held_out(share, n_rows)
    return n_left if most is None else min(most, n_left)


def places_of(key: bytes, ids: Ids) -> Places:
    """The pseudorandom numbers of records, whatever other records there are: their names under AES with the key."""
    cipher = AES.new(key, AES.MODE_ECB).encrypt(record_names(ids).tobytes())
    return np.frombuffer(cipher, "<u8")[::2] / 2.0**64


@dataclass(frozen=True, slots=True)
class KeyedChoice:
    """The choice of held-out records, the same in all runs of the same parties.

    Its file keeps everybody's random bytes. `places` takes the key and gives the numbers of all common records; of
    those that are not held out, `most` are released.
    """

    path: Path
    share: float
    places: Callable[[bytes], Places]
    most: int | None = None

    @classmethod
    def of(cls, run: ActiveRun | PassiveRun, ids: Ids | Callable[[bytes], Places]) -> Self:
        """What a run file says, of records by their ids or what numbers them.

        The file lies beside a passive party's ledger or the active party's run folders.
        """
        places = ids if callable(ids) else partial(places_of, ids=ids)
        beside = run.ledger.path if isinstance(run, PassiveRun) else run.run_folder
        peers = sorted(peer.name for peer in run.wiring.peers)
        named = hashlib.sha256("\n".join(peers).encode()).hexdigest()[:16]
        return cls(beside.parent / f"held_out.{named}.json", run.held_out, places, run.most_records)

    def divided(self, key: bytes) -> Division | None:
        """The division of the records; None if all of them are to be released.

        Raises
        ------
        Disagreement
            If all of them are held out.
        """
        places, kept = self.places(key), _kept(self.path)
        bound = kept.setdefault(f"bound {self.share!r}", min(self.share, MOST_HELD_OUT / len(places)).hex())
        _keep(self.path, kept)
        is_held_out = places < float.fromhex(bound)
        others = np.flatnonzero(~is_held_out)
        if not len(others):
            raise Disagreement(
                f"all of the {len(places)} common records are held-out ones: none is left to train on. "
                "Nothing was released"
            )
        released = np.sort(others[np.argsort(places[others], kind="stable")[: self.most]])
        return Division(np.flatnonzero(is_held_out), released) if len(released) < len(places) else None

    def n_trained(self, n_rows: int) -> int:
        """How many of the records are released and trained on, once the key was drawn."""
        key = _kept(self.path).get(_SEED) if self.share else None
        division = None if key is None else self.divided(bytes.fromhex(key))
        return n_rows if division is None else len(division.trained)


def choose_active(
    job: ActiveJob, channels: Sequence[Channel], choice: KeyedChoice, *, are_met: bool
) -> Division | None:
    """Agree with all peers on the held-out records, before any is released; None where there are none.

    Parameters
    ----------
    job : ActiveJob
        On all common records.
    channels : sequence of Channel
    choice : KeyedChoice
    are_met : bool
        Whether greetings were exchanged, in an alignment.
    """
    if not choice.share:
        return None
    with conversation(channels) as phase:
        if not are_met:
            phase.enter("greeting")
            hellos = {channel.peer: job.hello(channel.peer) for channel in channels}
            greet_all(channels, hellos, passwords=job.passwords(hellos), accept=job.check_names)
        phase.enter(_CHOOSING)
        return choice.divided(draw_active(channels, choice.path))


def choose_passive(job: PassiveJob, channel: Channel, choice: KeyedChoice, *, are_met: bool) -> Division | None:
    """A passive party's side of `choose_active`."""
    if not choice.share:
        return None
    with conversation([channel]) as phase:
        if not are_met:
            phase.enter("greeting")
            greet(channel, job.hello(), password=job.password)
        phase.enter(_CHOOSING)
        return choice.divided(draw_passive(channel, choice.path))


def own_records(table: PartyTable, schema: TableSchema) -> HeldOutRecords:
    """The active party's held-out records of a table."""
    assert table.labels is not None
    return HeldOutRecords(table.names[:], model_inputs(table, schema), table.labels)


def answerable(table: PartyTable, router: Router) -> AnswerableRecords:
    """Held-out records of a table, with the columns that the router needs."""
    columns = {one.schema.name: table.features[one.schema.name] for one in router.mechanisms}
    return AnswerableRecords.of(router, table.index, pd.DataFrame(columns), table.keys)


def draw_active(channels: Sequence[Channel], path: Path) -> bytes:
    """The active party's side of the drawing; returns the key.

    Peers that are not there were there before, in the same run: their bytes are kept.

    Raises
    ------
    Disagreement
        If a peer reveals other bytes than it was committed to, or than before.
    """
    kept = _kept(path)
    before = {peer: bytes.fromhex(share) for peer, share in kept.items() if peer.startswith("from ")}
    hashes = {peer: _hash(share) for peer, share in before.items()}
    hashes |= {f"from {one.peer}": _received(one, 1)[0] for one in channels}
    names = sorted(hashes)
    # Whoever has seen this party's bytes and comes again must not bring others.
    committed = {f"hash {name}": hashes[name].hex() for name in names}
    if any(kept.get(name, found) != found for name, found in committed.items()):
        raise _other_records("a passive party's", path)
    kept |= committed
    _keep(path, kept)
    for channel in channels:
        channel.send(HeldOutShares(shares=(bytes.fromhex(kept[_OWN]), *(hashes[name] for name in names))))
    shares = before | {f"from {one.peer}": _received(one, 1)[0] for one in channels}
    if any(_hash(shares[name]) != hashes[name] or before.get(name, shares[name]) != shares[name] for name in names):
        raise _other_records("a passive party's", path)
    key = _seed(bytes.fromhex(kept[_OWN]), [shares[name] for name in names])
    _keep(path, {**kept, **{name: shares[name].hex() for name in names}, _SEED: key.hex()})
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
    kept = _kept(path)
    own = bytes.fromhex(kept[_OWN])
    channel.send(HeldOutShares(shares=(_hash(own),)))
    active, *hashes = _received(channel)
    if _hash(own) not in hashes:
        raise _other_records("this party's own", path)
    # Whoever has seen this party's bytes and comes again must not bring others.
    told = _seed(active, hashes).hex()
    if kept.setdefault(_TOLD, told) != told:
        raise _other_records("the", path)
    _keep(path, kept)
    channel.send(HeldOutShares(shares=(own,)))
    shares = _received(channel, len(hashes))
    if [_hash(share) for share in shares] != hashes:
        raise _other_records("a party's", path)
    key = _seed(active, shares)
    _keep(path, {**kept, _SEED: key.hex()})
    return key


def _received(channel: Channel, count: int | None = None) -> tuple[bytes, ...]:
    shares = expect(channel, HeldOutShares).shares
    if count is not None and len(shares) != count:
        raise UnexpectedMessage(f"{channel.peer} sent {len(shares)} shares where {count} were due")
    return shares


def _other_records(whose: str, path: Path) -> Disagreement:
    return Disagreement(
        f"{whose} random bytes for the records to hold out are not those that were committed to or used in the first "
        f"run of these parties: bring the files back, or agree on another choice and remove {path.name} beside the "
        "ledger and the run folders, on all sides. Nothing was released"
    )


def _hash(share: bytes) -> bytes:
    return hashlib.sha256(b"opboost held-out commitment" + share).digest()


def _seed(active: bytes, passive: Sequence[bytes]) -> bytes:
    return hashlib.sha256(b"opboost held-out records" + active + b"".join(passive)).digest()


def _kept(path: Path) -> dict[str, str]:
    """What is kept of the drawing; the own random bytes are drawn once."""
    try:
        if not path.exists():
            _keep(path, {_OWN: secrets.token_hex(SHARE_BYTES)})
        found = json.loads(path.read_text())
        bounds = {name: float.fromhex(value) for name, value in found.items() if name.startswith("bound ")}
        shares = [bytes.fromhex(value) for name, value in found.items() if name not in bounds]
        if _OWN not in found or {*map(len, shares)} != {SHARE_BYTES} or not all(0 < one < 1 for one in bounds.values()):
            raise ValueError
    except OSError as error:
        raise RunFolderError(f"{path} cannot be used: {error.strerror}. Nothing was released") from None
    except (AttributeError, OverflowError, TypeError, ValueError):
        raise RunFolderError(
            f"{path} is damaged; bring it back, or agree on another choice of held-out records and remove it on all "
            "sides. Nothing was released"
        ) from None
    return dict(found)


def _keep(path: Path, shares: Mapping[str, str]) -> None:
    make_folder(path.parent)
    write_json(path, shares)
