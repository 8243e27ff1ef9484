"""Draw once: take from the store what was drawn before, charge the ledger for the rest, draw it, keep it.

The order is what the promise rests on. Under the store's lock, so that a second start of the same run waits and then
finds the release: look it up; charge what is absent, or be refused; draw; put it into the store; enter its digest into
the ledger; commit the store; only then does anything leave. A crash anywhere loses at most a draw that was paid and
that nobody has seen. The next attempt pays again: nothing is ever drawn twice for one charge.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from pydantic import JsonValue

from opboost.arrays import KeptCodes
from opboost.desensitize import PIECE_ROWS, ColumnMechanism, ReleasedColumn, desensitize
from opboost.preprocess import EncodedColumn
from opboost.privacy.local import RandomisedResponse
from opboost.rng import BitSource
from parties.errors import LedgerError
from parties.ledger.budget import Budget, Cost
from parties.ledger.ledger_lines import Occasion, Release, Reuse, digest_of
from parties.ledger.release_ledger import Ledger
from parties.ledger.release_store import KEY_BYTES, ReleaseStore
from parties.storage.serialization import mechanism_to_dict
from parties.tables.key_sets import KeySet, RecordKeys, distinct, kept_set
from parties.tables.party_table import digest_of_ids
from parties.tables.record_ids import PIECE_IDS, Ids, each_id


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """A party's ledger and store, and on which occasion and terms it releases now.

    Attributes
    ----------
    ledger : Ledger
    store : ReleaseStore
    budget : Budget
    occasion : Occasion
    rng : BitSource
        Draws from seeded bits are charged as if there were no noise: whoever knows the seed can take it off.
    note : callable
        Told, after a release, how many columns or cells were drawn and how many taken from the store.
    """

    ledger: Ledger
    store: ReleaseStore
    budget: Budget
    occasion: Occasion
    rng: BitSource
    note: Callable[[int, int], None] = field(default=lambda drawn, reused: None)

    def columns(
        self,
        mechanisms: Sequence[ColumnMechanism],
        encoded: Sequence[EncodedColumn],
        ids: Ids,
        *,
        may_draw: bool = True,
    ) -> Iterator[ReleasedColumn]:
        """Release whole columns, for training; each is drawn when it is asked for, all are charged before.

        Parameters
        ----------
        mechanisms, encoded : sequences of equal length
        ids : Index of str
            Of the rows, in their order.
        may_draw : bool
            False if this run has released before: then the store must hold every column.

        Raises
        ------
        LedgerError
            Before anything is drawn: over budget, or a store or ledger that cannot be trusted.
        """
        releases = planned(mechanisms, encoded, ids, is_secure=self.rng.is_secure)
        with self.store.changing():
            self.ledger.refresh()
            held = {release.cost.column: self.store.find(release.key) for release in releases}
            stored = {column: charge for column, charge in held.items() if charge is not None}
            for charge in stored.values():
                # What is damaged is refused before anything else is charged.
                self.store.column(charge)
            absent = [release for release in releases if release.cost.column not in stored]
            if absent and not may_draw:
                raise LedgerError(
                    f"this run has released before, and for {len(absent)} of its {len(releases)} columns the store "
                    "holds no release that fits: data, ids, schema or mechanism were changed, or the store was. "
                    "Drawing anew is another release: choose another run_id. Nothing was released"
                )
            reuses = {column: Reuse((charge,), len(ids)) for column, charge in stored.items()}
            new = iter(self.ledger.charge(absent, reuses, self.occasion, self.budget))
            contents = {}
            for mechanism, column in zip(mechanisms, encoded, strict=True):
                name = mechanism.schema.name
                if name in stored:
                    yield _released(mechanism, self.store.column(stored[name]))
                    continue
                number = next(new)
                codes = _codes_of(desensitize(mechanism, column, rng=self.rng.fork(name)))
                contents[number] = self.store.put(number, codes)
                yield _released(mechanism, codes)
            self.ledger.note_stored(contents)
        self.note(len(absent), len(reuses))

    def records(
        self, mechanisms: Sequence[ColumnMechanism], encoded: Sequence[EncodedColumn], ids: Ids
    ) -> list[ReleasedColumn]:
        """Release single records, for prediction: whoever was answered before gets the same answer again.

        Parameters
        ----------
        mechanisms, encoded : sequences of equal length
        ids : Index of str
            Of the rows; one that comes twice is drawn once.

        Raises
        ------
        LedgerError
            As for `columns`.
        """
        with self.store.changing():
            self.ledger.refresh()
            names = list(_digests(ids))
            cells = [self._cells(*pair, ids, names) for pair in zip(mechanisms, encoded, strict=True)]
            reuses = {c.mechanism.schema.name: c.reuse for c in cells if c.found}
            charged = [c.release for c in cells if c.new]
            numbers = iter(self.ledger.charge(charged, reuses, self.occasion, self.budget))
            contents, released = {}, []
            for c in cells:
                codes = {name: code for name, (_, code) in c.found.items()}
                if c.new:
                    number = next(numbers)
                    drawn = _codes_of(desensitize(c.mechanism, c.column, rng=self.rng))
                    contents[number] = self.store.put(number, drawn, family=c.release.family, records=c.new)
                    codes |= zip(c.new, drawn.tolist(), strict=True)
                released.append(_released(c.mechanism, np.array([codes[name] for name in c.names], np.int64)))
            self.ledger.note_stored(contents)
        self.note(sum(len(c.new) for c in cells), sum(len(c.found) for c in cells))
        return released

    def _cells(self, mechanism: ColumnMechanism, column: EncodedColumn, ids: Ids, records: Sequence[bytes]) -> _Cells:
        """Find out which cells of a column were drawn before. A cell is named by its record and its exact code."""
        exact = _exact(column)
        names = [_short(record + exact[8 * i : 8 * i + 8]) for i, record in enumerate(records)]
        offer = _offer(mechanism, is_secure=self.rng.is_secure)
        found = self.store.answers(offer.family, list(dict.fromkeys(names)))
        first = {name: row for row, name in reversed(list(enumerate(names))) if name not in found}
        rows = np.array(sorted(first.values()), dtype=np.int64)
        new = EncodedColumn(column.codes[rows], column.is_missing[rows], 0)
        release = _release(offer, new, _Rows.of(ids[rows]))
        return _Cells(mechanism, names, found, [names[row] for row in rows.tolist()], new, release)


@dataclass(frozen=True, slots=True)
class _Rows:
    """Which records a release is of: keys for the account, and a digest of their ids in order."""

    keys: KeySet
    digest: str

    @classmethod
    def of(cls, ids: Ids) -> _Rows:
        return cls(kept_set(_keys(ids), len(ids)), digest_of_ids(ids))


@dataclass(frozen=True, slots=True)
class _Cells:
    """One column of the records that were asked for: what was drawn before, and what is to be drawn.

    Attributes
    ----------
    mechanism : ColumnMechanism
    names : list of bytes
        Per row that was asked for.
    found : dict
        By name: the charge that paid for the draw, and the code.
    new : list of bytes
        Names of the cells to be drawn, each once.
    column : EncodedColumn
        These cells.
    release : Release
        What drawing them costs.
    """

    mechanism: ColumnMechanism
    names: list[bytes]
    found: dict[bytes, tuple[int, int]]
    new: list[bytes]
    column: EncodedColumn
    release: Release

    @property
    def reuse(self) -> Reuse:
        return Reuse(tuple(sorted({charge for charge, _ in self.found.values()})), len(self.found))


def planned(
    mechanisms: Sequence[ColumnMechanism], encoded: Sequence[EncodedColumn], ids: Ids, *, is_secure: bool
) -> list[Release]:
    """What releasing whole columns would be entered as, and what it would cost; nothing is charged."""
    rows = _Rows.of(ids)
    return [
        _release(_offer(mechanism, is_secure=is_secure), column, rows)
        for mechanism, column in zip(mechanisms, encoded, strict=True)
    ]


def planned_in_parts(
    mechanisms: Sequence[ColumnMechanism],
    data: Sequence[Sequence[str]],
    ids: Sequence[str],
    records: KeySet,
    *,
    is_secure: bool,
) -> list[Release]:
    """As `planned`, of columns that lie in parts and are known by digests; no such release stands for a whole one.

    Parameters
    ----------
    mechanisms : sequence of ColumnMechanism
    data : sequence, one for each column, of sequences of str
        Digests of the exact codes, part by part.
    ids : sequence of str
        Digests of the ids, part by part.
    records : ndarray of uint64
        `record_keys` of all parts, ascending.
    """
    offers = (_offer(mechanism, is_secure=is_secure) for mechanism in mechanisms)
    return [
        replace(offer, data=digest_of(list(parts)), ids=digest_of(list(ids)), cost=replace(offer.cost, records=records))
        for offer, parts in zip(offers, data, strict=True)
    ]


def record_keys(ids: Ids) -> RecordKeys:
    """What the ledger knows records by, each once and ascending."""
    return distinct(np.concatenate([np.empty(0, np.uint64), *_keys(ids)]))


@contextmanager
def open_books(path: Path) -> Iterator[tuple[Ledger, ReleaseStore]]:
    """Open the ledger at `path` and the store beside it, both verified; begin them where neither is there."""
    with Ledger(path) as ledger, ReleaseStore(ledger) as store:
        yield ledger, store


def _offer(mechanism: ColumnMechanism, *, is_secure: bool) -> Release:
    """The release of a column that has no rows yet: its terms, and what each row will cost."""
    promise, document = mechanism.guarantee(), mechanism_to_dict(mechanism)
    terms: dict[str, JsonValue] = {
        "mechanism": promise.mechanism,
        "law": promise.law,
        "is_secure": is_secure,
        **{name: _plain(value) for name, value in promise.parameters.items()},
        "missing_epsilon": _plain(promise.missing_epsilon),
    }
    lower, upper = mechanism.schema.bounds
    is_category = isinstance(mechanism.value, RandomisedResponse)
    epsilon, missing_epsilon = (
        cost if is_secure or cost == 0 else math.inf for cost in (promise.epsilon, promise.missing_epsilon)
    )
    cost = Cost(
        column=mechanism.schema.name,
        epsilon=0.0 if is_category else epsilon,
        category_epsilon=epsilon + missing_epsilon if is_category else missing_epsilon,
        step=0.0 if is_category else (upper - lower) / (mechanism.settings.domain.size - 1),
        records=np.empty(0, np.uint64),
    )
    schema = digest_of([document["name"], document["schema"]])
    return Release(schema=schema, mechanism=digest_of(terms), data="", ids="", terms=terms, cost=cost)


def _release(offer: Release, column: EncodedColumn, rows: _Rows) -> Release:
    data = hashlib.sha256()
    for piece in exact_codes(column):
        data.update(piece)
    return replace(offer, data=data.hexdigest(), ids=rows.digest, cost=replace(offer.cost, records=rows.keys))


def exact_codes(column: EncodedColumn) -> Iterator[bytes]:
    """The exact codes in pieces of bytes, for digests, which stay at home."""
    for start in range(0, len(column.codes), PIECE_ROWS):
        piece = slice(start, start + PIECE_ROWS)
        yield _exact(EncodedColumn(column.codes[piece], column.is_missing[piece], 0))


def _keys(ids: Ids) -> Iterator[RecordKeys]:
    """The keys of records, in pieces and in the order of the ids."""
    for start in range(0, len(ids), PIECE_IDS):
        digests = _digests(ids[start : start + PIECE_IDS])
        yield np.frombuffer(b"".join(digest[:8] for digest in digests), "<u8").astype(np.uint64, copy=False)


def _digests(ids: Ids) -> Iterator[bytes]:
    return (hashlib.sha256(record_id.encode()).digest() for record_id in each_id(ids))


def _short(name: bytes) -> bytes:
    return hashlib.sha256(name).digest()[:KEY_BYTES]


def _exact(column: EncodedColumn) -> bytes:
    """The exact codes as bytes, eight each, a missing cell as -1."""
    return np.where(column.is_missing, -1, column.codes).astype("<i8").tobytes()


def _codes_of(released: ReleasedColumn) -> KeptCodes:
    """A released column as one array, a missing cell as -1."""
    return np.where(released.is_missing, -1, released.codes)


def _released(mechanism: ColumnMechanism, codes: KeptCodes) -> ReleasedColumn:
    """The inverse of `_codes_of`."""
    is_missing = codes < 0
    return ReleasedColumn(mechanism.schema, np.where(is_missing, 0, codes), is_missing)


def _plain(number: float) -> float | str:
    return "inf" if math.isinf(number) else float(number)
