"""CSV files, plain or compressed, read as a whole; what would be read as another table than was meant is refused."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import re
from codecs import BOM_UTF8
from collections.abc import Iterable
from pathlib import Path
from typing import Literal
from zipfile import ZipFile

import pandas as pd

from opboost.table_format import TableFormat
from parties.errors import TableError
from parties.tables.data_files import check_names, named

# What divides the cells of a line in the files that are met.
SEPARATORS = ",;\t|"


def read_csv(path: Path, as_text: Iterable[str], form: TableFormat) -> pd.DataFrame:
    """Read a CSV file whose first line names its columns; empty cells are missing, no word like "NA" is.

    Parameters
    ----------
    path : Path
        Its last suffix names the compression, if there is one: .gz, .bz2, .xz, or .zip with one file in it.
    as_text : iterable of str
        Columns whose cells stay texts.
    form : TableFormat
        Separator and encoding.

    Raises
    ------
    TableError
        If it is no text in this encoding, names a column twice, or has rows with more or fewer cells than the header.
    """
    content = text_of(path, form.encoding)
    check_names(path, _header(content, form.sep))
    _check_quotes(path, content, form.sep)
    _check_blank_lines(path, content, form.sep)
    frame = _parse(content, as_text, form.sep)
    if not isinstance(frame.index, pd.RangeIndex) or _has_more_cells(content, form.sep):
        # The first row has more cells than the header, which pandas takes for an index. Empty ones come of separators
        # at the end of lines.
        if frame.index.nlevels > 1 or not frame.iloc[:, -1].isna().all():
            raise TableError(f"{path} has rows with more cells than its header names columns")
        frame = _parse(content, as_text, form.sep, index_col=False)
    # A row with fewer cells always lacks the last one.
    if frame.shape[1] and frame.iloc[:, -1].isna().any() and (short := _short_rows(content, form.sep)):
        lines = f"line{'s' * (len(short) > 1)} {named(short)}"
        raise TableError(f"{path} has {len(short)} rows with fewer cells than its header names columns: {lines}")
    # Spreadsheets leave lines of separators, which are as empty as those without.
    if frame.shape[1] > 1 and frame.iloc[:, 0].isna().any():
        frame = frame.dropna(how="all", ignore_index=True)
    return frame


def text_of(path: Path, encoding: str) -> bytes:
    """The text of a CSV file in UTF-8."""
    content = file_content(path)
    if encoding != "utf-8":
        content = content.decode(encoding).encode()
    if b"\0" in content:
        raise TableError(f"{path} is not a readable table: it is not text in {encoding.upper()}")
    return content


def file_content(path: Path) -> bytes:
    """The bytes of a CSV file, decompressed."""
    match path.suffix.casefold():
        case ".gz":
            return gzip.decompress(path.read_bytes())
        case ".bz2":
            return bz2.decompress(path.read_bytes())
        case ".xz":
            return lzma.decompress(path.read_bytes())
        case ".zip":
            with ZipFile(path) as archive:
                if len(names := archive.namelist()) != 1:
                    raise TableError(f"{path} holds {len(names)} files, where one is needed")
                return archive.read(names[0])
    return path.read_bytes()


def _header(content: bytes, sep: str) -> list[str]:
    first = pd.read_csv(io.BytesIO(content), sep=sep, header=None, nrows=1, dtype=str, keep_default_na=False)
    return first.iloc[0].tolist()


def _check_quotes(path: Path, content: bytes, sep: str) -> None:
    """Refuse a cell of several lines whose closing quote has text behind it: that quote opens a cell of its own.

    The one that begins the cell is closed nowhere, and what stands between them is no cell but the records up to there.
    """
    end = re.escape(sep.encode()) + rb"\r\n"
    quoted = re.compile(rb'(?<![^%b])"((?:[^"]++|"")*+)"([^%b])?' % (end, end))
    text = content.removeprefix(BOM_UTF8)
    for cell in quoted.finditer(text):
        if cell[2] and re.search(rb"[\r\n]", cell[1]):
            line = text[: cell.start() + 1].count(b"\n") + 1
            raise TableError(f"{path} is not a readable table: a quote is not closed in line {line}")


def _check_blank_lines(path: Path, content: bytes, sep: str) -> None:
    """Refuse a row whose first cell is empty after a blank line that ends with a carriage return alone.

    pandas leaves that cell out, so that the others of the row move to the left.
    """
    blank = " \t".replace(sep, "").encode()
    found = re.search(rb"[\r\n][%b]*\r%b" % (blank, re.escape(sep.encode())), content)
    if found:
        raise TableError(
            f"{path} is not a readable table: a blank line that ends with a carriage return alone stands before a row "
            "whose first cell is empty; end all lines alike, or leave blank lines out"
        )


def _has_more_cells(content: bytes, sep: str) -> bool:
    """Whether the first row has more cells than the header; read as text, since even numbers become a plain index."""
    first = pd.read_csv(io.BytesIO(content), sep=sep, nrows=1, dtype=str, keep_default_na=False)
    return not isinstance(first.index, pd.RangeIndex)


def _parse(content: bytes, as_text: Iterable[str], sep: str, index_col: Literal[False] | None = None) -> pd.DataFrame:
    return pd.read_csv(
        io.BytesIO(content),
        sep=sep,
        dtype=dict.fromkeys(as_text, "string"),
        keep_default_na=False,
        na_values=[""],
        index_col=index_col,
        low_memory=False,
    )


def _short_rows(content: bytes, sep: str) -> list[int]:
    """Lines with fewer cells than the first one; pandas fills them up with missing cells. Empty lines do not count."""
    from pyarrow import binary, csv

    short: list[int] = []

    def note(row: csv.InvalidRow) -> str:
        if row.actual_columns < row.expected_columns and row.text.strip():
            short.append(row.number)
        return "skip"

    csv.read_csv(
        io.BytesIO(content),
        read_options=csv.ReadOptions(
            autogenerate_column_names=True, use_threads=False, block_size=min(len(content) + 1, 2**31 - 1)
        ),
        parse_options=csv.ParseOptions(delimiter=sep, newlines_in_values=True, invalid_row_handler=note),
        convert_options=csv.ConvertOptions(include_columns=["f0"], column_types={"f0": binary()}),
    )
    return short
