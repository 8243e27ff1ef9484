"""What was spent, per column and per record: plain sums over the releases that a record is in, and units that hold."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from opboost.desensitize import ColumnMechanism
from opboost.mechanism_settings import MechanismSettings
from opboost.preprocess import encode
from opboost.privacy.domain import IntegerDomain, Partition
from opboost.schema import ColumnSchema
from parties.errors import LedgerError, OverBudget
from parties.ledger.budget import Budget, Limit, SpentBudgets
from parties.ledger.costs import Cells, Cost, Unit
from tests.support.numbered_names import names


def keys(*numbers: int) -> Any:
    return names(sorted(numbers))


def cost(
    column: str = "spend",
    *,
    epsilon: float = 0.1,
    category: float = 0.0,
    cells: int = 0,
    step: float = 1.0,
    unit: float | None = None,
    to: Any = None,
) -> Cost:
    """A release that loses `epsilon` for every point, each `step` wide; its column's unit is a point, or `unit`."""
    return Cost(
        column=column,
        loss=lambda points: points * epsilon,
        category_epsilon=category,
        cells=Cells(cells, 2) if cells else None,
        point=step,
        unit=Unit(unit or step, "one point") if step else None,
        records=keys(1, 2, 3) if to is None else to,
    )


def add(balances: SpentBudgets, one: Cost) -> None:
    balances.add(balances.charge_of(one), one.records[:].tobytes().hex())


def charged(*costs: Cost) -> SpentBudgets:
    balances = SpentBudgets()
    for one in costs:
        add(balances, one)
    return balances


CHARGES = st.lists(
    st.tuples(
        st.sampled_from(["age", "town"]),
        st.sets(st.integers(0, 7), min_size=1),
        st.sampled_from([0.0, 0.125, 1.0]),
        st.sampled_from([0.0, 3.0]),
        st.sampled_from([0, 2, 8]),
    ),
    max_size=12,
)


@settings(max_examples=100, deadline=None)
@given(charges=CHARGES, n_before=st.integers(0, 12))
def test_a_column_has_spent_what_its_worst_record_has(charges: list[Any], n_before: int) -> None:
    balances = SpentBudgets()
    paid: dict[str, np.ndarray] = {"age": np.zeros((8, 3)), "town": np.zeros((8, 3))}
    for i, (column, records, epsilon, category, cells) in enumerate(charges):
        add(balances, cost(column, epsilon=epsilon, category=category, cells=cells, to=keys(*records)))
        paid[column][sorted(records)] += (epsilon, category, math.log2(cells) if cells else 0)
        if i == n_before:  # a look in between must not disturb the sums
            balances.worst_record()
    for column, sums in paid.items():
        assert balances.worst(column) == tuple(sums.max(axis=0))
    total = sum(paid.values())
    assert balances.worst_record() == (total[:, :2].sum(axis=1).max(), total[:, 2].max())
    assert balances.n_records == len(set().union(*(records for _, records, *_ in charges)))


@settings(max_examples=100, deadline=None)
@given(charges=CHARGES, limit=st.sampled_from([0.125, 0.5, 1.0, 3.0, 7.0]))
def test_a_check_refuses_exactly_what_would_exceed_a_limit(charges: list[Any], limit: float) -> None:
    balances, budget = SpentBudgets(), Budget(Limit(epsilon=limit), per_record=2 * limit)
    paid = {"age": np.zeros(8), "town": np.zeros(8)}
    total = np.zeros(8)
    for column, records, epsilon, category, _ in charges:
        one, rows = cost(column, epsilon=epsilon, category=category, to=keys(*records)), sorted(records)
        too_much = epsilon > 0 and (paid[column][rows] + epsilon).max() > limit
        if too_much or (total[rows] + epsilon + category).max() > 2 * limit:
            with pytest.raises(OverBudget, match="Nothing was released"):
                balances.check([one], budget)
            continue
        balances.check([one], budget)
        add(balances, one)
        paid[column][rows] += epsilon
        total[rows] += epsilon + category


