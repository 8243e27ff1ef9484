"""The exceptions of a party's process.

::

    PartyError
    ├── ConfigError    a run file or schema file is wrong
    ├── TableError     a data file does not fit its schema
    ├── Disagreement   the two sides' settings or records do not match
    └── RunFolderError a run folder cannot be used
"""


class PartyError(Exception):
    """Root of everything this package raises on purpose."""


class ConfigError(PartyError):
    """A run file or schema file is wrong."""


class TableError(PartyError):
    """A data file does not fit its schema."""


class Disagreement(PartyError):
    """The two sides' settings or records do not match."""


class RunFolderError(PartyError):
    """A run folder cannot be used."""
