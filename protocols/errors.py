"""The exceptions of the wire.

::

    ProtocolError
    ├── DecodeError         frames are not a message of this protocol
    │   └── VersionMismatch     they are of another protocol version
    ├── UnexpectedMessage   a message that the sequence does not allow here
    ├── NothingInCommon     the parties' sets of ids do not meet
    ├── PeerLost            the peer is gone, silent or never came
    │   ├── PeerRestarted       it was started again, and knows nothing of the conversation
    │   └── PeerRefused         it has another key than is expected, or expects another one
    ├── PeerAborted         the peer ended the run and said why
    ├── SumRefused          a round of secure aggregation would not be safe, or its parts do not fit
    │   └── TooFewWorkers       fewer than it needs take part
    └── KeyFileError        a key file is absent, malformed or readable by others

Messages name the peer and what was expected; they never contain a value from the data or a key.
"""

from __future__ import annotations

from enum import StrEnum


class Outlook(StrEnum):
    """What the other parties can do when a peer ended the run."""

    # Begun again as it is, the run would end again.
    OVER = "over"
    # The peer may come back once something of its own is mended.
    UNSURE = "unsure"
    # The same command goes on when everybody is there.
    LATER = "later"
    # The peer begins again at once, since another party was started again.
    AGAIN = "again"


class ProtocolError(Exception):
    """Base class of all exceptions of this package."""


class DecodeError(ProtocolError):
    """Frames are not a message of this protocol."""


class VersionMismatch(DecodeError):
    """The peer speaks another version of the protocol."""


class UnexpectedMessage(ProtocolError):
    """A message that the sequence does not allow here."""


class NothingInCommon(ProtocolError):
    """The parties' sets of ids do not meet."""


class PeerLost(ProtocolError):
    """The peer is gone, silent or never came."""


class PeerRestarted(PeerLost):
    """The peer was started again, and knows nothing of the conversation so far."""


class PeerRefused(PeerLost):
    """The peer has another key than is expected, or expects another one."""


class PeerAborted(ProtocolError):
    """The peer ended the run and said why.

    Parameters
    ----------
    sentence : str
    outlook : Outlook
    """

    def __init__(self, sentence: str, outlook: Outlook = Outlook.OVER) -> None:
        super().__init__(sentence)
        self.outlook = outlook


class SumRefused(ProtocolError):
    """A round of secure aggregation would not be safe, or its parts do not fit together."""


class TooFewWorkers(SumRefused):
    """Fewer workers take part than a round of secure aggregation needs."""


class KeyFileError(ProtocolError):
    """A key file is absent, malformed or readable by others."""