def test_records_that_never_meet_do_not_pay_for_each_other() -> None:
    balances = charged(cost(to=keys(1, 2)), cost(to=keys(3, 4)))
    assert balances.worst("spend") == (0.1, 0.0, 0.0)
    balances.check([cost(to=keys(5, 6))], Budget(Limit(0.1)))
    with pytest.raises(OverBudget, match=r"column 'spend' per unit would have spent 0\.2 of 0\.1"):
        balances.check([cost(to=keys(6, 4))], Budget(Limit(0.1)))


def test_both_kinds_of_epsilon_have_limits_of_their_own_and_every_excess_is_told() -> None:
    balances = charged(cost(category=3.0), cost("town", epsilon=0, category=3.0, step=0))
    budget = Budget(Limit(0.1, 5), {"town": Limit(category_epsilon=6)}, per_record=7)
    with pytest.raises(OverBudget) as refusal:
        balances.check([cost(category=3.0), cost("town", epsilon=0, category=3.0, step=0)], budget)
    assert str(refusal.value) == (
        "over budget: column 'spend' per unit would have spent 0.2 of 0.1; categories of column 'spend' would have "
        "spent 6 of 5; a record over all its columns would have spent 12.2 of 7. Nothing was released"
    )


def test_a_limit_can_be_met_exactly_although_sums_are_rounded() -> None:
    assert 0.1 + 0.1 + 0.1 > 0.3
    charged(cost(), cost()).check([cost()], Budget(Limit(0.3), per_record=0.3))


def test_no_limit_and_an_infinite_one_allow_a_release_without_noise_and_a_finite_one_does_not() -> None:
    for budget in (Budget(), Budget(Limit(math.inf), per_record=math.inf)):
        SpentBudgets().check([cost(epsilon=math.inf)], budget)
    with pytest.raises(OverBudget, match=r"would have spent inf of 1e\+06"):
        SpentBudgets().check([cost(epsilon=math.inf)], Budget(Limit(1e6)))


def test_a_limit_that_was_lowered_does_not_stop_other_columns() -> None:
    charged(cost(epsilon=9)).check([cost("age")], Budget(Limit(1)))


@pytest.mark.parametrize(("first", "second", "paid"), [(10.0, 5.0, 2), (10.0, 3.0, 4), (10.0, 10.0, 1), (3.0, 10.0, 1)])
def test_a_finer_release_pays_for_every_point_in_a_unit_and_a_coarser_one_for_one(
    first: float, second: float, paid: int
) -> None:
    charge = charged(cost(step=first)).charge_of(cost(step=second))
    assert charge.spent.epsilon == pytest.approx(0.1 * paid, rel=1e-12)
    assert charge.points == paid


def test_the_unit_is_the_columns_own_step_whatever_the_first_release_was() -> None:
    balances = charged(cost(step=0.01, unit=1.0))
    assert balances.units["spend"].size == 1.0
    assert balances.worst("spend").epsilon == pytest.approx(10)
    add(balances, cost(step=2.0, unit=1.0))
    assert balances.worst("spend").epsilon == pytest.approx(10.1)
    # What an earlier version began in points stays in points.
    balances = charged(cost(step=0.01))
    add(balances, cost(step=0.01, unit=1.0))
    assert (balances.units["spend"].size, balances.worst("spend").epsilon) == (0.01, pytest.approx(0.2))


