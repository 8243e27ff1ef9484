"""Errors of a party: one root, one tuple of what is a sentence, and the run file's name before what it says."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest

from opboost.errors import DataError, OpBoostError
from parties import errors
from parties.errors import EXPECTED_ERRORS, ConfigError, LedgerError, OverBudget, PartyError, Stopped, naming
from protocols.errors import ProtocolError


def test_everything_raised_on_purpose_has_one_root_and_is_told_as_a_sentence() -> None:
    own = [one for _, one in inspect.getmembers(errors, inspect.isclass) if one.__module__ == errors.__name__]
    assert {one.__name__ for one in own if not issubclass(one, PartyError)} == {"Stopped"}
    assert issubclass(OverBudget, LedgerError)
    assert set(EXPECTED_ERRORS) == {OpBoostError, PartyError, ProtocolError}
    for one in own:
        assert one.__name__ in (errors.__doc__ or "") or one is Stopped


@pytest.mark.parametrize("signal", [2, 15])
def test_a_signal_ends_the_process_with_its_code_and_nothing_that_goes_on_after_errors_catches_it(signal: int) -> None:
    stopped = Stopped(signal)
    assert stopped.code == 128 + signal
    assert str(stopped) == "this party was told to stop"
    assert not isinstance(stopped, Exception)


@pytest.mark.parametrize("error", [DataError("a fault"), ConfigError("a fault")])
def test_what_a_run_file_says_is_refused_by_its_name(error: Exception) -> None:
    with pytest.raises(ConfigError, match=r"^run\.yaml: a fault$"), naming(Path("run.yaml")):
        raise error


@pytest.mark.parametrize("error", [LedgerError("a fault"), ValueError("a fault")])
def test_other_errors_are_not_blamed_on_the_run_file(error: Exception) -> None:
    with pytest.raises(type(error), match=r"^a fault$"), naming(Path("run.yaml")):
        raise error
