"""Dialect of a raw data file: its encoding, separator and marks, found by what reads it."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from opboost.table_format import TableFormat
from parties.errors import TableError
from parties.onboarding.date_formats import are_times, fits, times_of
from parties.onboarding.schema_text import flow
from parties.tables.cells import holds_texts, number_pattern, number_reader
from parties.tables.csv_files import SEPARATORS, file_content, read_csv, text_of
from parties.tables.data_files import is_stored, reporting_faults
from parties.tables.misfits import masked
from parties.tables.parquet_files import read_stored

# Lines that decide on a separator.
SAMPLED_LINES = 100

# Decimal marks and marks of thousands; the first that reads most columns is taken.
_MARKS = ((".", ""), (".", ","), (",", ""), (",", "."), (",", " "), (".", " "), (".", "'"))

_SYMBOLS = ("€", "$", "£", "¥", "₹", "EUR", "USD", "GBP", "CHF", "kr", "zł", "%", "°C", "°F")

# Endings of files that hold tables in other forms.
_OTHER_FORMS = {".xlsx", ".xls", ".ods", ".json", ".jsonl", ".feather", ".dta", ".sav", ".sas7bdat"}

# Texts of fewer records are rare: a draft neither lists them nor counts them.
LEAST_RECORDS = 10

# Different texts, and their share of all cells, beside which a column is still one of numbers or times.
MOST_ODD, SHARE_ODD = 3, 0.1

# Texts that stand for an empty cell.
_EMPTY = {"?", "-", "--", ".", "na", "n/a", "n.a.", "#n/a", "<na>", "nan", "null", "(null)", "\\n"}


@dataclass(frozen=True, slots=True)
class RawTable:
    """A file's columns, whose cells are texts as far as its type allows, and the format that reads most of them.

    Attributes
    ----------
    frame : DataFrame
    format : TableFormat
    rival : TableFormat or None
        A format with another decimal mark that reads as many columns, some of them as other numbers.
    doubtful : frozenset of str
        These columns: nothing in the file tells which of the two formats is meant.
    """

    frame: pd.DataFrame
    format: TableFormat
    rival: TableFormat | None = None
    doubtful: frozenset[str] = frozenset()


def read_raw(path: Path) -> RawTable:
    """Read a CSV or Parquet file without a schema.

    Raises
    ------
    TableError
        If it is no table.
    """
    if path.suffix.casefold() in _OTHER_FORMS:
        raise TableError(f"{path} is no table of text: save it as CSV or Parquet. Nothing was made")
    if is_stored(path):
        frame = read_stored(path)
        return _with_marks(frame, TableFormat())
    with reporting_faults(path):
        encoding = _encoding(file_content(path))
        lines = text_of(path, encoding).decode().removeprefix("\ufeff").splitlines()[:SAMPLED_LINES]
        form = TableFormat(sep=separator(lines), encoding=encoding)
        frame = read_csv(path, _header(path, lines, form.sep), form)
    if frame.empty:
        raise TableError(f"{path} has no rows")
    raw = _with_marks(frame, form)
    texts = {str(name): column.dropna().astype("string").unique() for name, column in frame.items()}
    numbers = [name for name, unique in texts.items() if reads_numbers(unique, raw.format)]
    # Columns may be named after years.
    if reads_numbers(numbers, raw.format) and not all(re.fullmatch(r"(19|20)\d\d", name) for name in numbers):
        raise TableError(f"{path}: the first line seems to be a record: write names above it. Nothing was made")
    return raw


def _header(path: Path, lines: Iterable[str], sep: str) -> list[str]:
    """The names of the columns; refused where a title stands above them."""
    reader = csv.reader(lines, delimiter=sep)
    rows = [(reader.line_num, row) for row in reader if row]
    widths = [len(row) for _, row in rows]
    usual = max(set(widths), key=widths.count)
    is_mark = rows[0][1][0].casefold() == "sep="
    if is_mark or (widths[0] < usual and widths.count(usual) > len(widths) / 2):
        line = rows[1 if is_mark else widths.index(usual)][0]
        raise TableError(f"{path}: the header seems to be line {line}; remove the lines above it. Nothing was made")
    return rows[0][1]


def _encoding(content: bytes) -> str:
    if content[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return "utf-16"
    try:
        content.decode()
    except UnicodeDecodeError:
        return "cp1252"
    return "utf-8"


def separator(lines: Iterable[str]) -> str:
    """The separator that divides most lines into the same number of cells, two or more, and no quoted text."""
    text = "\n".join(lines)

    def evenness(sep: str) -> tuple[float, bool, int]:
        rows = [row for row in csv.reader(io.StringIO(text), delimiter=sep) if row]
        widths = [len(row) for row in rows]
        usual = max(set(widths), key=widths.count, default=1)
        is_whole = not any('"' in cell for row in rows for cell in row)
        return (widths.count(usual) / len(widths) if usual > 1 else 0.0, is_whole, usual)

    return max(SEPARATORS, key=evenness)


def _with_marks(frame: pd.DataFrame, dialect: TableFormat) -> RawTable:
    """The table with the marks in numbers, the symbols of currencies and the words for empty cells that are found."""
    texts = {
        str(name): [str(text).strip() for text in column.dropna().astype("string").unique()]
        for name, column in frame.items()
    }
    present = {name: [text for text in unique if text.casefold() not in _EMPTY] for name, unique in texts.items()}
    numbers = {name: unique for name, unique in present.items() if unique and all(map(_has_digits, unique))}
    symbols = tuple(s for s in _SYMBOLS if any(s in text for unique in numbers.values() for text in unique))
    empty = tuple(sorted({text for unique in texts.values() for text in unique if text.casefold() in _EMPTY}))
    dialect = replace(dialect, currency=symbols, na_values=empty)
    forms = [replace(dialect, decimal=decimal, thousands=mark) for decimal, mark in _MARKS]
    read = [{name for name, unique in numbers.items() if reads_numbers(unique, form)} for form in forms]
    most = max(map(len, read))
    (best, best_names), *rivals = ((form, names) for form, names in zip(forms, read, strict=True) if len(names) == most)
    of_texts = {str(name) for name, column in frame.items() if holds_texts(column)}
    for rival, rival_names in rivals:
        unlike = {
            name: numbers[name]
            for name in best_names & rival_names & of_texts
            if _reads_unlike(numbers[name], best, rival)
        }
        if unlike and not any(_shows_thousands(unique, best) for unique in unlike.values()):
            return RawTable(frame, best, rival, frozenset(unlike))
    return RawTable(frame, best)


def _reads_unlike(numbers: Iterable[str], form: TableFormat, rival: TableFormat) -> bool:
    """Whether two formats read one of these as different numbers, such as 1,234."""
    read, read_by_rival = number_reader(form), number_reader(rival)
    return any(read(text) != read_by_rival(text) for text in numbers if re.search("[,.]", text))


def _shows_thousands(numbers: Iterable[str], form: TableFormat) -> bool:
    """Whether 7 beside 1,234 shows that commas are marks of thousands.

    As decimals, all would have three digits behind the comma, as 7,000, or some fewer than three, as 1,5. Files with
    semicolons come from places where decimals have commas: there nothing is shown.
    """
    pattern = number_pattern(form)
    digits = [match["digits"] for text in numbers if (match := pattern.fullmatch(text))]
    whole = [group for group in digits if group.isdigit()]
    is_short = any(group.strip("0") for group in whole) and max(map(len, whole)) <= 3
    return form.sep != ";" and form.thousands == "," and is_short


def reads_numbers(texts: Iterable[str], form: TableFormat) -> bool:
    """Whether all texts are numbers in this format."""
    pattern = number_pattern(form)
    return all((match := pattern.fullmatch(text.strip())) and re.search("[0-9]", match["digits"]) for text in texts)


def why_text(present: pd.Series, form: TableFormat, why: str) -> str:
    """Why a column of texts is left out: its few words among numbers or dates, the shape of an odd cell, or `why`."""
    counts = present.str.strip().value_counts(sort=False)
    texts = pd.Series(counts.index, index=counts.index)
    is_number = texts.map(lambda text: reads_numbers([text], form)).astype(np.bool_)
    is_time = are_times(texts) | fits(texts, "ISO8601")
    for read, is_read in (("numbers", is_number), ("dates", is_time)):
        if _is_few(counts[~is_read], len(present)) and (
            described := {"kind": "numeric"} if read == "numbers" else times_of(texts[is_read])
        ):
            return _but_for(counts.index[~is_read], read, described)
    is_odd = ~(is_number | is_time)
    if is_odd.any() and texts.str.fullmatch(r"[\W\d_]*\d[\W\d_]*").mean() > 0.5:
        return f"neither numbers nor dates throughout: cells such as {masked(texts[is_odd].iloc[0])}"
    return why


def _is_few(counts: pd.Series, n_cells: int) -> bool:
    """Whether texts are few, none of them is rare, and nearly all cells are others."""
    return 1 <= len(counts) <= MOST_ODD and counts.min() >= LEAST_RECORDS and counts.sum() <= SHARE_ODD * n_cells


def _but_for(texts: Iterable[str], read: str, described: Mapping[str, Any]) -> str:
    """Description of a column but for a few texts, which are shown by their shape, and how a schema reads it."""
    shapes = ", ".join(dict.fromkeys(map(masked, texts)))
    return (
        f"{read} but for at most a tenth of the cells, written {shapes}: list such texts under `na_values` of "
        f"`reader`, which reads these cells as empty, and describe the column as {flow(dict(described))} with bounds "
        "and `missing`"
    )


def _has_digits(text: str) -> bool:
    return re.search(r"\d", text) is not None and re.search(r"[^\W\d_]{4}", text) is None
