"""Errors of the algorithms: one root, which is also what scikit-learn's users expect of a wrong value."""

from __future__ import annotations

import copy
import inspect
import time

import numpy as np
import pytest

from opboost import errors
from opboost.errors import (
    MOST_PAIRS,
    OpBoostError,
    ParameterError,
    UnfitCells,
    check_choice,
    counted,
    is_integer,
    nearest,
    shown,
)


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


def test_an_error_about_cells_says_from_another_process_too_which_they_are() -> None:
    # A copy is made as from a pickle.
    told = copy.copy(UnfitCells("a sentence", column="age", n_cells=3, bounds=(0.0, 9.0)))
    assert (str(told), told.column, told.n_cells, told.bounds) == ("a sentence", "age", 3, (0.0, 9.0))


def test_one_thing_is_told_in_the_singular() -> None:
    assert [counted(n, "cell") for n in (0, 1, "1", "1.5")] == ["0 cells", "1 cell", "1 cell", "1.5 cells"]


def test_a_value_is_shown_in_short_and_on_one_line() -> None:
    assert shown(3) == "3"
    text = shown("k\n" * 5000)
    assert "\n" not in text
    assert len(text) < 500


def test_the_name_that_was_meant_is_told() -> None:
    assert nearest("max_dept", ["eta", "max_depth"]) == "; did you mean 'max_depth'?"
    assert nearest(["x"], ["eta", "max_depth"]) == ""


def test_what_was_meant_is_not_looked_for_among_more_than_a_peer_may_make_us_compare() -> None:
    """Two words of 10,000 letters take a second, and a message has room for thousands."""
    letters = [chr(0x4E00 + k % 300) for k in range(10_000)]
    long = ["".join(letters[k:] + letters[:k]) for k in range(1, 200)]
    began = time.process_time()
    assert nearest("".join(letters), [*long, "max_depth"]) == ""
    assert nearest("max_dept", [*long, "max_depth"]) == "; did you mean 'max_depth'?"
    assert nearest("max_dept", ["max_depth", *map(str, range(MOST_PAIRS))]) == ""
    assert time.process_time() - began < 2


@pytest.mark.parametrize(
    ("choices", "words"), [(("a",), "must be a; got 'x'"), (("a", "b", "c"), "must be a, b or c; got 'x'")]
)
def test_choices_are_listed_however_many_there_are(choices: tuple[str, ...], words: str) -> None:
    with pytest.raises(ParameterError, match=words):
        check_choice("mode", "x", *choices)
