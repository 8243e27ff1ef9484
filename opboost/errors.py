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
