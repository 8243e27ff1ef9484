"""Candidates: the verdict is that on the worst attacker, and does not depend on what else is compared."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from opboost.desensitize import ColumnMechanism
from opboost.mechanism_settings import MechanismSettings
from opboost.schema import ColumnSchema
from parties.progress import no_progress
from parties.reports.plan.candidates import PlannedColumn, analyse_all
from parties.reports.plan.choices import MechanismGrid
from parties.reports.sentences import Verdict

SETTINGS = MechanismSettings(epsilon=0.5, domain_size=100)
GRID = MechanismGrid(mechanisms=("global",))


def verdicts(
    features: pd.DataFrame, grid: MechanismGrid = GRID, settings: MechanismSettings = SETTINGS
) -> list[Verdict]:
    schemas = (ColumnSchema(name=str(name), lower=0, upper=99) for name in features)
    columns = [PlannedColumn.read(ColumnMechanism(schema, settings), features, grid) for schema in schemas]
    found = [candidates[0].verdict for candidates in analyse_all(columns, no_progress)]
    assert all(found)
    return [one for one in found if one is not None]


def test_an_attacker_who_knows_the_last_digit_and_sees_the_release_knows_the_number() -> None:
    """The twin: with a last digit of somebody else's, it knows no more than from the release."""
    values = np.random.default_rng(3).integers(0, 100, 2_000)
    number, _ = verdicts(pd.DataFrame({"number": values, "digit": values % 10}))
    assert number.knows_others
    assert number.blind < 0.15 < 0.7 < number.success
    twin, _ = verdicts(pd.DataFrame({"number": values, "digit": values[::-1] % 10}))
    assert twin.success < 0.3
    alone = verdicts(pd.DataFrame({"number": values}))
    assert alone[0].success == pytest.approx(twin.success, abs=0.05)
    few, _ = verdicts(pd.DataFrame({"number": values, "digit": values % 10})[:399])
    assert not few.knows_others


def test_what_else_is_compared_changes_no_verdict() -> None:
    values = np.random.default_rng(3).integers(0, 100, 1_000)
    features = pd.DataFrame({"number": values, "digit": values % 10})
    assert verdicts(features) == verdicts(features, MechanismGrid(epsilons=(0.1, 0.2)))


@pytest.mark.parametrize(("loss_of_two", "word"), [(0.4, "strong"), (2.29, "strong"), (2.31, "weak"), (9.3, "none")])
def test_where_nearly_all_have_one_value_a_release_that_tells_the_others_is_not_strong(
    loss_of_two: float, word: str
) -> None:
    """However many of 100 cases are right, the few who differ are told apart at the odds that are promised."""
    values = np.where(np.arange(2_000) % 50 == 0, np.arange(2_000) % 100, 0)
    settings = MechanismSettings(domain_size=100, epsilon=loss_of_two / 2)
    (found,) = verdicts(pd.DataFrame({"gain": values}), settings=settings)
    assert found.success < found.blind + 0.05
    assert found.person_loss == pytest.approx(loss_of_two)
    assert found.word == word
