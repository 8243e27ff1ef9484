"""Cells of a data file: texts read as numbers, times, truth values, categories and labels by the schema's table format.

No cell is checked here. A text that cannot be read becomes `UNREADABLE`, which is no number and no category, so that
the checks by the schema count it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd

from opboost.arrays import Mask
from opboost.errors import DataError, UnfitCells, counted
from opboost.preprocess import category_texts, outside_words
from opboost.schema import ColumnSchema, Kind, TableSchema
from opboost.table_format import OTHER, ColumnFormat, TableFormat, plain_word
from opboost.table_format.times import time_in_words
from parties.errors import TableError

UNREADABLE = "?"

_WHOLE = re.compile(r"-?[0-9]+")

# What Parquet files hold as numbers and pandas as objects, of which no text is to be read by the marks of texts.
_NUMBERS_AS_OBJECTS = ("decimal", "boolean")


def read_cells(frame: pd.DataFrame, schema: TableSchema, path: Path) -> pd.DataFrame:
    """Read the cells of a table that holds some of the schema's columns.

    Raises
    ------
    TableError
        If labels are none of two.
    """
    if not schema.format.changes_cells:
        return frame
    read = {name: column_cells(frame[name], schema) for name in schema.names if name in frame.columns}
    for what, name in schema.of_training:
        if name in frame.columns and name == schema.label and schema.format.positive:
            read[name] = _labels(frame[name], schema.format, path)
        elif name in frame.columns:
            read[name] = (without_empty if what == "group" else _numbers)(frame[name], schema.format)
    return frame.assign(**read)


def column_cells(column: pd.Series, schema: TableSchema) -> pd.Series:
    """Read the cells of one of the schema's columns."""
    described = next(candidate for candidate in schema.columns if candidate.name == column.name)
    column_format, form = schema.format.of(described.name), schema.format
    if column_format.unit_s is not None:
        return _times(column, column_format, form)
    if column_format.is_boolean:
        words = {plain_word(word): "true" for word in ("true", *form.true_values)}
        words |= {plain_word(word): "false" for word in ("false", *form.false_values)}
        return _by_text(category_texts(column, ()), form, lambda text: words.get(plain_word(text), UNREADABLE))
    if described.kind is not Kind.NUMERIC:
        return _categories(column, described, form)
    return _numbers(column, form)


@contextmanager
def naming_times(schema: TableSchema) -> Iterator[None]:
    """Word errors about cells of times by their kind and format, which the checks by the schema do not know."""
    try:
        yield
    except UnfitCells as error:
        column_format, name, n, bounds = schema.format.of(error.column), error.column, error.n_cells, error.bounds
        if column_format.unit_s is None:
            raise
        if bounds is not None:
            lower, upper = (time_in_words(bound, column_format.unit_s) for bound in bounds)
            raise DataError(outside_words(name, n, (lower, upper))) from None
        noun = "date" if column_format.kind == "date" else "time"
        are_none = f"{counted(n, 'cell')} {f'is not a {noun}' if n == 1 else f'are not {noun}s'}"
        sentence = (
            f"column {name!r} is a {column_format.kind} by the schema but {are_none} written as {column_format.written}"
        )
        raise DataError(sentence) from None


def named_as_listed(frame: pd.DataFrame, schema: TableSchema) -> pd.DataFrame:
    """A table whose cells are texts for want of types, such as CSV: 3.0 is the category "3", if that alone is listed.

    Programs write whole numbers so where a cell beside them is missing.
    """
    named: dict[str, pd.Series] = {}
    for column in schema.columns:
        meant = {f"{category}.0": category for category in column.categories if _WHOLE.fullmatch(category)}
        meant = {text: category for text, category in meant.items() if text not in column.categories}
        if column.name in frame.columns and (is_meant := frame[column.name].isin(meant)).any():
            # Texts are looked up: `Series.replace` takes a pass for each of them, 39 s for 1,000 among a million cells.
            named[column.name] = frame[column.name].mask(is_meant, frame[column.name].map(meant))
    return frame.assign(**named)


def empty_texts(form: TableFormat) -> set[str]:
    """Texts that mean an empty cell; whole numbers among them also as programs write them beside missing cells."""
    texts = {text.strip() for text in form.na_values}
    whole = {one for text in texts if _WHOLE.fullmatch(one := text.removesuffix(".0"))}
    return texts | whole | {f"{number}.0" for number in whole}


