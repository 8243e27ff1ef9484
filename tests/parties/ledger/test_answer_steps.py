"""Time steps of answers: whatever the work takes, an answer or error ends after whole steps of a public length."""

from __future__ import annotations

import inspect

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parties.errors import OverBudget
from parties.ledger.answer_steps import step_s, whole_steps
from tests.support.false_clock import FalseClock

SIZES = st.integers(2, 20_000), st.integers(1, 200)


def time_taken(n_records: int, n_columns: int, work_s: float) -> float:
    clock = FalseClock()
    with whole_steps(n_records, n_columns, clock=clock, sleep=clock.sleep):
        clock.now += work_s
    return clock.now - 1000.0


@given(*SIZES, st.floats(0.001, 30))
def test_a_block_ends_at_the_first_whole_step_after_its_work(n_records: int, n_columns: int, work_s: float) -> None:
    step, taken = step_s(n_records, n_columns), time_taken(n_records, n_columns, work_s)
    assert taken / step == pytest.approx(round(taken / step), abs=1e-6)
    assert -1e-9 < taken - work_s < step + 1e-9


@given(*SIZES, st.floats(0.01, 0.99), st.floats(0.01, 0.99))
def test_works_within_the_same_step_end_at_the_same_time(
    n_records: int, n_columns: int, first: float, second: float
) -> None:
    step = step_s(n_records, n_columns)
    taken = [time_taken(n_records, n_columns, share * step) for share in (first, second)]
    assert taken == pytest.approx([step, step])


def test_an_error_waits_as_an_answer_does() -> None:
    clock = FalseClock()

    def refuse() -> None:
        clock.now += 0.1
        raise OverBudget("nothing was released")

    with pytest.raises(OverBudget), whole_steps(5, 2, clock=clock, sleep=clock.sleep):
        refuse()
    assert clock.now - 1000.0 == pytest.approx(step_s(5, 2))


def test_a_single_record_does_not_wait() -> None:
    clock = FalseClock()
    with whole_steps(1, 200, clock=clock, sleep=clock.sleep):
        clock.now += 0.1
    assert clock.waits == []


def test_a_step_depends_on_nothing_but_public_numbers() -> None:
    """How many records are asked for and how many columns are tested; no value, name, ledger or state is at hand."""
    assert list(inspect.signature(step_s).parameters) == ["n_records", "n_columns"]
    assert inspect.getclosurevars(step_s).nonlocals == {}
    assert all(isinstance(value, float) for value in inspect.getclosurevars(step_s).globals.values())


@pytest.mark.parametrize(("n_records", "difference_s"), [(200, 0.072), (2000, 0.007), (10_000, 0.12)])
def test_a_step_is_several_times_what_reuse_was_measured_to_add(n_records: int, difference_s: float) -> None:
    assert step_s(n_records, 2) > 2.5 * difference_s
