"""Estimators are tested with few fits of noised codes."""

from __future__ import annotations

from tests.support.few_fits import few_fits, few_fits_in_every_test

__all__ = ["few_fits", "few_fits_in_every_test"]
