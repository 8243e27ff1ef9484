"""The individual filter: nobody pays too little or goes beyond the budget, and each account is the record's own."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from opboost.errors import AccountError, ParameterError
from opboost.privacy.renyi_filter import RenyiFilter

rounds = st.lists(st.lists(st.floats(0, 0.7), min_size=4, max_size=4), min_size=1, max_size=30)


def spending(admit, charges: list[list[float]]) -> list[Fraction]:
    """What every record has paid for the rounds it was admitted to, exactly."""
    spent = [Fraction(0)] * len(charges[0])
    for charge in charges:
        for i, is_admitted in enumerate(admit(np.array(charge))):
            spent[i] += Fraction(charge[i]) if is_admitted else 0
    return spent


@given(rounds, st.floats(0.1, 3.0))
@settings(max_examples=200, deadline=None)
def test_nobody_goes_beyond_the_budget_in_exact_arithmetic(charges, budget):
    accounts = RenyiFilter(4, order=8, budget=budget)
    assert max(spending(accounts.admit, charges)) <= Fraction(budget)


@given(st.integers(1, 1000), st.floats(1e-6, 3.0))
@settings(max_examples=50, deadline=None)
def test_as_many_worst_case_rounds_are_admitted_as_the_budget_was_made_for(n_rounds, charge):
    accounts = RenyiFilter.for_rounds(1, order=8, largest_charge=charge, n_rounds=n_rounds)
    assert n_rounds * charge < accounts.budget < n_rounds * charge * (1 + 2e-9)
    admitted = [bool(accounts.admit(np.array([charge]))[0]) for _ in range(n_rounds + 3)]
    assert admitted == [True] * n_rounds + [False] * 3


def with_a_slack(n_records: int, budget: float):
    """The twin: admits while the account was below the budget before the charge."""
    spent = np.zeros(n_records)

    def admit(charges):
        is_admitted = spent < budget
        spent[is_admitted] += charges[is_admitted]
        return is_admitted

    return admit


def test_admitting_before_the_charge_is_counted_is_caught_by_the_same_sum():
    charges = [[0.3] * 4] * 10
    assert max(spending(RenyiFilter(4, order=8, budget=1.0).admit, charges)) <= 1
    assert max(spending(with_a_slack(4, 1.0), charges)) > 1


@given(rounds, st.lists(st.floats(0, 5), min_size=30, max_size=30))
@settings(max_examples=100, deadline=None)
def test_whether_a_record_is_admitted_depends_on_its_own_charges_alone(charges, others):
    alone, together = RenyiFilter(4, order=8, budget=1.0), RenyiFilter(5, order=8, budget=1.0)
    for charge, other in zip(charges, others, strict=False):
        assert together.admit(np.array([*charge, other]))[:4].tolist() == alone.admit(np.array(charge)).tolist()


def test_a_record_left_out_pays_nothing_and_may_return_with_a_smaller_contribution():
    accounts = RenyiFilter(1, order=8, budget=1.0)
    admitted = [bool(accounts.admit(np.array([charge]))[0]) for charge in (0.75, 0.5, 0.26, 0.2, 0.0)]
    assert admitted == [True, False, False, True, True]


@pytest.mark.parametrize("charge", [-1e-9, math.nan, -math.inf])
def test_a_charge_that_is_negative_or_no_number_is_refused_and_nobody_is_charged(charge):
    accounts = RenyiFilter(2, order=8, budget=1.0)
    with pytest.raises(AccountError, match="nothing was charged"):
        accounts.admit(np.array([0.9, charge]))
    assert accounts.admit(np.array([0.9, 0.9])).tolist() == [True, True]


def test_a_charge_beyond_any_budget_is_not_admitted():
    assert RenyiFilter(2, order=8, budget=1.0).admit(np.array([math.inf, 1e300])).tolist() == [False, False]


def test_a_charge_per_record_is_needed():
    with pytest.raises(AccountError, match="one charge per record"):
        RenyiFilter(2, order=8, budget=1.0).admit(np.array([0.1]))


@pytest.mark.parametrize(("order", "budget"), [(1, 1.0), (2.5, 1.0), (8, 0.0), (8, math.inf), (8, math.nan)])
def test_an_order_or_budget_that_is_none_is_refused(order, budget):
    with pytest.raises(ParameterError):
        RenyiFilter(2, order=order, budget=budget)
