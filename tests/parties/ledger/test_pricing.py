"""Pricing: a release costs what its mechanism promises, everything without secure bits, and its name is its terms."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from opboost import desensitize
from opboost.preprocess import EncodedColumn
from opboost.schema import ColumnSchema
from parties.ledger import pricing
from parties.ledger.costs import Cells
from parties.ledger.pricing import exact_bytes, exact_pieces, planned, priced, unpriced
from tests.support.numbered_names import names
from tests.support.released_cells import SCHEMAS, mechanisms

SPEND, VISITS, TOWN = mechanisms()
RECORDS = names(range(5))


@pytest.mark.parametrize("mechanism", [SPEND, VISITS, TOWN], ids=lambda one: one.schema.name)
def test_a_cost_is_that_of_the_guarantee(mechanism: desensitize.ColumnMechanism) -> None:
    promise, (release,) = mechanism.guarantee(), planned([mechanism], RECORDS, is_secure=True)
    assert release.cost.column == mechanism.schema.name
    assert release.cost.records is RECORDS
    if mechanism is TOWN:
        assert (release.cost.loss(9), release.cost.unit) == (0.0, None)
        assert release.cost.category_epsilon == promise.epsilon + promise.missing_epsilon
    else:
        assert release.cost.loss(3) == mechanism.loss(3)
        assert release.cost.category_epsilon == promise.missing_epsilon
        assert release.cost.unit is not None
        assert release.cost.unit.size == mechanism.unit


def test_bits_that_can_be_drawn_again_cost_everything_they_protect() -> None:
    costs = [unpriced(one, is_secure=False).cost for one in (SPEND, VISITS, TOWN)]
    assert [cost.loss(1) for cost in costs] == [math.inf, math.inf, 0.0]
    assert [cost.category_epsilon for cost in costs] == [0.0, math.inf, math.inf]


def test_published_cells_are_part_of_a_cost_where_there_are_any() -> None:
    assert unpriced(SPEND, is_secure=True).cost.cells is None
    (local,) = mechanisms(SCHEMAS[0], mechanism="local", theta=20)
    promise = local.guarantee()
    assert unpriced(local, is_secure=True).cost.cells == Cells(promise.n_cells, promise.narrowest_cell)


def test_a_release_is_another_one_under_other_terms_or_bounds_and_the_same_under_another_step() -> None:
    def family(mechanism: desensitize.ColumnMechanism, *, is_secure: bool = True) -> str:
        return unpriced(mechanism, is_secure=is_secure).family

    def spend(**changes: float) -> str:
        return family(*mechanisms(replace(SCHEMAS[0], **changes)))

    assert spend(step=10) == spend() == family(SPEND)
    others = [spend(upper=101), family(*mechanisms(SCHEMAS[0], epsilon=0.2)), family(SPEND, is_secure=False)]
    other_name = ColumnSchema(name="spent", lower=0, upper=100)
    assert len({family(SPEND), *others, family(*mechanisms(other_name))}) == 5


def test_records_alone_change_when_a_release_is_priced() -> None:
    empty = unpriced(SPEND, is_secure=True)
    full = priced(empty, RECORDS)
    assert (len(empty.cost.records), len(full.cost.records)) == (0, 5)
    assert priced(full, empty.cost.records) == empty


def test_exact_codes_are_the_same_bytes_in_pieces_and_a_missing_cell_is_minus_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pricing, "PIECE_ROWS", 2)
    column = EncodedColumn(np.array([1, 2, 3, 4, 5], np.int8), np.array([False, True, False, False, True]), 0)
    pieces = list(exact_pieces(column))
    assert [len(piece) for piece in pieces] == [16, 16, 8]
    assert b"".join(pieces) == exact_bytes(column) == np.array([1, -1, 3, 4, -1], "<i8").tobytes()
