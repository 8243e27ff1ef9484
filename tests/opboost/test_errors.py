"""Errors of the algorithms: one root, which is also what scikit-learn's users expect of a wrong value."""

from __future__ import annotations

import inspect

import numpy as np
import pytest

from opboost import errors
from opboost.errors import OpBoostError, is_integer, shown


def test_every_exception_has_the_root() -> None:
    own = [one for _, one in inspect.getmembers(errors, inspect.isclass) if one.__module__ == errors.__name__]
    raised = [one for one in own if issubclass(one, Exception)]
    assert len(raised) > 3
    assert [one for one in raised if not issubclass(one, OpBoostError)] == []


@pytest.mark.parametrize(
    ("value", "is_one"),
    [(3, True), (np.int32(3), True), (True, False), (np.bool_(True), False), (3.0, False), ("3", False)],
)
def test_a_truth_value_is_no_integer(value: object, is_one: bool) -> None:
    assert is_integer(value) is is_one


def test_a_value_is_shown_in_short_and_on_one_line() -> None:
    assert shown(3) == "3"
    text = shown("k\n" * 5000)
    assert "\n" not in text
    assert len(text) < 500
