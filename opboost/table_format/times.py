"""Times in words: values and differences of columns that are read as whole units since 1970, for people."""

from __future__ import annotations

import math

import numpy as np

from opboost.errors import counted

# Seconds and names of units, the largest first.
_UNITS = ((86400, "day"), (3600, "hour"), (60, "minute"), (1, "second"))

# What a value may be below a whole number of units by rounding: doubles have steps of 3e-5 at seconds of the year 9999.
_ROUNDING = 1e-4


def time_in_words(value: float, unit_s: int) -> str:
    """The day, minute or second in UTC that a time lies in, such as 2024-05-31 or 2024-05-31 14:30; midnight is a day.

    Parameters
    ----------
    value : float
        Units since 1970-01-01.
    unit_s : int
        Seconds of a unit.
    """
    unit = "D" if unit_s % 86400 == 0 else "m" if unit_s % 60 == 0 else "s"
    # Python's own times end before the bounds of a schema may.
    time = np.datetime64(math.floor(value + _ROUNDING) * unit_s, "s").astype(f"datetime64[{unit}]")
    return str(time).replace("T", " ").removesuffix(" 00:00:00").removesuffix(" 00:00")


def difference_in_words(difference: float, unit_s: int) -> str:
    """A difference of so many units, exactly, and in larger ones where it has such: 50 hours (about 2.08 days)."""
    size, name = next(one for one in _UNITS if unit_s % one[0] == 0)
    own = counted(f"{difference * unit_s / size:,.10g}", name)
    about = rough_difference(difference, unit_s)
    return own if about.endswith((f" {name}", f" {name}s")) else f"{own} (about {about})"


def rough_difference(difference: float, unit_s: int) -> str:
    """A difference of so many units in three digits, in the largest unit that it has one of."""
    seconds = difference * unit_s
    size, name = next((one for one in _UNITS if seconds >= one[0]), _UNITS[-1])
    number = seconds / size
    if 0 < number < 1e-3:
        return f"under 0.001 {name}s"
    return counted(f"{number:,.3g}" if number < 999.5 else f"{number:,.0f}", name)
