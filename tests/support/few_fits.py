"""Fewer fits of what lies behind noised codes: two take the paths of five, but for rates from .04 to .1."""

from __future__ import annotations

import pytest

from opboost.fitting import noise_correction


@pytest.fixture
def few_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    """For tests of anything but the fits, whose number is tested in `tests/opboost/fitting`; processes have all."""
    monkeypatch.setattr(noise_correction, "N_FITS", 2)


@pytest.fixture(autouse=True)
def few_fits_in_every_test(few_fits: None) -> None:
    """The same for all tests of a folder, whose `conftest.py` imports this."""
