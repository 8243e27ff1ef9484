"""Before training: both sides agree how records are aligned, find the common ones, and keep these alone.

Both tables stay in the order of the ids, so neither a model nor a stored release depends on this run's randomness; only
the ranks on the wire are in the order that both sides made together (`protocols.alignment`).
"""

from __future__ import annotations

import hmac
import os
import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from opboost.schema import TableSchema
from parties.agreement import Phase, conversation, greet
from parties.config import ActiveRun, PassiveRun
from parties.errors import RunFolderError, TableError
from parties.progress import Progress
from parties.runlog import RunLog
from parties.store import RunFolder
from parties.table import PartyTable, check_varied, read_table, select
from protocols.alignment import SHARE_BYTES, Common, Terms, be_found, find_common
from protocols.channel import Channel
from protocols.keys import read_shared
from protocols.messages import Hello, Role, Task

SHARE_FILE = "order.share"


@dataclass(frozen=True, slots=True)
class Aligned:
    """One party's records of those that all know.

    Attributes
    ----------
    table : PartyTable
    rows : ndarray of int64 or slice
        Which rows of the table before they are.
    orders : dict of str to ndarray of int64
        By peer, the order in which ranks travel; empty if that is the order of the table.
    """

    table: PartyTable
    rows: NDArray[np.int64] | slice
    orders: dict[str, NDArray[np.int64]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Aligner:
    """How a run's records are aligned.

    Attributes
    ----------
    party, run_id : str
    method : str
    words : str
        What must be the same on both sides, for the greeting and for people.
    secret : bytes or None
        For the salted-hash join.
    check : callable
        May refuse the common records; the peers are told so.
    """

    party: str
    run_id: str
    method: str
    words: str
    secret: bytes | None = field(repr=False)
    check: Callable[[PartyTable], None]

    @classmethod
    def of(cls, run: ActiveRun | PassiveRun, schema: TableSchema) -> Aligner:
        """What a run file says; reads the shared secret."""
        secret = read_shared(run.align.secret) if run.align.secret is not None else None
        method = run.align.method_for(run.ids)
        words = f"{method}, duplicates: {run.align.duplicates}, id columns: {len(schema.id_columns)}"
        if secret is not None:
            # Differs where the secrets do; says nothing else about 32 random bytes.
            words += f", secret {hmac.digest(secret, b'opboost fingerprint', 'sha256')[:8].hex()}"
        return cls(
            party=run.party,
            run_id=run.run_id,
            method=method,
            words=words,
            secret=secret,
            check=usable(run, schema),
        )

    def lead(
        self,
        table: PartyTable,
        channels: Sequence[Channel],
        folder: RunFolder,
        log: RunLog,
        *,
        progress: Progress,
    ) -> Aligned:
        """The active party's side."""

        def find(sizes: Sequence[int], terms: Terms) -> Common:
            return find_common(channels, _keys(table), sizes=sizes, terms=terms)

        return self._align(table, channels, folder, log, Role.ACTIVE, find, progress)

    def follow(
        self,
        table: PartyTable,
        channel: Channel,
        folder: RunFolder,
        log: RunLog,
        *,
        progress: Progress,
    ) -> Aligned:
        """A passive party's side."""

        def find(sizes: Sequence[int], terms: Terms) -> Common:
            return be_found(channel, _keys(table), size=sizes[0], terms=terms)

        return self._align(table, [channel], folder, log, Role.PASSIVE, find, progress)

    def _align(
        self,
        table: PartyTable,
        channels: Sequence[Channel],
        folder: RunFolder,
        log: RunLog,
        role: Role,
        find: Callable[[Sequence[int], Terms], Common],
        progress: Progress,
    ) -> Aligned:
        if self.method == "prealigned":
            return Aligned(table, slice(None), {})
        started = time.monotonic()
        with conversation(channels) as phase:
            sizes = self._greet(table, channels, role, phase)
            if self.secret is not None:
                log.step(
                    "hashed ids",
                    "the records are aligned by salted hashes, which is weaker than private set intersection: "
                    "whoever holds the secret and receives the hashes can test any id it can think of",
                )
            phase.enter("aligning the records")
            share = _own_share(folder.path / SHARE_FILE)
            common = find(sizes, Terms(run_id=self.run_id, secret=self.secret, share=share, progress=progress))
            phase.enter("checking the common records")
            aligned = table.take(common.positions)
            self.check(aligned)
        theirs = ", ".join(f"{size} at {channel.peer}" for channel, size in zip(channels, sizes, strict=True))
        log.step(
            "aligned",
            f"{aligned.n_rows} records are common, of {table.n_rows} here and {theirs} ({self.words})",
            n_common=aligned.n_rows,
            n_own=table.n_rows,
            n_theirs=dict(zip([channel.peer for channel in channels], sizes, strict=True)),
            seconds_taken=round(time.monotonic() - started, 3),
            sent_bytes=sum(channel.traffic.sent_bytes for channel in channels),
            received_bytes=sum(channel.traffic.received_bytes for channel in channels),
        )
        return Aligned(aligned, common.positions, common.orders)

    def _greet(self, table: PartyTable, channels: Sequence[Channel], role: Role, phase: Phase) -> list[int]:
        """Compare everything but the ids; returns how many ids each peer has."""
        phase.enter("greeting")
        hello = Hello(
            role=role,
            party=self.party,
            run_id=self.run_id,
            task=Task.TRAIN,
            n_rows=table.n_rows,
            id_digest="",
            alignment=self.words,
        )
        return [greet(channel, hello).n_rows for channel in channels]


def training_table(
    run: ActiveRun | PassiveRun, schema: TableSchema, ignore: tuple[str, ...], *, needs_label: bool
) -> PartyTable:
    """Read what a run file names, and refuse at once what could not be trained on."""
    duplicates = run.align.duplicates
    table = read_table(run.data, schema, ignore=ignore, needs_label=needs_label, duplicates=duplicates)
    if run.ids is not None:
        table = select(table, run.ids, run.data)
    usable(run, schema)(table)
    return table


def usable(run: ActiveRun | PassiveRun, schema: TableSchema) -> Callable[[PartyTable], None]:
    """Refuse a table that nothing can be learnt from."""

    def check(table: PartyTable) -> None:
        if run.role == "active" and table.labels is not None and len(np.unique(table.labels)) < 2:
            raise TableError(f"{run.data}: label column {schema.label!r} holds a single value")
        check_varied(table, run.data)

    return check


def _keys(table: PartyTable) -> list[bytes]:
    return [record_id.encode() for record_id in table.ids]


def _own_share(path: Path) -> bytes:
    """The own random bytes for the run: drawn once, so that a repeated run sends in the same order."""
    try:
        if not path.exists():
            partial = path.with_name(f".{path.name}.partial")
            partial.unlink(missing_ok=True)
            with os.fdopen(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
                file.write(secrets.token_hex(SHARE_BYTES))
            partial.replace(path)
        share = bytes.fromhex(path.read_text())
    except OSError as error:
        raise RunFolderError(f"{path} cannot be used: {error.strerror}. Nothing was released") from None
    except ValueError:
        share = b""
    if len(share) != SHARE_BYTES:
        raise RunFolderError(f"{path} is damaged; remove it, or choose another run_id. Nothing was released")
    return share
