"""Defaults of S-GBDT: within what run files allow, for classes and for numbers."""

from __future__ import annotations

from dataclasses import asdict

import pytest

from opboost.horizontal.sgbdt.defaults import FOR_CLASSES, FOR_NUMBERS, SGBDTDefaults
from parties.config.sgbdt_section import SGBDTSection


@pytest.mark.parametrize("chosen", [FOR_CLASSES, FOR_NUMBERS])
def test_a_run_file_may_say_the_defaults(chosen: SGBDTDefaults) -> None:
    section = SGBDTSection(**asdict(chosen))
    assert {name: getattr(section, name) for name in asdict(chosen)} == asdict(chosen)