def without_empty(column: pd.Series, form: TableFormat) -> pd.Series:
    """A column whose cells count as they are written, without those of `na_values`."""
    is_empty = category_texts(column, ()).str.strip().isin(empty_texts(form))
    return column.astype(object).mask(is_empty) if is_empty.any() else column


def holds_texts(column: pd.Series) -> bool:
    """Whether cells are texts or objects, so that the marks of a table format count in them."""
    return column.dtype.kind == "O" or isinstance(column.dtype, (pd.StringDtype, pd.CategoricalDtype))


def _by_text(column: pd.Series, form: TableFormat, read: Callable[[str], object]) -> pd.Series:
    """Read every different text once."""
    codes, texts = pd.factorize(column.astype("string"))
    is_empty = empty_texts(form)
    values = [None if text.strip() in is_empty else read(text) for text in texts]
    # A column without any text is not one of numbers: in another file of its folder it may have texts.
    is_number = {type(value) for value in values if value is not None} == {float}
    known = np.array([*values, None], dtype=np.float64 if is_number else object)
    return pd.Series(known[codes], index=column.index, name=column.name, dtype=None if is_number else "object")


# What stands for a mark of thousands: spaces that do not break, and the apostrophe of word processors.
_MARKS = {" ": r"[ \u00a0\u202f]", "'": r"['\u2019]"}


def number_pattern(form: TableFormat) -> re.Pattern[str]:
    """Pattern of a number in a table, with the groups ``sign`` and ``digits``.

    A number with marks of thousands does not begin with 0: 0,582 has a decimal comma.
    """
    symbols = "|".join(re.escape(stripped) for symbol in form.currency if (stripped := symbol.strip())) or "(?!)"
    mark = _MARKS.get(form.thousands, re.escape(form.thousands))
    whole = rf"[1-9][0-9]{{0,2}}(?:{mark}[0-9]{{3}})+|[0-9]+" if form.thousands else "[0-9]+"
    digits = rf"(?:{whole})?(?:{re.escape(form.decimal)}[0-9]*)?(?:[eE][+-]?[0-9]+)?"
    # Possessive: a cell of thousands of spaces would be divided among them in every way.
    gap = rf"\s*+(?:{symbols})?\s*+"
    return re.compile(rf"(?:{symbols})?\s*+(?P<sign>[+-]?){gap}(?P<digits>{digits})\s*+(?:{symbols})?")


def number_reader(form: TableFormat) -> Callable[[str], float | str]:
    """Function that reads a text as a number, or as `UNREADABLE`."""
    return partial(_number, pattern=number_pattern(form), form=form)


def empty_numbers(form: TableFormat) -> set[float]:
    """Numbers that mean an empty cell, by value: how 99.0 is written depends on the other cells of its file."""
    read = number_reader(form)
    infinite = {float(text) for text in form.na_values if re.fullmatch(r"\s*[+-]?inf(inity)?\s*", text, re.IGNORECASE)}
    return infinite | {value for text in form.na_values if isinstance(value := read(text), float)}


def _numbers(column: pd.Series, form: TableFormat) -> pd.Series:
    read, empty = number_reader(form), empty_numbers(form)
    if pd.api.types.infer_dtype(column, skipna=True) in _NUMBERS_AS_OBJECTS:
        # Of truth values, too, a column with and one without a missing cell are of one type.
        column = pd.to_numeric(column).astype(np.float64)
    if not holds_texts(column):
        return column.mask(column.isin(empty)) if empty and column.dtype.kind in "iuf" else column
    return _by_text(column, form, lambda text: None if (value := read(text)) in empty else value)


def _number(text: str, pattern: re.Pattern[str], form: TableFormat) -> float | str:
    found = pattern.fullmatch(text.strip())
    if found is None:
        return UNREADABLE
    digits = re.sub(r"[\s\u2019]", "", found["digits"].replace(form.thousands, "")).replace(form.decimal, ".")
    try:
        return float(found["sign"] + digits)
    except ValueError:
        return UNREADABLE


def times_by(texts: pd.Series, pattern: str) -> pd.Series:
    """Times in UTC by a pattern; NaT where a text is none, or one before the year 1."""
    # By any pattern, pandas takes these two words for the time at which they are read.
    times = pd.to_datetime(texts.mask(texts.isin(("now", "today"))), format=pattern, errors="coerce", utc=True)
    # As ISO 8601, pandas takes -999 for a year, too: such a text is a mark of an empty cell, or a mistake.
    return times.where(times.dt.year >= 1)