@pytest.mark.parametrize(
    "loss", [lambda points: 0.1 * points, lambda points: 0.1 * min(points, 4)], ids=["line", "flat"]
)
def test_a_limit_holds_per_step_of_today_although_the_column_was_charged_by_smaller_ones(loss: Any) -> None:
    """Two values 2.5 apart: what the first release loses over three units, and the second one over three points."""
    one, before, today = replace(cost(), loss=loss), {"spend": 1.0}, {"spend": 2.5}
    balances = charged(one)
    spent = 3 * loss(1) + loss(3)
    for budget in (Budget(Limit(spent)), Budget(per_record=spent)):
        balances.check([one], replace(budget, steps=today))
    for budget in (Budget(Limit(0.999 * spent)), Budget(per_record=0.999 * spent)):
        with pytest.raises(OverBudget, match=rf"would have spent {spent:g} of"):
            balances.check([one], replace(budget, steps=today))
        balances.check([one], replace(budget, steps=before))
    add(balances, one)
    assert balances.worst("spend").epsilon == pytest.approx(2 * loss(1))
    # A smaller step, and columns without one, are limited per unit as ever.
    for steps, more in (({"spend": 0.5}, cost()), ({}, cost(step=2.5))):
        balances.check([more], Budget(Limit(0.3), per_record=0.3, steps=steps))


def test_a_first_release_is_limited_per_step_of_today_although_its_run_knew_a_smaller_one() -> None:
    """As of new records whose values a finished run desensitizes."""
    for limits in (Budget(Limit(0.25)), Budget(per_record=0.25)):
        SpentBudgets().check([cost()], limits)
        with pytest.raises(OverBudget, match=r"would have spent 0\.3 of 0\.25"):
            SpentBudgets().check([cost()], replace(limits, steps={"spend": 2.5}))


def test_a_record_pays_per_step_of_today_for_columns_that_a_release_adds_nothing_to() -> None:
    balances, age = charged(cost()), cost("age")
    for steps, spent in (({}, 0.2), ({"spend": 1.0}, 0.2), ({"spend": 2.5}, 0.4)):
        balances.check([age], Budget(per_record=spent, steps=steps))
        with pytest.raises(OverBudget, match=rf"a record over all its columns would have spent {spent:g} of"):
            balances.check([age], Budget(per_record=0.999 * spent, steps=steps))


@pytest.mark.parametrize("broken", [math.nan, -0.1])
def test_a_cost_that_is_no_number_is_refused_although_nothing_is_limited(broken: float) -> None:
    for one in (cost(epsilon=broken), cost(category=broken)):
        with pytest.raises(LedgerError, match=r"must be a number of at least 0\. Nothing was released"):
            SpentBudgets().check([one], Budget())


MAPS: dict[str, dict[str, Any]] = {
    "clamped": {},
    "exponential": {"law": "exponential"},
    "adj": {"mechanism": "adj", "theta": 4},
    "adj of many cells": {"mechanism": "adj", "theta": 3, "alpha": 5.0, "law": "calibrated"},
}


@pytest.mark.parametrize("own", MAPS.values(), ids=MAPS)
@pytest.mark.parametrize("step", [None, 1.0, 2.5])
@pytest.mark.parametrize("sizes", [(11, 31), (31, 11), (11, 27), (27, 27)])
def test_what_was_spent_bounds_the_exact_loss_of_all_releases_together(
    sizes: tuple[int, int], step: float | None, own: dict[str, Any]
) -> None:
    """By the exact tables of both releases, for all pairs of values; what one spends per point is lost by a pair."""
    schema = ColumnSchema(name="x", lower=0, upper=9.9, step=step)
    values = pd.Series(np.linspace(0, 9.9, 199))
    balances, loss = SpentBudgets(), np.zeros((199, 199))
    apart = np.abs(values.to_numpy()[:, None] - values.to_numpy()[None, :])
    for size in sizes:
        mechanism = ColumnMechanism(schema, MechanismSettings(epsilon=0.3, domain_size=size, **own))
        unit = Unit(mechanism.unit, mechanism.unit_in_words)
        release = replace(cost("x"), loss=mechanism.loss, point=mechanism.point, unit=unit)
        add(balances, release)
        log_table = mechanism.value.log_probabilities()
        rows = log_table[encode(values, schema, domain=mechanism.settings.domain).codes - 1]
        loss += (rows[:, None, :] - rows[None, :, :]).max(axis=2)
        n_units = np.ceil(apart / balances.units["x"].size - 1e-9)
        if step is None and balances.worst("x").epsilon == balances.charge_of(release).spent.epsilon:
            assert loss[n_units == 1].max() == pytest.approx(balances.worst("x").epsilon)
    assert (loss <= n_units * balances.worst("x").epsilon * (1 + 1e-9) + 1e-12).all()


