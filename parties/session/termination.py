"""Termination messages: the part of an error that may be sent to the peer. They are made here only.

Two things must not leave with it: what lies on this party's disk, such as the places of files, the names of columns,
what is in their cells or what the ledger holds; and what another peer is or said. So a sentence is passed on as it
stands only if its class is made from what the peers said or agreed on, and if it names no other peer. That the account
refuses, that workers are gone or that somebody stopped the process is told by its kind. Everything else is one
sentence, whatever failed: a peer that could tell a bad cell from a full disk would learn about the cell. The whole
sentence of an error is for this party's own log.
"""

from __future__ import annotations

import re
from collections.abc import Collection

from opboost.errors import RankError
from parties.errors import ChainBroken, Disagreement, LedgerError, Stopped, TreesDiffer, WorkersLost
from protocols.errors import (
    DecodeError,
    NothingInCommon,
    Outlook,
    PeerAborted,
    PeerLost,
    PeerRestarted,
    SumRefused,
    TooFewWorkers,
    UnexpectedMessage,
)

# Made from what came over the wire or was agreed on, never from files.
_ABOUT_THE_TALK = (Disagreement, DecodeError, UnexpectedMessage, NothingInCommon, SumRefused, RankError)

# Of everything else: settings, data, files, a defect.
NO_REASON = "it cannot go on; the reason is in its own log alone"

# Nothing is wrong: somebody is not there.
_PASSING = (PeerAborted, PeerLost, TooFewWorkers, ChainBroken, WorkersLost, Stopped)

_KINDS: tuple[tuple[type[BaseException], str], ...] = (
    (TooFewWorkers, "too few workers are there for a sum. Nothing more was released"),
    (LedgerError, "it keeps account of what it releases, and its account does not allow this. Nothing was released"),
    (WorkersLost, "its workers stopped. What was released before stays as it is"),
    (Stopped, "it was told to stop"),
)


def termination_message(error: BaseException, *, peer: str, others: Collection[str] = ()) -> str:
    """Termination message: the sentence about an error that may be sent to a peer.

    Parameters
    ----------
    error : BaseException
        Why this party stops.
    peer : str
        The receiver.
    others : collection of str
        The other peers of the run.

    Notes
    -----
    Privacy: of an error that is not about the conversation, a peer learns neither sentence nor class.
    """
    match error:
        case PeerAborted() | PeerLost():
            return f"another party left: {type(error).__name__}"
        case ChainBroken() | TreesDiffer():
            # Owners of a chain know one another, and which of them is gone or has other trees.
            return str(error)
    for kind, sentence in _KINDS:
        if isinstance(error, kind):
            return sentence
    if not isinstance(error, _ABOUT_THE_TALK):
        return NO_REASON
    return str(error) if not _names(str(error), set(others) - {peer}) else _about_another(error)


def outlook_after(error: BaseException) -> Outlook:
    """The other parties' options after an error of this one: to begin again, later, or not at all."""
    if isinstance(error, PeerRestarted):
        return Outlook.AGAIN
    if isinstance(error, _PASSING):
        return Outlook.LATER
    return Outlook.OVER if isinstance(error, _ABOUT_THE_TALK) else Outlook.UNSURE


def _names(sentence: str, parties: Collection[str]) -> bool:
    """Whether a sentence names one of these parties. Names hold dots, and sentences end with one."""
    return any(re.search(rf"(?<![\w.-]){re.escape(party)}(?![\w-]|\.\w)", sentence) for party in parties)


def _about_another(error: BaseException) -> str:
    if isinstance(error, Disagreement):
        return "another party and this one do not agree. Nothing more was released"
    return "another party did not keep to the protocol"
