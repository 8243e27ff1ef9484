"""Costs: bits of published cells, what is spent per unit, and charges that must be numbers."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parties.errors import LedgerError
from parties.ledger.costs import Cells, Charge, Spent, Unit
from tests.support.numbered_names import names

COSTS = st.floats(0, 1e6)
RECORDS = names(range(3))


@given(st.integers(1, 20))
def test_a_cell_of_two_to_the_n_is_n_bits(n_bits: int) -> None:
    assert Cells(2**n_bits, 1).bits == n_bits


@given(COSTS, COSTS, COSTS, st.integers(0, 1000))
def test_units_multiply_the_epsilon_of_values_alone(epsilon: float, category: float, bits: float, n_units: int) -> None:
    assert Spent(epsilon, category, bits).times(n_units) == (epsilon * n_units, category, bits)


@pytest.mark.parametrize("part", range(3))
@pytest.mark.parametrize("broken", [-1e-9, -math.inf, math.nan])
def test_a_charge_below_zero_or_of_no_number_is_refused(part: int, broken: float) -> None:
    spent = Spent(*(broken if i == part else 0.5 for i in range(3)))
    with pytest.raises(LedgerError, match=r"column 'age' would cost .* at least 0\. Nothing was released"):
        Charge(column="age", spent=spent, unit=Unit(1.0, "1 original unit"), records=RECORDS)


def test_a_charge_may_be_nothing_or_infinite() -> None:
    for spent in (Spent(), Spent(math.inf)):
        assert Charge(column="age", spent=spent, unit=None, records=RECORDS).spent == spent
