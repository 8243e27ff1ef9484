"""The exceptions of the wire.

::

    ProtocolError
    ├── DecodeError         frames are not a message of this protocol
    │   └── VersionMismatch     they are of another protocol version
    ├── UnexpectedMessage   a message that the sequence does not allow here
    ├── NothingInCommon     the parties' sets of ids do not meet
    ├── PeerLost            the peer is gone, silent or never came
    │   └── PeerRestarted       it was started again, and knows nothing of the conversation
    ├── PeerAborted         the peer ended the run and said why
    ├── SumRefused          a round of secure aggregation would not be safe, or its parts do not fit
    │   └── TooFewWorkers       fewer than it needs take part
    └── KeyFileError        a key file is absent, malformed or readable by others

Messages name the peer and what was expected; they never contain a value from the data or a key.
"""


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


class PeerAborted(ProtocolError):
    """The peer ended the run and said why."""


class SumRefused(ProtocolError):
    """A round of secure aggregation would not be safe, or its parts do not fit together."""


class TooFewWorkers(SumRefused):
    """Fewer workers take part than a round of secure aggregation needs."""


class KeyFileError(ProtocolError):
    """A key file is absent, malformed or readable by others."""
