"""Step 1, preprocessing: raw columns to numbers, by the public schema alone.

The passive party's columns become integer codes of the mapped domain (`encode`); the active party keeps its own
columns as they are (`own_features`). Categories that are published as one indicator each are spread only after
they were randomised (`opboost.ranking`).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Protocol

import numpy as np
import pandas as pd

from opboost.arrays import KeptCodes, Mask, Values
from opboost.errors import DataError, UnfitCells, counted
from opboost.privacy.domain import IntegerDomain
from opboost.schema import ColumnSchema, Kind, Missing, Outside

# What a quotient of widths may be above a whole number, relatively, and still be meant to be it.
QUOTIENT_ROUNDING = 1e-12


class Columns(Protocol):
    """Raw columns of equal length, by name; a DataFrame is one."""

    def __len__(self) -> int: ...

    def __getitem__(self, name: str, /) -> pd.Series: ...


@dataclass(frozen=True, slots=True)
class EncodedColumn:
    """Exact codes of one column; nothing in here may leave the party.

    Attributes
    ----------
    codes : ndarray of int64 or, of a column that was read in pieces, of a smaller type, shape (n_rows,)
        Points of the mapped domain; positions in the category list for an unordered column. Where a cell is
        missing, a public code that does not depend on the record.
    is_missing : ndarray of bool, shape (n_rows,)
        All False unless the schema says ``missing: category``.
    n_clipped : int
        Numbers that lay outside the public bounds and were moved to them.
    """

    codes: KeptCodes
    is_missing: Mask
    n_clipped: int


def encode(column: pd.Series, schema: ColumnSchema, *, domain: IntegerDomain) -> EncodedColumn:
    """Map a raw column to integer codes.

    Numbers and positions of ordered categories x become ``ceil(lo + (x - lower) / (upper - lower) * (hi - lo))``,
    clipped to the domain; unordered categories become their position in the public list (spec of OpBoost,
    section "Preprocessing").

    Raises
    ------
    DataError
        If a cell is missing, not a number, not a listed category or outside the bounds where that is refused.
    """
    values, n_clipped = read_numbers(column, schema)
    is_missing = np.isnan(values)
    lower, upper = schema.bounds
    if is_missing.any():
        values = np.where(is_missing, lower, values)
    if schema.kind is Kind.UNORDERED:
        return EncodedColumn(values.astype(np.int64), is_missing, n_clipped)
    steps = values - lower
    steps *= domain.size - 1
    steps /= upper - lower
    # A quotient that should be whole may come out a few ulps above, of its own or of the values that were subtracted,
    # and must not be lifted to the next code. All are lowered alike, so that no two get farther apart than they are.
    of_values = 4 * np.finfo(np.float64).eps * max(abs(lower), abs(upper)) * (domain.size - 1) / (upper - lower)
    steps -= min(QUOTIENT_ROUNDING * domain.size + of_values, 0.5)
    np.ceil(steps, out=steps)
    steps += domain.lo
    return EncodedColumn(domain.clip(steps.astype(np.int64)), is_missing, n_clipped)


def points_within(difference: float, point: float) -> int:
    """Largest distance, in points of this width, of the codes of two values with this difference."""
    return max(1, math.ceil(difference / point * (1 - QUOTIENT_ROUNDING)))


def own_features(table: Columns, schemas: Sequence[ColumnSchema]) -> dict[str, Values]:
    """The active party's columns as tree inputs, by name, with NaN for missing.

    Categories, ordered or not, are their positions in the schema's list. Bounds are not applied: these columns stay
    where they are.
    """
    return {schema.name: read_numbers(table[schema.name], schema, clip=False)[0] for schema in schemas}


def read_numbers(column: pd.Series, schema: ColumnSchema, *, clip: bool = True) -> tuple[Values, int]:
    """A column as float64 with NaN where a cell is missing, and how many numbers were clipped."""
    parse = _parse_numbers if schema.kind is Kind.NUMERIC else _positions
    values = parse(column, schema)
    is_missing = np.isnan(values)
    if is_missing.any():
        if schema.missing is Missing.REFUSE:
            n_missing = counted(int(is_missing.sum()), "missing cell")
            raise DataError(
                f"column {schema.name!r} has {n_missing} (NaN) and the schema says `missing: refuse`; say `category` "
                "or `impute` with a public `fill`. Nothing was released"
            )
        if schema.missing is Missing.IMPUTE:
            values = np.where(is_missing, schema.fill_value, values)
    if schema.kind is not Kind.NUMERIC or not clip:
        return values, 0
    return _within_bounds(values, schema)


def holds_numbers(column: pd.Series) -> bool:
    """Whether a column's type is one of numbers, or of texts that may be read as numbers: no dates or durations."""
    return column.dtype.kind in "biufO" or isinstance(column.dtype, (pd.StringDtype, pd.BooleanDtype))


