"""The exceptions of the algorithms, and the checks of parameters that raise them.

::

    OpBoostError
    ├── ParameterError   a number or choice given by the caller is not allowed
    ├── SchemaError      the public description of a table is incomplete or contradicts itself
    ├── DataError        the rows do not fit the schema
    │   └── UnfitCells   of a column of numbers, cells are none or out of bounds
    ├── AccountError     a release cannot be accounted for, or goes beyond the budget
    ├── RankError        a rank cannot be resolved to a threshold
    └── ModelFileError   a model file is malformed or of an unknown version

All of them are `ValueError` too, as scikit-learn's callers expect. A message names what was found, what is
allowed and where; it never contains a value from the data.
"""

from __future__ import annotations

import math
import reprlib
from collections.abc import Iterable
from itertools import chain
from numbers import Integral, Real
from typing import TypeGuard

# Words that are compared in search of one that was meant. A peer may send millions, and a pair's time grows faster than
# its length.
MOST_PAIRS, LONGEST_WORD = 20_000, 100


class OpBoostError(Exception):
    """Base class of all exceptions of this package."""


class ParameterError(OpBoostError, ValueError):
    """A number or choice given by the caller is not allowed."""


class SchemaError(OpBoostError, ValueError):
    """The public description of a table is incomplete or contradicts itself."""


class DataError(OpBoostError, ValueError):
    """The rows do not fit the schema."""


class UnfitCells(DataError):
    """Cells of a column of numbers are no numbers or, where there are `bounds`, lie outside these.

    Parameters
    ----------
    message : str
    column : str
    n_cells : int
    bounds : tuple of float, optional
    """

    def __init__(
        self, message: str, *, column: str = "", n_cells: int = 0, bounds: tuple[float, float] | None = None
    ) -> None:
        # From another process an error comes with its message alone, and then gets its attributes.
        super().__init__(message)
        self.column, self.n_cells, self.bounds = column, n_cells, bounds


class AccountError(OpBoostError, ValueError):
    """A release cannot be accounted for, or goes beyond the budget."""


class RankError(OpBoostError, ValueError):
    """A rank cannot be resolved to a threshold."""


class ModelFileError(OpBoostError, ValueError):
    """A model file is malformed or of an unknown version."""


def shown(value: object) -> str:
    """Bounded representation of a value for an error message, on one line."""
    return _SHORT.repr(value)


def counted(n: int | str, noun: str) -> str:
    """A number, which may be written already, of things in singular or plural."""
    return f"{n} {noun}{'s' * (str(n) != '1')}"


def nearest(found: str | Iterable[str], known: Iterable[str]) -> str:
    """The names that unknown ones were probably meant to be, to end a sentence with.

    Nothing if none is near, or there are more than `MOST_PAIRS` to compare; words over `LONGEST_WORD` are left out.
    """
    # Loaded when an error is told.
    from difflib import get_close_matches

    by_word = {name.casefold(): str(name) for name in known if len(name) <= LONGEST_WORD}
    words = [word for word in ([found] if isinstance(found, str) else found) if len(word) <= LONGEST_WORD]
    if len(words) * len(by_word) > MOST_PAIRS:
        return ""
    near = (get_close_matches(word.casefold(), by_word, n=2, cutoff=0.65) for word in words)
    close = [repr(by_word[word]) for word in dict.fromkeys(chain.from_iterable(near))]
    return f"; did you mean {' or '.join(close)}?" if close else ""


class _Short(reprlib.Repr):
    """Bounded representations; of a whole number that Python refuses to write out, its length in bits."""

    def __init__(self) -> None:
        super().__init__()
        self.maxlevel, self.maxdict, self.maxlist, self.maxtuple, self.maxset = 2, 4, 4, 4, 4
        self.maxstring, self.maxother = 120, 60

    def repr_int(self, x: int, level: int) -> str:
        return super().repr_int(x, level) if x.bit_length() < 200 else f"a whole number of {x.bit_length()} bits"


_SHORT = _Short()


def is_integer(value: object) -> TypeGuard[int]:
    """Whether a value is an integer of Python or NumPy; truth values are none."""
    return isinstance(value, Integral) and not isinstance(value, bool)


def is_number(value: object) -> TypeGuard[float]:
    """Whether a value is a real number of Python or NumPy; truth values are none."""
    return isinstance(value, Real) and not isinstance(value, bool)


def check_integer(name: str, value: object, *, least: int, most: int | None = None) -> int:
    """Return an integer of at least `least` and at most `most`, or raise ParameterError."""
    if not is_integer(value) or value < least or (most is not None and value > most):
        allowed = f"of at least {least}" if most is None else f"from {least} to {most}"
        raise ParameterError(f"{name} must be an integer {allowed}; got {value!r}")
    return int(value)


def check_positive(name: str, value: object, *, outcome: str = "") -> float:
    """Return a positive finite number, or raise ParameterError; `outcome` says what did not happen."""
    if not is_number(value) or not 0 < value < math.inf:
        raise ParameterError(f"{name} must be positive and finite; got {value!r}{outcome}")
    return float(value)


def check_not_negative(name: str, value: object) -> float:
    """Return a finite number of at least 0, or raise ParameterError."""
    if not is_number(value) or not 0 <= value < math.inf:
        raise ParameterError(f"{name} must be at least 0 and finite; got {value!r}")
    return float(value)


def check_choice(name: str, value: object, *choices: str) -> None:
    """Raise ParameterError unless a value is one of these words."""
    if not isinstance(value, str) or value not in choices:
        listed = " or ".join(filter(None, (", ".join(choices[:-1]), choices[-1])))
        raise ParameterError(f"{name} must be {listed}; got {value!r}")


def check_delta(delta: object) -> float:
    """Return a delta strictly between 0 and 1, or raise ParameterError."""
    if not is_number(delta) or not 0 < delta < 1:
        raise ParameterError(f"delta must lie strictly between 0 and 1; got {delta!r}")
    return float(delta)
