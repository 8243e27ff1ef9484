"""A budget refuses what would be over it by a hair, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from parties.errors import OverBudget
from parties.ledger.run_charge import RunBudget

PATH = Path("ledger.sqlite")


def test_a_budget_may_be_spent_to_the_last_and_not_beyond() -> None:
    budget = RunBudget(epsilon=2.0, delta=1e-6)
    budget.check(PATH, (1.5, 5e-7), (0.5, 5e-7))
    RunBudget().check(PATH, (1e300, 1.0), (1e300, 1.0))
    for added, words in (((0.501, 0.0), "epsilon 1.5 was spent"), ((0.0, 6e-7), "delta 5e-07 was spent")):
        with pytest.raises(OverBudget, match=words):
            budget.check(PATH, (1.5, 5e-7), added)
    with pytest.raises(OverBudget):
        budget.check(PATH, (0.0, 0.0), (float("nan"), 0.0))