def test_an_adj_map_is_charged_its_loss_over_a_step_and_not_that_of_every_point_in_it() -> None:
    """The twin, so many times the loss between two points, charges three times what is lost."""
    schema = ColumnSchema(name="age", lower=0, upper=198)
    mechanism = ColumnMechanism(schema, MechanismSettings(mechanism="adj", epsilon=0.1, theta=100))
    release = replace(
        cost("age"), loss=mechanism.loss, point=mechanism.point, unit=Unit(mechanism.unit, mechanism.unit_in_words)
    )
    charge = SpentBudgets().charge_of(release)
    assert charge.points == 6
    table = mechanism.value.log_probabilities()
    enumerated = max(float(np.abs(table[t:] - table[: 1000 - t]).max()) for t in range(1, 7))
    assert charge.spent.epsilon == pytest.approx(enumerated)
    assert 6 * mechanism.loss(1) > 3 * charge.spent.epsilon


def test_published_cells_are_an_account_of_their_own() -> None:
    balances = charged(cost(cells=8), cost(cells=4), cost("age", cells=2), cost("town"))
    assert balances.worst("spend") == (pytest.approx(0.2), 0.0, 5.0)
    assert balances.worst_record() == (pytest.approx(0.4), 6.0)
    budget = Budget(Limit(cell_bits=6), {"age": Limit(cell_bits=1)}, cell_bits_per_record=7)
    balances.check([cost(cells=2)], budget)
    with pytest.raises(OverBudget) as refusal:
        balances.check([cost(cells=4), cost("age", cells=2)], budget)
    assert str(refusal.value) == (
        "over budget: cells that a Local-Map publishes of column 'spend', in bits (`cell_bits` allows them), would "
        "have spent 7 of 6; cells that a Local-Map publishes of column 'age', in bits (`cell_bits` allows them), would "
        "have spent 2 of 1; published cells of a record over all its columns, in bits, would have spent 9 of 7. "
        "Nothing was released"
    )


@pytest.mark.parametrize(
    "budget", [Budget(Limit(50)), Budget(per_record=50), Budget(columns={"spend": Limit(category_epsilon=50)})]
)
def test_who_limits_an_epsilon_allows_no_cells_unless_he_says_how_many_bits(budget: Budget) -> None:
    balances = SpentBudgets()
    balances.check([cost()], budget)
    with pytest.raises(OverBudget, match=r"cells that a Local-Map publishes of column 'spend'.* spent 1 of 0"):
        balances.check([cost(cells=2)], budget)
    balances.check([cost(cells=2)], replace(budget, columns={"spend": Limit(cell_bits=1)}))
    balances.check([cost(cells=2)], replace(budget, cell_bits_per_record=1))
    for no_limit in (Budget(), Budget(Limit(math.inf))):
        balances.check([cost(cells=2)], no_limit)


def test_the_best_guess_gains_by_no_more_than_the_bits_of_all_published_cells() -> None:
    """By enumeration, for an attacker who knows nothing but two publications of cells of one of 60 points."""
    domain = IntegerDomain(1, 60)
    first, second = (Partition.of_width(domain, width) for width in (7, 11))
    outcomes = set(zip(first.cell_of(np.arange(60)).tolist(), second.cell_of(np.arange(60)).tolist(), strict=True))
    gain = len(outcomes)  # every outcome lets one value be named for certain: from 1 of 60 to this many of 60
    balances = charged(cost(cells=first.n_cells), cost(cells=second.n_cells))
    assert gain <= 2 ** balances.worst("spend").cell_bits
    assert gain > 2 ** math.log2(first.n_cells)
