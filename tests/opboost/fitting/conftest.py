"""Tests say which of them need no more than few fits of noised codes."""

from __future__ import annotations

from tests.support.few_fits import few_fits

__all__ = ["few_fits"]
