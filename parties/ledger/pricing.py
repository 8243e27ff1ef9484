"""What a release would be entered into the ledger as, and what it would cost; nothing is charged or drawn."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from pydantic import JsonValue

from opboost.desensitize import PIECE_ROWS, ColumnMechanism
from opboost.preprocess import EncodedColumn
from opboost.privacy.local import RandomisedResponse
from parties.ledger.costs import Cells, Cost, Unit
from parties.ledger.ledger_lines import Release, digest_of
from parties.storage.serialization import mechanism_to_dict
from parties.tables.key_sets import KeySet, RecordKeys, distinct, kept_set
from parties.tables.party_table import digest_of_ids
from parties.tables.record_ids import PIECE_IDS, Ids, each_id


@dataclass(frozen=True, slots=True)
class Rows:
    """Which records a release is of: keys for the account, and a digest of their ids in order."""

    keys: KeySet
    digest: str

    @classmethod
    def of(cls, ids: Ids) -> Self:
        """The records with these ids."""
        return cls(kept_set(_keys(ids), len(ids)), digest_of_ids(ids))


def planned(
    mechanisms: Sequence[ColumnMechanism],
    encoded: Sequence[EncodedColumn],
    ids: Ids,
    *,
    is_secure: bool,
    keeps: bool = False,
) -> list[Release]:
    """What releasing whole columns would be entered as, and what it would cost, if nothing was drawn before."""
    rows = Rows.of(ids)
    return [
        priced(unpriced(mechanism, is_secure=is_secure, keeps=keeps), column, rows)
        for mechanism, column in zip(mechanisms, encoded, strict=True)
    ]


def planned_in_parts(
    mechanisms: Sequence[ColumnMechanism],
    data: Sequence[Sequence[str]],
    ids: Sequence[str],
    records: KeySet,
    *,
    is_secure: bool,
    keeps: bool = False,
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
    offers = (unpriced(mechanism, is_secure=is_secure, keeps=keeps) for mechanism in mechanisms)
    return [
        replace(offer, data=digest_of(list(parts)), ids=digest_of(list(ids)), cost=replace(offer.cost, records=records))
        for offer, parts in zip(offers, data, strict=True)
    ]


def record_keys(ids: Ids) -> RecordKeys:
    """What the ledger knows records by, each once and ascending."""
    return distinct(np.concatenate([np.empty(0, np.uint64), *_keys(ids)]))


def unpriced(mechanism: ColumnMechanism, *, is_secure: bool, keeps: bool) -> Release:
    """The release of a column that has no rows yet: its terms, and what each row will cost.

    Draws that are kept whatever becomes of the values are a family of their own.
    """
    promise, document = mechanism.guarantee(), mechanism_to_dict(mechanism)
    terms: dict[str, JsonValue] = {
        "mechanism": promise.mechanism,
        "law": promise.law,
        "is_secure": is_secure,
        **{name: _plain(value) for name, value in promise.parameters.items()},
        "missing_epsilon": _plain(promise.missing_epsilon),
        **({"changed_values": "keep"} if keeps else {}),
    }
    is_category = isinstance(mechanism.value, RandomisedResponse)
    epsilon, missing_epsilon = (
        cost if is_secure or cost == 0 else math.inf for cost in (promise.epsilon, promise.missing_epsilon)
    )
    cost = Cost(
        column=mechanism.schema.name,
        loss=(lambda points: 0.0) if is_category else mechanism.loss if is_secure else (lambda points: math.inf),
        category_epsilon=epsilon + missing_epsilon if is_category else missing_epsilon,
        cells=Cells(promise.n_cells, promise.narrowest_cell) if promise.n_cells > 1 else None,
        point=mechanism.point,
        unit=None if is_category else Unit(mechanism.unit, mechanism.unit_in_words),
        step=mechanism.schema.own_step or 0.0,
        records=np.empty(0, np.uint64),
    )
    # A step says how a promise is stated, and changes no draw.
    described = document["schema"]
    assert isinstance(described, dict)
    described.pop("step", None)
    schema = digest_of([document["name"], described])
    return Release(schema=schema, mechanism=digest_of(terms), data="", ids="", terms=terms, cost=cost)


def priced(offer: Release, column: EncodedColumn, rows: Rows) -> Release:
    """The release of these rows of a column."""
    data = hashlib.sha256()
    for piece in exact_pieces(column):
        data.update(piece)
    return replace(offer, data=data.hexdigest(), ids=rows.digest, cost=replace(offer.cost, records=rows.keys))


def _keys(ids: Ids) -> Iterator[RecordKeys]:
    """The keys of records, in pieces and in the order of the ids."""
    for start in range(0, len(ids), PIECE_IDS):
        digests = id_digests(ids[start : start + PIECE_IDS])
        yield np.frombuffer(b"".join(digest[:8] for digest in digests), "<u8").astype(np.uint64, copy=False)


def id_digests(ids: Ids) -> Iterator[bytes]:
    """What records are known by: the first 8 bytes to the ledger, all 32 to the store."""
    return (hashlib.sha256(record_id.encode()).digest() for record_id in each_id(ids))


def exact_pieces(column: EncodedColumn) -> Iterator[bytes]:
    """The exact codes in pieces of bytes, for digests, which stay at home."""
    for start in range(0, len(column.codes), PIECE_ROWS):
        piece = slice(start, start + PIECE_ROWS)
        yield exact_bytes(EncodedColumn(column.codes[piece], column.is_missing[piece], 0))


def exact_bytes(column: EncodedColumn) -> bytes:
    """The exact codes as bytes, eight each, a missing cell as -1."""
    return np.where(column.is_missing, -1, column.codes).astype("<i8").tobytes()


def _plain(number: float) -> float | str:
    return "inf" if math.isinf(number) else float(number)
