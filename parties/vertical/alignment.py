"""Record alignment before training: both sides agree on a method, find the common records, and keep these alone.

Both tables stay in the order of the ids, so neither a model nor a stored release depends on this run's randomness; only
the ranks on the wire are in the order that both sides made together (`protocols.alignment.private_set_intersection`).

From here on no cell decides whether the run goes on. A peer chooses the common records by the ids that it brings, so a
refusal would reveal something about these records. `parties.vertical.preparation` checks the whole file before.
"""

from __future__ import annotations

import hmac
import secrets
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pydantic import Field, TypeAdapter

from opboost.schema import TableSchema
from parties.config.align_section import Method
from parties.config.vertical import ActiveRun, PassiveRun
from parties.errors import RunFolderError
from parties.progress import Progress, no_progress
from parties.runs.run_log import RunLog
from parties.session.handshake import Phase, conversation, greet, greet_all
from parties.storage.spool import on_disk
from parties.storage.twice_kept import is_kept, read_either, write_twice
from parties.tables.keyed_table import called
from parties.tables.party_table import PartyTable, id_keys
from parties.tables.prepared_ids import check_prepared, prepared_ids
from parties.tables.record_keys import rules_in_words, shared_names
from protocols.alignment.curve_prf import PreparedIds
from protocols.alignment.private_set_intersection import SHARE_BYTES, AlignmentTerms, Common, psi_initiate, psi_respond
from protocols.alignment.random_transfers import load_group
from protocols.alignment.several_keys import CommonByKeys, initiate_by_keys, respond_by_keys
from protocols.messages.vertical import Hello
from protocols.transport.channel import Channel
from protocols.transport.keys import read_shared

SHARE_FILE = "order.share"

_DIGITS = Field(pattern="^[0-9a-f]*$", min_length=2 * SHARE_BYTES, max_length=2 * SHARE_BYTES)
_SHARE = TypeAdapter(Annotated[str, _DIGITS])

Comparison = Common | CommonByKeys


@dataclass(frozen=True, slots=True)
class Aligned:
    """One party's rows of the common records.

    Attributes
    ----------
    table : PartyTable
    orders : dict of str to ndarray of int64
        By peer, the order in which ranks are sent; empty if that is the order of the table.
    held_out : PartyTable, optional
        Records that are not in `table`, to score the model on.
    n_by_key : tuple of int
        Number of records found by each key, if they were compared by keys.
    """

    table: PartyTable
    orders: dict[str, NDArray[np.int64]] = field(default_factory=dict)
    held_out: PartyTable | None = None
    n_by_key: tuple[int, ...] = ()

    def divided(self, trained: NDArray[np.int64], held_out: NDArray[np.int64]) -> Aligned:
        """Divide the records into rows to train on and rows to hold out."""
        is_kept = np.zeros(self.table.n_rows, np.bool_)
        is_kept[trained] = True
        places = np.cumsum(is_kept) - 1
        orders = {peer: places[order[is_kept[order]]] for peer, order in self.orders.items()}
        return Aligned(self.table.take(trained), orders, self.table.take(held_out))


@dataclass(frozen=True, slots=True)
class AlignmentPlace:
    """Run folder, log and progress of an alignment.

    Attributes
    ----------
    folder : Path
        The run folder, which keeps this party's random bytes.
    log : RunLog
    progress : Progress
    started : float
        By the monotonic clock, in seconds.
    """

    folder: Path
    log: RunLog
    progress: Progress = no_progress
    started: float = field(default_factory=time.monotonic)


