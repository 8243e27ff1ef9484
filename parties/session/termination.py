"""What a party tells a peer when it has to stop: the one place where such a sentence is made.

Two things must not leave with it: what lies on this party's disk, such as the places of files, the names of columns or
what the ledger holds; and what another peer is or said. So a sentence is passed on as it stands only if its class is
made from what the peers said or agreed on, and if it names no other peer. Everything else is told by its kind alone;
the whole sentence is for this party's own log.
"""

from __future__ import annotations

import re
from collections.abc import Collection

from opboost.errors import DataError, ParameterError, RankError, SchemaError
from parties.errors import (
    ChainBroken,
    ConfigError,
    Disagreement,
    LedgerError,
    RunFolderError,
    Stopped,
    TableError,
    WorkersLost,
)
from protocols.errors import (
    DecodeError,
    NothingInCommon,
    PeerAborted,
    PeerLost,
    SumRefused,
    UnexpectedMessage,
)

# Made from what came over the wire or was agreed on, never from files.
_ABOUT_THE_TALK = (
    Disagreement,
    DecodeError,
    UnexpectedMessage,
    NothingInCommon,
    SumRefused,
    RankError,
)

_KINDS: tuple[tuple[type[BaseException] | tuple[type[BaseException], ...], str], ...] = (
    (
        LedgerError,
        "it keeps account of what it releases, and its account does not allow this. Nothing was released",
    ),
    ((ConfigError, ParameterError, SchemaError), "its own settings do not allow this"),
    ((TableError, DataError), "its own data do not allow this"),
    (RunFolderError, "it cannot use the files in which it keeps the run"),
    (WorkersLost, "its workers stopped. What was released before stays as it is"),
    (Stopped, "it was told to stop"),
)


def last_words(error: BaseException, *, peer: str, others: Collection[str] = ()) -> str:
    """The sentence about an error that a peer may read.

    Parameters
    ----------
    error : BaseException
        Why this party stops.
    peer : str
        Who is told.
    others : collection of str
        The other peers of the run.

    Notes
    -----
    Privacy: a class of errors that is not known here is told by its name alone.
    """
    match error:
        case PeerAborted() | PeerLost():
            return f"another party left: {type(error).__name__}"
        case ChainBroken():
            # Owners of a chain know one another, and which of them is gone.
            return str(error)
        case _ if isinstance(error, _ABOUT_THE_TALK):
            return str(error) if not _names(str(error), set(others) - {peer}) else _about_another(error)
    for kind, sentence in _KINDS:
        if isinstance(error, kind):
            return sentence
    return f"it stopped with {type(error).__name__}"


def _names(sentence: str, parties: Collection[str]) -> bool:
    """Whether one of these stands in the sentence as a word of its own. Names hold dots, and sentences end with one."""
    return any(re.search(rf"(?<![\w.-]){re.escape(party)}(?![\w-]|\.\w)", sentence) for party in parties)


def _about_another(error: BaseException) -> str:
    if isinstance(error, Disagreement):
        return "another party and this one do not agree. Nothing was released"
    return "another party did not keep to the protocol"