def _parse_numbers(column: pd.Series, schema: ColumnSchema) -> Values:
    name = schema.name
    if column.dtype == np.float64 and np.isfinite(values := column.to_numpy()).all():
        return values
    if not holds_numbers(column):
        raise DataError(f"column {name!r} is numeric by the schema but holds {column.dtype}")
    try:
        values = pd.to_numeric(column, errors="coerce").to_numpy(dtype=np.float64, na_value=np.nan)
    except (OverflowError, TypeError):
        raise DataError(f"column {name!r} holds cells that are not numbers of double precision") from None
    n_unread = int((np.isnan(values) & column.notna().to_numpy()).sum())
    if n_unread:
        are_none = "is not a number" if n_unread == 1 else "are not numbers"
        sentence = f"column {name!r} is numeric by the schema but {counted(n_unread, 'cell')} {are_none}"
        raise UnfitCells(sentence, column=name, n_cells=n_unread)
    n_infinite = int(np.isinf(values).sum())
    if n_infinite:
        raise DataError(f"column {name!r} has {counted(n_infinite, 'infinite cell')}; only finite numbers are allowed")
    return values


def category_texts(column: pd.Series, categories: Collection[str]) -> pd.Series:
    """A column's cells as texts that can be compared with categories.

    Whole numbers become doubles where a cell beside them is missing, and some programs write them so in JSON: 3.0 is
    the category "3", unless categories are listed with such an ending. A decimal is the number that it is, however many
    digits it is stored with. A time at midnight is its day, whatever times stand beside it. A text stays as it is.
    """
    kind = column.dtype.categories.dtype if isinstance(column.dtype, pd.CategoricalDtype) else column.dtype
    held = pd.api.types.infer_dtype(column, skipna=True) if pd.api.types.is_object_dtype(kind) else ""
    if kind.kind == "M" or held in ("datetime", "datetime64"):
        column = column.astype(object).map(_time_text, na_action="ignore")
    if held == "decimal":
        column = column.astype(object).map(lambda number: _decimal_text(number, categories), na_action="ignore")
    texts = column.astype("string")
    if any(category.endswith(".0") for category in categories):
        return texts
    if kind.kind in "iuf":
        return texts.str.removesuffix(".0")
    if pd.api.types.is_object_dtype(kind) and (is_double := [isinstance(cell, float | np.floating) for cell in column]):
        return texts.mask(np.array(is_double), texts.str.removesuffix(".0"))
    return texts


def _time_text(time: datetime | np.datetime64) -> str:
    moment = pd.Timestamp(time) if isinstance(time, np.datetime64) else time
    return str(moment).removesuffix(" 00:00:00")


def _decimal_text(number: Decimal, categories: Collection[str]) -> str:
    if (text := str(number)) in categories:
        return text
    plain = f"{number:f}"
    return plain.rstrip("0").rstrip(".") if "." in plain else plain


def _positions(column: pd.Series, schema: ColumnSchema) -> Values:
    position = {category: float(index) for index, category in enumerate(schema.categories)}
    labels = category_texts(column, schema.categories)
    values = np.asarray(labels.map(position).to_numpy(dtype=np.float64, na_value=np.nan), dtype=np.float64)
    n_unlisted = int((np.isnan(values) & labels.notna().to_numpy()).sum())
    if n_unlisted:
        raise DataError(
            f"column {schema.name!r} has {counted(n_unlisted, 'cell')} whose category is not among the "
            f"{len(schema.categories)} listed in the schema"
        )
    return values


def _within_bounds(values: Values, schema: ColumnSchema) -> tuple[Values, int]:
    lower, upper = schema.bounds
    if len(values) and lower <= values.min() and values.max() <= upper:
        return values, 0
    n_outside = int(((values < lower) | (values > upper)).sum())
    if n_outside and schema.outside is Outside.REFUSE:
        sentence = outside_words(schema.name, n_outside, (lower, upper))
        raise UnfitCells(sentence, column=schema.name, n_cells=n_outside, bounds=(lower, upper))
    return np.clip(values, lower, upper), n_outside


def outside_words(name: str, n_outside: int, bounds: tuple[object, object]) -> str:
    """Sentence on a column of which values outside its public bounds are refused."""
    return (
        f"column {name!r} has {counted(n_outside, 'value')} outside its public bounds [{bounds[0]}, {bounds[1]}] and "
        "the schema says `outside: refuse`. Nothing was released"
    )
