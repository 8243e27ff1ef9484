"""The exceptions of the algorithms.

::

    OpBoostError
    ├── ParameterError   a number or choice given by the caller is not allowed
    ├── SchemaError      the public description of a table is incomplete or contradicts itself
    ├── DataError        the rows do not fit the schema
    ├── AccountError     a release cannot be accounted for, or goes beyond the budget
    ├── RankError        a rank cannot be resolved to a threshold
    └── ModelFileError   a model file is malformed or of an unknown version

All of them are `ValueError` too, as scikit-learn's callers expect. A message names what was found, what is
allowed and where; it never contains a value from the data.
"""

from __future__ import annotations

import reprlib


class OpBoostError(Exception):
    """Root of everything this package raises on purpose."""


class ParameterError(OpBoostError, ValueError):
    """A number or choice given by the caller is not allowed."""


class SchemaError(OpBoostError, ValueError):
    """The public description of a table is incomplete or contradicts itself."""


class DataError(OpBoostError, ValueError):
    """The rows do not fit the schema."""


class AccountError(OpBoostError, ValueError):
    """A release cannot be accounted for, or goes beyond the budget."""


class RankError(OpBoostError, ValueError):
    """A rank cannot be resolved to a threshold."""


class ModelFileError(OpBoostError, ValueError):
    """A model file is malformed or of an unknown version."""


def shown(value: object) -> str:
    """Bounded representation of a value for an error message, on one line."""
    return _SHORT.repr(value)


class _Short(reprlib.Repr):
    """Bounded representations; of a whole number that Python refuses to write out, its length in bits."""

    def __init__(self) -> None:
        super().__init__()
        self.maxlevel, self.maxdict, self.maxlist, self.maxtuple, self.maxset = 2, 4, 4, 4, 4
        self.maxstring, self.maxother = 120, 60

    def repr_int(self, x: int, level: int) -> str:
        return super().repr_int(x, level) if x.bit_length() < 200 else f"a whole number of {x.bit_length()} bits"


_SHORT = _Short()
