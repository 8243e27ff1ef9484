"""The exceptions of a party's process.

::

    PartyError
    ├── ConfigError       a run file or schema file is wrong
    ├── TableError        a data file does not fit its schema
    ├── Disagreement      the two sides' settings or records do not match
    │   └── TreesDiffer       two owners of a chain have different trees
    ├── ChainBroken       an owner of a chain is gone
    ├── RecordsRefused    a passive party did not answer for all records
    ├── Unavailable       a score cannot be had now, but perhaps later
    ├── RunFolderError    a run folder cannot be used
    ├── WorkersLost       a party's own cluster gave a step up
    └── LedgerError       the ledger or the stored releases cannot be trusted or used
        ├── LedgerBusy    another process holds them
        └── OverBudget    a release would cost more than the owner allows
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar

from opboost.errors import OpBoostError
from protocols.errors import ProtocolError


class PartyError(Exception):
    """Root of everything this package raises on purpose."""


class ConfigError(PartyError):
    """A run file or schema file is wrong."""


class TableError(PartyError):
    """A data file does not fit its schema."""


class Disagreement(PartyError):
    """The two sides' settings or records do not match."""


class TreesDiffer(Disagreement):
    """Two owners of a chain have different trees."""


class ChainBroken(PartyError):
    """An owner of a chain is gone."""


class RecordsRefused(PartyError):
    """A passive party did not answer for all records."""


class Unavailable(PartyError):
    """A score cannot be had now, but perhaps later."""


class RunFolderError(PartyError):
    """A run folder cannot be used."""


class WorkersLost(PartyError):
    """A party's own cluster gave a step up."""


class LedgerError(PartyError):
    """The ledger or the stored releases cannot be trusted or used."""


class LedgerBusy(LedgerError):
    """Another process holds the ledger or the stored releases."""


class OverBudget(LedgerError):
    """A release would cost more than the owner allows."""


class Stopped(SystemExit):
    """The process was stopped by a signal. Not a `PartyError`: code that continues after an error must not catch it.

    Parameters
    ----------
    signal : int

    Attributes
    ----------
    received : int or None
        Class attribute: the signal that stopped this process.
    """

    received: ClassVar[int | None] = None

    def __init__(self, signal: int) -> None:
        super().__init__(128 + signal)

    def __str__(self) -> str:
        return "this party was told to stop"

    @classmethod
    def raise_if_lost(cls) -> None:
        """Raise `Stopped` if a signal came in a callback whose exceptions Python prints and drops."""
        if cls.received is None or sys.exception() is not None:
            return
        if threading.current_thread() is threading.main_thread():
            raise cls(cls.received)


def as_stopped(error: BaseException) -> BaseException:
    """The error, or `Stopped` in a process that was stopped: code in C may replace the exception by another one."""
    is_end = isinstance(error, SystemExit) and not error.code
    return error if Stopped.received is None or is_end or isinstance(error, Stopped) else Stopped(Stopped.received)


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Name the run file in errors about what it says."""
    try:
        yield
    except (OpBoostError, ConfigError) as error:
        raise ConfigError(f"{path}: {error}") from None


def notes_on(error: BaseException) -> list[str]:
    """An error's notes for the person at this party's terminal, which are not part of its message."""
    return list(getattr(error, "__notes__", ()))


# Everything that is reported to the user as one sentence; anything else is a defect and keeps its traceback.
EXPECTED_ERRORS = (OpBoostError, PartyError, ProtocolError)
