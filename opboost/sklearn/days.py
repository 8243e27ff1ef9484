"""Dates and durations: which cells are some, and the days that they count as."""

from __future__ import annotations

from datetime import date, datetime, timedelta
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from opboost.arrays import Values
from opboost.errors import ParameterError

# In seconds: differences in nanoseconds end in the year 2262, before the dates that stand for "never".
_EPOCH, _DAY = pd.Timestamp(0, tz="UTC").as_unit("s"), pd.Timedelta(days=1)

_TIMES = (date, timedelta, np.datetime64, np.timedelta64, pd.Period)
# By pandas' names of what is in a column. Dates may be objects of Python's, as those of Arrow and polars become.
_KINDS = (
    {name: "dates" for name in ("date", "datetime", "datetime64")}
    | {name: "durations" for name in ("timedelta", "timedelta64")}
    | {"period": "periods"}
)


def has_times(cells: pd.Series | NDArray[Any]) -> bool:
    """True if any cell is a date, duration or period, which NumPy would convert to a number of an arbitrary unit."""
    if cells.dtype.kind != "O":
        return cells.dtype.kind in "mM"
    return any(issubclass(kind, _TIMES) for kind in set(map(type, np.asarray(cells).flat)))


def kind_of(column: pd.Series) -> str:
    """Kind that all cells of a column have if they are no categories: dates, durations, periods or numbers."""
    return _KINDS.get(pd.api.types.infer_dtype(column, skipna=True), "numbers")


def days_of(column: pd.Series) -> Values:
    """Days of a column of durations, or since 1970 of one of dates; an empty cell is NaN."""
    if kind_of(column) == "dates":
        return np.asarray((pd.to_datetime(column, utc=True) - _EPOCH) / _DAY, np.float64)
    if column.dtype == object:
        # Python's durations may be longer than those of pandas.
        return np.array([np.nan if pd.isna(cell) else cell / np.timedelta64(1, "D") for cell in column], np.float64)
    # Divided by a duration, long ones would overflow without a word.
    return np.asarray(column.dt.total_seconds() / 86400, np.float64)


def bounds_in_days(bounds: Any) -> Any:
    """Bounds with dates, of which texts are, too, as days since 1970, as in the encoded column; all else as it is."""
    return tuple(map(_in_days, bounds)) if isinstance(bounds, list | tuple) else bounds


def _in_days(bound: Any) -> Any:
    if not isinstance(bound, str | date | np.datetime64):
        return bound
    try:
        moment = pd.Timestamp(datetime.fromisoformat(bound) if isinstance(bound, str) else bound)
    except ValueError:
        raise ParameterError(
            f"the bounds of dates must be dates, as texts such as 2026-01-31; got {bound!r}. Nothing was released"
        ) from None
    return (pd.to_datetime(moment, utc=True) - _EPOCH) / _DAY