def empty_times(column_format: ColumnFormat, form: TableFormat) -> list[pd.Timestamp]:
    """Times that mean an empty cell, by value: how a midnight is written depends on the other cells of its file."""
    texts = pd.Series(form.na_values, dtype="string").str.strip()
    # The shorter forms of ISO 8601, such as years, may be numbers of other columns.
    read = [times_by(texts.where(texts.str.match(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")), "ISO8601")]
    read += [times_by(texts, pattern) for pattern in column_format.patterns]
    return [time for times in read for time in times.dropna()]


def _is_one_of(times: pd.Series, empty: Collection[pd.Timestamp]) -> Mask:
    """Which times are among these; one by one, since a time of the year 9999 is none in nanoseconds."""
    return np.logical_or.reduce([np.zeros(len(times), np.bool_), *((times == one).to_numpy() for one in empty)])


def _times(column: pd.Series, column_format: ColumnFormat, form: TableFormat) -> pd.Series:
    """Times as whole units since 1970."""
    assert column_format.unit_s is not None
    empty = empty_times(column_format, form)
    if column.dtype.kind != "M" and not isinstance(column.dtype, pd.DatetimeTZDtype):
        # Whole numbers become doubles where a cell beside them is missing: 20240531.0 is written 20240531.
        texts = _by_text(category_texts(column, ()), form, str.strip)
        # Dates that a Parquet file holds as such become ISO texts.
        is_typed = pd.api.types.infer_dtype(column, skipna=True) in ("date", "datetime")
        first, *others = (not is_typed and column_format.patterns) or ("ISO8601",)
        times = times_by(texts, first)
        for pattern in others:
            times = times.fillna(times_by(texts, pattern))
    else:
        # Every different time is written once: of a million, that takes seconds.
        numbers, different = pd.factorize(column.dt.tz_localize(None))
        local = pd.Series(different)
        is_written = category_texts(local, ()).str.strip().isin(form.na_values).to_numpy(np.bool_)
        is_empty = is_written | _is_one_of(local, [one.tz_localize(None) for one in empty])
        texts = times = pd.to_datetime(column, utc=True).mask(np.append(is_empty, False)[numbers])
    if (is_empty := _is_one_of(times, empty)).any():
        texts, times = texts.mask(is_empty), times.mask(is_empty)
    seconds = times.dt.tz_localize(None).astype("datetime64[s]").astype("int64")
    units = (seconds // column_format.unit_s).astype(np.float64).where(times.notna())
    return (
        units
        if units.notna().equals(texts.notna())
        else units.astype(object).mask(times.isna() & texts.notna(), UNREADABLE)
    )


def _categories(column: pd.Series, described: ColumnSchema, form: TableFormat) -> pd.Series:
    has_other = form.of(described.name).has_other
    if not (has_other or form.strip or form.ignore_case or form.na_values):
        return column
    listed = {form.words(category): category for category in described.categories}
    texts = category_texts(column, described.categories)
    return _by_text(texts, form, lambda text: listed.get(form.words(text), OTHER if has_other else text))


def other_labels(column: pd.Series, form: TableFormat) -> set[str]:
    """Labels of words, as they count, that `positive` does not list, where whatever else there is means 0."""
    if not form.positive or form.negative:
        return set()
    positive = set(map(plain_word, form.positive))
    read = _by_text(column, form, lambda text: None if (word := plain_word(text)) in positive else word)
    return set(read.dropna())


def check_one_other(where: Path | str, name: str | None, others: Collection[str]) -> None:
    """Refuse several labels that mean 0 and are not listed as such.

    Raises
    ------
    TableError
    """
    if len(others) > 1:
        raise TableError(
            f"{where}: label column {name!r} holds {len(others)} different values beside the `positive` ones; "
            "list those that mean 0 under `negative`"
        )


def _labels(column: pd.Series, form: TableFormat, path: Path) -> pd.Series:
    others = other_labels(column, form)
    check_one_other(path, str(column.name), others)
    known = {plain_word(text): 0.0 for text in form.negative} | dict.fromkeys(others, 0.0)
    known |= {plain_word(text): 1.0 for text in form.positive}
    return _by_text(column, form, lambda text: known.get(plain_word(text), UNREADABLE))
