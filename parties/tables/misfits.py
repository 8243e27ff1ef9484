"""Misfits: cells of a data file that do not fit the schema, shown to the file's owner alone.

What is found becomes notes of the error (`BaseException.add_note`), which are no part of its sentence: they are printed
on the terminal of this party's command and go into no log, report, JSON or message. Cells are masked all the same.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
import pandas as pd

from opboost.errors import DataError
from opboost.preprocess import category_texts
from opboost.schema import ColumnSchema, Kind, TableSchema
from parties.errors import TableError
from parties.tables.cells import column_cells, named_as_listed, naming_times
from parties.tables.csv_files import read_csv, text_of
from parties.tables.data_files import is_stored
from parties.tables.parquet_files import read_stored

# So many cells of a column are shown, and so many characters of each.
SHOWN_CELLS = 3
SHOWN_CHARACTERS = 24

WORD_CURE = "a word for an empty cell? `reader: {na_values: [...]}` names such words"
LABEL_CURE = "a word? `positive:` in the schema names the label that means 1"

# Masked texts of cells that are no numbers, and what may be meant by them. A zero in front stays: 0,999 has a decimal
# comma, and 9,999 may have one.
_CURES = (
    (
        r"\D*9{1,3},999\D*",
        "thousands separators, or a decimal comma? `reader: {thousands: ','}` or `reader: {decimal: ','}` reads them",
    ),
    (
        r"\D*9{1,3}\.999\D*",
        "thousands separators, or a decimal point? `reader: {thousands: '.', decimal: ','}` or "
        "`reader: {decimal: '.'}` reads them",
    ),
    (r"\D*9{1,3}(,999)+(\.9+)?\D*", "thousands separators? `reader: {thousands: ','}` in the schema reads them"),
    (r"\D*9{1,3}(\.999)+(,9+)?\D*", "thousands separators? `reader: {thousands: '.', decimal: ','}` reads them"),
    (r"\D*9{1,3}(['\u2019]999)+(\.9+)?\D*", 'thousands separators? `reader: {thousands: "\'"}` reads them'),
    (r"\D*9{1,3}([ ?]999)+([.,]9+)?\D*", "thousands separators? `reader: {thousands: ' '}` reads them"),
    (r"\D*[09]9*,9+\D*", "a decimal comma? `reader: {decimal: ','}` reads it"),
    (r"[+-]?[09]9*\.9+", "a decimal point? `reader: {decimal: '.'}` reads it"),
    (r"[09]9{0,3}[-./]9{1,2}[-./]9{1,4}.*", "a date? `kind: date`, with a `format` if it is not as 2024-05-31"),
    (r"[^\d\s.,+-]{1,3}\s*[-+]?[09.,' ]+", "a currency? `reader: {currency: ...}` passes over it"),
    (r"[-+]?[09.,' ]+[^\d\s.,+-]{1,3}", "a currency or a unit? `reader: {currency: ...}` passes over it"),
    (r"[^09]*", WORD_CURE),
)


@contextmanager
def showing_misfits(path: Path, schema: TableSchema) -> Iterator[None]:
    """Note on an error about cells of a file where the first of them stand, what they look like, and the cure."""
    try:
        with naming_times(schema):
            yield
    except (DataError, TableError) as error:
        # What keeps the cells from being looked at again is that error, or a cell too long for lines to be counted.
        with suppress(DataError, TableError, csv.Error):
            for note in _notes(path, schema, str(error)):
                error.add_note(note)
        raise


def _notes(path: Path, schema: TableSchema, sentence: str) -> Iterator[str]:
    """Notes on the columns that an error's sentence names."""
    columns = [column for column in schema.columns if repr(column.name) in sentence]
    if schema.label is not None and repr(schema.label) in sentence and "label" in sentence:
        columns.append(ColumnSchema(name=schema.label, lower=0, upper=1))
    if not columns:
        return
    frame = _texts(path, schema, [column.name for column in columns])
    for column in columns:
        if column.name in frame.columns:
            yield from _notes_on(path, schema, column, frame[column.name])


def _texts(path: Path, schema: TableSchema, names: Sequence[str]) -> pd.DataFrame:
    if is_stored(path):
        return read_stored(path, names)
    header = next(csv.reader(_lines(path, schema), delimiter=schema.format.sep))
    return named_as_listed(read_csv(path, header, schema.format), schema)


def _lines(path: Path, schema: TableSchema) -> io.StringIO:
    return io.StringIO(text_of(path, schema.format.encoding).decode().removeprefix("\ufeff"), newline="")


def _notes_on(path: Path, schema: TableSchema, column: ColumnSchema, texts: pd.Series) -> Iterator[str]:
    is_label = column.name == schema.label
    cells = texts if is_label else column_cells(texts, schema)
    is_number = column.kind is Kind.NUMERIC
    if is_number:
        fits = pd.to_numeric(cells, errors="coerce").notna()
    else:
        fits = category_texts(cells, column.categories).isin(column.categories)
    rows = np.flatnonzero((~fits & cells.notna()).to_numpy())[:SHOWN_CELLS].tolist()
    for place, row in zip(_places(path, schema, rows), rows, strict=True):
        text = str(texts.iloc[row])
        cure = LABEL_CURE if is_label else _cure(text, column, schema)
        yield f"{path.name}, {place}, column {column.name!r}: {masked(text)}: {cure}"


def _places(path: Path, schema: TableSchema, rows: Sequence[int]) -> list[str]:
    """Rows of a Parquet file, lines of a CSV file."""
    if is_stored(path):
        return [f"row {row + 1}" for row in rows]
    reader = csv.reader(_lines(path, schema), delimiter=schema.format.sep)
    lines = [reader.line_num for record in reader if any(record)]
    return [f"line {lines[row + 1]}" for row in rows]


def masked(text: str) -> str:
    """The shape of a cell's text: digits become 9, letters a or A."""
    shape = re.sub(r"\d", "9", text)
    shape = re.sub(r"[^\W\d_]", lambda letter: "A" if letter[0].isupper() else "a", shape)
    shape = "".join(character if character.isprintable() else "?" for character in shape)
    return shape if len(shape) <= SHOWN_CHARACTERS else f"{shape[:SHOWN_CHARACTERS]}…"


def _cure(text: str, column: ColumnSchema, schema: TableSchema) -> str:
    if column.kind is Kind.NUMERIC:
        if (own := schema.format.of(column.name)).unit_s is not None:
            if not re.search(r"\d", text):
                return WORD_CURE
            also = "a list under `format`" if own.patterns else "a `format`"
            return f"not written as {own.written}; {also} in the schema says how else it may be"
        shape = masked(text.strip())
        if re.match(r"\D*0", text.strip()):
            shape = shape.replace("9", "0", 1)
        return next((cure for pattern, cure in _CURES if re.fullmatch(pattern, shape)), "not a number")
    if schema.format.of(column.name).is_boolean:
        return "neither true nor false; `true_values` and `false_values` of the reader list words"
    words = {" ".join(category.split()).casefold() for category in column.categories}
    if " ".join(text.split()).casefold() in words:
        return "spelled otherwise in the schema; `reader: {strip: true, ignore_case: true}` passes over that"
    return "not listed; `other: true` on the column takes such categories in"
