"""What was spent, per column and per record: plain sums over the releases that a record is in, and units that hold."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from opboost.desensitize import ColumnMechanism, MechanismSettings
from opboost.preprocess import encode
from opboost.schema import ColumnSchema
from parties.errors import OverBudget
from parties.ledger.budget import Balances, Budget, Cost, Limit


def keys(*numbers: int) -> Any:
    return np.array(sorted(numbers), dtype=np.uint64)


def cost(
    column: str = "spend", *, epsilon: float = 0.1, category: float = 0.0, step: float = 1.0, to: Any = None
) -> Cost:
    records = keys(1, 2, 3) if to is None else to
    return Cost(column=column, epsilon=epsilon, category_epsilon=category, step=step, records=records)


def charged(*costs: Cost) -> Balances:
    balances = Balances()
    for one in costs:
        balances.add(one, one.records.tobytes().hex())
    return balances


CHARGES = st.lists(
    st.tuples(
        st.sampled_from(["age", "town"]),
        st.sets(st.integers(0, 7), min_size=1),
        st.sampled_from([0.0, 0.125, 1.0]),
        st.sampled_from([0.0, 3.0]),
    ),
    max_size=12,
)


@settings(max_examples=100, deadline=None)
@given(charges=CHARGES, n_before=st.integers(0, 12))
def test_a_column_has_spent_what_its_worst_record_has(charges: list[Any], n_before: int) -> None:
    balances = Balances()
    paid: dict[str, np.ndarray] = {"age": np.zeros((8, 2)), "town": np.zeros((8, 2))}
    for i, (column, records, epsilon, category) in enumerate(charges):
        one = cost(column, epsilon=epsilon, category=category, to=keys(*records))
        balances.add(one, str(sorted(records)))
        paid[column][sorted(records)] += (epsilon, category)
        if i == n_before:  # a look in between must not disturb the sums
            balances.worst_record()
    for column, sums in paid.items():
        assert balances.worst(column) == tuple(sums.max(axis=0))
    assert balances.worst_record() == sum(paid.values()).sum(axis=1).max()
    assert balances.n_records == len(set().union(*(records for _, records, _, _ in charges)))


@settings(max_examples=100, deadline=None)
@given(charges=CHARGES, limit=st.sampled_from([0.125, 0.5, 1.0, 3.0, 7.0]))
def test_a_check_refuses_exactly_what_would_exceed_a_limit(charges: list[Any], limit: float) -> None:
    balances, budget = Balances(), Budget(Limit(epsilon=limit), per_record=2 * limit)
    paid = {"age": np.zeros(8), "town": np.zeros(8)}
    total = np.zeros(8)
    for column, records, epsilon, category in charges:
        one, rows = cost(column, epsilon=epsilon, category=category, to=keys(*records)), sorted(records)
        too_much = epsilon > 0 and (paid[column][rows] + epsilon).max() > limit
        if too_much or (total[rows] + epsilon + category).max() > 2 * limit:
            with pytest.raises(OverBudget, match="Nothing was released"):
                balances.check([one], budget)
            continue
        balances.check([one], budget)
        balances.add(one, str(rows))
        paid[column][rows] += epsilon
        total[rows] += epsilon + category


def test_records_that_never_meet_do_not_pay_for_each_other() -> None:
    balances = charged(cost(to=keys(1, 2)), cost(to=keys(3, 4)))
    assert balances.worst("spend") == (0.1, 0.0)
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
        Balances().check([cost(epsilon=math.inf)], budget)
    with pytest.raises(OverBudget, match=r"would have spent inf of 1e\+06"):
        Balances().check([cost(epsilon=math.inf)], Budget(Limit(1e6)))


def test_a_limit_that_was_lowered_does_not_stop_other_columns() -> None:
    charged(cost(epsilon=9)).check([cost("age")], Budget(Limit(1)))


@pytest.mark.parametrize(("first", "second", "paid"), [(10.0, 5.0, 2), (10.0, 3.0, 4), (10.0, 10.0, 1), (3.0, 10.0, 1)])
def test_a_finer_release_pays_for_every_step_in_a_unit_and_a_coarser_one_for_one(
    first: float, second: float, paid: int
) -> None:
    assert charged(cost(step=first)).epsilon_per_unit(cost(step=second)) == pytest.approx(0.1 * paid, rel=1e-12)


@pytest.mark.parametrize("sizes", [(11, 31), (31, 11), (11, 27), (27, 27)])
def test_what_was_spent_bounds_the_exact_loss_of_all_releases_together(sizes: tuple[int, int]) -> None:
    schema = ColumnSchema(name="x", lower=0, upper=10)
    values = pd.Series(np.linspace(0, 10, 301))
    balances, loss = Balances(), np.zeros((301, 301))
    for size in sizes:
        mechanism = ColumnMechanism(schema, MechanismSettings(epsilon=0.3, domain_size=size))
        release = cost("x", epsilon=mechanism.guarantee().epsilon, step=10 / (size - 1))
        per_unit = cost("x", epsilon=balances.epsilon_per_unit(release), step=10 / (sizes[0] - 1))
        balances.add(per_unit, "all")
        log_table = mechanism.value.log_probabilities()  # type: ignore[union-attr]
        rows = log_table[encode(values, schema, domain=mechanism.settings.domain).codes - 1]
        loss += (rows[:, None, :] - rows[None, :, :]).max(axis=2)
    spent, _ = balances.worst("x")
    apart = np.abs(values.to_numpy()[:, None] - values.to_numpy()[None, :])
    n_units = np.ceil(apart * (sizes[0] - 1) / 10 - 1e-9)
    assert (loss <= n_units * spent * (1 + 1e-9) + 1e-12).all()
