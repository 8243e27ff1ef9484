"""Pricing of releases: their terms and costs as ledger entries, before anything is charged or drawn."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
from pydantic import JsonValue

from opboost.desensitize import PIECE_ROWS, ColumnMechanism
from opboost.preprocess import EncodedColumn
from opboost.privacy.local import RandomisedResponse
from parties.ledger.costs import Cells, Cost, Unit
from parties.ledger.ledger_lines import ChargedColumn, digest_of, plain
from parties.storage.serialization import mechanism_to_dict
from parties.tables.key_sets import NAME, KeySet


def planned(mechanisms: Sequence[ColumnMechanism], records: KeySet, *, is_secure: bool) -> list[ChargedColumn]:
    """The ledger entries for a release of columns of some records, if none of their cells was drawn before."""
    return [priced(unpriced(mechanism, is_secure=is_secure), records) for mechanism in mechanisms]


def unpriced(mechanism: ColumnMechanism, *, is_secure: bool) -> ChargedColumn:
    """The ledger entry for a release of a column without records: its terms, and the cost to each record."""
    promise, document = mechanism.guarantee(), mechanism_to_dict(mechanism)
    terms: dict[str, JsonValue] = {
        "mechanism": promise.mechanism,
        "law": promise.law,
        "is_secure": is_secure,
        **{name: plain(value) for name, value in promise.parameters.items()},
        "missing_epsilon": plain(promise.missing_epsilon),
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
        records=np.empty(0, NAME),
    )
    # A step says how a promise is stated, and changes no draw.
    described = document["schema"]
    assert isinstance(described, dict)
    described.pop("step", None)
    schema = digest_of([document["name"], described])
    return ChargedColumn(schema=schema, mechanism=digest_of(terms), terms=terms, cost=cost)


def priced(offer: ChargedColumn, records: KeySet) -> ChargedColumn:
    """The entry with these records."""
    return replace(offer, cost=replace(offer.cost, records=records))


def exact_pieces(column: EncodedColumn) -> Iterator[bytes]:
    """The exact codes in pieces of bytes, for digests that do not leave this party."""
    for start in range(0, len(column.codes), PIECE_ROWS):
        piece = slice(start, start + PIECE_ROWS)
        yield exact_bytes(EncodedColumn(column.codes[piece], column.is_missing[piece], 0))


def exact_bytes(column: EncodedColumn) -> bytes:
    """The exact codes as bytes, eight each, a missing cell as -1."""
    return np.where(column.is_missing, -1, column.codes).astype("<i8").tobytes()
