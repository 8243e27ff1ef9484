"""The plan of a finished run's shop."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from parties.reports.plan.choices import MechanismGrid
from parties.reports.plan.facts import Plan, plan_of


@pytest.fixture(scope="session")
def plan(finished: Any) -> Plan:
    path: Path = finished.shop.write()
    return plan_of(path, MechanismGrid(), wanted_order=(0.9,))