@dataclass(frozen=True, slots=True, kw_only=True)
class Aligner:
    """Aligns a run's records by one method.

    Attributes
    ----------
    run_id : str
    method : str
    words : str
        Description of the method that must be the same on both sides, for the greeting and for people.
    secret : bytes or None
        Shared key of the salted-hash join.
    prepared : PreparedIds, optional
        This party's prepared ids, if the run file names a file for them.
    """

    run_id: str
    method: Method
    words: str
    secret: bytes | None = field(repr=False)
    prepared: PreparedIds | None = field(default=None, repr=False)

    @classmethod
    def of(cls, run: ActiveRun | PassiveRun, schema: TableSchema, table: PartyTable | None = None) -> Aligner:
        """Make the aligner of a run file: reads the shared secret, and prepares a table's ids if a file keeps them.

        Raises
        ------
        KeyFileError, ConfigError
        RunFolderError
            If no library can be loaded from the directory for temporary files.
        """
        secret = read_shared(run.align.secret) if run.align.secret is not None else None
        method = run.align.method_for(run.ids)
        if method == "psi":
            _check_transfers()
        words = f"{method}, duplicates: {run.align.duplicates}, id columns: {len(schema.id_columns)}"
        if run.align.keys:
            # With keys, each party may make its ids from other columns.
            words = f"{method}, duplicates: {run.align.duplicates}, keys: {rules_in_words(run.align.keys)}"
        if secret is not None:
            # A fingerprint shows whether the secrets differ, and nothing else about 32 random bytes.
            words += f", secret {hmac.digest(secret, b'opboost fingerprint', 'sha256')[:8].hex()}"
        if (path := run.align.prepared) is not None:
            check_prepared(path)
        prepared = None if path is None or table is None else prepared_ids(path, table)
        return cls(run_id=run.run_id, method=method, words=words, secret=secret, prepared=prepared)

    @property
    def is_needed(self) -> bool:
        """Whether the records must be compared with the peers'."""
        return self.method != "prealigned"

    def lead(
        self,
        table: PartyTable,
        channels: Sequence[Channel],
        hellos: Mapping[str, Hello],
        place: AlignmentPlace,
        *,
        accept: Callable[[Aligned], None] = lambda aligned: None,
    ) -> Aligned:
        """Run the active party's side; `hellos` are its greetings by peer.

        `accept` may refuse the outcome by raising, on grounds that both sides know.
        """
        if not self.is_needed:
            return Aligned(table)
        with conversation(channels) as phase:
            phase.enter("greeting")
            theirs = greet_all(channels, hellos)
            sizes = [theirs[channel.peer].n_rows for channel in channels]

            def find(terms: AlignmentTerms) -> Comparison:
                if table.keys:
                    return initiate_by_keys(channels, _encoded_keys(table), sizes=sizes, terms=terms)
                return psi_initiate(channels, id_keys(table), sizes=sizes, terms=terms)

            aligned = self._align(table, find, place, phase, channels)
            accept(aligned)
        self._log(table, aligned, channels, sizes, place)
        return aligned

    def follow(self, table: PartyTable, channel: Channel, hello: Hello, place: AlignmentPlace) -> Aligned:
        """Run a passive party's side."""
        if not self.is_needed:
            return Aligned(table)
        with conversation([channel]) as phase:
            phase.enter("greeting")
            size = greet(channel, hello).n_rows

            def find(terms: AlignmentTerms) -> Comparison:
                if table.keys:
                    return respond_by_keys(channel, _encoded_keys(table), size=size, terms=terms)
                return psi_respond(channel, id_keys(table), size=size, terms=terms)

            aligned = self._align(table, find, place, phase, [channel])
        self._log(table, aligned, [channel], [size], place)
        return aligned

    def _align(
        self,
        table: PartyTable,
        find: Callable[[AlignmentTerms], Comparison],
        place: AlignmentPlace,
        phase: Phase,
        channels: Sequence[Channel],
    ) -> Aligned:
        if self.secret is not None:
            place.log.step(
                "hashed ids",
                "the records are aligned by salted hashes, which is weaker than private set intersection: "
                "whoever holds the secret and receives the hashes can test any id it can think of",
            )
        phase.enter("aligning the records")
        for channel in channels:
            channel.traffic.n_compared += 1
        share = _own_share(place.folder / SHARE_FILE)
        assert self.method != "prealigned"
        terms = AlignmentTerms(
            run_id=self.run_id,
            method=self.method,
            secret=self.secret,
            share=share,
            prepared=self.prepared,
            progress=place.progress,
        )
        with on_disk("ids that are compared"):
            comparison = find(terms)
        phase.enter("checking the common records")
        if isinstance(comparison, Common):
            return Aligned(table.take(comparison.positions), comparison.orders)
        common = comparison.found
        names = pd.Index([name.decode() for name in comparison.names], dtype=object)
        return Aligned(called(table.take(common.positions), names), common.orders, n_by_key=comparison.counts)

    def _log(
        self,
        table: PartyTable,
        aligned: Aligned,
        channels: Sequence[Channel],
        sizes: Sequence[int],
        place: AlignmentPlace,
    ) -> None:
        theirs = {channel.peer: size for channel, size in zip(channels, sizes, strict=True)}
        words = ", ".join(f"{size} at {peer}" for peer, size in theirs.items())
        n_with = [int((key != "").sum()) for key in table.keys]
        by_key = "; ".join(
            f"{n} by key {number}, which {have} of them have"
            for number, (n, have) in enumerate(zip(aligned.n_by_key, n_with, strict=True), 1)
        )
        here = f"{table.n_rows} here" + (f" ({by_key})" if by_key else "")
        place.log.step(
            "aligned",
            f"{aligned.table.n_rows} records are common, of {here} and {words} ({self.words})",
            n_common=aligned.table.n_rows,
            n_by_key=list(aligned.n_by_key),
            n_with_key=n_with,
            n_own=table.n_rows,
            n_theirs=theirs,
            seconds_taken=round(time.monotonic() - place.started, 3),
            sent_bytes=sum(channel.traffic.sent_bytes for channel in channels),
            received_bytes=sum(channel.traffic.received_bytes for channel in channels),
        )


def _encoded_keys(table: PartyTable) -> list[list[bytes]]:
    """The names of a table's records by every key, encoded for private set intersection."""
    return [[name.encode() for name in shared_names(number, key)] for number, key in enumerate(table.keys, 1)]


def _check_transfers() -> None:
    """Refuse, before connecting, a directory for temporary files from which no library can be loaded."""
    try:
        load_group()
    except OSError as error:
        # Not `gettempdir`, which raises where there is none.
        place = tempfile.tempdir or "a temporary folder"
        reason = error.strerror or "its file system may forbid that programs run from it (noexec)"
        raise RunFolderError(
            f"libsodium, which `align.method: psi` needs, cannot be loaded from {place}: {reason}. Name a folder of "
            "another file system in TMPDIR, or let all parties say `psi-dh`. Nothing was sent"
        ) from None


def _own_share(path: Path) -> bytes:
    """Random bytes of this party for the run: drawn once, so that a repeated run sends in the same order."""
    if not is_kept(path):
        write_twice(path, secrets.token_hex(SHARE_BYTES))
    return bytes.fromhex(read_either(path, _SHARE))
