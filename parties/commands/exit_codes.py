"""Exit codes, by which a supervisor decides what to do next, and the loop of `--retry`.

==== ===============================================================================================================
code meaning
==== ===============================================================================================================
0    done
1    data, settings or a defect: the same command would fail again
2    a wrong command line
3    a peer or an own worker is not there, or left: the same command, started again later, goes on
4    over budget: the ledger's owner decides
5    refused: the parties do not agree, or a peer refused, ended the run or did not keep to the protocol
6    storage: the run folder or the ledger cannot be used, or another process has it
==== ===============================================================================================================

A process that was told to stop ends with 128 and the signal's number.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from enum import IntEnum
from typing import TypeVar

from parties.errors import (
    ChainBroken,
    Disagreement,
    LedgerError,
    OverBudget,
    RecordsRefused,
    RunFolderError,
    Unavailable,
    WorkersLost,
)
from protocols.errors import (
    DecodeError,
    NothingInCommon,
    Outlook,
    PeerAborted,
    PeerLost,
    SumRefused,
    TooFewWorkers,
    UnexpectedMessage,
)

T = TypeVar("T")

# Pause before a job is begun again, and the longest after several.
FIRST_RETRY_S, LAST_RETRY_S = 1.0, 60.0


class ExitCode(IntEnum):
    """How a command ended."""

    DONE = 0
    DATA_OR_SETTINGS = 1
    USAGE = 2
    PEER_ABSENT = 3
    OVER_BUDGET = 4
    REFUSED = 5
    STORAGE = 6


# The first that fits counts.
_CODES: tuple[tuple[tuple[type[Exception], ...], ExitCode], ...] = (
    ((PeerLost, ChainBroken, WorkersLost, Unavailable, TooFewWorkers), ExitCode.PEER_ABSENT),
    ((OverBudget,), ExitCode.OVER_BUDGET),
    ((LedgerError, RunFolderError), ExitCode.STORAGE),
    (
        (PeerAborted, Disagreement, RecordsRefused, DecodeError, UnexpectedMessage, NothingInCommon, SumRefused),
        ExitCode.REFUSED,
    ),
)


def exit_code(error: Exception) -> ExitCode:
    """The exit code of a command that an expected error ended."""
    if isinstance(error, PeerAborted) and error.outlook is Outlook.LATER:
        return ExitCode.PEER_ABSENT
    return next((code for kinds, code in _CODES if isinstance(error, kinds)), ExitCode.DATA_OR_SETTINGS)


def retrying(job: Callable[[], T], *, retry: bool, warn: Callable[[str], None]) -> T:
    """Do a job; with `retry`, begin it again whenever a peer is not there, until it ends in another way."""
    pause_s = FIRST_RETRY_S
    while True:
        try:
            return job()
        except Exception as error:
            if not retry or exit_code(error) is not ExitCode.PEER_ABSENT:
                raise
            warn(f"{error}. The job is begun again in {pause_s:g} s")
        time.sleep(pause_s)
        pause_s = min(2 * pause_s, LAST_RETRY_S)
